"""ConsumeService: takes pulled messages and calls the listener. `table` has one service for each `ordering`."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from lockstep.client.callables import log_or_raise
from lockstep.client.consumer.dispatch.call_start import CallStarts
from lockstep.client.consumer.dispatch.queue_mutex import QueueMutex
from lockstep.client.consumer.dispatch.stats import ConsumerStatsManager
from lockstep.client.consumer.listener import ConsumeOrderlyContext, ListenerCall
from lockstep.client.consumer.ownership.lock_port import Locks
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.send_back import DeadLetters
from lockstep.client.errors import SendError
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.host.runtime import WorkerPool

__all__ = ["YIELD_AFTER", "ConsumeService", "OrderedService", "ServiceParts", "bounded_suspend_ms", "restore_topics"]

# After so many listener calls other tasks get a turn, even if no call had to wait.
YIELD_AFTER: Final = 64
# The bounds of a listener's own suspend time (wire.md 12.7).
_SUSPEND_MIN_MS = 10
_SUSPEND_MAX_MS = 30_000
# After a lock request of the consume path the queue is tried again so much later (wire.md 7.3).
_LOCK_GRANTED_MS = 10
_LOCK_REFUSED_MS = 3000
_UNLIMITED: Final = 2**31 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """The parts of a consumer that its consume service works with."""

    member: Membership
    call: ListenerCall[Any]
    pool: WorkerPool
    locks: Locks
    stats: ConsumerStatsManager


class ConsumeService(ABC):
    """What all services share. A subclass decides which messages are handled when."""

    def __init__(self, parts: ServiceParts) -> None:
        member = parts.member
        self._runtime = member.runtime
        self._log = member.log
        self._config = member.config
        self._offsets = member.offsets
        self._trace = member.trace
        self._call = parts.call
        self._pool = parts.pool
        self._stats = parts.stats
        self._starts = CallStarts(
            member.runtime, member.log, member.config, parts.stats, traced=member.trace is not None
        )
        self._starts.group, self._starts.on_loop = member.group, parts.call.is_async
        self._starts.watches = parts.locks.watches_calls
        self._starts.cancels = parts.call.is_async and member.config.on_lock_lost == "cancel"

    def cancel_calls(self, process_queue: ProcessQueue) -> None:
        """Cancel the running calls of an `async def` listener: the fenced lock of the queue is lost."""
        self._starts.cancel(process_queue)

    def start(self) -> None:
        """Start periodic work. Nothing is submitted yet."""
        self._starts.watch_loop()

    def close(self) -> None:
        """End periodic work."""
        self._starts.unwatch_loop()

    @abstractmethod
    def submit(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """Put pulled messages into their process queue, and handle them."""

    @abstractmethod
    def between_runs(self, queue: MessageQueue) -> AbstractAsyncContextManager[None]:
        """Return a context in which the listener may get an administrator's message of `queue`."""

    def set_consume_thread_count(self, count: int) -> None:
        """Change the number of listener calls at a time."""
        self._pool.resize(count)

    @abstractmethod
    async def stop(self, timeout_ms: int) -> list[ProcessQueue]:
        """Take no more messages.

        Returns:
            The process queues whose listener did not return within `timeout_ms`.
        """


class OrderedService(ConsumeService, Generic[T]):
    """What the services with order share.

    Three locks guard a queue, as in the articles: the broker's lock (without it no call is made), `QueueMutex` in this
    process, and `listener_running` of the process queue (a rebalance does not unlock while a listener runs).
    """

    def __init__(self, parts: ServiceParts, dead_letters: DeadLetters) -> None:
        super().__init__(parts)
        self._locks = parts.locks
        self._dead_letters = dead_letters
        self._mutexes: dict[MessageQueue, QueueMutex[T]] = {}
        self._running: dict[ProcessQueue, object] = {}  # process queues that are worked on, dropped ones too

    @abstractmethod
    def _start(self, item: T) -> None:
        """Start work that waited for a QueueMutex."""

    @abstractmethod
    def _resume(self, process_queue: ProcessQueue) -> None:
        """Go on with a process queue that waited for its lock. The lock may be missing still."""

    def _mutex(self, queue: MessageQueue) -> QueueMutex[T]:
        mutex = self._mutexes.get(queue)
        if mutex is None:
            mutex = self._mutexes[queue] = QueueMutex(self._start)
        return mutex

    def between_runs(self, queue: MessageQueue) -> AbstractAsyncContextManager[None]:
        return self._mutex(queue).exclusive()

    async def stop(self, timeout_ms: int) -> list[ProcessQueue]:
        self._starts.stopped = True
        deadline_ms = self._runtime.now_ms() + timeout_ms
        for process_queue in list(self._running):
            await process_queue.life.listener_idle(max(deadline_ms - self._runtime.now_ms(), 0))
        return [process_queue for process_queue in self._running if process_queue.life.listener_running]

    # Failures ------------------------------------------------------------------------------------------------

    def _suspend_ms(self, context: ConsumeOrderlyContext) -> int:
        wanted_ms = context.suspend_current_queue_time_ms
        if wanted_ms < 0:
            wanted_ms = self._config.suspend_current_queue_time_ms
        return bounded_suspend_ms(wanted_ms)

    async def _give_up(self, process_queue: ProcessQueue, messages: Sequence[MessageExt]) -> list[MessageExt]:
        """Send messages at their limit of attempts to the dead letters (checkReconsumeTimes).

        Returns:
            The messages that are dead letters now. The others get another attempt.
        """
        if process_queue.life.lost:
            return []
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
                    self._locks.refused(process_queue, error)
            message.reconsume_times += 1
        return dead

    # The broker's lock ---------------------------------------------------------------------------------------

    def _lock_later(self, process_queue: ProcessQueue, delay_ms: int) -> None:
        """Resume the process queue when its lock is trusted again; if nobody asks for it, ask after `delay_ms`."""
        if not process_queue.hold.wait(lambda: self._resume(process_queue)):
            self._runtime.call_later_ms(delay_ms, self._try_lock, process_queue)

    def _try_lock(self, process_queue: ProcessQueue) -> None:
        if not self._starts.stopped and not process_queue.life.is_over:
            self._runtime.create_task(self._lock(process_queue), name=f"re-lock {process_queue.queue}")

    async def _lock(self, process_queue: ProcessQueue) -> None:
        try:
            granted = await self._locks.lock([process_queue.queue])
        except BaseException as error:
            # For example, the trace cannot be written.
            log_or_raise(self._log, "relock_failed", error, queue=str(process_queue.queue))
            granted = {}
        delay_ms = _LOCK_GRANTED_MS if granted else _LOCK_REFUSED_MS
        self._runtime.call_later_ms(delay_ms, self._resume, process_queue)


def bounded_suspend_ms(wanted_ms: int) -> int:
    """Return a listener's own suspend time, within RocketMQ's bounds."""
    return min(max(wanted_ms, _SUSPEND_MIN_MS), _SUSPEND_MAX_MS)


def restore_topics(messages: Sequence[MessageExt]) -> None:
    """Give messages of a retry topic the topic that they were sent to."""
    for message in messages:
        message.topic = message.properties.get(names.RETRY_TOPIC, message.topic)
