"""The process of one broker of `--brokers N`, as the command sees it."""

import asyncio
import os

from lockstep.broker.multi_process.pipe import Said, encode_said
from lockstep.broker.multi_process.process import BrokerProcess
from lockstep.protocol.bodies.broker import TopicConfig

MADE = TopicConfig("made")


class Running(asyncio.SubprocessTransport):
    """A process that has not been seen to end, with this pipe to its stdin."""

    def __init__(self, pipe: asyncio.WriteTransport) -> None:
        super().__init__()
        self._pipe = pipe

    def get_pipe_transport(self, fd: int) -> asyncio.BaseTransport | None:
        return self._pipe


async def stdin_of(process: BrokerProcess) -> tuple[asyncio.WriteTransport, int]:
    """The command's end of a pipe to the process, and the other end."""
    read, write = os.pipe()
    pipe, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, os.fdopen(write, "wb"))
    process.connection_made(Running(pipe))
    return pipe, read


def new_process() -> BrokerProcess:
    return BrokerProcess("broker-a", lambda process, said: None, lambda process: None)


async def test_a_pipe_ends_before_its_process() -> None:
    """A topic that is made then is said to the other brokers: this one must not stop the round."""
    process = new_process()
    pipe, read = await stdin_of(process)
    process.greet(())
    pipe.abort()
    for _ in range(3):
        await asyncio.sleep(0)
    process.say(Said(topics=(MADE,)))
    os.close(read)


async def test_nothing_is_said_before_the_greeting() -> None:
    """A broker takes the first line for the topics that it begins with."""
    process = new_process()
    pipe, read = await stdin_of(process)
    process.say(Said(topics=(TopicConfig("early"),)))
    process.greet((MADE,))
    pipe.close()
    with os.fdopen(read, "rb") as lines:
        assert await asyncio.to_thread(lines.read) == encode_said(Said(topics=(MADE,)))
