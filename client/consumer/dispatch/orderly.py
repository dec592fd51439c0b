"""ConsumeMessageOrderlyService: one listener call at a time for a queue, in the order of offsets (wire.md 12.7)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from lockstep.client.callables import log_or_raise
from lockstep.client.consumer.dispatch import straight
from lockstep.client.consumer.dispatch.base import YIELD_AFTER, OrderedService, ServiceParts, restore_topics
from lockstep.client.consumer.dispatch.call_start import CallStart
from lockstep.client.consumer.dispatch.queue_mutex import QueueMutex
from lockstep.client.consumer.dispatch.stats import TopicTotals
from lockstep.client.consumer.dispatch.straight import CallsOfRun, Rest
from lockstep.client.consumer.listener import ConsumeOrderlyContext, ConsumeOrderlyStatus
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.send_back import DeadLetters
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.names import is_retry_topic
from lockstep.remoting.host.loop_watch import LOOP_KEPT_MS

__all__ = ["ConsumeMessageOrderlyService"]

_RESUBMIT_MS = 10
_LOCK_RETRY_MS = 100

_Status = ConsumeOrderlyStatus
_SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
# With manual commit; RocketMQ counts only the time of the others.
_COUNTED = frozenset({_Status.SUCCESS, _SUSPEND})


class ConsumeMessageOrderlyService(OrderedService[ProcessQueue]):
    """Each run of a queue is a task. It makes call after call, until no message is left or something stops it."""

    def __init__(self, parts: ServiceParts, dead_letters: DeadLetters) -> None:
        super().__init__(parts, dead_letters)
        self._suspended = False  # a call that the native part began
        # By (auto_commit, status); a handler returns whether the run goes on.
        self._results: dict[tuple[bool, _Status], Callable[..., Awaitable[bool]]] = {
            (True, _Status.SUCCESS): self._commit,
            (True, _Status.COMMIT): self._commit_warned,
            (True, _Status.ROLLBACK): self._commit_warned,
            (True, _Status.SUSPEND_CURRENT_QUEUE_A_MOMENT): self._suspend_or_commit,
            (False, _Status.SUCCESS): self._go_on,
            (False, _Status.COMMIT): self._commit,
            (False, _Status.ROLLBACK): self._rollback,
            (False, _Status.SUSPEND_CURRENT_QUEUE_A_MOMENT): self._suspend,
        }

    # Runs ----------------------------------------------------------------------------------------------------

    def submit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        if process_queue.cache.put_messages(messages):
            self._start(process_queue)

    def _start(self, process_queue: ProcessQueue) -> None:
        if self._starts.stopped or process_queue in self._running:
            return
        task = self._runtime.create_task(self._consume(process_queue), name=f"consume {process_queue.queue}")
        self._running[process_queue] = task

    def _start_later(self, process_queue: ProcessQueue, delay_ms: int) -> None:
        self._runtime.call_later_ms(delay_ms, self._start, process_queue)

    def _resume(self, process_queue: ProcessQueue) -> None:
        self._start(process_queue)

    async def _consume(self, process_queue: ProcessQueue) -> None:
        mutex = self._mutex(process_queue.queue)
        try:
            if not mutex.is_free_for(process_queue):
                mutex.waiting.append(process_queue)
            # One run a queue at a time, also across periods: a late call of the old period ends first.
            elif not process_queue.life.is_over:
                mutex.user = process_queue
                await self._consume_run(process_queue, mutex)
        except BaseException as error:
            # For example, the trace cannot be written.
            queue = str(process_queue.queue)
            log_or_raise(self._log, "consume_failed", error, consequence="queue suspended", queue=queue)
            process_queue.cache.rollback()
            self._start_later(process_queue, self._config.suspend_current_queue_time_ms)
        finally:
            process_queue.life.listener_returned()
            # Not in a done callback: after `consuming` is False, the next put must be able to start a run at once.
            del self._running[process_queue]
            if mutex.user is process_queue:
                mutex.release()

    async def _consume_run(self, process_queue: ProcessQueue, mutex: QueueMutex[ProcessQueue]) -> None:
        runtime, batch_size = self._runtime, self._config.consume_message_batch_max_size
        cache, hold, life = process_queue.cache, process_queue.hold, process_queue.life
        totals = self._stats.of(process_queue.queue.topic)
        now_ms = runtime.now_ms()
        until_ms = now_ms + self._config.consume_continuously_max_ms
        start, calls, of_retries = self._starts.new(marks_running=True), 0, is_retry_topic(process_queue.queue.topic)
        plain = self._trace is None and cache.arrivals is None and not self._starts.watches and not of_retries
        while not (life.dropped or life.draining or self._starts.stopped):
            # Before each call, not once a run: the lock may expire between two calls (wire.md 12.7).
            if not hold.is_trusted(now_ms):
                self._lock_later(process_queue, _RESUBMIT_MS if calls else _LOCK_RETRY_MS)
                return
            if mutex.reserved:
                mutex.waiting.append(process_queue)
                return
            # A queue that never empties gives its thread to others after 60 s (wire.md 7.3, 12.7).
            if now_ms > until_ms:
                self._start_later(process_queue, _RESUBMIT_MS)
                return
            goes_straight = plain and self._call.goes_straight
            if goes_straight:
                make_calls = (
                    self._straight_calls if straight.CALL_EACH is None or self._suspended else self._native_calls
                )
                done_ms = await make_calls(process_queue, mutex, totals, start, (now_ms, until_ms))
            else:
                messages = cache.take_messages(batch_size)
                if not messages:
                    return
                if of_retries:
                    restore_topics(messages)
                start.asked(process_queue, now_ms)
                done_ms = await self._consume_batch(process_queue, messages, totals, start)
            if done_ms is None:
                return
            now_ms = done_ms
            calls += 1
            if goes_straight or calls % YIELD_AFTER == 0:
                await asyncio.sleep(0)
                now_ms = runtime.now_ms()

    async def _straight_calls(
        self,
        process_queue: ProcessQueue,
        mutex: QueueMutex[ProcessQueue],
        totals: TopicTotals,
        start: CallStart,
        times: tuple[int, int],
    ) -> int | None:
        """Make calls that nobody records or watches, as the usual way does, in one loop: its layers cost more than
        a short call.

        Args:
            times: Now, when all was checked that must be before a call; and when the run must give way to others.

        Returns:
            As `_consume_batch`.
        """
        call, starts, clock, queue = self._call, self._starts, self._runtime.now_ms, process_queue.queue
        cache, hold, life, offsets = process_queue.cache, process_queue.hold, process_queue.life, self._offsets
        batch_size, (now_ms, until_ms) = self._config.consume_message_batch_max_size, times
        long_ms, self._suspended = min(LOOP_KEPT_MS, totals.slow_ms), False
        for _ in range(YIELD_AFTER):
            if not call.begin_straight():
                break
            messages = cache.take_messages(batch_size)
            if not messages:
                return None
            context = ConsumeOrderlyContext(queue, True, -1, process_queue, clock)
            life.listener_running = True
            begin_ms = process_queue.last_consume_ms = now_ms
            result = outcome = None
            try:
                # A copy, because a listener may empty its list.
                result = await call.listener(messages.copy(), context)
            except BaseException as error:
                outcome = call.failure_of(error, context, messages[0].queue_offset)
            life.listener_returned()
            now_ms = clock()
            took_ms = now_ms - begin_ms
            is_success = outcome is None and (result is None or result is _Status.SUCCESS)
            if is_success and context.auto_commit and took_ms < long_ms:
                totals.handled(len(messages), 1, took_ms)
                offset = cache.commit()
                if not life.dropped:
                    offsets.update(queue, offset)
            else:
                status = (outcome or call.outcome_of(result, context, messages[0].queue_offset)).status
                start.asked(process_queue, begin_ms)
                done_ms = await self._take_result(process_queue, messages, totals, start, context, status, now_ms)
                if done_ms is None:
                    return None
                now_ms = done_ms
            if life.dropped or life.draining or starts.stopped or mutex.reserved or now_ms > until_ms:
                break
            if not hold.is_trusted(now_ms):
                break
        return now_ms

    async def _native_calls(
        self,
        process_queue: ProcessQueue,
        _mutex: QueueMutex[ProcessQueue],
        totals: TopicTotals,
        start: CallStart,
        times: tuple[int, int],
    ) -> int | None:
        """As `_straight_calls`, by the native part. It makes calls only while none has to wait, so no code but the
        listener's runs meanwhile, and what follows the calls may follow them together.

        A call that waits is awaited here. The next ones are made by `_straight_calls`, which makes such calls at less
        cost.
        """
        call_each, call = straight.CALL_EACH, self._call
        life, cache = process_queue.life, process_queue.cache
        assert call_each is not None
        batch_size, (now_ms, until_ms) = self._config.consume_message_batch_max_size, times
        run = CallsOfRun(
            call.listener, ConsumeOrderlyContext, process_queue.queue, process_queue, self._runtime.now_ms,
            _Status.SUCCESS, [(life, "dropped"), (life, "draining"), (self._starts, "stopped"), *call.around],
            min(LOOP_KEPT_MS, totals.slow_ms), min(until_ms, process_queue.hold.trusted_until_ms),
        )  # fmt: skip
        most = min(call.straight_count, YIELD_AFTER) * batch_size
        messages = cache.first_messages(most)
        life.listener_running = True
        handled, calls, spent_ms, begin_ms, now_ms, left, fault = call_each(run, messages, batch_size, now_ms)
        process_queue.last_consume_ms = begin_ms
        call.count_straight(calls + (left is not None))
        if handled:
            cache.take_messages(handled)
            totals.handled(handled, calls, spent_ms)
            self._store_offset(process_queue, cache.commit())
        if fault is not None:
            # First the commit, then the error: what was handled does not come again.
            life.listener_returned()
            raise fault
        if left is not None:
            context, answer, rest, raised = left
            messages = cache.take_messages(batch_size)
            if rest is not None:
                self._suspended = True
                try:
                    answer = await Rest(rest, answer)
                except BaseException as error:
                    answer, raised = error, True
            of_call = call.failure_of if raised else call.outcome_of
            status = of_call(answer, context, messages[0].queue_offset).status
            life.listener_returned()
            start.asked(process_queue, begin_ms)
            now_ms = self._runtime.now_ms()
            return await self._take_result(process_queue, messages, totals, start, context, status, now_ms)
        life.listener_returned()
        # An empty cache ends the run; the next put begins another one.
        is_empty = handled == len(messages) < most and now_ms <= run.until_ms and not cache.take_messages(batch_size)
        return None if is_empty else now_ms

    async def _consume_batch(
        self, process_queue: ProcessQueue, messages: list[MessageExt], totals: TopicTotals, start: CallStart
    ) -> int | None:
        """Make one listener call and handle its result.

        Returns:
            The time in ms after the call, so that the caller need not ask the clock again; None when the run must end.
        """
        cache = process_queue.cache
        context = ConsumeOrderlyContext(process_queue.queue, True, -1, process_queue, self._runtime.now_ms)
        first_offset = messages[0].queue_offset
        # A copy, because a listener may empty its list.
        status, _, _, _, begun = await self._call(messages.copy(), context, start)
        process_queue.life.listener_returned()
        now_ms = self._runtime.now_ms()
        if start.notable:
            self._starts.ended(start, process_queue, first_offset)
        # First the fence, then the result: what a call did after its lock was lost is not committed.
        if start.watched and self._starts.watch_ended(start, process_queue, now_ms):
            begun = False
        if not begun:
            # The call did not begin, or its result does not count. The next owner, or the next run, gets the messages.
            cache.make_messages_to_consume_again(messages)
            return now_ms
        if cache.arrivals is not None:
            totals.waited(cache.arrivals, first_offset, start.began_ms)
        return await self._take_result(process_queue, messages, totals, start, context, status, now_ms)

    async def _take_result(
        self,
        process_queue: ProcessQueue,
        messages: list[MessageExt],
        totals: TopicTotals,
        start: CallStart,
        context: ConsumeOrderlyContext,
        status: _Status,
        now_ms: int,
    ) -> int | None:
        """Handle the result of a call that ended at `now_ms`. Returns as `_consume_batch`."""
        took_ms = now_ms - start.began_ms
        if took_ms >= LOOP_KEPT_MS:
            self._starts.long_call(process_queue, messages[0].queue_offset, took_ms)
        if context.auto_commit or status in _COUNTED:
            totals.consumed(len(messages), took_ms, status is _SUSPEND)
        else:
            totals.consumed_partly(0, 0, took_ms)
        if self._trace is not None:
            fence = process_queue.call_fields(now_ms)
            self._trace.handled(process_queue.queue, process_queue.period, messages, status.name, start.begin, fence)
        if context.auto_commit and status is _Status.SUCCESS:
            # The common case needs no other coroutine.
            self._store_offset(process_queue, process_queue.cache.commit())
            return now_ms
        goes_on = await self._results[bool(context.auto_commit), status](process_queue, messages, context)
        return self._runtime.now_ms() if goes_on else None

    # Results -------------------------------------------------------------------------------------------------

    def _store_offset(self, process_queue: ProcessQueue, offset: int) -> None:
        # After the end of the period the offset belongs to the next owner (wire.md 12.7).
        if offset >= 0 and not process_queue.life.dropped:
            self._offsets.update(process_queue.queue, offset)

    async def _commit(
        self, process_queue: ProcessQueue, _messages: Sequence[MessageExt], _context: ConsumeOrderlyContext
    ) -> bool:
        self._store_offset(process_queue, process_queue.cache.commit())
        return True

    async def _commit_warned(
        self, process_queue: ProcessQueue, messages: Sequence[MessageExt], context: ConsumeOrderlyContext
    ) -> bool:
        why = "COMMIT and ROLLBACK need context.auto_commit = False"
        self._log.warning("manual_commit_not_enabled", queue=str(process_queue.queue), why=why)
        return await self._commit(process_queue, messages, context)

    async def _go_on(self, *_: object) -> bool:
        # Manual commit: the messages stay taken until COMMIT.
        return True

    async def _rollback(
        self, process_queue: ProcessQueue, _messages: Sequence[MessageExt], context: ConsumeOrderlyContext
    ) -> bool:
        process_queue.cache.rollback()
        self._start_later(process_queue, self._suspend_ms(context))
        return False

    async def _suspend_or_commit(
        self, process_queue: ProcessQueue, messages: Sequence[MessageExt], context: ConsumeOrderlyContext
    ) -> bool:
        if await self._suspend(process_queue, messages, context):
            return await self._commit(process_queue, messages, context)
        return False

    async def _suspend(
        self, process_queue: ProcessQueue, messages: Sequence[MessageExt], context: ConsumeOrderlyContext
    ) -> bool:
        """Suspend the queue, unless all messages became dead letters."""
        if len(await self._give_up(process_queue, messages)) == len(messages):
            return True
        # First back into the cache, then the pause: the same messages come first when it is over.
        process_queue.cache.make_messages_to_consume_again(messages)
        self._start_later(process_queue, self._suspend_ms(context))
        return False
