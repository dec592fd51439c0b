"""A RocketMQ broker on a stage that takes batches, and a producer that may send them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from lockstep.client import Message, Producer, ProducerConfig, SendError, SendOutcome, SendResult
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import SendMessageResponseHeader
from lockstep.protocol.messages.batch import decode_batch
from tests.client.producer.send_stage import SEND, header_of, producer_for
from tests.client.stage import TOPIC, FakeBroker, Stage, on_stage, queue_at

__all__ = ["ALLOWED", "RocketMQ", "bodies_of", "ends", "message", "sends", "with_batches"]

BATCH = RequestCode.SEND_BATCH_MESSAGE
ALLOWED = ProducerConfig(auto_batch=True)
Answer = Callable[[RemotingCommand], RemotingCommand | None]


def bodies_of(command: RemotingCommand) -> list[str]:
    if command.code != BATCH:
        return ["x" if header_of(command).sys_flag else command.body.decode()]
    return [record.body.decode() for record in decode_batch(command.body)]


class RocketMQ:
    """A broker that knows nothing of Lockstep's. `sent` are the bodies of each request; `stored` those that it took."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.sent: list[list[str]] = []
        self.stored: list[str] = []
        self.on_batch: Answer | None = None
        self.refused = ""  # a message with this body
        broker.on[SEND] = broker.on[BATCH] = self.take

    def take(self, command: RemotingCommand) -> RemotingCommand | None:
        texts = bodies_of(command)
        self.sent.append(texts)
        if self.refused in texts:
            return command.reply(ResponseCode.MESSAGE_ILLEGAL, remark="the message is illegal")
        if command.code == BATCH and self.on_batch is not None:
            return self.on_batch(command)
        return self.store(command)

    def store(self, command: RemotingCommand) -> RemotingCommand:
        first = len(self.stored)
        self.stored += bodies_of(command)
        ids = ",".join(f"ID{offset}" for offset in range(first, len(self.stored)))
        return command.reply(0, SendMessageResponseHeader(ids, header_of(command).queue_id, first))

    @property
    def batches(self) -> list[RemotingCommand]:
        return self.broker.requests(BATCH)


Test = Callable[[Stage, RocketMQ, Producer], Awaitable[None]]


def with_batches(config: ProducerConfig = ALLOWED, queues: int = 1) -> Callable[[Test], Callable[[], None]]:
    """A test with a producer whose connection is open."""

    def decorate(test: Test) -> Callable[[], None]:
        async def run(stage: Stage) -> None:
            rocketmq = RocketMQ(await stage.broker(agrees=False, queues=queues))
            async with producer_for(stage, config) as producer:
                await producer.send(message("first"), queue=queue_at(0))
                await test(stage, rocketmq, producer)

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return on_stage(run)

    return decorate


def message(text: str, **fields: Any) -> Message:
    return Message(TOPIC, text.encode(), **fields)


async def sends(producer: Producer, *texts: str, queue_id: int = 0) -> list[Any]:
    """All called in one turn; the result or the error of each."""
    calls = [producer.send(message(text), queue=queue_at(queue_id)) for text in texts]
    return await asyncio.gather(*calls, return_exceptions=True)


def ends(results: list[Any]) -> list[SendOutcome | None]:
    assert all(isinstance(result, SendResult | SendError) for result in results), results
    return [result.outcome if isinstance(result, SendError) else None for result in results]
