"""A pull loop outlives whatever goes wrong around it (wire.md 12.6)."""

from typing import Any

from lockstep.client import ConsumerConfig, MessageQueue
from lockstep.client.offset_store import RemoteBrokerOffsetStore
from lockstep.client.process_queue import ProcessQueue
from lockstep.client.pull import PullLoop
from lockstep.client.trace import TraceWriter
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.heartbeat import SubscriptionData
from tests.client.stage import Stage, on_stage, queue_at

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
    broker = await stage.broker()
    stage.route_to({"broker-a": 1})
    broker.answers(PULL, None)
    instance = stage.instance()
    await instance.routes.fetch(queue_at(0).topic)
    process_queue = ProcessQueue(queue_at(0), 1, stage.client.now_ms(), locked_ms=stage.client.now_ms())

    async def first_offset(_: ProcessQueue) -> int:
        return 5

    async def offset_illegal(_: ProcessQueue) -> None:
        raise AssertionError("the offset was legal")

    loop = PullLoop(
        instance,
        "tower",
        ConsumerConfig(),
        RemoteBrokerOffsetStore(instance, "tower"),
        subscription=lambda topic: SubscriptionData.parse(topic, "*"),
        first_offset=first_offset,
        submit=lambda _: None,
        offset_illegal=offset_illegal,
        trace=FullDisk(stage.client, "trace", instance.client_id, "tower"),
    )
    task = stage.client.create_task(loop.run(process_queue), name="pull")
    await stage.world.sleep_ms(2_900)
    assert broker.requests(PULL) == []
    assert [fields["error"] for _, _, fields in stage.log.events if "error" in fields] == [
        "OSError: [Errno 28] No space left on device"
    ] * 3
    await stage.world.sleep_ms(200)
    assert len(broker.requests(PULL)) == 1
    assert b'"positioned"' in stage.client.disk.read("trace")
    task.cancel()
