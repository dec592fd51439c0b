"""A pull loop over one locked queue, on a stage whose broker answers as the test says."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from lockstep.client import ConsumerConfig
from lockstep.client.consumer.dispatch.stats import ConsumeStats
from lockstep.client.consumer.flow_control import FlowControl
from lockstep.client.consumer.offsets.store import RemoteBrokerOffsetStore
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.client.consumer.pull_loop import PullLoop
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import PullMessageRequestHeader, PullMessageResponseHeader
from lockstep.protocol.message import MessageExt
from tests.client.messages import stored_bytes
from tests.client.stage import TOPIC, FakeBroker, Stage, queue_at

__all__ = ["PULL", "Answer", "Pulling", "found", "in_turn", "pulling", "says"]

PULL = RequestCode.PULL_MESSAGE
Answer = RemotingCommand | None


class Pulling:
    """A pull loop over one locked queue; `answer(header, command)` is the broker."""

    def __init__(
        self, stage: Stage, broker: FakeBroker, config: ConsumerConfig, expression: str, checks_span: bool = False
    ) -> None:
        self.stage, self.broker = stage, broker
        self.instance = stage.instance()
        self.offsets = RemoteBrokerOffsetStore(self.instance, "tower")
        self.subscription: SubscriptionData | None = SubscriptionData.parse(TOPIC, expression, 77)
        self.first_offset: Callable[[ProcessQueue], Awaitable[int]] = self._begin_at_5
        self.submitted: list[ProcessQueue] = []
        self.illegal: list[int] = []
        now_ms = stage.client.now_ms()
        self.queue = ProcessQueue(queue_at(0), 1, now_ms, locked_ms=now_ms)
        self.flow = FlowControl(config, checks_span=checks_span)
        self.loop = PullLoop(
            self.instance,
            "tower",
            config,
            self.offsets,
            subscription=lambda _topic: self.subscription,
            first_offset=lambda process_queue: self.first_offset(process_queue),
            submit=self._submit,
            offset_illegal=self._illegal,
            flow=self.flow,
            stats=ConsumeStats(0),
            trace=None,
        )

    async def _begin_at_5(self, _: ProcessQueue) -> int:
        return 5

    def _submit(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        if process_queue.put_messages(messages):
            self.submitted.append(process_queue)

    async def _illegal(self, process_queue: ProcessQueue) -> None:
        self.illegal.append(process_queue.next_offset)

    @property
    def pulls(self) -> list[PullMessageRequestHeader]:
        return [command.decode_header(PullMessageRequestHeader) for command in self.broker.requests(PULL)]

    async def run(self, duration_ms: int) -> None:
        """Pull for so long, then drop the queue."""
        running = self.stage.client.create_task(self.loop.run(self.queue), name="pull")
        await self.stage.world.sleep_ms(duration_ms)
        self.queue.dropped = True
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def pulling(
    stage: Stage, *, expression: str = "*", agrees: bool = True, checks_span: bool = False, **config: Any
) -> Pulling:
    broker = await stage.broker(agrees=agrees)
    stage.route_to({"broker-a": 1})
    it = Pulling(stage, broker, ConsumerConfig(**config), expression, checks_span)
    await it.instance.routes.fetch(TOPIC)
    return it


def found(*offsets: int, next_offset: int | None = None, **properties: str) -> Callable[[RemotingCommand], Answer]:
    next_offset = offsets[-1] + 1 if next_offset is None else next_offset
    header = PullMessageResponseHeader(0, next_offset, 0, 1000)
    body = b"".join(stored_bytes(offset, properties=properties) for offset in offsets)
    return lambda command: command.reply(ResponseCode.SUCCESS, header, body)


def says(code: int, next_offset: int) -> Callable[[RemotingCommand], Answer]:
    return lambda command: command.reply(code, PullMessageResponseHeader(0, next_offset, 0, 1000))


def in_turn(*answers: Callable[[RemotingCommand], Answer]) -> Callable[[RemotingCommand], Answer]:
    """One after the other, then silence: the pull is held."""
    left = list(answers)
    return lambda command: left.pop(0)(command) if left else None
