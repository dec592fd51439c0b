"""Running listener calls when a fenced lock is lost: cancelled or finished, in order of the queue and the key."""

import asyncio
import json
from typing import Any

import pytest

from lockstep.client.consumer.dispatch.stats import ConsumerStatsManager
from lockstep.client.consumer.ownership.hold import FencedHold
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.errors import SendError
from lockstep.order.traces.trace import TraceWriter
from lockstep.protocol.epochs import make_epoch
from tests.client.dispatch.consume_service import SUSPEND
from tests.client.dispatch.consume_service import Service as QueueService
from tests.client.dispatch.test_consume_by_key import Service as KeyService
from tests.client.stage import Stage, on_stage

EPOCH = make_epoch(1_700_000_000_000, 7)
LEASE_MS, MARGIN_MS, WORK_MS = 60_000, 3_000, 70_000
ORDERINGS = ("queue", "key")


class Calls:
    """A service with one fenced queue, whose listener works for WORK_MS, then answers; `ended` says how calls ended."""

    def __init__(self, stage: Stage, ordering: str, *, answer: Any = None, **config: Any) -> None:
        self.stage = stage
        self.ended: list[str] = []
        self.answer = answer
        self.trace = TraceWriter(stage.client, "trace", "c@1", "g")
        self.service: Any = (
            QueueService(stage, lambda _messages, _context: self._work(), trace=self.trace, **config)
            if ordering == "queue"
            else KeyService(stage, lambda _message, _context: self.answer, trace=self.trace, **config)
        )
        if ordering == "key":
            self.service.service._call.listener = self._listen_by_key
        stage.on_close.append(lambda: self.service.service.stop(0))
        self.queue: ProcessQueue = self.service.queue
        self.queue.hold = FencedHold(stage.client.now_ms(), EPOCH, LEASE_MS)

    async def _listen_by_key(self, messages: Any, _context: Any) -> Any:
        self.service._begin(messages)
        return await self._work()

    async def _work(self) -> Any:
        try:
            await asyncio.sleep(WORK_MS / 1000)
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("finished")
        return self.answer

    @property
    def stats(self) -> ConsumerStatsManager:
        stats: ConsumerStatsManager = self.service.service._stats
        return stats

    def lose(self) -> None:
        self.queue.life.draining = self.queue.life.lost = True
        self.queue.hold.locked = False
        self.service.service.cancel_calls(self.queue)

    def handled(self) -> list[dict[str, Any]]:
        records = [json.loads(line) for line in self.stage.client.disk.read("trace").splitlines()]
        return [record for record in records if record["event"] == "handled"]


@pytest.mark.parametrize("ordering", ORDERINGS)
@on_stage
async def test_running_calls_are_cancelled(stage: Stage, ordering: str) -> None:
    """Their messages are not handled, nobody counts an attempt, and no other call begins."""
    calls = Calls(stage, ordering, max_reconsume_times=0)
    calls.service.put(0, 1, 2)
    await stage.world.sleep_ms(1000)
    began = len(calls.service.handled)
    assert calls.queue.life.listener_running
    calls.lose()
    assert await calls.queue.life.listener_idle(100)
    await stage.world.sleep_ms(2 * WORK_MS)
    assert calls.ended == began * ["cancelled"]
    assert len(calls.service.handled) == began
    assert calls.handled() == []
    assert not any(offset > 0 for offset in calls.service.offsets)
    assert (calls.stats.calls_cancelled, calls.stats.calls_outlived) == (began, 0)
    assert stage.events("warning") == began * ["listener_cancelled"]
    assert [task for task in asyncio.all_tasks() if task.cancelling()] == []


@pytest.mark.parametrize("ordering", ORDERINGS)
@on_stage
async def test_running_calls_may_finish(stage: Stage, ordering: str) -> None:
    """With on_lock_lost="finish". They are counted, and their records say how long they ran beyond the lease."""
    calls = Calls(stage, ordering, on_lock_lost="finish")
    begin_ms = stage.client.now_ms()
    calls.service.put(0)
    await stage.world.sleep_ms(LEASE_MS + 1000)
    calls.lose()
    await stage.world.sleep_ms(WORK_MS)
    assert calls.ended == ["finished"]
    [record] = calls.handled()
    late_ms = begin_ms + WORK_MS - calls.queue.hold.lease_end_ms
    assert (record["epoch"], record["outlived_ms"]) == ("1700000000000-7", late_ms)
    assert (calls.stats.calls_cancelled, calls.stats.calls_outlived) == (0, 1)


@pytest.mark.parametrize("ordering", ORDERINGS)
@on_stage
async def test_a_call_within_its_lease_is_not_counted(stage: Stage, ordering: str) -> None:
    """It was renewed meanwhile; its record has the epoch."""
    calls = Calls(stage, ordering)
    calls.service.put(0)
    await stage.world.sleep_ms(LEASE_MS // 3)
    calls.queue.hold.granted(stage.client.now_ms(), LEASE_MS)
    await stage.world.sleep_ms(WORK_MS)
    [record] = calls.handled()
    assert record["epoch"] == "1700000000000-7"
    assert "outlived_ms" not in record
    assert calls.stats.calls_outlived == 0
    assert calls.service.offsets[-1] == 1


@pytest.mark.parametrize("ordering", ORDERINGS)
@on_stage
async def test_a_failure_under_a_lost_lock_makes_no_dead_letter(stage: Stage, ordering: str) -> None:
    """The next owner gets the message again, whatever the limit of attempts is."""
    calls = Calls(stage, ordering, answer=SUSPEND, max_reconsume_times=0, on_lock_lost="finish")
    calls.service.put(0)
    await stage.world.sleep_ms(1000)
    calls.lose()
    await stage.world.sleep_ms(2 * WORK_MS)
    assert getattr(calls.service, "dead", []) == []
    assert stage.events("warning") == []


@pytest.mark.parametrize("ordering", ORDERINGS)
@on_stage
async def test_a_dead_letter_that_is_refused(stage: Stage, ordering: str) -> None:
    """Perhaps under the epoch: the locks are told, and they know whether the period ends."""
    calls = Calls(stage, ordering, answer=SUSPEND, max_reconsume_times=0)
    told: list[tuple[ProcessQueue, type[Exception]]] = []
    calls.service.refused = lambda process_queue, error: told.append((process_queue, type(error)))
    calls.service.not_taken = [0]
    calls.service.put(0)
    await stage.world.sleep_ms(WORK_MS + 500)
    assert told == [(calls.queue, SendError)]
    calls.lose()


@pytest.mark.parametrize("ordering", ORDERINGS)
@on_stage
async def test_no_call_begins_at_the_end_of_a_lease(stage: Stage, ordering: str) -> None:
    """In its last twentieth; when it is renewed, consumption goes on at once, without a lock request of its own."""
    calls = Calls(stage, ordering)
    await stage.world.sleep_ms(LEASE_MS - MARGIN_MS + 1)
    calls.service.put(0)
    await stage.world.sleep_ms(1000)
    assert calls.service.handled == []
    calls.queue.hold.granted(stage.client.now_ms(), LEASE_MS)
    await stage.world.sleep_ms(1)
    assert calls.service.handled == [0]
    assert calls.service.lock_asked == []
    calls.lose()
    await stage.world.sleep_ms(1)


@on_stage
async def test_a_plain_call_is_looked_at_on_its_thread(stage: Stage) -> None:
    """It waited for a thread until its lease had ended: it does not begin, and its message goes back."""
    service = QueueService(stage, lambda _messages, _context: None, plain=True)
    service.queue.hold = FencedHold(stage.client.now_ms(), EPOCH, LEASE_MS)
    await stage.world.sleep_ms(LEASE_MS - MARGIN_MS - 1000)
    service.pool.submit(lambda: stage.client.block_ms(2000))
    service.put(0)
    await service.quiet(5000)
    assert service.handled == []
    assert stage.events("warning") == ["call_not_begun"]
    service.queue.hold.granted(stage.client.now_ms(), LEASE_MS)
    await service.quiet(10)
    assert service.handled == [0]


@on_stage
async def test_a_listener_that_ignores_its_cancellation(stage: Stage) -> None:
    """Its answer comes late; its task is not left cancelled, so the next period is consumed as usual."""

    async def stubborn() -> None:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            await asyncio.sleep(1)

    service = QueueService(stage, lambda _messages, _context: stubborn())
    service.queue.hold = FencedHold(stage.client.now_ms(), EPOCH, LEASE_MS)
    service.put(0)
    await service.quiet(500)
    service.queue.life.draining = service.queue.life.lost = True
    service.service.cancel_calls(service.queue)
    assert not await service.queue.life.listener_idle(900)
    assert await service.queue.life.listener_idle(200)
    service.queue = service.new_queue()
    service.put(0)
    await service.quiet(1500)
    assert service.offsets == [1]
