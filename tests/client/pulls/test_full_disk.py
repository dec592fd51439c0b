"""A trace that cannot be written delays the work that needs it and ends no loop (wire.md 12.6, 12.7)."""

from collections.abc import Iterable
from typing import Any

import pytest

from lockstep.client import ConsumeOrderlyContext, ConsumerConfig, MessageExt, MessageQueue
from lockstep.client.consumer.dispatch.orderly import ConsumeMessageOrderlyService
from lockstep.client.consumer.listener import ORDERLY
from lockstep.client.consumer.offsets.store import RemoteBrokerOffsetStore
from lockstep.client.consumer.send_back import DeadLetters
from lockstep.order.traces.trace import TraceWriter
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.messaging import OffsetResponseHeader
from tests.client.dispatch.service_parts import service_parts
from tests.client.messages import messages_at
from tests.client.ownership.fenced_stage import LEASE_MS, fenced_on
from tests.client.periods import period
from tests.client.pulls.pulling import push_member
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

PULL = RequestCode.PULL_MESSAGE


class FullDisk(TraceWriter):
    """Takes nothing `failures` times."""

    failures = 3

    def queue_event(self, event: str, queue: MessageQueue, **fields: Any) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(28, "No space left on device")
        super().queue_event(event, queue, **fields)


@on_stage
async def test_a_trace_that_cannot_be_written_delays_the_pulls_and_does_not_end_them(stage: Stage) -> None:
    """Tried again each second, with an error that names the reason; nothing is pulled unrecorded meanwhile."""
    broker = await stage.broker(queues=1)
    broker.answers(PULL, None)
    broker.answers(RequestCode.QUERY_CONSUMER_OFFSET, OffsetResponseHeader(5))
    config, subscriptions = ConsumerConfig(), {TOPIC: SubscriptionData.parse(TOPIC, "*")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lockstep.client.consumer.member.TraceWriter", FullDisk)
        member = push_member(stage, config, subscriptions, trace_path="trace")
    await member.instance.routes.fetch(TOPIC)
    process_queue = period(queue_at(0), stage.client.now_ms())
    task = stage.client.create_task(member._pulls.run(process_queue), name="pull")
    await stage.world.sleep_ms(2_900)
    assert broker.requests(PULL) == []
    assert [fields["error"] for _, _, fields in stage.log.events if "error" in fields] == [
        "OSError: [Errno 28] No space left on device"
    ] * 3
    await stage.world.sleep_ms(200)
    assert len(broker.requests(PULL)) == 1
    assert b'"positioned"' in stage.client.disk.read("trace")
    task.cancel()


class FailingLocks:
    """Locks whose trace cannot be written once, and are granted from then on."""

    watches_calls = False

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.asked_ms: list[int] = []
        self.process_queue = period(queue_at(0), stage.client.now_ms())
        self.process_queue.hold.locked = False

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        self.asked_ms.append(self.stage.world.elapsed_ms)
        if len(self.asked_ms) == 1:
            raise OSError(28, "No space left on device")
        self.process_queue.hold.granted(self.stage.client.now_ms())
        return dict.fromkeys(queues, self.stage.client.now_ms())


@on_stage
async def test_a_lock_that_cannot_be_recorded_is_asked_for_again(stage: Stage) -> None:
    """After 3 s, as one that is refused; the messages wait and are handled then."""
    await stage.broker()
    instance, config, locks = stage.instance(), ConsumerConfig(), FailingLocks(stage)
    handled: list[int] = []

    async def listen(messages: list[MessageExt], _: ConsumeOrderlyContext) -> None:
        handled.extend(message.queue_offset for message in messages)

    offsets = RemoteBrokerOffsetStore(instance, "tower")
    parts = service_parts(stage, listen, ORDERLY, config, instance=instance, locks=locks, offsets=offsets)
    service = ConsumeMessageOrderlyService(parts, DeadLetters(parts.member))
    service.submit(locks.process_queue, messages_at(0, 1))
    await stage.world.sleep_ms(4_000)
    assert locks.asked_ms == [100, 3_200]
    assert handled == [0, 1]
    assert stage.events("error") == ["relock_failed"]


@on_stage
async def test_a_lost_lock_that_cannot_be_recorded_is_lost_all_the_same(stage: Stage) -> None:
    """Its calls are cancelled, the queue leaves the table, and other leases are renewed and looked at as before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.client.ownership.fenced_stage.TraceWriter", FullDisk)
        broker, table, fenced = await fenced_on(stage)
    await fenced.own(queue_at(0), queue_at(1))
    fenced.locks.watch.start()
    broker.on[RequestCode.LOCK_BATCH_MQ] = lambda _: None
    await stage.world.sleep_ms(LEASE_MS + 2000)
    assert {entry for entry in fenced.done if entry[0] == "cancelled"} == {
        ("cancelled", queue_at(0)), ("cancelled", queue_at(1)),
    }  # fmt: skip
    assert not fenced.table
    assert "trace_not_written" in stage.events("error")
    broker.on[RequestCode.LOCK_BATCH_MQ] = table.lock
    [owned] = await fenced.own(queue_at(2))
    await stage.world.sleep_ms(2 * LEASE_MS)
    assert fenced.holds(owned)
