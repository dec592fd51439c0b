"""Consumption by key: the messages of one queue at once, those of one sharding key in order (docs/order.md 4).

Beyond RocketMQ. As with ConsumeMessageOrderlyService the broker's lock guards a queue, the calls of two generations of
a process queue never meet (`QueueGate`), and a rebalance waits for running calls (`listener_running`). Unlike there,
what is committed is the lowest offset that is not handled, and a listener's failure parks its key alone.

A lane runs in a worker until it is empty, or others wait for the worker: no task, timer or log line a message.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from lockstep.client.config import ConsumerConfig
from lockstep.client.consume_stats import ConsumeStats
from lockstep.client.dead_letters import DeadLetters
from lockstep.client.errors import SendError
from lockstep.client.key_lanes import Lane
from lockstep.client.keyed_process_queue import KeyedProcessQueue
from lockstep.client.lane_workers import LaneWorkers
from lockstep.client.listener import ConsumeOrderlyContext, ConsumeOrderlyStatus, ListenerCall
from lockstep.client.offset_store import OffsetStore
from lockstep.client.process_queue import ProcessQueue
from lockstep.client.queue_gate import QueueGate
from lockstep.client.queue_locks import Locks
from lockstep.client.trace import TraceWriter
from lockstep.protocol import properties as names
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import is_retry_topic
from lockstep.remoting.logs import EventLog
from lockstep.remoting.runtime import Runtime, WorkerPool

__all__ = ["ConsumeByKeyService"]

_SUSPEND_MIN_MS: Final = 10  # as in queue order (wire.md 12.7)
_SUSPEND_MAX_MS: Final = 30_000
_LOCK_RETRY_MS, _LOCK_GRANTED_MS, _LOCK_REFUSED_MS = 10, 10, 3000
_YIELD_AFTER: Final = 64  # listener calls, after which the loop serves others even if none of them waited
_UNLIMITED: Final = 2**31 - 1

_SUCCESS = ConsumeOrderlyStatus.SUCCESS
_SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


_Item = tuple[KeyedProcessQueue, Lane]


class _Work:
    """One process queue as the service sees it."""

    __slots__ = ("asks_for_lock", "committed", "gate", "held", "is_retry", "says_stopped", "totals")

    def __init__(self, topic: str, gate: QueueGate[_Item], stats: ConsumeStats) -> None:
        self.gate = gate
        self.totals = stats.of(topic)
        self.is_retry = is_retry_topic(topic)
        self.committed = -1
        self.held: list[_Item] = []  # lanes that wait for the lock
        self.asks_for_lock = False
        self.says_stopped = False


class ConsumeByKeyService:
    def __init__(
        self,
        *,
        runtime: Runtime,
        config: ConsumerConfig,
        call: ListenerCall[ConsumeOrderlyStatus],
        locks: Locks,
        offsets: OffsetStore,
        dead_letters: DeadLetters,
        stats: ConsumeStats,
        pool: WorkerPool,
        trace: TraceWriter | None,
        log: EventLog,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._call = call
        self._locks = locks
        self._offsets = offsets
        self._dead_letters = dead_letters
        self._stats = stats
        self._pool = pool
        self._trace = trace
        self._log = log
        limit = config.key_concurrency if call.is_async else config.consume_thread_count
        self._workers = LaneWorkers[_Item](runtime, "consume by key", limit, self._work)
        self._works: dict[KeyedProcessQueue, _Work] = {}
        self._gates: dict[MessageQueue, QueueGate[_Item]] = {}
        self._running: dict[KeyedProcessQueue, None] = {}  # with calls at work, dropped ones too
        self._calls = 0
        self._warned = False
        self._stopped = False

    # The outside ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        pass

    def submit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        assert isinstance(process_queue, KeyedProcessQueue)
        if self._stopped or process_queue.dropped:
            return
        work = self._works.get(process_queue)
        if work is None:
            work = self._new_work(process_queue)
        for lane in process_queue.put_in_lanes(messages):
            self._workers.start((process_queue, lane))
        if not work.says_stopped:
            self._say_when_stopped(process_queue, work)

    def _new_work(self, process_queue: KeyedProcessQueue) -> _Work:
        for old in [old for old in self._works if old.dropped and old not in self._running]:
            del self._works[old]
        queue = process_queue.queue
        work = self._works[process_queue] = _Work(queue.topic, self._gate(queue), self._stats)
        return work

    def _gate(self, queue: MessageQueue) -> QueueGate[_Item]:
        gate = self._gates.get(queue)
        if gate is None:
            gate = self._gates[queue] = QueueGate(self._workers.start)
        return gate

    def between_runs(self, queue: MessageQueue) -> AbstractAsyncContextManager[None]:
        return self._gate(queue).closed()

    def set_consume_thread_count(self, count: int) -> None:
        self._pool.resize(count)
        if not self._call.is_async:
            self._workers.set_limit(count)

    async def stop(self, timeout_ms: int) -> list[ProcessQueue]:
        """Take no more messages; the queues that still have a listener at work after `timeout_ms`."""
        self._stopped = True
        self._workers.stop()
        deadline_ms = self._runtime.now_ms() + timeout_ms
        for process_queue in list(self._running):
            await process_queue.listener_idle(max(deadline_ms - self._runtime.now_ms(), 0))
        return list(self._running)

    # A lane's run --------------------------------------------------------------------------------------------

    async def _work(self, first: _Item) -> None:
        """A worker's life: lane after lane."""
        workers = self._workers
        item: _Item | None = first
        try:
            while item is not None:
                process_queue, lane = item
                work = self._works.get(process_queue)
                if work is not None:  # else dropped, and forgotten
                    try:
                        await self._run_lane(process_queue, lane, work)
                    except Exception as error:  # a trace that cannot be written, say
                        self._run_failed(process_queue, lane, work, error)
                item = workers.next_now() or await workers.rest()
        finally:
            workers.left()

    def _run_failed(self, process_queue: KeyedProcessQueue, lane: Lane, work: _Work, error: Exception) -> None:
        """Try again rather than stop in silence."""
        self._log.error(
            "consumption failed: key suspended",
            queue=str(process_queue.queue),
            key=lane.key,
            error=f"{type(error).__name__}: {error}",
        )
        if lane.taken:
            process_queue.lanes.failed(lane)
            self._returned(process_queue, work)
        self._retry_later(process_queue, lane, self._config.suspend_current_queue_time_ms)

    async def _run_lane(self, process_queue: KeyedProcessQueue, lane: Lane, work: _Work) -> None:
        """Call after call, until the lane is empty or parked, may not go on, or others wait for the worker."""
        runtime, lanes, queue, trace = self._runtime, process_queue.lanes, process_queue.queue, self._trace
        batch_size, workers = self._config.consume_message_batch_max_size, self._workers
        has_more = True
        now_ms = runtime.now_ms()
        while has_more and self._may_start(process_queue, lane, work, now_ms):
            process_queue.last_consume_ms = now_ms
            messages = lanes.take(lane, batch_size)
            if lanes.running == 1:
                self._running[process_queue] = None
                process_queue.listener_running = True
                work.gate.user = process_queue
            if work.is_retry:
                for message in messages:
                    message.topic = message.properties.get(names.RETRY_TOPIC, message.topic)
            context = ConsumeOrderlyContext(queue)
            begin = trace.now() if trace is not None else (0, 0)
            status = (await self._call(messages.copy(), context)).status  # a listener may empty its list
            began_ms, now_ms = now_ms, runtime.now_ms()
            work.totals.consumed(len(messages), now_ms - began_ms, status is _SUSPEND)
            if trace is not None:
                trace.handled(queue, process_queue.period, messages, status.name, begin, ordering="key")
            if status is _SUSPEND:
                has_more = await self._suspend(process_queue, lane, work, context)
            else:
                if status is not _SUCCESS or not context.auto_commit:
                    self._warn_of_manual_commit(queue)
                has_more = lanes.handled(lane)
            self._returned(process_queue, work)
            self._calls += 1
            if self._calls % _YIELD_AFTER == 0:
                await asyncio.sleep(0)
                now_ms = runtime.now_ms()
            if has_more and workers.crowded:
                workers.start((process_queue, lane))
                return

    def _may_start(self, process_queue: KeyedProcessQueue, lane: Lane, work: _Work, now_ms: int) -> bool:
        """Without the lock or the gate the lane is kept until it can be had."""
        if process_queue.dropped or self._stopped:
            if process_queue not in self._running:
                self._works.pop(process_queue, None)  # what it holds is a later owner's
            return False
        if not process_queue.holds_lock(now_ms, self._config.lock_max_live_time_ms):
            work.held.append((process_queue, lane))
            self._try_lock_later(process_queue, work)
            return False
        if not work.gate.is_open_to(process_queue):
            work.gate.held.append((process_queue, lane))
            return False
        return True

    def _returned(self, process_queue: KeyedProcessQueue, work: _Work) -> None:
        """A call is over and its lane accounted for: commit what is committed, and tell those who wait."""
        lanes = process_queue.lanes
        process_queue.note_content()
        offset = lanes.commit_offset
        if offset != work.committed and not process_queue.dropped:
            work.committed = offset
            self._offsets.update(process_queue.queue, offset)
            if lanes.has_beyond:
                for lane in lanes.release():
                    self._workers.start((process_queue, lane))
                process_queue.note_content()
            if work.says_stopped:
                self._say_when_on(process_queue, work)
        if not lanes.running:
            del self._running[process_queue]
            if process_queue.dropped:
                self._works.pop(process_queue, None)
            process_queue.listener_returned()
            work.gate.leave()

    # Failures ------------------------------------------------------------------------------------------------

    async def _suspend(
        self, process_queue: KeyedProcessQueue, lane: Lane, work: _Work, context: ConsumeOrderlyContext
    ) -> bool:
        """Park the key, but for messages at their limit, which become dead letters. Whether the lane goes on now."""
        lanes = process_queue.lanes
        dead = await self._give_up(process_queue, lane.taken)
        if len(dead) == len(lane.taken):
            return lanes.handled(lane)
        if not lane.is_parked:
            head = lane.taken[0]
            self._log.debug("key parked", queue=str(process_queue.queue), key=lane.key, offset=head.queue_offset)
        if dead:
            lanes.handled(lane, dead)
            lanes.park(lane)
        else:
            lanes.failed(lane)
        wanted_ms = context.suspend_current_queue_time_ms
        if wanted_ms < 0:
            wanted_ms = self._config.suspend_current_queue_time_ms
        self._retry_later(process_queue, lane, min(max(wanted_ms, _SUSPEND_MIN_MS), _SUSPEND_MAX_MS))
        if not work.says_stopped:
            self._say_when_stopped(process_queue, work)
        return False

    async def _give_up(self, process_queue: KeyedProcessQueue, messages: Sequence[MessageExt]) -> list[MessageExt]:
        """Those that became dead letters; the others have one more attempt behind them."""
        limit = self._config.max_reconsume_times
        limit = _UNLIMITED if limit < 0 else limit
        dead = []
        for message in messages:
            if message.reconsume_times >= limit:
                try:
                    await self._dead_letters.send(process_queue, message, limit)
                    dead.append(message)
                    continue
                except SendError as error:
                    self._log.warning("dead letter not sent", queue=str(process_queue.queue), error=str(error))
            message.reconsume_times += 1
        return dead

    def _retry_later(self, process_queue: KeyedProcessQueue, lane: Lane, delay_ms: int) -> None:
        self._runtime.call_later_ms(delay_ms, self._workers.start, (process_queue, lane))

    def _warn_of_manual_commit(self, queue: MessageQueue) -> None:
        if not self._warned:
            self._warned = True
            self._log.warning(
                "by key every success is committed: COMMIT, ROLLBACK and auto_commit = False are SUCCESS",
                queue=str(queue),
            )

    # A queue that stands -------------------------------------------------------------------------------------

    def _say_when_stopped(self, process_queue: KeyedProcessQueue, work: _Work) -> None:
        """Once for each stop: what keeps a queue from being pulled though its other keys are handled."""
        lanes = process_queue.lanes
        if lanes.is_full:
            lane = lanes.lane_at_head()
        elif lanes.message_bytes > self._config.pull_threshold_bytes_for_queue:
            lane = max(lanes.parked, key=lambda lane: len(lane.waiting), default=None)
        else:
            return
        if lane is None:
            return  # much in hand, and none of it parked: it is being handled
        work.says_stopped = True
        self._log.error(
            "queue stopped: a key holds it up",
            queue=str(process_queue.queue),
            key=lane.key,
            offset=lane.head.queue_offset,
            reconsume_times=lane.head.reconsume_times,
            span=lanes.span,
            span_max=lanes.span_max,
            bytes=lanes.message_bytes,
        )

    def _say_when_on(self, process_queue: KeyedProcessQueue, work: _Work) -> None:
        lanes = process_queue.lanes
        if not lanes.is_full and lanes.message_bytes <= self._config.pull_threshold_bytes_for_queue:
            work.says_stopped = False
            self._log.info("queue goes on", queue=str(process_queue.queue), offset=lanes.commit_offset)

    # The lock ------------------------------------------------------------------------------------------------

    def _try_lock_later(self, process_queue: KeyedProcessQueue, work: _Work) -> None:
        """Ask for the lock, and start what was held for it, granted or not: it is held again where it was not."""
        if not work.asks_for_lock:
            work.asks_for_lock = True
            self._runtime.call_later_ms(_LOCK_RETRY_MS, self._try_lock, process_queue, work)

    def _try_lock(self, process_queue: KeyedProcessQueue, work: _Work) -> None:
        if not self._stopped and not process_queue.dropped:
            self._runtime.create_task(self._lock(process_queue, work), name=f"re-lock {process_queue.queue}")

    async def _lock(self, process_queue: KeyedProcessQueue, work: _Work) -> None:
        try:
            granted = await self._locks.lock([process_queue.queue])
        except Exception as error:  # a trace that cannot be written, say
            reason = f"{type(error).__name__}: {error}"
            self._log.error("lock not asked for", queue=str(process_queue.queue), error=reason)
            granted = {}
        delay_ms = _LOCK_GRANTED_MS if granted else _LOCK_REFUSED_MS
        self._runtime.call_later_ms(delay_ms, self._start_held, work)

    def _start_held(self, work: _Work) -> None:
        work.asks_for_lock = False
        held, work.held = work.held, []
        for item in held:
            self._workers.start(item)
