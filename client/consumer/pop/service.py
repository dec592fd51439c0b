"""PopService: calls the listener with delivered messages, and answers for them.

With order a failed call is made again by this client, which holds the message until then: if the broker delivered it
again, each message behind it in its key would count as tried once more. Without order the broker delivers it again.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Container, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from lockstep.client.callables import log_or_raise
from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.dispatch.base import YIELD_AFTER, bounded_suspend_ms
from lockstep.client.consumer.dispatch.call_start import LONG_WAIT_MS
from lockstep.client.consumer.dispatch.queue_mutex import QueueMutex
from lockstep.client.consumer.dispatch.stats import ConsumerStatsManager
from lockstep.client.consumer.dispatch.table import OrderingName
from lockstep.client.consumer.dispatch.workers import Workers
from lockstep.client.consumer.listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    ListenerCall,
    ListenerContext,
    Outcome,
)
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.pop.answers import EXPIRED, Answers
from lockstep.client.consumer.pop.held import Held, HeldMessages, Lane, Place
from lockstep.client.consumer.pop_calls import Delivery, PopCalls
from lockstep.protocol.bodies.subscription_group import RETRY_STEPS_MS
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.selector import KeyOf
from lockstep.remoting.host.runtime import WorkerPool

__all__ = ["PopService"]

# Of the times between attempts: RocketMQ 5's clients without order begin with the third.
_FIRST_WITHOUT_ORDER: Final = 2
_DONE: Final = (
    ConsumeOrderlyStatus.SUCCESS,
    ConsumeOrderlyStatus.COMMIT,
    ConsumeConcurrentlyStatus.CONSUME_SUCCESS,
)


class PopService:
    """Handles the messages of one consumer.

    Args:
        subscribed: The topics of now. What comes of others is given back.

    Attributes:
        cancels: A running call is cancelled when its delivery has ended.
        limit: The attempts after the first one, before a message becomes a dead letter; None: the broker decides.
    """

    def __init__(
        self,
        member: Membership,
        calls: PopCalls,
        call: ListenerCall[Any],
        pool: WorkerPool,
        stats: ConsumerStatsManager,
        ordering: OrderingName,
        key_of: KeyOf,
        subscribed: Container[str],
    ) -> None:
        self.runtime = self._runtime = member.runtime
        self.cancels = call.is_async and member.config.on_lock_lost == "cancel"
        self._log = member.log
        self._config: ConsumerConfig = member.config
        self._call = call
        self._pool = pool
        self._stats = stats
        self._in_order = ordering != "none"
        self._pops = calls
        self._trace = calls.trace
        self._subscribed = subscribed
        self.held = HeldMessages(ordering, key_of, self._config.consume_message_batch_max_size)
        self.answers = Answers(member, calls, self.held, self._lost)
        by_key = ordering == "key" and call.is_async
        concurrency = self._config.key_concurrency if by_key else self._config.consume_threads
        self._has_threads = not by_key
        self._workers = Workers[Lane](self._runtime, "consume pops", concurrency, self._work)
        self._mutexes: dict[MessageQueue, QueueMutex[Lane]] = {}
        self._running: dict[_Start, Lane] = {}
        self._in_queue: Counter[MessageQueue] = Counter()  # calls
        self._idle: asyncio.Future[None] | None = None
        self._calls = 0
        self._warned = False  # of a manual commit
        self.stopped = False
        self.limit: int | None = None

    async def take(self, place: Place, deliveries: Sequence[Delivery], until_ns: int) -> None:
        """Take what a pop brought.

        Args:
            until_ns: So long the deliveries last for sure, on the monotonic clock.
        """
        if place.topic not in self._subscribed:
            await self._pops.give_back(deliveries)
            return
        for lane in self.held.take(place, deliveries, until_ns):
            self._workers.start(lane)

    def set_consume_thread_count(self, count: int) -> None:
        self._pool.resize(count)
        if self._has_threads:
            self._workers.set_limit(count)

    def between_runs(self, queue: MessageQueue) -> AbstractAsyncContextManager[None]:
        """Return a context in which the listener may get an administrator's message of `queue`."""
        return self._mutex(queue).exclusive()

    def _mutex(self, queue: MessageQueue) -> QueueMutex[Lane]:
        mutex = self._mutexes.get(queue)
        if mutex is None:
            mutex = self._mutexes[queue] = QueueMutex(self._workers.start)
        return mutex

    async def stop(self, timeout_ms: int) -> list[MessageQueue]:
        """Begin no call any more, and give back at once what no listener has.

        Returns:
            The queues whose listener did not return within `timeout_ms`.
        """
        self.stopped = self._pops.is_over = True
        self._workers.stop()
        await self._give_back_waiting(kept=())
        if self._running:
            self._idle = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._idle
            except TimeoutError:
                pass
        self.answers.closed = True
        # Where no call runs an answer is missing, and no listener is stuck.
        return [lane.running[0].queue for start, lane in self._running.items() if start.is_running]

    async def give_back_unsubscribed(self) -> None:
        await self._give_back_waiting(kept=self._subscribed)

    async def _give_back_waiting(self, kept: Container[str]) -> None:
        """Give back what no listener has, of all topics but `kept`."""
        lanes = {held.lane: None for held in self.held if held.lane is not None and held.queue.topic not in kept}
        waiting = [held for lane in lanes for held in self.held.clear(lane)]
        await self._pops.give_back([held.delivery for held in waiting])

    # Deliveries that have ended -------------------------------------------------------------------------------

    def _lost(self, held: Held, why: str) -> None:
        """Another client may have the message: its call is cancelled, and what is behind it in its lane goes, too."""
        held.is_lost = True
        self._stats.deliveries_lost += 1
        self._log.warning("delivery_lost", queue=str(held.queue), offset=held.message.queue_offset, why=why)
        lane = held.lane
        assert lane is not None
        if held not in lane.running or held.is_handled:
            self.held.forget(held)
        behind = [one for one in self.held.clear(lane) if not one.is_lost] if self._in_order else []
        if behind:
            for one in behind:
                one.is_lost = True
            giving = self._pops.give_back([one.delivery for one in behind])
            self._runtime.create_task(giving, name="give back deliveries")
        for start, of in list(self._running.items()):
            if of is lane and held in lane.running:
                start.cancel()

    # Workers -------------------------------------------------------------------------------------------------

    async def _work(self, first: Lane) -> None:
        """Run one worker: handle one lane after the other."""
        workers = self._workers
        lane: Lane | None = first
        try:
            while lane is not None:
                try:
                    await self._consume(lane)
                except BaseException as error:
                    log_or_raise(self._log, "consume_failed", error, consequence="tried again later")
                    self._again_later(lane, self._config.suspend_current_queue_time_ms)
                lane = workers.next_now() or await workers.rest()
        finally:
            workers.left()

    async def _consume(self, lane: Lane) -> None:
        """Make one call after the other until the lane is empty, or must wait, or others wait for a worker."""
        while lane.waiting and not self.stopped:
            mutex = self._mutex(lane.waiting[0].queue)
            if not mutex.is_free_for(self):
                mutex.waiting.append(lane)
                return
            wait_ms = await self._call_once(lane)
            self._calls += 1
            if self._calls % YIELD_AFTER == 0:
                await asyncio.sleep(0)
            if wait_ms:
                self._again_later(lane, wait_ms)
                return
            if self._workers.crowded and lane.waiting:
                self._workers.start(lane)
                return
        self.held.rest(lane)

    def _again_later(self, lane: Lane, delay_ms: int) -> None:
        self._runtime.call_later_ms(delay_ms, self._workers.start, lane)

    async def _call_once(self, lane: Lane) -> int:
        """Take a batch, call the listener, and answer. Returns how long the lane waits then, in ms."""
        batch = list(lane.take(self._config.consume_message_batch_max_size))
        start, queue = _Start(self, batch), batch[0].queue
        self._running[start] = lane
        self._in_queue[queue] += 1
        self._mutex(queue).user = self
        try:
            return await self._handle(lane, batch, start)
        except BaseException:
            for held in batch:
                if held.is_handled:
                    self.held.forget(held)
            lane.put_back(self._open(batch))
            raise
        finally:
            lane.running.clear()
            del self._running[start]
            self._in_queue[queue] -= 1
            if not self._in_queue[queue]:
                self._mutex(queue).release()
            if not self._running and self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    async def _handle(self, lane: Lane, batch: list[Held], start: "_Start") -> int:
        if await self._too_often(batch):
            return await self._not_begun(lane, batch)
        context = self._call.contract.new_context(batch[0].queue)
        asked_ms = self._runtime.now_ms()
        # A new list, because a listener may empty it.
        outcome = self._uncommitted(await self._call([held.message for held in batch], context, start), context)
        if start.end():
            self._stats.calls_cancelled += 1
        elif outcome.begun:
            self._count(batch, outcome, start, asked_ms)
            if self._trace is not None:
                # First the record, then the acknowledgement: after a crash it is a repeat, and no loss.
                self._trace.handled(start.deliveries, outcome.status.name, start.begin)
        if start.cancelled or not outcome.begun:
            return await self._not_begun(lane, batch)
        if self._in_order:
            return await self._answer_in_order(lane, batch, outcome, context)
        assert isinstance(context, ConsumeConcurrentlyContext)
        await self._answer(self._open(batch), batch, outcome, context)
        return 0

    def _uncommitted(self, outcome: Outcome[Any], context: ListenerContext) -> Outcome[Any]:
        """A success that waits for a COMMIT is a ROLLBACK here: an acknowledgement cannot be taken back."""
        if outcome.status is not ConsumeOrderlyStatus.SUCCESS or getattr(context, "auto_commit", True):
            return outcome
        if not self._warned:
            self._warned = True
            why = "with pop, SUCCESS with auto_commit=False counts as ROLLBACK: return COMMIT for each message"
            self._log.warning("manual_commit_not_supported", queue=str(context.message_queue), why=why)
        return outcome._replace(status=ConsumeOrderlyStatus.ROLLBACK)

    def _open(self, batch: Sequence[Held]) -> list[Held]:
        """Those that can be answered still; the others are forgotten."""
        for held in batch:
            if held.is_lost:
                self.held.forget(held)
        return [held for held in batch if not held.is_lost and not held.is_handled]

    def _count(self, batch: Sequence[Held], outcome: Outcome[Any], start: "_Start", asked_ms: int) -> None:
        now_ms, totals = self._runtime.now_ms(), self._stats.of(batch[0].queue.topic)
        totals.consumed(len(batch), now_ms - start.begin[0], outcome.status not in _DONE)
        waited_ms = start.begin[0] - asked_ms
        if waited_ms >= LONG_WAIT_MS:
            self._stats.waited(waited_ms, begun=True)

    async def _not_begun(self, lane: Lane, batch: Sequence[Held]) -> int:
        """The call was not made, or it was cancelled: a delivery has ended, or this consumer stops."""
        for held in batch:
            now_ns = self._runtime.monotonic_ns()
            if held.is_lost or held.is_handled:
                continue
            if now_ns >= held.until_ns:
                self._lost(held, EXPIRED)
            elif held.delivery.has_ended(now_ns):
                # Its connection has ended: whether it lasts is known when it is renewed.
                await self.answers.renew(held)
        await self._put_back(lane, batch)
        now_ns = self._runtime.monotonic_ns()
        return RETRY_STEPS_MS[0] if any(held.delivery.has_ended(now_ns) for held in lane.waiting) else 0

    async def _put_back(self, lane: Lane, batch: Sequence[Held]) -> bool:
        """What has no answer is handled again: here, or by others. Returns whether something is here."""
        left = self._open(batch)
        # What is behind a lost message in its key waits for it: with its next holder.
        goes = self._in_order and any(held.is_lost for held in batch)
        if goes or self.stopped or batch[0].queue.topic not in self._subscribed:
            for held in left:
                self.held.forget(held)
            await self._pops.give_back([held.delivery for held in left])
            return False
        lane.put_back(left)
        return bool(left)

    async def _too_often(self, batch: Sequence[Held]) -> bool:
        """Make dead letters of messages that were delivered too often without an answer: clients ended at them.

        Returns whether there was one.
        """
        limit = self.limit
        if limit is None or not self._in_order:
            return False
        # What came behind another message was delivered with it, perhaps without a call.
        found = [held for held in batch if held.is_first and held.message.reconsume_times > limit]
        return any([await self.answers.dead_letter(held, limit) for held in found])

    # Results -------------------------------------------------------------------------------------------------

    async def _answer_in_order(
        self, lane: Lane, batch: Sequence[Held], outcome: Outcome[Any], context: ListenerContext
    ) -> int:
        left = self._open(batch)
        if outcome.status in _DONE:
            # The next message of the key waits for the answers: else a message whose acknowledgement is lost would
            # come again after it.
            await asyncio.gather(*[self.answers.ack(held) for held in left])
            return 0
        tried = min((held.message.reconsume_times for held in left), default=0)
        # A rollback is no failed attempt.
        if outcome.status is not ConsumeOrderlyStatus.ROLLBACK and not self.stopped:
            for held in left:
                at_limit = self.limit is not None and held.message.reconsume_times >= self.limit
                if not (at_limit and await self.answers.dead_letter(held, self.limit or 0)):
                    held.message.reconsume_times += 1
        if not await self._put_back(lane, batch):
            # What came meanwhile does not wait.
            return 0
        wanted_ms = getattr(context, "suspend_current_queue_time_ms", -1)
        if wanted_ms < 0:
            return RETRY_STEPS_MS[min(tried, len(RETRY_STEPS_MS) - 1)]
        return bounded_suspend_ms(wanted_ms)

    async def _answer(
        self, left: list[Held], batch: Sequence[Held], outcome: Outcome[Any], context: ConsumeConcurrentlyContext
    ) -> None:
        good = batch[: max(context.ack_index + 1, 0)] if outcome.status in _DONE else ()
        level, limit = context.delay_level_when_next_consume, self._config.max_reconsume_times
        answers = list[Awaitable[object]]()
        for held in left:
            times = held.message.reconsume_times
            if held in good:
                answers.append(self.answers.ack(held))
            elif level < 0 or 0 <= limit <= times:
                answers.append(self._give_up(held, max(limit, 0)))
            else:
                step = level - 1 if level else times + _FIRST_WITHOUT_ORDER
                delay_ms = 0 if self.stopped else RETRY_STEPS_MS[min(step, len(RETRY_STEPS_MS) - 1)]
                answers.append(self.answers.try_later(held, delay_ms))
        await asyncio.gather(*answers)

    async def _give_up(self, held: Held, limit: int) -> None:
        if not await self.answers.dead_letter(held, limit):
            await self.answers.try_later(held, RETRY_STEPS_MS[_FIRST_WITHOUT_ORDER])


class _Start:
    """Asked right before a call, on the listener's thread, whether it may begin; and cancels it."""

    def __init__(self, service: PopService, batch: Sequence[Held]) -> None:
        self._service = service
        self._batch = batch
        self._task: asyncio.Task[Any] | None = None  # of a call that may be cancelled
        self.begin = (0, 0)  # (wall ms, monotonic ns)
        self.deliveries: list[Delivery] = []  # of then: a newer one may come while the call runs
        self.cancelled = False
        self.is_running = False

    def may_begin(self) -> bool:
        service = self._service
        now_ns = service.runtime.monotonic_ns()
        self.begin = service.runtime.now_ms(), now_ns
        self.deliveries = [held.delivery for held in self._batch]
        if service.stopped or any(held.is_lost or now_ns >= held.until_ns for held in self._batch):
            return False
        if any(delivery.has_ended(now_ns) for delivery in self.deliveries):
            return False
        if service.cancels:
            self._task = asyncio.current_task()
        self.is_running = True
        return True

    def cancel(self) -> None:
        if self._task is not None and not self.cancelled:
            self.cancelled = True
            self._task.cancel("its delivery has ended")

    def end(self) -> bool:
        """The call has ended. Returns whether it was cancelled."""
        if self.cancelled and self._task is not None:
            self._task.uncancel()
        self._task = None
        self.is_running = False
        return self.cancelled
