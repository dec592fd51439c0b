"""What a listener's answer does to its queue (wire.md 12.7), between fakes for locks, offsets and dead letters."""

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from lockstep.client import ConsumeOrderlyContext, ConsumeOrderlyStatus, ConsumerConfig, MessageExt, MessageQueue
from lockstep.client.consume_orderly import ConsumeMessageOrderlyService
from lockstep.client.dead_letters import DeadLetters
from lockstep.client.errors import SendError, SendOutcome
from lockstep.client.listener import ListenerCall
from lockstep.client.offset_store import RemoteBrokerOffsetStore
from lockstep.client.process_queue import ProcessQueue
from lockstep.client.queue_locks import QueueLocks
from lockstep.client.trace import TraceWriter
from lockstep.simulation import SimRuntime
from tests.client.messages import message_at, messages_at
from tests.client.stage import Stage, on_stage, queue_at

S = ConsumeOrderlyStatus
SUSPEND = S.SUSPEND_CURRENT_QUEUE_A_MOMENT
LIVE_MS = ConsumerConfig().lock_max_live_time_ms
Answer = Callable[[list[MessageExt], ConsumeOrderlyContext], Any]


class Service:
    """The service under test, one queue, and everything it touches. Calls are (offset, reconsume times, when)."""

    def __init__(self, stage: Stage, answer: Answer, *, trace: TraceWriter | None = None, **config: Any) -> None:
        self.stage = stage
        self.runtime: SimRuntime = stage.client
        self.config = ConsumerConfig(**config)
        self.answer = answer
        self.calls: list[tuple[list[int], int]] = []
        self.times: list[int] = []
        self.offsets: list[int] = []
        self.dead: list[int] = []
        self.dead_letters_fail = False
        self.on_commit: Callable[[], object] = lambda: None
        self.lock_answers: list[bool] = []
        self.lock_asked: list[int] = []
        self.log = stage.log
        self.service = ConsumeMessageOrderlyService(
            runtime=stage.client,
            config=self.config,
            call=ListenerCall(self._listen, stage.client.new_worker_pool("p", 1), stage.log),
            locks=cast("QueueLocks", self),
            offsets=cast("RemoteBrokerOffsetStore", self),
            dead_letters=cast("DeadLetters", self),
            trace=trace,
            log=stage.log,
        )
        self.queue = self.new_queue()

    def new_queue(self, *, locked: bool = True) -> ProcessQueue:
        now_ms = self.runtime.now_ms()
        return ProcessQueue(queue_at(0), 1, now_ms, locked_ms=now_ms if locked else None)

    async def _listen(self, messages: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
        self.calls.append(([message.queue_offset for message in messages], messages[0].reconsume_times))
        self.times.append(self.stage.world.elapsed_ms)
        result = self.answer(messages, context)
        return await result if asyncio.iscoroutine(result) else result

    # The fakes
    def update(self, _queue: MessageQueue, offset: int) -> None:
        self.on_commit()
        self.offsets.append(offset)

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        self.lock_asked.append(self.stage.world.elapsed_ms)
        if not (self.lock_answers.pop(0) if self.lock_answers else True):
            return {}
        self.queue.granted(self.runtime.now_ms())
        return {queue: self.runtime.now_ms() for queue in queues}

    async def send(self, _queue: ProcessQueue, message: MessageExt, _limit: int) -> None:
        if self.dead_letters_fail:
            raise SendError("no", SendOutcome.UNKNOWN, msg_id="x")
        self.dead.append(message.queue_offset)

    # What tests do
    def put(self, *offsets: int) -> None:
        if self.queue.put_messages(messages_at(*offsets)):
            self.service.submit(self.queue)

    async def quiet(self, duration_ms: int = 500) -> None:
        await self.stage.world.sleep_ms(duration_ms)

    @property
    def handled(self) -> list[int]:
        return [offset for offsets, _ in self.calls for offset in offsets]


def answers(*given: Any, auto_commit: bool = True, suspend_ms: int = -1) -> Answer:
    left = list(given)

    def answer(_: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
        context.auto_commit = auto_commit
        context.suspend_current_queue_time_ms = suspend_ms
        return left.pop(0) if len(left) > 1 else left[0]

    return answer


# Automatic commit --------------------------------------------------------------------------------------------


@on_stage
async def test_success_commits_message_by_message(stage: Stage) -> None:
    """In offset order, each one's offset + 1, and the task ends when nothing is left."""
    service = Service(stage, answers(None))
    service.put(3, 4, 9)
    await service.quiet()
    assert service.handled == [3, 4, 9]
    assert service.offsets == [4, 5, 10]
    assert service.service._running == {}
    service.put(10)
    await service.quiet()
    assert service.offsets[-1] == 11


@on_stage
async def test_batches(stage: Stage) -> None:
    """At most consumeMessageBatchMaxSize messages a call, one commit each."""
    service = Service(stage, answers(None), consume_message_batch_max_size=4)
    service.put(*range(10))
    await service.quiet()
    assert [offsets for offsets, _ in service.calls] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert service.offsets == [4, 8, 10]


@pytest.mark.parametrize("status", [S.COMMIT, S.ROLLBACK])
def test_commit_and_rollback_need_manual_commit(status: S) -> None:
    """With auto_commit on they count as success, and the log says so (wire.md 12.7)."""

    @on_stage
    async def play(stage: Stage) -> None:
        service = Service(stage, answers(status, None))
        service.put(0, 1)
        await service.quiet()
        assert service.offsets == [1, 2]
        assert stage.events("warning") == ["COMMIT and ROLLBACK need context.auto_commit = False"]

    play()


@on_stage
async def test_suspension_repeats_the_call_and_blocks_the_queue(stage: Stage) -> None:
    """The same messages come again 1000 ms later, counted up; nothing behind them is handled first."""
    service = Service(stage, answers(SUSPEND, SUSPEND, None), consume_message_batch_max_size=2)
    service.put(0, 1, 2)
    await service.quiet(5000)
    assert service.calls == [([0, 1], 0), ([0, 1], 1), ([0, 1], 2), ([2], 0)]
    assert [later - earlier for earlier, later in zip(service.times, service.times[1:], strict=False)] == [
        1000,
        1000,
        0,
    ]
    assert service.offsets == [2, 3]


@pytest.mark.parametrize(("wanted_ms", "waited_ms"), [(-1, 1000), (0, 10), (9, 10), (500, 500), (60_000, 30_000)])
def test_how_long_a_queue_is_suspended(wanted_ms: int, waited_ms: int) -> None:
    """As the context says, from 10 ms to 30 s; -1 is the consumer's setting."""

    @on_stage
    async def play(stage: Stage) -> None:
        service = Service(stage, answers(SUSPEND, None, suspend_ms=wanted_ms), suspend_current_queue_time_ms=1000)
        service.put(0)
        await service.quiet(25_000)
        service.queue.granted(stage.client.now_ms())
        await service.quiet(10_000)
        assert service.times[1] - service.times[0] == waited_ms

    play()


# Giving up ---------------------------------------------------------------------------------------------------


@on_stage
async def test_a_message_at_its_limit_becomes_a_dead_letter(stage: Stage) -> None:
    """maxReconsumeTimes 2: handled with 0, 1 and 2, then given up, committed, and the queue goes on."""
    service = Service(
        stage, lambda messages, _: SUSPEND if messages[0].queue_offset == 0 else None, max_reconsume_times=2
    )
    service.put(0, 1)
    await service.quiet(5000)
    assert service.calls == [([0], 0), ([0], 1), ([0], 2), ([1], 0)]
    assert service.dead == [0]
    assert service.offsets == [1, 2]


@on_stage
async def test_a_dead_letter_that_cannot_be_sent_stays(stage: Stage) -> None:
    """The message is tried again, its count goes on, and later it is given up after all."""
    service = Service(stage, answers(SUSPEND), max_reconsume_times=0)
    service.dead_letters_fail = True
    service.put(0)
    await service.quiet(2500)
    assert [times for _, times in service.calls] == [0, 1, 2]
    assert service.offsets == []
    service.dead_letters_fail = False
    await service.quiet(1000)
    assert service.dead == [0]
    assert service.offsets == [1]


@on_stage
async def test_without_a_limit_nothing_is_given_up(stage: Stage) -> None:
    """-1, the default of orderly consumption, is 2^31 - 1 attempts."""
    service = Service(stage, answers(SUSPEND, suspend_ms=10))
    service.put(0)
    await service.quiet(2000)
    assert len(service.calls) > 100
    assert service.dead == []


# Manual commit -----------------------------------------------------------------------------------------------


@on_stage
async def test_success_without_commit_keeps_messages_in_hand(stage: Stage) -> None:
    """The queue goes on, nothing is committed until COMMIT, which commits all of it."""
    service = Service(stage, answers(None, S.SUCCESS, S.COMMIT, None, auto_commit=False))
    service.put(0, 1, 2, 3)
    await service.quiet()
    assert service.handled == [0, 1, 2, 3]
    assert service.offsets == [3]


@on_stage
async def test_rollback_brings_back_everything_since_the_commit(stage: Stage) -> None:
    """After the suspension time, in order."""
    service = Service(stage, answers(S.COMMIT, None, S.ROLLBACK, S.COMMIT, auto_commit=False))
    service.put(0, 1, 2, 3)
    await service.quiet(3000)
    assert service.handled == [0, 1, 2, 1, 2, 3]
    assert service.times[3] - service.times[2] == 1000
    assert service.offsets == [1, 2, 3, 4]


@on_stage
async def test_suspend_under_manual_commit_brings_back_the_call_alone(stage: Stage) -> None:
    """What was handled before stays in hand and is committed with the next COMMIT."""
    service = Service(stage, answers(None, SUSPEND, S.COMMIT, auto_commit=False))
    service.put(0, 1)
    await service.quiet(3000)
    assert service.handled == [0, 1, 1]
    assert service.offsets == [2]


@on_stage
async def test_given_up_under_manual_commit_commits_nothing(stage: Stage) -> None:
    """The table's last row: the queue goes on, the commit is the listener's."""
    service = Service(stage, answers(SUSPEND, S.COMMIT, auto_commit=False), max_reconsume_times=0)
    service.put(0, 1)
    await service.quiet(3000)
    assert service.dead == [0]
    assert service.handled == [0, 1]
    assert service.offsets == [2]


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
    assert service.offsets == [1]


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
    assert service.offsets == [1, 2]


@on_stage
async def test_a_long_run_lets_others_have_the_loop(stage: Stage) -> None:
    """After 60 s of continuous consumption the task ends and is submitted again 10 ms later."""

    async def second() -> None:
        await asyncio.sleep(1)
        service.queue.granted(stage.client.now_ms())

    service = Service(stage, lambda *_: second())
    service.put(*range(62))
    await service.quiet(64_000)
    gaps = [later - earlier for earlier, later in zip(service.times, service.times[1:], strict=False)]
    assert gaps == [1000] * 60 + [1010]


@on_stage
async def test_a_dropped_queue_stops_and_commits_nothing(stage: Stage) -> None:
    """The listener that runs may end; its result is nobody's any more."""
    service = Service(stage, lambda *_: asyncio.sleep(1))
    service.put(0, 1, 2)
    await service.quiet(1500)
    service.queue.dropped = True
    await service.quiet(3000)
    assert service.handled == [0, 1]
    assert service.offsets == [1]
    assert not service.queue.listener_running


@on_stage
async def test_two_generations_of_a_queue_never_run_at_once(stage: Stage) -> None:
    """The new one waits until the listener of the old one has returned, however long that takes."""
    service = Service(stage, lambda *_: asyncio.sleep(20))
    service.put(0, 1)
    await service.quiet(1000)
    service.queue.dropped = True
    service.queue = service.new_queue()
    service.put(0)
    await service.quiet(45_000)
    assert service.times == [0, 20_000]


@on_stage
async def test_stopping(stage: Stage) -> None:
    """Nothing new is begun; those whose listener returns in time are not stuck, the others are named."""
    service = Service(stage, lambda messages, _: asyncio.sleep(3 if messages[0].queue_offset == 0 else 30))
    service.put(0, 1)
    await service.quiet(100)
    assert await service.service.stop(5000) == []
    assert service.handled == [0]
    assert service.offsets == [1]
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
    """The list is the listener's own: what it removes is still committed, or comes again."""

    def greedy(messages: list[MessageExt], _: ConsumeOrderlyContext) -> Any:
        taken = [messages.pop() for _ in range(len(messages))]
        return SUSPEND if len(service.calls) == 1 else (None if taken else SUSPEND)

    service = Service(stage, greedy, consume_message_batch_max_size=3)
    service.put(0, 1, 2)
    await service.quiet(3000)
    assert [offsets for offsets, _ in service.calls] == [[0, 1, 2], [0, 1, 2]]
    assert service.offsets == [3]


@on_stage
async def test_a_context_may_be_set_to_anything_true_or_false(stage: Stage) -> None:
    """`auto_commit = 0` is False."""

    def manual(_: list[MessageExt], context: ConsumeOrderlyContext) -> S:
        context.auto_commit = cast("bool", 0 if len(service.calls) == 1 else 1)
        return S.SUCCESS

    service = Service(stage, manual)
    service.put(0, 1)
    await service.quiet()
    assert service.offsets == [2]


@on_stage
async def test_a_trace_that_cannot_be_written(stage: Stage) -> None:
    """Evidence comes before the commit: the queue is suspended with an error in the log, and tried again."""
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
    assert service.offsets == [1, 2]
    assert stage.events("error") == ["consumption failed: queue suspended"] * 2
    trace.close()


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
    """What comes from the retry topic is shown to the listener under the topic it was sent to."""
    topics: list[str] = []
    service = Service(stage, lambda messages, _: topics.append(messages[0].topic))
    service.queue = ProcessQueue(queue_at(0, topic="%RETRY%g"), 1, 0, locked_ms=stage.client.now_ms())
    if service.queue.put_messages([message_at(0, RETRY_TOPIC="Aircraft")]):
        service.service.submit(service.queue)
    await service.quiet()
    assert topics == ["Aircraft"]
