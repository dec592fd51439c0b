"""Concurrent consumption: batches, acknowledgements, messages that are sent back, the stored offset (wire.md 12.8)."""

import asyncio
import json
from typing import Any

import pytest

from lockstep.client import ConsumeConcurrentlyContext, MessageExt, MessageModel
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.order.traces.trace import TraceWriter
from tests.client.dispatch.concurrent_service import LATER, SUCCESS, Concurrent
from tests.client.messages import message_at
from tests.client.stage import Stage, on_stage

BROADCASTING = MessageModel.BROADCASTING
MINUTE_MS = 60_000


def works(duration_ms: int, status: Any = SUCCESS) -> Any:
    async def answer(*_: object) -> Any:
        await asyncio.sleep(duration_ms / 1000)
        return status

    return lambda *_: answer()


# Batches and workers ----------------------------------------------------------------------------------------------


@on_stage
async def test_each_message_by_itself_all_at_once(stage: Stage) -> None:
    """The batch size is 1, and no call waits for another: all begin at the same moment."""
    service = await Concurrent.on(stage, works(100))
    began_ms = service.now_ms
    service.put(0, 1, 2)
    await service.quiet()
    assert service.calls == [([0], began_ms), ([1], began_ms), ([2], began_ms)]
    assert service.commits[-1] == 3


@on_stage
async def test_batches_have_what_one_pull_brought(stage: Stage) -> None:
    """A pull is cut into batches of the configured size; the last one has the rest, and pulls are not mixed."""
    service = await Concurrent.on(stage, works(0), consume_message_batch_max_size=3)
    service.put(*range(7))
    service.put(7, 8)
    await service.quiet()
    assert [offsets for offsets, _ in service.calls] == [[0, 1, 2], [3, 4, 5], [6], [7, 8]]


@on_stage
async def test_as_many_at_a_time_as_there_are_threads(stage: Stage) -> None:
    """Others wait their turn, of `async def` listeners too; the number may change at any time."""
    service = await Concurrent.on(stage, works(1000), consume_thread_count=2)
    began_ms = service.now_ms
    service.put(*range(11))
    await service.quiet(500)
    assert len(service.calls) == 2
    service.service.set_consume_thread_count(4)
    await service.quiet(400)
    assert len(service.calls) == 4
    service.service.set_consume_thread_count(1)
    await service.quiet(20_000)
    assert service.handled == list(range(11))
    assert [at_ms - began_ms for _, at_ms in service.calls[4:]] == [1500 + 1000 * i for i in range(7)]


@on_stage
async def test_plain_listeners_run_on_the_pool(stage: Stage) -> None:
    """As many at once as the pool has threads."""
    stage.client.job_ms = 1000
    service = await Concurrent.on(stage, lambda *_: SUCCESS, plain=True, consume_thread_count=3)
    began_ms = service.now_ms
    service.put(*range(5))
    await service.quiet(5000)
    assert [at_ms - began_ms for _, at_ms in service.calls] == [0, 0, 0, 1000, 1000]
    assert service.commits[-1] == 5


@on_stage
async def test_messages_of_a_dropped_queue_are_passed_over(stage: Stage) -> None:
    """Its next owner handles them, and the result of a running listener is ignored."""
    service = await Concurrent.on(stage, works(1000), consume_thread_count=1)
    service.put(0, 1)
    await service.quiet(500)
    service.queue.life.dropped = True
    await service.quiet(3000)
    assert (service.handled, service.commits, service.sent_back) == ([0], [], [])
    assert stage.events("warning") == ["listener_result_ignored"]
    totals = service.stats.of(service.queue.queue.topic)
    assert (totals.calls, totals.ok, totals.failed) == (1, 0, 0), "its time alone"


# The offset -------------------------------------------------------------------------------------------------------


@on_stage
async def test_the_offset_is_that_of_the_first_message_not_done(stage: Stage) -> None:
    """Whatever ends first: a slow message holds the offset up, and when it is done all behind it counts at once."""

    async def answer(messages: list[MessageExt], _: ConsumeConcurrentlyContext) -> Any:
        await asyncio.sleep({5: 3, 6: 1, 7: 2}[messages[0].queue_offset])
        return SUCCESS

    service = await Concurrent.on(stage, answer)
    service.put(5, 6, 7)
    await service.quiet(1500)
    assert service.commits == [5]
    await service.quiet(1000)
    assert service.commits == [5, 5]
    await service.quiet(1000)
    assert service.commits == [5, 5, 8]
    assert (service.queue.cache.message_count, service.queue.cache.message_bytes) == (0, 0)


# Answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ack_index", "sent_back"),
    [(2**31 - 1, []), (3, []), (1, [2]), (0, [1, 2]), (-1, [0, 1, 2]), (-7, [0, 1, 2])],
)
def test_the_acknowledged_part_of_a_batch(ack_index: int, sent_back: list[int]) -> None:
    """Messages after `ack_index` are sent back although the listener returned success; then the whole batch is done."""

    def answer(_: list[MessageExt], context: ConsumeConcurrentlyContext) -> Any:
        context.ack_index = ack_index
        return SUCCESS

    @on_stage
    async def play(stage: Stage) -> None:
        service = await Concurrent.on(stage, answer, consume_message_batch_max_size=3)
        service.put(0, 1, 2)
        await service.quiet()
        assert [offset for offset, _, _ in service.sent_back] == sent_back
        assert service.commits == [3]
        totals = service.stats.of("T")
        assert (totals.calls, totals.ok, totals.failed) == (1, 3 - len(sent_back), len(sent_back))

    play()


@on_stage
async def test_later_takes_the_whole_batch_back(stage: Stage) -> None:
    """With the delay level that the listener chose, whatever its `ack_index` is."""

    def answer(_: list[MessageExt], context: ConsumeConcurrentlyContext) -> Any:
        context.ack_index, context.delay_level_when_next_consume = 1, 7
        return LATER

    service = await Concurrent.on(stage, answer, consume_message_batch_max_size=2)
    service.put(0, 1)
    await service.quiet()
    assert [(offset, level) for offset, level, _ in service.sent_back] == [(0, 7), (1, 7)]
    assert service.commits == [2]


@pytest.mark.parametrize(
    ("given", "level", "event", "named"),
    [(None, "error", "listener_answer_invalid", "None"),
     (True, "error", "listener_answer_invalid", "bool True"),
     ("CONSUME_SUCCESS", "error", "listener_answer_invalid", "str 'CONSUME_SUCCESS'"),
     (ValueError("no runway"), "error", "listener_failed", "ValueError: no runway")],
)  # fmt: skip
def test_whatever_is_no_status_is_later(given: Any, level: str, event: str, named: str) -> None:
    """An exception, nothing, another type: tried again, with a line in the log that names it."""

    def answer(*_: object) -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    @on_stage
    async def play(stage: Stage) -> None:
        service = await Concurrent.on(stage, answer)
        service.put(0)
        await service.quiet()
        assert [offset for offset, _, _ in service.sent_back] == [0]
        (line,) = [line for line in stage.log.events if line[1] == event]
        assert line[0] == level
        assert named in line[2].get("returned", line[2]["error"])

    play()


@on_stage
async def test_a_listener_may_empty_its_list(stage: Stage) -> None:
    """The list is a copy: acknowledgement does not depend on it."""

    def answer(messages: list[MessageExt], _: ConsumeConcurrentlyContext) -> Any:
        messages.clear()
        return SUCCESS

    service = await Concurrent.on(stage, answer, consume_message_batch_max_size=2)
    service.put(0, 1)
    await service.quiet()
    assert (service.commits, service.sent_back) == ([2], [])


@on_stage
async def test_what_cannot_be_sent_back_is_tried_here_after_5_000_ms(stage: Stage) -> None:
    """Again and again, counting up; until then it holds up the offset, and the others of its batch do not."""
    tried: list[int] = []

    def answer(messages: list[MessageExt], _: ConsumeConcurrentlyContext) -> Any:
        tried.append(messages[-1].reconsume_times)
        return LATER if len(tried) < 3 else SUCCESS

    service = await Concurrent.on(stage, answer, consume_message_batch_max_size=3)
    service.send_back_answers = [True, False, True, False]
    began_ms = service.now_ms
    service.put(0, 1, 2)
    await service.quiet(4_999)
    assert service.commits == [1]
    await service.quiet(12_000)
    assert [(offsets, at_ms - began_ms) for offsets, at_ms in service.calls] == [
        ([0, 1, 2], 0), ([1], 5_000), ([1], 10_000),
    ]  # fmt: skip
    assert tried == [0, 1, 2]
    assert service.commits == [1, 1, 3]


@on_stage
async def test_a_broadcasting_consumer_drops_what_fails(stage: Stage) -> None:
    """There is no other attempt: a warning says so, and the offset moves on."""
    service = await Concurrent.on(stage, lambda *_: LATER, message_model=BROADCASTING, consume_message_batch_max_size=2)
    service.put(0, 1)
    await service.quiet()
    assert (service.sent_back, service.commits) == ([], [2])
    assert stage.events("warning") == ["message_dropped"] * 2


@on_stage
async def test_a_retried_message_has_its_first_topic(stage: Stage) -> None:
    """And the moment at which its listener began, in epoch milliseconds, as RocketMQ's property says."""
    shown: list[tuple[str, str]] = []

    def answer(messages: list[MessageExt], _: ConsumeConcurrentlyContext) -> Any:
        shown.append((messages[0].topic, messages[0].properties["CONSUME_START_TIME"]))
        return SUCCESS

    service = await Concurrent.on(stage, answer, topic="%RETRY%g")
    service.service.submit(service.queue, [message_at(0, RETRY_TOPIC="Aircraft")])
    await service.quiet(0)
    assert shown == [("Aircraft", str(stage.client.now_ms()))]


@on_stage
async def test_the_trace_tells_both_parts_of_a_batch(stage: Stage) -> None:
    """The acknowledged messages and the others each with their status, and that nothing was kept in order."""

    def answer(_: list[MessageExt], context: ConsumeConcurrentlyContext) -> Any:
        context.ack_index = 0
        return SUCCESS

    trace = TraceWriter(stage.client, "trace", "host@1", "g")
    service = await Concurrent.on(stage, answer, trace=trace, consume_message_batch_max_size=2)
    service.put(0, 1)
    await service.quiet()
    records = [json.loads(line) for line in stage.client.disk.read("trace").splitlines()]
    assert [(record["offset"], record["status"], record["ordering"]) for record in records] == [
        (0, "CONSUME_SUCCESS", "none"), (1, "RECONSUME_LATER", "none"),
    ]  # fmt: skip


# Stuck messages ---------------------------------------------------------------------------------------------------


@on_stage
async def test_a_message_stuck_for_over_15_minutes_is_sent_back(stage: Stage) -> None:
    """A check runs every 15 minutes: at exactly 15 minutes the message stays, at the next check it is sent back, at
    level 3. The listener's late result does not count again."""
    service = await Concurrent.on(stage, works(46 * MINUTE_MS, LATER))
    service.service.start()
    began_ms = service.now_ms
    service.put(4)
    await service.quiet(15 * MINUTE_MS + 1)
    assert service.sent_back == []  # it began when the watch did: not over 15 minutes
    await service.quiet(15 * MINUTE_MS)
    assert [(offset, level, at_ms - began_ms) for offset, level, at_ms in service.sent_back] == [(4, 3, 30 * MINUTE_MS)]
    assert service.commits == [5]
    await service.quiet(20 * MINUTE_MS)
    assert len(service.sent_back) == 1
    assert service.commits == [5]


@on_stage
async def test_a_queue_that_is_dropped_while_a_message_is_sent_back(stage: Stage) -> None:
    """Nothing is committed: the offset is the next owner's."""
    service = await Concurrent.on(stage, lambda _messages, _context: LATER)

    async def send(_queue: ProcessQueue, message: MessageExt, delay_level: int) -> bool:
        service.queue.life.dropped = True
        return True

    service.send = send  # type: ignore[method-assign]
    service.put(0, 1)
    await service.quiet()
    assert (service.handled, service.commits) == ([0], [])


@on_stage
async def test_at_most_16_messages_of_a_queue_in_a_round(stage: Stage) -> None:
    """From the front, as long as they are stuck: one that has not begun stops the look."""
    service = await Concurrent.on(stage, works(60 * MINUTE_MS), consume_thread_count=20)
    service.service.start()
    await service.quiet(1)
    service.put(*range(25))
    await service.quiet(30 * MINUTE_MS)
    assert [offset for offset, _, _ in service.sent_back] == list(range(16))
    assert service.commits[-1] == 16
    await service.quiet(15 * MINUTE_MS)
    assert [offset for offset, _, _ in service.sent_back] == list(range(20))


@on_stage
async def test_what_is_stuck_and_cannot_be_sent_back_stays(stage: Stage) -> None:
    """Until the next look."""
    service = await Concurrent.on(stage, works(60 * MINUTE_MS))
    service.service.start()
    await service.quiet(1)
    service.put(0, 1)
    service.send_back_answers = [False]
    await service.quiet(30 * MINUTE_MS)
    assert [offset for offset, _, _ in service.sent_back] == [0]
    await service.quiet(15 * MINUTE_MS)
    assert [offset for offset, _, _ in service.sent_back] == [0, 0, 1]


@on_stage
async def test_the_time_of_an_earlier_attempt_does_not_count(stage: Stage) -> None:
    """A message that was sent anew brings the time its last listener began at; one that waits for a worker is not
    stuck in a listener."""
    service = await Concurrent.on(stage, works(20 * MINUTE_MS), consume_thread_count=1)
    service.service.start()
    await service.quiet(14 * MINUTE_MS)
    service.service.submit(service.queue, [message_at(0)])
    await service.quiet(1)
    service.queue.cache.remove_messages([message_at(0)])
    service.service.submit(service.queue, [message_at(1, CONSUME_START_TIME="1")])
    await service.quiet(2 * MINUTE_MS)
    assert service.sent_back == []


# The end ----------------------------------------------------------------------------------------------------------


@on_stage
async def test_a_stop_waits_for_running_listeners_only(stage: Stage) -> None:
    """Messages that wait for a worker are not handled; the results of calls that end in time count."""
    service = await Concurrent.on(stage, works(1000), consume_thread_count=1)
    service.put(0, 1)
    await service.quiet(500)
    assert await service.service.stop(5000) == []
    assert (service.handled, service.commits) == ([0], [1])
    service.put(2)
    await service.quiet(3000)
    assert service.handled == [0]


@on_stage
async def test_a_stop_names_the_queue_of_a_stuck_listener(stage: Stage) -> None:
    """After the time it was given."""
    service = await Concurrent.on(stage, works(10_000))
    service.put(0)
    await service.quiet(500)
    began_ms = service.now_ms
    assert await service.service.stop(5000) == [service.queue]
    assert service.now_ms - began_ms == 5000
    await service.quiet(10_000)


@on_stage
async def test_a_trace_that_cannot_be_written_loses_no_message(stage: Stage) -> None:
    """The batch is tried again after 5 000 ms."""
    trace = TraceWriter(stage.client, "trace", "host@1", "g")
    service = await Concurrent.on(stage, lambda *_: SUCCESS, trace=trace)
    write = trace._file.write

    def no_space(_: bytes) -> None:
        trace._file.write = write  # type: ignore[method-assign]
        raise OSError("no space left on device")

    trace._file.write = no_space  # type: ignore[method-assign,assignment]
    service.put(0)
    await service.quiet(4_999)
    assert (service.handled, service.commits) == ([0], [])
    assert stage.events("error") == ["consume_failed"]
    await service.quiet(2)
    assert (service.handled, service.commits) == ([0, 0], [1])
