"""Calls of plain listeners that wait for a thread, and the checks when they get one."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lockstep.client import ConsumeOrderlyContext, ConsumerConfig, MessageExt, MessageQueue
from lockstep.client.consumer.dispatch.call_start import CallStarts
from lockstep.client.consumer.dispatch.direct import ConsumeDirectly
from lockstep.client.consumer.dispatch.stats import ConsumerStatsManager
from lockstep.client.consumer.listener import ORDERLY, AroundListener, ListenerCall
from lockstep.client.hook_calls import ConsumeHooks
from lockstep.client.hooks import ConsumeMessageContext, ConsumeReturnType
from lockstep.protocol.bodies.client import CMResult
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.remoting.host.runtime import AsyncioRuntime, WorkerPool
from lockstep.simulation import SimRuntime
from tests.client.dispatch.concurrent_service import SUCCESS, Concurrent
from tests.client.dispatch.consume_service import Service, answers
from tests.client.dispatch.test_consume_by_key import Service as ByKey
from tests.client.messages import message_at, messages_at
from tests.client.periods import free, period
from tests.client.stage import Stage, on_stage, queue_at
from tests.remoting.helpers import RecordingLog, until

BUSY_MS = 50_000


def keep_busy(runtime: SimRuntime, pool: WorkerPool, threads: int) -> None:
    """Somebody else's jobs: an administrator's messages, say."""
    for _ in range(threads):
        pool.submit(lambda: runtime.block_ms(BUSY_MS))


@on_stage
async def test_in_order_a_call_looks_at_the_lock_when_its_thread_comes(stage: Stage) -> None:
    """It waited 50 s, and the lock lives 30: its messages are put back, the lock is asked for, and all are handled in
    order. No listener counts as running while the call waits, one does while it works, and the wait does not count as
    the listener's time."""
    service = Service(stage, answers(None), plain=True, consume_message_batch_max_size=2)
    keep_busy(stage.client, service.pool, 1)
    service.put(*range(4))
    await service.quiet(BUSY_MS - 100)
    assert service.calls == []
    running = [service.queue.life.listener_running]
    service.answer = lambda *_: stage.client.block_ms(2_000)
    await service.quiet(1_000)
    running.append(service.queue.life.listener_running)
    assert running == [False, True]
    await service.quiet(4_000)
    assert service.lock_asked == [BUSY_MS + 10]
    assert service.calls == [([0, 1], 0), ([2, 3], 0)]
    assert service.offsets == [2, 4]
    totals = service.stats.of(service.queue.queue.topic)
    assert (totals.calls, totals.consume_ms) == (2, 4_000)
    assert (service.stats.longest_wait_ms, service.stats.calls_not_begun) == (BUSY_MS, 1)


@on_stage
async def test_by_key_a_call_looks_at_the_lock_when_its_thread_comes(stage: Stage) -> None:
    """It waited 50 s, and the lock lives 30: the call is returned, the lock is asked for, and then each key is handled
    from its first message on; nothing was committed for unhandled messages."""
    service = ByKey(stage, plain=True, threads=2)
    keep_busy(stage.client, service.pool, 2)
    service.put(*range(6), keys="ab")
    await service.quiet(BUSY_MS - 100)
    assert service.calls == []
    await service.quiet()
    assert service.lock_asked == [BUSY_MS + 10]
    assert sorted(service.handled) == list(range(6))
    assert [offset for offset in service.handled if offset % 2] == [1, 3, 5]
    assert min(begin for _, _, begin, _ in service.calls) >= BUSY_MS
    assert service.offsets[-1] == 6
    assert {times for _, times, _, _ in service.calls} == {0}
    assert len([event for event in stage.log.events if event[1] == "call_not_begun"]) == 2
    await service.end()


@on_stage
async def test_by_key_nothing_begins_for_a_queue_that_was_given_away(stage: Stage) -> None:
    """Its calls wait for a thread when it is dropped: none is made, none is committed, and a new owner may begin."""
    service = ByKey(stage, plain=True, threads=2)
    keep_busy(stage.client, service.pool, 2)
    service.put(*range(6), keys="ab")
    await service.quiet()
    service.queue.life.dropped = True
    successor = service.new_queue()
    service.put(*range(6), keys="ab", queue=successor)
    successor.hold.granted(stage.client.now_ms() + BUSY_MS)
    await service.quiet(BUSY_MS)
    assert sorted(service.handled) == list(range(6))
    assert not service.queue.life.listener_running
    await service.end()


@pytest.mark.parametrize("stops", [True, False])
@on_stage
async def test_without_order_nothing_begins_for_another_s_messages(stage: Stage, stops: bool) -> None:
    """Nor after the consumer has stopped: nothing is committed or sent back, and all messages come again."""
    service = await Concurrent.on(stage, lambda *_: SUCCESS, plain=True, consume_thread_count=1)
    keep_busy(stage.client, service.service._pool, 1)
    service.put(0, 1, 2)
    await service.quiet()
    if stops:
        await service.service.stop(100)
    else:
        service.queue.life.dropped = True
    await service.quiet(BUSY_MS)
    assert (service.calls, service.commits, service.sent_back) == ([], [], [])


@on_stage
async def test_a_message_is_not_stuck_while_it_waits_for_a_thread(stage: Stage) -> None:
    """The time in the listener counts from the begin of the call: a waiting message is not sent back as stuck."""
    service = await Concurrent.on(
        stage, lambda *_: SUCCESS, plain=True, consume_thread_count=1, consume_timeout_ms=20_000
    )
    service.service.start()
    keep_busy(stage.client, service.service._pool, 1)
    service.put(0)
    await service.quiet(BUSY_MS + 100)
    assert service.sent_back == []
    assert service.calls == [([0], BUSY_MS)]


@on_stage
async def test_an_administrator_s_message_is_not_handled_when_nobody_waits(stage: Stage) -> None:
    """The broker gives up after 10 s; when a thread is free later the listener is not called, and the answer says
    why."""
    handled: list[MessageExt] = []
    pool = stage.client.new_worker_pool("p", 1)
    call = ListenerCall(lambda messages, _context: handled.extend(messages), pool, stage.log, ORDERLY)

    @asynccontextmanager
    async def between_runs(_queue: MessageQueue) -> AsyncIterator[None]:
        yield

    directly = ConsumeDirectly(stage.client, "g", call, between_runs)
    assert (await directly(message_at(1))).consume_result is CMResult.CR_SUCCESS
    keep_busy(stage.client, pool, 1)
    late = await directly(message_at(2))
    assert (late.consume_result, late.remark) == (
        CMResult.CR_LATER,
        "neither its queue nor a thread was free for 10000 ms: it was not called",
    )
    assert [message.queue_offset for message in handled] == [1]


@on_stage
async def test_an_administrator_s_message_that_waited_for_its_queue_is_not_handled(stage: Stage) -> None:
    """The queue's own calls delayed it by 11 s: the broker that asked has given up by then."""
    handled: list[MessageExt] = []
    pool = stage.client.new_worker_pool("p", 1)
    call = ListenerCall(lambda messages, _context: handled.extend(messages), pool, stage.log, ORDERLY)

    @asynccontextmanager
    async def between_runs(_queue: MessageQueue) -> AsyncIterator[None]:
        await asyncio.sleep(11)
        yield

    late = await ConsumeDirectly(stage.client, "g", call, between_runs)(message_at(1))
    assert (late.consume_result, handled) == (CMResult.CR_LATER, [])


class Hook:
    def __init__(self) -> None:
        self.ends: list[tuple[str, bool, ConsumeReturnType | None]] = []

    def before(self, context: ConsumeMessageContext) -> None:
        pass

    def after(self, context: ConsumeMessageContext) -> None:
        self.ends.append((context.status, context.success, context.return_type))


@on_stage
async def test_hooks_hear_the_time_of_the_listener_alone(stage: Stage) -> None:
    """A wait of 50 s for a thread is no timeout of 20 s; hooks see a call that was not begun as failed."""
    runtime, hook, config = stage.client, Hook(), ConsumerConfig(consume_timeout_ms=20_000)
    tenant = NamesOfTenant(None)
    hooks = ConsumeHooks("g", stage.log, tenant)
    hooks.add_consume(hook)
    pool = runtime.new_worker_pool("p", 1)
    around = AroundListener(hooks, tenant, config, runtime)
    call = ListenerCall(lambda _messages, _context: None, pool, stage.log, ORDERLY, around)
    starts = CallStarts(runtime, stage.log, config, ConsumerStatsManager(0), traced=False)
    for dropped in (False, True):
        queue = free(queue_at(0), runtime.now_ms())
        queue.life.dropped = dropped
        start = starts.new(marks_running=True)
        keep_busy(runtime, pool, 1)
        start.asked(queue, runtime.now_ms())
        outcome = await call(messages_at(1), ConsumeOrderlyContext(queue.queue), start)
        assert outcome.begun is not dropped
        assert start.waited_ms == BUSY_MS
    suspended = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
    assert hook.ends == [
        ("SUCCESS", True, ConsumeReturnType.SUCCESS),
        (suspended, False, ConsumeReturnType.FAILED),
    ]


async def test_on_a_real_thread_a_call_looks_again() -> None:
    """Behind a job that holds the only thread: while it waits no listener runs; given away meanwhile it is not made."""
    runtime, log = AsyncioRuntime(), RecordingLog()
    pool, free, called = runtime.new_worker_pool("one", 1), threading.Event(), list[Any]()
    call = ListenerCall(lambda messages, _context: called.append(messages[0].queue_offset), pool, log, ORDERLY)
    starts = CallStarts(runtime, log, ConsumerConfig(), ConsumerStatsManager(0), traced=True)
    queues = [period(queue_at(n), runtime.now_ms()) for n in range(4)]
    pool.submit(lambda: free.wait(30))
    calls = []
    for number, queue in enumerate(queues):
        start = starts.new(marks_running=True)
        start.asked(queue, runtime.now_ms())
        calling = call(messages_at(number), ConsumeOrderlyContext(queue.queue), start)
        calls.append((runtime.create_task(calling, name="call"), start))
    await until(lambda: pool._jobs.qsize() == 4)  # type: ignore[attr-defined]
    assert not any(queue.life.listener_running for queue in queues)
    queues[0].life.dropped = True
    queues[1].hold.locked = False
    queues[2].hold.last_lock_ms -= 30_001
    free.set()
    outcomes = [await task for task, _ in calls]
    assert called == [3]
    assert [outcome.begun for outcome in outcomes] == [False, False, False, True]
    assert [start.refusal for _, start in calls] == [
        "the queue was given up",
        "its lock had expired",
        "its lock had expired",
        None,
    ]
    assert [queue.life.listener_running for queue in queues] == [False, False, False, True]
    wall_ms, mono_ns = calls[3][1].begin
    assert 0 <= runtime.now_ms() - wall_ms < 30_000
    assert 0 <= runtime.monotonic_ns() - mono_ns < 30_000_000_000
    pool.close()
