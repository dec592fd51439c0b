"""ConsumeByKeyService with fakes for locks, offsets and dead letters: cases that no scenario shows."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

from lockstep.client import ConsumeOrderlyContext, ConsumerConfig, MessageExt, MessageQueue
from lockstep.client.consumer.cache.key_queues import KeyedCache
from lockstep.client.consumer.dispatch.by_key import ConsumeByKeyService
from lockstep.client.consumer.listener import BY_KEY
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.send_back import DeadLetters
from lockstep.client.errors import SendError, SendOutcome
from lockstep.order.traces.trace import TraceWriter
from lockstep.protocol.messages.properties import SHARDING_KEY
from lockstep.protocol.selector import KeyOf
from tests.client.dispatch.consume_service import SUSPEND, S
from tests.client.dispatch.service_parts import service_parts
from tests.client.messages import message_at
from tests.client.periods import period
from tests.client.stage import Stage, on_stage, queue_at

Answer = Callable[[MessageExt, ConsumeOrderlyContext], Any]


def keyed(offset: int, key: str) -> MessageExt:
    return message_at(offset, None, **{SHARDING_KEY: key})


class Service:
    """The service, one queue, and all it touches. `calls` are (offset, reconsume times, begin, end)."""

    def __init__(
        self,
        stage: Stage,
        answer: Answer = lambda _message, _context: None,
        *,
        work_ms: int = 0,
        plain: bool = False,
        threads: int = 2,
        trace: TraceWriter | None = None,
        **config: Any,
    ) -> None:
        self.stage, self.runtime = stage, stage.client
        self.answer, self.work_ms = answer, work_ms
        self.calls: list[list[int]] = []
        self.offsets: list[int] = []
        self.dead: list[int] = []
        self.not_taken: list[int] = []  # offsets of messages whose dead letters fail
        self.lock_answers: list[bool] = []
        self.lock_asked: list[int] = []
        self.config = ConsumerConfig(consume_thread_count=threads, **config)
        self.pool = stage.client.new_worker_pool("p", threads)
        listener = self._plain if plain else self._async
        parts = service_parts(
            stage, listener, BY_KEY, self.config, pool=self.pool, locks=self, offsets=self, trace=trace
        )
        self.service = ConsumeByKeyService(parts, cast("DeadLetters", self))
        self.queue = self.new_queue()

    def new_queue(self) -> ProcessQueue:
        return period(queue_at(0), self.runtime.now_ms(), cache=KeyedCache(self.config.key_span_max))

    def _plain(self, messages: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
        call = self._begin(messages)
        call[3] = self.stage.world.elapsed_ms
        return self.answer(messages[0], context)

    async def _async(self, messages: list[MessageExt], context: ConsumeOrderlyContext) -> Any:
        call = self._begin(messages)
        if self.work_ms:
            await asyncio.sleep(self.work_ms / 1000)
        call[3] = self.stage.world.elapsed_ms
        return self.answer(messages[0], context)

    def _begin(self, messages: list[MessageExt]) -> list[int]:
        message = messages[0]
        self.calls.append([message.queue_offset, message.reconsume_times, self.stage.world.elapsed_ms, -1])
        return self.calls[-1]

    # The fakes
    watches_calls = True

    def refused(self, _queue: ProcessQueue, _error: Exception) -> bool:
        return False

    def update(self, _queue: MessageQueue, offset: int) -> None:
        self.offsets.append(offset)

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        self.lock_asked.append(self.stage.world.elapsed_ms)
        if not (self.lock_answers.pop(0) if self.lock_answers else True):
            return {}
        self.queue.hold.granted(self.runtime.now_ms())
        return dict.fromkeys(queues, self.runtime.now_ms())

    async def send(self, _queue: ProcessQueue, message: MessageExt, _limit: int) -> None:
        if message.queue_offset in self.not_taken:
            raise SendError("no", SendOutcome.UNKNOWN, msg_id="x")
        self.dead.append(message.queue_offset)

    # What tests do
    def put(self, *offsets: int, keys: str = "abcd", queue: ProcessQueue | None = None) -> None:
        messages = [keyed(offset, keys[offset % len(keys)]) for offset in offsets]
        self.service.submit(queue or self.queue, messages)

    async def quiet(self, duration_ms: int = 500) -> None:
        await self.stage.world.sleep_ms(duration_ms)

    async def end(self) -> None:
        await self.service.stop(10_000)

    @property
    def handled(self) -> list[int]:
        return [offset for offset, _, _, _ in self.calls]


@on_stage
async def test_a_plain_listener_has_as_many_calls_as_threads(stage: Stage) -> None:
    """Key queues take turns at consume_thread_count calls: one that waited for a thread might have lost its lock."""
    service = Service(stage, plain=True, threads=2)
    service.put(*range(12))
    await service.quiet()
    assert sorted(service.handled) == list(range(12))
    assert [offset for offset in service.handled if offset % 4 == 1] == [1, 5, 9]
    assert service.service._workers._count == 2
    service.service.set_consume_thread_count(4)
    service.put(*range(12, 24))
    await service.quiet()
    assert service.service._workers._count == 4
    assert service.offsets[-1] == 24
    await service.end()


@on_stage
async def test_the_pool_shrinks_at_once(stage: Stage) -> None:
    """Workers over the new number leave with their present call."""
    service = Service(stage, work_ms=100, key_concurrency=4)
    service.put(*range(16))
    service.service._workers.set_limit(1)
    await service.quiet(2000)
    assert sorted(service.handled) == list(range(16))
    at_once = [sum(o[2] <= call[2] < o[3] for o in service.calls) for call in service.calls]
    assert (max(at_once[:4]), max(at_once[4:])) == (4, 1)
    await service.end()


@on_stage
async def test_a_queue_is_idle_when_the_calls_of_all_keys_have_ended(stage: Stage) -> None:
    """A rebalance that waits for its calls waits for the last of them."""
    service = Service(stage, work_ms=200)
    service.put(0)
    await service.quiet(100)
    service.put(1)
    await service.quiet(150)
    assert [call[3] >= 0 for call in service.calls] == [True, False]
    running = [service.queue.life.listener_running]
    await service.quiet(100)
    assert [*running, service.queue.life.listener_running] == [True, False]
    await service.end()


@on_stage
async def test_a_listener_that_never_waits_lets_others_run(stage: Stage) -> None:
    """After 64 calls the loop serves others."""
    service = Service(stage)
    seen: list[int] = []

    async def other() -> None:
        for _ in range(3):
            seen.append(len(service.calls))
            await asyncio.sleep(0)

    service.put(*range(1000), keys="a")
    await asyncio.gather(other())
    assert 0 < seen[-1] < 1000
    await service.quiet()
    assert service.handled == list(range(1000))
    await service.end()


@on_stage
async def test_manual_commit_is_warned_of_once(stage: Stage) -> None:
    """COMMIT, ROLLBACK and auto_commit = False are SUCCESS by key; the log says so, once."""

    def answer(message: MessageExt, context: ConsumeOrderlyContext) -> Any:
        context.auto_commit = message.queue_offset == 0
        return (S.ROLLBACK, S.COMMIT, S.SUCCESS)[message.queue_offset]

    service = Service(stage, answer)
    service.put(0, 1, 2)
    await service.quiet()
    assert service.offsets[-1] == 3
    warned = "manual_commit_not_supported"
    assert stage.events("warning") == [warned]
    await service.end()


@on_stage
async def test_between_runs_nobody_calls(stage: Stage) -> None:
    """Calls at work end first, none begins in it, all go on after it; two administrators take turns."""
    service = Service(stage, work_ms=100)
    service.put(*range(8))
    inside: list[tuple[int, int]] = []

    async def administrator() -> None:
        async with service.service.between_runs(queue_at(0)):
            begin = stage.world.elapsed_ms
            await asyncio.sleep(1)
            inside.append((begin, stage.world.elapsed_ms))

    await service.quiet(50)
    await asyncio.gather(administrator(), administrator())
    await service.quiet(1000)
    assert sorted(service.handled) == list(range(8))
    (first, second) = inside
    assert first[0] == 100
    assert second[0] >= first[1]
    assert all(end <= first[0] or begin >= second[1] for _, _, begin, end in service.calls)
    await service.end()


@on_stage
async def test_generations_of_a_queue_never_meet(stage: Stage) -> None:
    """A queue that came back waits for the calls that its earlier period still has at work."""
    service = Service(stage, work_ms=1000)
    service.put(0, 1)
    await service.quiet(100)
    service.queue.life.dropped = True
    again = service.new_queue()
    service.put(0, 1, 2, queue=again)
    await service.quiet(3000)
    assert service.handled == [0, 1, 0, 1, 2]
    assert min(begin for _, _, begin, _ in service.calls[2:]) == 1000
    assert service.offsets == [1, 2, 3]  # of the new period alone: a dropped queue commits nothing
    assert list(service.service._states) == [again]
    await service.end()


@on_stage
async def test_a_lock_that_ran_out_is_asked_for_and_keys_go_on(stage: Stage) -> None:
    """Refused it is asked for again after 3 s, granted every key queue goes on where it was."""
    service = Service(stage, lambda m, _: SUSPEND if m.queue_offset == 0 and stage.world.elapsed_ms < 5000 else None)
    service.lock_answers = [False, True]
    service.put(0, 1)
    await service.quiet(500)
    service.queue.hold.last_lock_ms -= service.config.lock_max_live_time_ms + 1000
    service.put(2, 3, 4, 5)
    await service.quiet(2000)
    assert service.handled == [0, 1]
    await service.quiet(20_000)
    assert service.lock_asked[1] - service.lock_asked[0] == 3010
    assert sorted(set(service.handled)) == [0, 1, 2, 3, 4, 5]
    assert service.offsets[-1] == 6
    await service.end()


@on_stage
async def test_messages_beyond_the_span_are_handled_in_the_end(stage: Stage) -> None:
    """Each goes to a worker when the lowest offset has moved on, also the first of a key that was not seen before."""
    service = Service(stage, work_ms=10, key_span_max=4)
    service.put(*range(10), keys="abcdefghij")
    await service.quiet()
    assert service.handled == list(range(10))
    assert service.offsets[-1] == 10
    await service.end()


@on_stage
async def test_a_trace_that_cannot_be_written_commits_nothing(stage: Stage) -> None:
    """The key is suspended and tried again; an offset is not committed before its record is written."""

    class Trace:
        broken = True

        def now(self) -> tuple[int, int]:
            return 0, 0

        def handled(self, *_: object, ordering: str, key_of: KeyOf) -> None:
            assert (ordering, key_of(keyed(9, "other"))) == ("key", "a")  # the key queue's
            if self.broken:
                raise OSError("disk full")

    trace = Trace()
    service = Service(stage, trace=cast("TraceWriter", trace))
    service.put(0)
    await service.quiet(900)
    assert (service.handled, service.offsets) == ([0], [0])  # where it stands: nothing is passed over by a restart
    assert stage.events("error") == ["consume_failed"]
    trace.broken = False
    await service.quiet(1000)
    assert (service.handled, service.offsets) == ([0, 0], [0, 1])
    await service.end()


@on_stage
async def test_of_a_batch_that_is_given_up_in_part_the_rest_comes_again(stage: Stage) -> None:
    """A dead letter was not taken: its message alone is tried again, and the offset waits for it."""
    service = Service(
        stage,
        lambda _message, _context: SUSPEND if len(service.calls) == 1 else None,
        max_reconsume_times=0,
        consume_message_batch_max_size=2,
    )
    service.not_taken = [1]
    service.put(0, 1, keys="a")
    await service.quiet(500)
    assert (service.dead, service.offsets) == ([0], [1])
    await service.quiet(1000)
    assert (service.handled, service.offsets) == ([0, 1], [1, 2])
    await service.end()


@on_stage
async def test_stop_names_the_queues_that_are_stuck(stage: Stage) -> None:
    """It waits for all calls at work, so long and no longer; nothing new begins."""
    service = Service(stage, work_ms=5000)
    service.put(*range(8))
    await service.quiet(100)
    assert await service.service.stop(1000) == [service.queue]
    assert stage.world.elapsed_ms == 1100
    assert await service.service.stop(10_000) == []
    assert stage.world.elapsed_ms == 5000
    await service.quiet(10_000)
    assert sorted(service.handled) == [0, 1, 2, 3]
    assert service.offsets[-1] == 4


@on_stage
async def test_what_arrives_during_a_stop_is_not_committed(stage: Stage) -> None:
    """The next pull would begin behind it; the call that ends meanwhile commits what was handled, and no more."""
    service = Service(stage, work_ms=1000)
    service.queue.cache.next_offset = 1
    service.put(0)
    await service.quiet(100)
    stopping = stage.client.create_task(service.service.stop(10_000), name="stop")
    await service.quiet(100)
    service.queue.cache.next_offset = 2
    service.put(1)
    await stopping
    assert (service.handled, service.offsets) == ([0], [1])


@on_stage
async def test_what_running_info_says(stage: Stage) -> None:
    """Parked messages are cached ones, and the position is the lowest that is not handled."""
    service = Service(stage, lambda message, _: SUSPEND if message.queue_offset == 1 else None)
    service.queue.cache.next_offset = 8
    assert service.queue.cache.position == 8
    service.put(*range(8))
    await service.quiet(100)
    info = service.queue.info(1)
    assert (info.cached_msg_min_offset, info.cached_msg_max_offset, info.cached_msg_count) == (1, 7, 2)
    assert (service.queue.cache.position, service.queue.cache.is_empty, service.queue.cache.message_count) == (
        1,
        False,
        0,
    )
    assert (service.queue.cache.max_span, service.queue.cache.is_full) == (6, False)
    await service.end()
