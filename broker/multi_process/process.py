"""The process of one broker of `--brokers N`, as the command sees it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from lockstep.broker.multi_process.pipe import Lines, Said, decode_said, encode_said
from lockstep.broker.multi_process.supervisor import Action
from lockstep.protocol.bodies.broker import TopicConfig

__all__ = ["BrokerProcess"]


class BrokerProcess(asyncio.SubprocessProtocol):
    """A running broker, as the command sees it."""

    def __init__(
        self, name: str, said: Callable[["BrokerProcess", Said], None], died: Callable[["BrokerProcess"], None]
    ) -> None:
        self.name = name
        self._said = said
        self._died = died
        self._lines = Lines()
        self._greeted = False
        self._transport: asyncio.SubprocessTransport | None = None
        self._end: Action | None = None  # came before the process ran
        self.status: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        if self._end is not None:
            self.end(self._end)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        for line in self._lines.feed(data):
            if self.status is None:
                self._said(self, decode_said(line))

    def process_exited(self) -> None:
        assert self._transport is not None
        status = self._transport.get_returncode()
        self.status = -1 if status is None else status
        self._died(self)

    @property
    def pid(self) -> int | None:
        return None if self._transport is None else self._transport.get_pid()

    def greet(self, topics: Sequence[TopicConfig]) -> None:
        """Say what the broker begins with. It expects this first."""
        self._greeted = True
        self.say(Said(topics=tuple(topics)))

    def say(self, said: Said) -> None:
        """To a broker that does not run, or was not greeted, nothing is said: its next greeting has all topics."""
        pipe = None if self._transport is None else self._transport.get_pipe_transport(0)
        if self._greeted and pipe is not None and not pipe.is_closing():
            # The pipe may end before the process.
            cast("asyncio.WriteTransport", pipe).write(encode_said(said))

    def end(self, action: Action) -> None:
        if self._transport is None:
            self._end = action
        elif self.status is None:
            (self._transport.kill if action is Action.KILL else self._transport.terminate)()
