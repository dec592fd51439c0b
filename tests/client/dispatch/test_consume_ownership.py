"""Consumption while the lock is lost and granted again, and errors that must not stop a queue (wire.md 12.7)."""

import asyncio
import json
from typing import Any, cast

import pytest

from lockstep.client import ConsumeOrderlyContext, MessageExt
from lockstep.order.traces.trace import TraceWriter
from tests.client.dispatch.consume_service import SUSPEND, S, Service, answers
from tests.client.messages import message_at
from tests.client.periods import period
from tests.client.stage import Stage, on_stage, queue_at

pytestmark = pytest.mark.usefixtures("each_way")

# The lock, and the end of ownership --------------------------------------------------------------------------


@on_stage
async def test_without_its_lock_a_queue_is_not_consumed(stage: Stage) -> None:
    """Asked for after 100 ms; refused, again 3000 ms later; granted, consumed 10 ms later."""
    service = Service(stage, answers(None))
    service.queue = service.new_queue(locked=False)
    service.lock_answers = [False, True]
    service.put(0)
    await service.quiet(4000)
    assert service.lock_asked == [100, 3200]
    assert service.times == [3210]
    assert service.committed(1)


@on_stage
async def test_a_lock_that_runs_out_between_calls(stage: Stage) -> None:
    """Each call looks at the lock anew: after 30 s the next message waits until it is granted again."""

    async def slow(_: list[MessageExt]) -> None:
        await asyncio.sleep(31)

    service = Service(stage, lambda messages, _: slow(messages) if messages[0].queue_offset == 0 else None)
    service.put(0, 1)
    await service.quiet(32_000)
    assert service.lock_asked == [31_010]
    assert service.times == [0, 31_020]
    assert service.committed(1, 2)


@on_stage
async def test_a_queue_that_is_resumed_while_it_runs(stage: Stage) -> None:
    """It has one run all the same, and one call at a time."""

    async def slow(_: list[MessageExt]) -> None:
        await asyncio.sleep(1)

    service = Service(stage, lambda messages, _: slow(messages))
    service.put(0, 1)
    await service.quiet(500)
    service.service._resume(service.queue)
    await service.quiet(2000)
    assert service.times == [0, 1000]


@on_stage
async def test_a_suspended_message_outlives_its_lock(stage: Stage) -> None:
    """The lock is lost while a message is suspended: with the next lock this message comes first."""

    def lose_lock(_messages: list[MessageExt], _context: ConsumeOrderlyContext) -> Any:
        if len(service.calls) > 1:
            return None
        service.queue.hold.locked = False
        return SUSPEND

    service = Service(stage, lose_lock)
    service.lock_answers = [False, True]
    service.put(0, 1)
    await service.quiet(10_000)
    assert service.calls == [([0], 0), ([0], 1), ([1], 0)]
    assert len(service.lock_asked) == 2
    assert service.committed(1, 2)


@on_stage
async def test_a_long_run_lets_others_have_the_loop(stage: Stage) -> None:
    """After 60 s of continuous consumption the task ends and is submitted again 10 ms later."""

    async def second() -> None:
        await asyncio.sleep(1)
        service.queue.hold.granted(stage.client.now_ms())

    service = Service(stage, lambda *_: second())
    service.put(*range(62))
    await service.quiet(64_000)
    gaps = [later - earlier for earlier, later in zip(service.times, service.times[1:], strict=False)]
    assert gaps == [1000] * 60 + [1010]


@on_stage
async def test_a_dropped_queue_stops_and_commits_nothing(stage: Stage) -> None:
    """The running listener may end; its result is ignored."""
    service = Service(stage, lambda *_: asyncio.sleep(0.9))
    service.put(0, 1, 2)
    await service.quiet(1500)
    service.queue.life.dropped = True
    await service.quiet(3000)
    assert service.handled == [0, 1]
    assert service.committed(1)
    assert not service.queue.life.listener_running


@on_stage
async def test_two_generations_of_a_queue_never_run_at_once(stage: Stage) -> None:
    """The new one waits until the listener of the old one has returned, however long that takes."""
    service = Service(stage, lambda *_: asyncio.sleep(20))
    service.put(0, 1)
    await service.quiet(1000)
    service.queue.life.dropped = True
    service.queue = service.new_queue()
    service.put(0)
    await service.quiet(45_000)
    assert service.times == [0, 20_000]


@on_stage
async def test_a_queue_has_one_task_at_a_time(stage: Stage) -> None:
    """The running task also handles messages that arrive during a call. It ends with an empty queue, and the next put
    starts another."""
    service = Service(stage, lambda *_: asyncio.sleep(1))
    service.put(0, 1)
    await service.quiet(500)
    service.put(2)
    service.service.submit(service.queue, [])
    await service.quiet(4500)
    assert service.times == [0, 1000, 2000]
    assert service.queue.cache.is_empty
    service.put(3)
    await service.quiet(2000)
    assert service.times[3:] == [5000]
    assert service.committed(1, 2, 3, 4)


@on_stage
async def test_stopping(stage: Stage) -> None:
    """Nothing new is begun; those whose listener returns in time are not stuck, the others are named."""
    service = Service(stage, lambda messages, _: asyncio.sleep(3 if messages[0].queue_offset == 0 else 30))
    service.put(0, 1)
    await service.quiet(100)
    assert await service.service.stop(5000) == []
    assert service.handled == [0]
    assert service.committed(1)
    other = Service(stage, lambda *_: asyncio.sleep(30))
    other.put(0)
    await service.quiet(100)
    begin_ms = stage.world.elapsed_ms
    assert await other.service.stop(5000) == [other.queue]
    assert stage.world.elapsed_ms - begin_ms == 5000
    await service.quiet(30_000)


# What must not stop a queue ----------------------------------------------------------------------------------


@on_stage
async def test_a_listener_may_empty_its_list(stage: Stage) -> None:
    """The list is a copy: messages that the listener removes are still committed, or come again."""

    def greedy(messages: list[MessageExt], _: ConsumeOrderlyContext) -> Any:
        taken = [messages.pop() for _ in range(len(messages))]
        return SUSPEND if len(service.calls) == 1 else (None if taken else SUSPEND)

    service = Service(stage, greedy, consume_message_batch_max_size=3)
    service.put(0, 1, 2)
    await service.quiet(3000)
    assert [offsets for offsets, _ in service.calls] == [[0, 1, 2], [0, 1, 2]]
    assert service.committed(3)


@on_stage
async def test_a_context_may_be_set_to_anything_true_or_false(stage: Stage) -> None:
    """`auto_commit = 0` is False."""

    def manual(_: list[MessageExt], context: ConsumeOrderlyContext) -> S:
        context.auto_commit = cast("bool", 0 if len(service.calls) == 1 else 1)
        return S.SUCCESS

    service = Service(stage, manual)
    service.put(0, 1)
    await service.quiet()
    assert service.committed(2)


@on_stage
async def test_a_queue_that_was_given_up_is_not_locked_again(stage: Stage) -> None:
    """It waits for its lock when it is dropped. Its next owner must not be refused."""
    service = Service(stage, answers(None))
    service.queue.hold.locked = False
    service.put(0)
    await service.quiet(50)
    service.queue.life.dropped = True
    await service.quiet(1000)
    assert (service.handled, service.lock_asked) == ([], [])


@on_stage
async def test_a_trace_that_cannot_be_written(stage: Stage) -> None:
    """The record is written before the commit: the queue is suspended with an error in the log, and tried again."""
    trace = TraceWriter(stage.client, "trace", "c", "g")
    write, failures = trace._file.write, 2

    def fail_twice(data: bytes) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError(28, "No space left on device")
        write(data)

    trace._file.write = fail_twice  # type: ignore[method-assign]
    service = Service(stage, answers(None), trace=trace)
    service.put(0, 1)
    await service.quiet(5000)
    assert service.handled == [0, 0, 0, 1]
    assert service.committed(1, 2)
    assert stage.events("error") == ["consume_failed"] * 2
    raised = [fields for level, _, fields in stage.log.events if level == "error"]
    assert all(isinstance(fields["exc_info"], OSError) for fields in raised), "their tracebacks are shown"
    trace.close()


@on_stage
async def test_a_lock_request_that_fails_here(stage: Stage) -> None:
    """Its error is in the log, and the lock is asked for again."""
    service = Service(stage, answers(None))
    service.queue = service.new_queue(locked=False)
    service.lock_answers = [OSError(28, "No space left on device"), True]
    service.put(0)
    await service.quiet(4000)
    assert service.lock_asked == [100, 3200]
    assert service.times == [3210]
    assert stage.events("error") == ["relock_failed"]


@on_stage
async def test_an_administrator_waits_for_one_call(stage: Stage) -> None:
    """Its message comes between two calls of a run, which goes on after it."""
    service = Service(stage, lambda *_: asyncio.sleep(1))
    service.put(0, 1, 2)
    await service.quiet(500)
    async with service.service.between_runs(queue_at(0)):
        assert stage.world.elapsed_ms == 1000
        await service.quiet(5000)
        assert service.handled == [0]
    await service.quiet(3000)
    assert service.times == [0, 6000, 7000]


@on_stage
async def test_handled_is_recorded_before_the_offset_moves(stage: Stage) -> None:
    """With the status, the times of the call, and the period of the owner."""
    trace = TraceWriter(stage.client, "trace", "c", "g")
    recorded: list[int] = []

    async def work() -> None:
        await asyncio.sleep(0.25)

    service = Service(stage, lambda *_: work(), trace=trace)
    service.on_commit = lambda: recorded.append(len(stage.client.disk.read("trace").splitlines()))
    service.put(7, 8)
    await service.quiet(2000)
    assert recorded == [1, 2]
    first, second = (json.loads(line) for line in stage.client.disk.read("trace").splitlines())
    assert (first["offset"], first["status"], first["period"]) == (7, "SUCCESS", 1)
    assert first["wall_ms"] - first["begin_wall_ms"] == 250
    assert first["mono_ns"] - first["begin_mono_ns"] == 250_000_000
    assert second["begin_mono_ns"] >= first["mono_ns"]
    trace.close()


@on_stage
async def test_a_retried_message_has_its_first_topic(stage: Stage) -> None:
    """The listener sees a message from the retry topic under its original topic."""
    topics: list[str] = []
    service = Service(stage, lambda messages, _: topics.append(messages[0].topic))
    service.queue = period(queue_at(0, topic="%RETRY%g"), stage.client.now_ms())
    service.service.submit(service.queue, [message_at(0, RETRY_TOPIC="Aircraft")])
    await service.quiet()
    assert topics == ["Aircraft"]
