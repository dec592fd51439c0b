"""ConsumeByKeyService: many listener calls at a time for a queue, one at a time for a key (docs/order.md 4).

RocketMQ does not have this. Unlike its orderly service, it commits the lowest offset that is not handled, and a failure
of the listener parks only the key of the message. It makes no task, no timer and no log line for a message, and few
objects, because these would take most of a busy consumer's time.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from lockstep.client.callables import log_or_raise
from lockstep.client.consumer.cache.key_queues import KeyedCache, KeyQueue
from lockstep.client.consumer.dispatch.base import YIELD_AFTER, OrderedService, ServiceParts, restore_topics
from lockstep.client.consumer.dispatch.call_start import CallStart
from lockstep.client.consumer.dispatch.queue_mutex import QueueMutex
from lockstep.client.consumer.dispatch.stats import ConsumerStatsManager
from lockstep.client.consumer.dispatch.workers import Workers
from lockstep.client.consumer.flow_control import most_bytes
from lockstep.client.consumer.listener import ConsumeOrderlyContext, ConsumeOrderlyStatus
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.send_back import DeadLetters
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.names import is_retry_topic
from lockstep.remoting.host.loop_watch import LOOP_KEPT_MS

__all__ = ["ConsumeByKeyService"]

_LOCK_RETRY_MS: Final = 10

_SUCCESS = ConsumeOrderlyStatus.SUCCESS
_SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


class _QueueState:
    """What the service knows of one process queue."""

    __slots__ = (
        "asks_for_lock", "cache", "committed", "is_blocked", "is_retry", "key_queues", "mutex", "process_queue",
        "queue", "totals", "without_lock",
    )  # fmt: skip

    def __init__(
        self, process_queue: ProcessQueue, cache: KeyedCache, mutex: QueueMutex[KeyQueue], stats: ConsumerStatsManager
    ) -> None:
        self.process_queue = process_queue
        self.cache = cache
        self.key_queues = cache.key_queues
        self.queue = process_queue.queue
        self.mutex = mutex
        self.totals = stats.of(self.queue.topic)
        self.is_retry = is_retry_topic(self.queue.topic)
        self.committed = -1
        self.without_lock: list[KeyQueue] = []  # they wait for the broker's lock
        self.asks_for_lock = False
        self.is_blocked = False  # and the log says so


class ConsumeByKeyService(OrderedService[KeyQueue]):
    def __init__(self, parts: ServiceParts, dead_letters: DeadLetters) -> None:
        super().__init__(parts, dead_letters)
        limit = self._config.key_concurrency if self._call.is_async else self._config.consume_threads
        self._workers = Workers[KeyQueue](self._runtime, "consume by key", limit, self._work)
        self._states: dict[ProcessQueue, _QueueState] = {}
        self._calls = 0
        self._warned = False

    def submit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        cache = process_queue.cache
        assert isinstance(cache, KeyedCache)
        # Cached also when nothing is handled any more. The next pull begins behind them, and without a cached message
        # all before the next pull counts as consumed: a call that ends now would commit them.
        started = cache.put_by_key(messages)
        if self._starts.stopped or process_queue.life.is_over:
            return
        state = self._states.get(process_queue)
        if state is None:
            state = self._new_state(process_queue, cache)
        self._start_all(state, started)
        if not state.is_blocked:
            self._log_if_blocked(state)

    def _start(self, item: KeyQueue) -> None:
        self._workers.start(item)

    def _start_all(self, state: _QueueState, key_queues: Sequence[KeyQueue]) -> None:
        for key_queue in key_queues:
            key_queue.state = state
            self._workers.start(key_queue)

    def _new_state(self, process_queue: ProcessQueue, cache: KeyedCache) -> _QueueState:
        for old in [old for old in self._states if old.life.is_over and old not in self._running]:
            del self._states[old]
        mutex = self._mutex(process_queue.queue)
        state = self._states[process_queue] = _QueueState(process_queue, cache, mutex, self._stats)
        return state

    def set_consume_thread_count(self, count: int) -> None:
        super().set_consume_thread_count(count)
        if not self._call.is_async:
            self._workers.set_limit(count)

    async def stop(self, timeout_ms: int) -> list[ProcessQueue]:
        self._workers.stop()
        return await super().stop(timeout_ms)

    # Workers -------------------------------------------------------------------------------------------------

    async def _work(self, first: KeyQueue) -> None:
        """Run one worker: handle one key queue after the other."""
        workers, start = self._workers, self._starts.new()
        key_queue: KeyQueue | None = first
        try:
            while key_queue is not None:
                try:
                    await self._consume(key_queue, start)
                except BaseException as error:
                    # For example, the trace cannot be written.
                    self._call_failed(key_queue, error)
                key_queue = workers.next_now() or await workers.rest()
        finally:
            workers.left()

    async def _consume(self, key_queue: KeyQueue, start: CallStart) -> None:
        """Make one call after the other, until the key queue is empty, parked or must wait, or others wait for a
        worker."""
        runtime, workers = self._runtime, self._workers
        state: _QueueState = key_queue.state
        now_ms = runtime.now_ms()
        while self._may_start(key_queue, state, now_ms):
            messages = self._take(key_queue, state, now_ms)
            context = ConsumeOrderlyContext(state.queue, True, -1, state.process_queue, runtime.now_ms)
            start.asked(state.process_queue, now_ms)
            # A copy, because a listener may empty its list.
            outcome = await self._call(messages.copy(), context, start)
            now_ms, status = runtime.now_ms(), outcome.status
            if start.notable:
                self._starts.ended(start, state.process_queue, messages[0].queue_offset)
            begun = outcome.begun
            if start.watched and self._starts.watch_ended(start, state.process_queue, now_ms):
                begun = False
            if not begun:
                state.key_queues.give_back(key_queue)
                self._call_ended(state)
                continue
            if state.cache.arrivals is not None:
                state.totals.waited(state.cache.arrivals, messages[0].queue_offset, start.began_ms)
            took_ms = now_ms - start.began_ms
            if took_ms >= LOOP_KEPT_MS:
                self._starts.long_call(state.process_queue, messages[0].queue_offset, took_ms)
            state.totals.consumed(len(messages), took_ms, status is _SUSPEND)
            if self._trace is not None:
                self._record(key_queue, status, start, now_ms)
            if status is _SUCCESS and context.auto_commit:
                has_more = state.key_queues.handled(key_queue)
            else:
                has_more = await self._not_success(key_queue, status, context)
            self._call_ended(state)
            self._calls += 1
            if self._calls % YIELD_AFTER == 0:
                await asyncio.sleep(0)
                now_ms = runtime.now_ms()
            if not has_more:
                return
            if workers.crowded:
                workers.start(key_queue)
                return

    def _record(self, key_queue: KeyQueue, status: ConsumeOrderlyStatus, start: CallStart, now_ms: int) -> None:
        assert self._trace is not None
        state: _QueueState = key_queue.state
        period, messages, key = state.process_queue.period, key_queue.taken, key_queue.key
        fence = state.process_queue.call_fields(now_ms)
        self._trace.handled(
            state.queue, period, messages, status.name, start.begin, fence, ordering="key", key_of=lambda _: key
        )

    def _may_start(self, key_queue: KeyQueue, state: _QueueState, now_ms: int) -> bool:
        """Return whether a call may be made. Without the lock or the mutex the key queue waits for it."""
        process_queue = state.process_queue
        life = process_queue.life
        if life.dropped or life.draining or self._starts.stopped:
            if process_queue not in self._running:
                # Its messages belong to the next owner.
                self._states.pop(process_queue, None)
            return False
        if not process_queue.hold.is_trusted(now_ms):
            state.without_lock.append(key_queue)
            if not state.asks_for_lock:
                state.asks_for_lock = True
                self._lock_later(process_queue, _LOCK_RETRY_MS)
            return False
        if not state.mutex.is_free_for(process_queue):
            state.mutex.waiting.append(key_queue)
            return False
        return True

    def _resume(self, process_queue: ProcessQueue) -> None:
        state = self._states.get(process_queue)
        if state is not None:
            state.asks_for_lock = False
            waiting, state.without_lock = state.without_lock, []
            self._start_all(state, waiting)

    def _take(self, key_queue: KeyQueue, state: _QueueState, now_ms: int) -> list[MessageExt]:
        process_queue = state.process_queue
        process_queue.last_consume_ms = now_ms
        messages = state.key_queues.take(key_queue, self._config.consume_message_batch_max_size)
        if state.key_queues.running == 1:
            self._running[process_queue] = None
            process_queue.life.listener_running = True
            state.mutex.user = process_queue
        if state.is_retry:
            restore_topics(messages)
        return messages

    def _call_ended(self, state: _QueueState) -> None:
        """After a call, when its messages are handled or back: commit, and notify waiters."""
        process_queue, cache, key_queues = state.process_queue, state.cache, state.key_queues
        cache.content_changed()
        offset = cache.position
        if offset != state.committed and not process_queue.life.dropped:
            state.committed = offset
            self._offsets.update(state.queue, offset)
            if key_queues.has_beyond:
                self._start_all(state, key_queues.release())
                cache.content_changed()
            if state.is_blocked:
                self._log_if_unblocked(state)
        if not key_queues.running:
            del self._running[process_queue]
            if process_queue.life.is_over:
                self._states.pop(process_queue, None)
            process_queue.life.listener_returned()
            state.mutex.release()

    # Failures ------------------------------------------------------------------------------------------------

    def _call_failed(self, key_queue: KeyQueue, error: BaseException) -> None:
        """Handle an error that is not the listener's: try again later, so that the key does not stop silently."""
        state: _QueueState = key_queue.state
        queue = str(state.queue)
        log_or_raise(self._log, "consume_failed", error, consequence="key suspended", queue=queue, key=key_queue.key)
        if key_queue.taken:
            state.key_queues.failed(key_queue)
            self._call_ended(state)
        self._retry_later(key_queue, self._config.suspend_current_queue_time_ms)

    async def _not_success(
        self, key_queue: KeyQueue, status: ConsumeOrderlyStatus, context: ConsumeOrderlyContext
    ) -> bool:
        """Handle a result that is not a plain SUCCESS. Returns True if the key may continue."""
        state: _QueueState = key_queue.state
        if status is not _SUSPEND:
            self._warn_of_manual_commit(state)
            return state.key_queues.handled(key_queue)
        dead = await self._give_up(state.process_queue, key_queue.taken)
        if len(dead) == len(key_queue.taken):
            return state.key_queues.handled(key_queue)
        self._park(key_queue, state, dead)
        self._retry_later(key_queue, self._suspend_ms(context))
        return False

    def _park(self, key_queue: KeyQueue, state: _QueueState, dead: Sequence[MessageExt]) -> None:
        """Keep the taken messages for another attempt, except those that are dead letters now."""
        if not key_queue.is_parked:
            queue, offset = str(state.queue), key_queue.head.queue_offset
            self._log.debug("key_parked", queue=queue, key=key_queue.key, offset=offset)
        if dead:
            state.key_queues.handled(key_queue, dead)
            state.key_queues.park(key_queue)
        else:
            state.key_queues.failed(key_queue)
        if not state.is_blocked:
            self._log_if_blocked(state)

    def _retry_later(self, key_queue: KeyQueue, delay_ms: int) -> None:
        self._runtime.call_later_ms(delay_ms, self._workers.start, key_queue)

    def _warn_of_manual_commit(self, state: _QueueState) -> None:
        if not self._warned:
            self._warned = True
            why = 'with ordering="key", COMMIT, ROLLBACK and auto_commit=False count as SUCCESS'
            self._log.warning("manual_commit_not_supported", queue=str(state.queue), why=why)

    # Blocked queues ------------------------------------------------------------------------------------------

    def _log_if_blocked(self, state: _QueueState) -> None:
        """Log once when a key keeps the queue from being pulled, although other keys are handled."""
        key_queues = state.key_queues
        if key_queues.is_full:
            key_queue = key_queues.at_commit_offset()
        elif self._has_too_many_bytes(state):
            key_queue = max(key_queues.parked, key=lambda parked: len(parked.waiting), default=None)
        else:
            return
        if key_queue is None:
            # Nothing is parked: the messages are being handled.
            return
        state.is_blocked = True
        self._log.error(
            "queue_blocked_by_key",
            queue=str(state.queue),
            key=key_queue.key,
            offset=key_queue.head.queue_offset,
            reconsume_times=key_queue.head.reconsume_times,
            span=key_queues.span,
            span_max=key_queues.span_max,
            bytes=key_queues.message_bytes,
        )

    def _log_if_unblocked(self, state: _QueueState) -> None:
        if not state.key_queues.is_full and not self._has_too_many_bytes(state):
            state.is_blocked = False
            self._log.info("queue_unblocked", queue=str(state.queue), offset=state.key_queues.commit_offset)

    def _has_too_many_bytes(self, state: _QueueState) -> bool:
        return state.key_queues.message_bytes > most_bytes(self._config.pull_threshold_bytes_for_queue)
