"""The pull loop of a push consumer over one locked queue, with a broker whose answers the test chooses."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from lockstep.client import AllocateMessageQueueStrategy, ConsumerConfig, allocate_averagely
from lockstep.client.config import Fenced
from lockstep.client.consumer.dispatch.base import ConsumeService
from lockstep.client.consumer.dispatch.table import ORDERINGS
from lockstep.client.consumer.member import MemberSettings
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.ownership.reset import OffsetReset
from lockstep.client.consumer.ownership.ways import OwnershipWish
from lockstep.client.consumer.push_member import Consumption, PushMember
from lockstep.client.hook_calls import ConsumeHooks
from lockstep.client.instance.client import name_server_addresses
from lockstep.protocol.bodies.heartbeat import MessageModel, SubscriptionData
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import PullMessageRequestHeader, PullMessageResponseHeader
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.protocol.selector import SHARDING_KEY_OF
from tests.client.messages import stored_bytes
from tests.client.periods import period
from tests.client.stage import TOPIC, FakeBroker, Stage, queue_at

__all__ = ["PULL", "Answer", "Pulling", "found", "in_turn", "pulling", "push_member", "says"]

PULL = RequestCode.PULL_MESSAGE
Answer = RemotingCommand | None


def push_member(
    stage: Stage,
    config: ConsumerConfig,
    subscriptions: dict[str, SubscriptionData],
    *,
    checks_span: bool = False,
    trace_path: str | None = None,
    fenced: Fenced = Fenced.NO,
    strategy: AllocateMessageQueueStrategy = allocate_averagely,
) -> PushMember:
    """A member of the group "tower" that is not started, and ends with the stage."""
    settings = MemberSettings(
        runtime=stage.client,
        log=stage.log,
        group="tower",
        tenant=NamesOfTenant(None),
        name_servers=name_server_addresses(stage.name_server, config),
        config=config,
        message_model=MessageModel.CLUSTERING,
        strategy=strategy,
        hooks=ConsumeHooks("tower", stage.log, NamesOfTenant(None)),
    )
    ordering = ORDERINGS["queue"]._replace(checks_span=checks_span)
    consumption = Consumption(
        lambda _messages, _context: None, ordering, SHARDING_KEY_OF, trace_path, OwnershipWish(fenced)
    )
    member = PushMember(settings, subscriptions, consumption)

    async def close() -> None:
        await member.instance.schedule.stop()
        member.instance.dialer.close()

    stage.on_close.append(close)
    return member


class Pulling:
    """A push consumer's pull loop over one locked queue whose first offset is 5.

    Its consume service and its reset are played here: `submitted` and `corrected` say what they were given.
    """

    def __init__(
        self, stage: Stage, broker: FakeBroker, config: ConsumerConfig, expression: str, checks_span: bool = False
    ) -> None:
        self.stage, self.broker = stage, broker
        self.subscriptions = {TOPIC: SubscriptionData.parse(TOPIC, expression, 77)}
        self.member = member = push_member(stage, config, self.subscriptions, checks_span=checks_span)
        member.service = cast("ConsumeService", self)
        member._reset = cast("OffsetReset", self)
        member.first_offset = self._begin_at_5  # type: ignore[assignment]  # a test's own
        self.instance, self.offsets = member.instance, member.offsets
        self.loop, self.flow = member._pulls, member._flow
        self.submitted: list[ProcessQueue] = []
        self.corrected: list[tuple[range, int, int]] = []
        now_ms = stage.client.now_ms()
        self.queue = period(queue_at(0), now_ms)

    async def _begin_at_5(self, _: ProcessQueue) -> int:
        return 5

    def submit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        if process_queue.cache.put_messages(messages):
            self.submitted.append(process_queue)

    async def correct(self, _: ProcessQueue, offsets: range, otherwise: int, delay_ms: int) -> None:
        self.corrected.append((offsets, otherwise, delay_ms))

    @property
    def pulls(self) -> list[PullMessageRequestHeader]:
        return [command.decode_header(PullMessageRequestHeader) for command in self.broker.requests(PULL)]

    async def run(self, duration_ms: int) -> None:
        """Pull for so long, then drop the queue."""
        running = self.stage.client.create_task(self.loop.run(self.queue), name="pull")
        await self.stage.world.sleep_ms(duration_ms)
        self.queue.life.dropped = True
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
