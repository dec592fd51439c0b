"""Consumption by key: the messages of one queue at once, those of one key in order (docs/order.md 4).

Beyond RocketMQ. As with ConsumeMessageOrderlyService the broker's lock guards a queue, the calls of two generations of
a process queue never meet (`QueueGate`), and a rebalance waits for running calls (`listener_running`). Unlike there,
what is committed is the lowest offset that is not handled, and a listener's failure parks its key alone.

No task, timer or log line is made for a message, and few objects: they are what a busy consumer's time goes into.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from lockstep.client.consumer.dispatch.base import ServiceParts
from lockstep.client.consumer.dispatch.key_queues import Lane
from lockstep.client.consumer.dispatch.keyed_process_queue import KeyedProcessQueue
from lockstep.client.consumer.dispatch.queue_mutex import QueueGate
from lockstep.client.consumer.dispatch.stats import ConsumeStats
from lockstep.client.consumer.dispatch.workers import LaneWorkers
from lockstep.client.consumer.listener import ConsumeOrderlyContext, ConsumeOrderlyStatus, ListenerCall
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.client.consumer.pull_loop import most_bytes
from lockstep.client.consumer.send_back import DeadLetters
from lockstep.client.errors import SendError
from lockstep.order.trace import TraceWriter
from lockstep.protocol import properties as names
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import is_retry_topic
from lockstep.remoting.logs import log_exception

__all__ = ["ConsumeByKeyService"]

_SUSPEND_MIN_MS: Final = 10  # as in queue order (wire.md 12.7)
_SUSPEND_MAX_MS: Final = 30_000
_LOCK_RETRY_MS, _LOCK_GRANTED_MS, _LOCK_REFUSED_MS = 10, 10, 3000
_YIELD_AFTER: Final = 64  # listener calls, after which the loop serves others even if none of them waited
_UNLIMITED: Final = 2**31 - 1

_SUCCESS = ConsumeOrderlyStatus.SUCCESS
_SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


class _Work:
    """One process queue as the service sees it."""

    __slots__ = (
        "asks_for_lock", "committed", "gate", "held", "is_retry", "lanes", "process_queue", "queue", "says_stopped",
        "totals",
    )  # fmt: skip

    def __init__(self, process_queue: KeyedProcessQueue, gate: QueueGate[Lane], stats: ConsumeStats) -> None:
        self.process_queue = process_queue
        self.lanes = process_queue.lanes
        self.queue = process_queue.queue
        self.gate = gate
        self.totals = stats.of(self.queue.topic)
        self.is_retry = is_retry_topic(self.queue.topic)
        self.committed = -1
        self.held: list[Lane] = []  # those that wait for the lock
        self.asks_for_lock = False
        self.says_stopped = False


class ConsumeByKeyService:
    def __init__(self, parts: ServiceParts, dead_letters: DeadLetters) -> None:
        member = parts.member
        self._runtime = member.runtime
        self._log = member.log
        self._config = member.config
        self._call: ListenerCall[ConsumeOrderlyStatus] = parts.call
        self._locks = parts.locks
        self._offsets = member.offsets
        self._dead_letters = dead_letters
        self._stats = parts.stats
        self._pool = parts.pool
        self._trace = member.trace
        self._starts = parts.call_starts()
        limit = self._config.key_concurrency if self._call.is_async else self._config.consume_threads
        self._workers = LaneWorkers[Lane](self._runtime, "consume by key", limit, self._work)
        self._works: dict[KeyedProcessQueue, _Work] = {}
        self._gates: dict[MessageQueue, QueueGate[Lane]] = {}
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
        self._start(work, process_queue.put_in_lanes(messages))
        if not work.says_stopped:
            self._say_when_stopped(work)

    def _start(self, work: _Work, lanes: Sequence[Lane]) -> None:
        for lane in lanes:
            lane.work = work
            self._workers.start(lane)

    def _new_work(self, process_queue: KeyedProcessQueue) -> _Work:
        for old in [old for old in self._works if old.dropped and old not in self._running]:
            del self._works[old]
        gate = self._gate(process_queue.queue)
        work = self._works[process_queue] = _Work(process_queue, gate, self._stats)
        return work

    def _gate(self, queue: MessageQueue) -> QueueGate[Lane]:
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
        self._stopped = self._starts.stopped = True
        self._workers.stop()
        deadline_ms = self._runtime.now_ms() + timeout_ms
        for process_queue in list(self._running):
            await process_queue.listener_idle(max(deadline_ms - self._runtime.now_ms(), 0))
        return list(self._running)

    # Workers -------------------------------------------------------------------------------------------------

    async def _work(self, first: Lane) -> None:
        """A worker's life: lane after lane, and of each call after call, until it is empty or parked, may not go on, or
        others wait for the worker."""
        runtime, trace, workers = self._runtime, self._trace, self._workers
        lane: Lane | None = first
        start = self._starts.new()
        try:
            while lane is not None:
                work: _Work = lane.work
                try:
                    now_ms, has_more = runtime.now_ms(), True
                    while has_more and self._may_start(lane, work, now_ms):
                        messages = self._take(lane, work, now_ms)
                        context = ConsumeOrderlyContext(work.queue)
                        start.asked(work.process_queue, now_ms)
                        outcome = await self._call(messages.copy(), context, start)  # a listener may empty its list
                        now_ms, status = runtime.now_ms(), outcome.status
                        if start.notable:
                            self._starts.ended(start, work.process_queue, lane.taken[0].queue_offset)
                        if not outcome.begun:
                            work.lanes.give_back(lane)
                            self._returned(work)
                            continue
                        work.totals.consumed(len(messages), now_ms - start.began_ms, status is _SUSPEND)
                        if trace is not None:
                            self._note(trace, lane, work, messages, status, start.begin)
                        if status is _SUCCESS and context.auto_commit:
                            has_more = work.lanes.handled(lane)
                        else:
                            has_more = await self._not_success(lane, work, status, context)
                        self._returned(work)
                        self._calls += 1
                        if self._calls % _YIELD_AFTER == 0:
                            await asyncio.sleep(0)
                            now_ms = runtime.now_ms()
                        if has_more and workers.crowded:
                            workers.start(lane)
                            has_more = False
                except Exception as error:  # a trace that cannot be written, say
                    self._call_failed(lane, work, error)
                lane = workers.next_now() or await workers.rest()
        finally:
            workers.left()

    def _note(
        self,
        trace: TraceWriter,
        lane: Lane,
        work: _Work,
        messages: Sequence[MessageExt],
        status: ConsumeOrderlyStatus,
        begin: tuple[int, int],
    ) -> None:
        period, key = work.process_queue.period, lane.key
        trace.handled(work.queue, period, messages, status.name, begin, ordering="key", key_of=lambda _: key)

    def _may_start(self, lane: Lane, work: _Work, now_ms: int) -> bool:
        """Without the lock or the gate the lane is kept until it can be had."""
        process_queue = work.process_queue
        if process_queue.dropped or self._stopped:
            if process_queue not in self._running:
                self._works.pop(process_queue, None)  # what it holds is a later owner's
            return False
        if not process_queue.holds_lock(now_ms, self._config.lock_max_live_time_ms):
            work.held.append(lane)
            self._try_lock_later(work)
            return False
        if not work.gate.is_open_to(process_queue):
            work.gate.held.append(lane)
            return False
        return True

    def _take(self, lane: Lane, work: _Work, now_ms: int) -> list[MessageExt]:
        process_queue = work.process_queue
        process_queue.last_consume_ms = now_ms
        messages = work.lanes.take(lane, self._config.consume_message_batch_max_size)
        if work.lanes.running == 1:
            self._running[process_queue] = None
            process_queue.listener_running = True
            work.gate.user = process_queue
        if work.is_retry:
            for message in messages:
                message.topic = message.properties.get(names.RETRY_TOPIC, message.topic)
        return messages

    def _returned(self, work: _Work) -> None:
        """A call is over and its lane accounted for: commit what is committed, and tell those who wait."""
        process_queue, lanes = work.process_queue, work.lanes
        process_queue.note_content()
        offset = lanes.commit_offset
        if offset != work.committed and not process_queue.dropped:
            work.committed = offset
            self._offsets.update(work.queue, offset)
            if lanes.has_beyond:
                self._start(work, lanes.release())
                process_queue.note_content()
            if work.says_stopped:
                self._say_when_on(work)
        if not lanes.running:
            del self._running[process_queue]
            if process_queue.dropped:
                self._works.pop(process_queue, None)
            process_queue.listener_returned()
            work.gate.leave()

    def _call_failed(self, lane: Lane, work: _Work, error: Exception) -> None:
        """Not the listener: try again rather than stop in silence."""
        log_exception(
            self._log, "consume_failed", error, consequence="key suspended", queue=str(work.queue), key=lane.key
        )
        if lane.taken:
            work.lanes.failed(lane)
            self._returned(work)
        self._retry_later(lane, self._config.suspend_current_queue_time_ms)

    # Failures ------------------------------------------------------------------------------------------------

    async def _not_success(
        self, lane: Lane, work: _Work, status: ConsumeOrderlyStatus, context: ConsumeOrderlyContext
    ) -> bool:
        """What a call comes to that was no plain success. Whether the lane goes on now."""
        if status is not _SUSPEND:
            self._warn_of_manual_commit(work.queue)
            return work.lanes.handled(lane)
        dead = await self._give_up(work.process_queue, lane.taken)
        if len(dead) == len(lane.taken):
            return work.lanes.handled(lane)
        self._park(lane, work, dead)
        wanted_ms = context.suspend_current_queue_time_ms
        if wanted_ms < 0:
            wanted_ms = self._config.suspend_current_queue_time_ms
        self._retry_later(lane, min(max(wanted_ms, _SUSPEND_MIN_MS), _SUSPEND_MAX_MS))
        return False

    def _park(self, lane: Lane, work: _Work, dead: Sequence[MessageExt]) -> None:
        """What was taken comes again, but for those that became dead letters."""
        if not lane.is_parked:
            self._log.debug("key_parked", queue=str(work.queue), key=lane.key, offset=lane.head.queue_offset)
        if dead:
            work.lanes.handled(lane, dead)
            work.lanes.park(lane)
        else:
            work.lanes.failed(lane)
        if not work.says_stopped:
            self._say_when_stopped(work)

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
                    self._log.warning("dead_letter_not_sent", queue=str(process_queue.queue), error=str(error))
            message.reconsume_times += 1
        return dead

    def _retry_later(self, lane: Lane, delay_ms: int) -> None:
        self._runtime.call_later_ms(delay_ms, self._workers.start, lane)

    def _warn_of_manual_commit(self, queue: MessageQueue) -> None:
        if not self._warned:
            self._warned = True
            self._log.warning(
                "manual_commit_not_supported",
                why='with ordering="key", COMMIT, ROLLBACK and auto_commit=False count as SUCCESS',
                queue=str(queue),
            )

    # A queue that stands -------------------------------------------------------------------------------------

    def _say_when_stopped(self, work: _Work) -> None:
        """Once for each stop: what keeps a queue from being pulled though its other keys are handled."""
        lanes = work.lanes
        if lanes.is_full:
            lane = lanes.lane_at_head()
        elif lanes.message_bytes > most_bytes(self._config.pull_threshold_bytes_for_queue):
            lane = max(lanes.parked, key=lambda lane: len(lane.waiting), default=None)
        else:
            return
        if lane is None:
            return  # much in hand, and none of it parked: it is being handled
        work.says_stopped = True
        self._log.error(
            "queue_blocked_by_key",
            queue=str(work.queue),
            key=lane.key,
            offset=lane.head.queue_offset,
            reconsume_times=lane.head.reconsume_times,
            span=lanes.span,
            span_max=lanes.span_max,
            bytes=lanes.message_bytes,
        )

    def _say_when_on(self, work: _Work) -> None:
        lanes = work.lanes
        if not lanes.is_full and lanes.message_bytes <= most_bytes(self._config.pull_threshold_bytes_for_queue):
            work.says_stopped = False
            self._log.info("queue_unblocked", queue=str(work.queue), offset=lanes.commit_offset)

    # The lock ------------------------------------------------------------------------------------------------

    def _try_lock_later(self, work: _Work) -> None:
        """Ask for the lock, and start what was held for it, granted or not: it is held again where it was not."""
        if not work.asks_for_lock:
            work.asks_for_lock = True
            self._runtime.call_later_ms(_LOCK_RETRY_MS, self._try_lock, work)

    def _try_lock(self, work: _Work) -> None:
        if not self._stopped and not work.process_queue.dropped:
            self._runtime.create_task(self._lock(work), name=f"re-lock {work.queue}")

    async def _lock(self, work: _Work) -> None:
        try:
            granted = await self._locks.lock([work.queue])
        except Exception as error:  # a trace that cannot be written, say
            log_exception(self._log, "relock_failed", error, queue=str(work.queue))
            granted = {}
        delay_ms = _LOCK_GRANTED_MS if granted else _LOCK_REFUSED_MS
        self._runtime.call_later_ms(delay_ms, self._start_held, work)

    def _start_held(self, work: _Work) -> None:
        work.asks_for_lock = False
        held, work.held = work.held, []
        self._start(work, held)
