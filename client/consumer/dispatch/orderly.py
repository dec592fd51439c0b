"""ConsumeMessageOrderlyService: one message after the other, one listener a queue (wire.md 12.7).

Three locks of the articles guard a queue: the broker's (a process queue that does not `holds_lock` is not consumed),
the message queue's in this process (`_gates`: tasks of one queue run one at a time, over generations of its process
queue), and the consume lock (`listener_running`: a rebalance does not unlock under a running listener).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from lockstep.client.consumer.dispatch.base import ServiceParts
from lockstep.client.consumer.dispatch.call_start import CallStart
from lockstep.client.consumer.dispatch.stats import TopicTotals
from lockstep.client.consumer.listener import ConsumeOrderlyContext, ConsumeOrderlyStatus, ListenerCall
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.client.consumer.send_back import DeadLetters
from lockstep.client.errors import SendError
from lockstep.protocol import properties as names
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import is_retry_topic
from lockstep.remoting.logs import log_exception

__all__ = ["ConsumeMessageOrderlyService"]

_SUSPEND_MIN_MS, _SUSPEND_MAX_MS = 10, 30_000
_RESUBMIT_MS = 10
_LOCK_RETRY_MS, _LOCK_GRANTED_MS, _LOCK_REFUSED_MS = 100, 10, 3000
_YIELD_AFTER = 64  # listener calls that never waited, before the loop serves others
_UNLIMITED = 2**31 - 1

_Status = ConsumeOrderlyStatus
_SUSPEND = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
_COUNTED = frozenset({_Status.SUCCESS, _SUSPEND})  # with manual commit; of the others the time alone, as in RocketMQ


class ConsumeMessageOrderlyService:
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
        self._gates: dict[MessageQueue, asyncio.Lock] = {}
        self._running: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._wanted: dict[MessageQueue, int] = {}  # by how many that are not runs of ours
        self._stopped = False
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

    # Tasks ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        pass

    def submit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        if process_queue.put_messages(messages):
            self._start(process_queue)

    def _start(self, process_queue: ProcessQueue) -> None:
        if self._stopped or process_queue in self._running:
            return
        task = self._runtime.create_task(self._consume(process_queue), name=f"consume {process_queue.queue}")
        self._running[process_queue] = task

    def _submit_later(self, process_queue: ProcessQueue, delay_ms: int) -> None:
        self._runtime.call_later_ms(delay_ms, self._start, process_queue)

    @asynccontextmanager
    async def between_runs(self, queue: MessageQueue) -> AsyncIterator[None]:
        """In it no run of this queue calls the listener; one that is at work ends with its present call."""
        self._wanted[queue] = self._wanted.get(queue, 0) + 1
        try:
            async with self._gates.setdefault(queue, asyncio.Lock()):
                yield
        finally:
            self._wanted[queue] -= 1
            if not self._wanted[queue]:
                del self._wanted[queue]

    def set_consume_thread_count(self, count: int) -> None:
        self._pool.resize(count)

    async def stop(self, timeout_ms: int) -> list[ProcessQueue]:
        """Take no more messages; the queues whose listener did not return within `timeout_ms`."""
        self._stopped = self._starts.stopped = True
        deadline_ms = self._runtime.now_ms() + timeout_ms
        for process_queue in list(self._running):
            await process_queue.listener_idle(max(deadline_ms - self._runtime.now_ms(), 0))
        return [process_queue for process_queue in self._running if process_queue.listener_running]

    async def _consume(self, process_queue: ProcessQueue) -> None:
        gate = self._gates.setdefault(process_queue.queue, asyncio.Lock())
        try:
            async with gate:
                if process_queue.dropped:
                    return
                if self._holds(process_queue):
                    await self._consume_run(process_queue)
                else:
                    self._try_lock_later(process_queue, _LOCK_RETRY_MS)
        except Exception as error:  # a trace that cannot be written, say: try again rather than stop in silence
            log_exception(
                self._log, "consume_failed", error, consequence="queue suspended", queue=str(process_queue.queue)
            )
            process_queue.rollback()
            self._submit_later(process_queue, self._config.suspend_current_queue_time_ms)
        finally:
            process_queue.listener_returned()
            # Here, not in a callback of the task: from the moment `consuming` is off, a put may submit again.
            del self._running[process_queue]

    async def _consume_run(self, process_queue: ProcessQueue) -> None:
        """Batch after batch, until nothing is left, the lock is gone, or a batch suspends the queue."""
        runtime, batch_size = self._runtime, self._config.consume_message_batch_max_size
        lock_ms, totals = self._config.lock_max_live_time_ms, self._stats.of(process_queue.queue.topic)
        now_ms = began_ms = runtime.now_ms()
        start, calls = self._starts.new(marks_running=True), 0
        while not (process_queue.dropped or self._stopped):
            if not process_queue.holds_lock(now_ms, lock_ms):
                self._try_lock_later(process_queue, _RESUBMIT_MS)
                return
            wanted = self._wanted and process_queue.queue in self._wanted  # empty as a rule: no queue is hashed
            if wanted or now_ms - began_ms > self._config.consume_continuously_max_ms:
                self._submit_later(process_queue, _RESUBMIT_MS)
                return
            messages = process_queue.take_messages(batch_size)
            if not messages:
                return
            start.asked(process_queue, now_ms)
            done_ms = await self._consume_batch(process_queue, messages, totals, start)
            if done_ms is None:
                return
            now_ms = done_ms
            calls += 1
            if calls % _YIELD_AFTER == 0:
                await asyncio.sleep(0)
                now_ms = runtime.now_ms()

    async def _consume_batch(
        self, process_queue: ProcessQueue, messages: list[MessageExt], totals: TopicTotals, start: CallStart
    ) -> int | None:
        """One listener call and its result. Returns the time, which the caller need not ask for; None ends the run.

        A call that could not begin gives its messages back, and the caller looks at what stood in its way.
        """
        queue = process_queue.queue
        if is_retry_topic(queue.topic):
            for message in messages:
                message.topic = message.properties.get(names.RETRY_TOPIC, message.topic)
        context = ConsumeOrderlyContext(queue)
        first_offset = messages[0].queue_offset
        status, _, _, _, begun = await self._call(messages.copy(), context, start)  # a listener may empty its list
        process_queue.listener_returned()
        now_ms = self._runtime.now_ms()
        if start.notable:
            self._starts.ended(start, process_queue, first_offset)
        if not begun:
            process_queue.make_messages_to_consume_again(messages)
            return now_ms
        took_ms = now_ms - start.began_ms
        if context.auto_commit or status in _COUNTED:
            totals.consumed(len(messages), took_ms, status is _SUSPEND)
        else:
            totals.consumed_partly(0, 0, took_ms)
        if self._trace is not None:
            self._trace.handled(queue, process_queue.period, messages, status.name, start.begin)
        if context.auto_commit and status is _Status.SUCCESS:  # the common case, without a coroutine of its own
            self._store_offset(process_queue, process_queue.commit())
            return now_ms
        goes_on = await self._results[bool(context.auto_commit), status](process_queue, messages, context)
        return self._runtime.now_ms() if goes_on else None

    # Results -------------------------------------------------------------------------------------------------

    def _store_offset(self, process_queue: ProcessQueue, offset: int) -> None:
        if offset >= 0 and not process_queue.dropped:
            self._offsets.update(process_queue.queue, offset)

    async def _commit(
        self, process_queue: ProcessQueue, _messages: Sequence[MessageExt], _context: ConsumeOrderlyContext
    ) -> bool:
        self._store_offset(process_queue, process_queue.commit())
        return True

    async def _commit_warned(
        self, process_queue: ProcessQueue, messages: Sequence[MessageExt], context: ConsumeOrderlyContext
    ) -> bool:
        self._log.warning(
            "manual_commit_not_enabled",
            why="COMMIT and ROLLBACK need context.auto_commit = False",
            queue=str(process_queue.queue),
        )
        return await self._commit(process_queue, messages, context)

    async def _go_on(self, *_: object) -> bool:
        return True  # manual commit: handled, but kept in hand until COMMIT

    async def _rollback(
        self, process_queue: ProcessQueue, _messages: Sequence[MessageExt], context: ConsumeOrderlyContext
    ) -> bool:
        process_queue.rollback()
        self._suspend_queue(process_queue, context)
        return False

    async def _suspend_or_commit(
        self, process_queue: ProcessQueue, messages: Sequence[MessageExt], context: ConsumeOrderlyContext
    ) -> bool:
        if await self._suspend(process_queue, messages, context):
            self._store_offset(process_queue, process_queue.commit())
            return True
        return False

    async def _suspend(
        self, process_queue: ProcessQueue, messages: Sequence[MessageExt], context: ConsumeOrderlyContext
    ) -> bool:
        if not await self._wants_suspension(process_queue, messages):
            return True
        process_queue.make_messages_to_consume_again(messages)
        self._suspend_queue(process_queue, context)
        return False

    def _suspend_queue(self, process_queue: ProcessQueue, context: ConsumeOrderlyContext) -> None:
        wanted_ms = context.suspend_current_queue_time_ms
        if wanted_ms < 0:
            wanted_ms = self._config.suspend_current_queue_time_ms
        self._submit_later(process_queue, min(max(wanted_ms, _SUSPEND_MIN_MS), _SUSPEND_MAX_MS))

    async def _wants_suspension(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> bool:
        """checkReconsumeTimes: messages at their limit go to the dead letters, any other wants another try."""
        limit = self._config.max_reconsume_times
        limit = _UNLIMITED if limit < 0 else limit
        suspend = False
        for message in messages:
            if message.reconsume_times >= limit:
                try:
                    await self._dead_letters.send(process_queue, message, limit)
                    continue
                except SendError as error:
                    self._log.warning("dead_letter_not_sent", queue=str(process_queue.queue), error=str(error))
            message.reconsume_times += 1
            suspend = True
        return suspend

    # The lock ------------------------------------------------------------------------------------------------

    def _holds(self, process_queue: ProcessQueue) -> bool:
        return process_queue.holds_lock(self._runtime.now_ms(), self._config.lock_max_live_time_ms)

    def _try_lock_later(self, process_queue: ProcessQueue, delay_ms: int) -> None:
        """Ask for the lock after `delay_ms`, and consume on when it is granted."""
        self._runtime.call_later_ms(delay_ms, self._try_lock, process_queue)

    def _try_lock(self, process_queue: ProcessQueue) -> None:
        if not self._stopped and not process_queue.dropped:
            self._runtime.create_task(self._lock_and_consume(process_queue), name=f"re-lock {process_queue.queue}")

    async def _lock_and_consume(self, process_queue: ProcessQueue) -> None:
        try:
            granted = await self._locks.lock([process_queue.queue])
        except Exception as error:  # a trace that cannot be written, say
            log_exception(self._log, "relock_failed", error, queue=str(process_queue.queue))
            granted = {}
        self._submit_later(process_queue, _LOCK_GRANTED_MS if granted else _LOCK_REFUSED_MS)
