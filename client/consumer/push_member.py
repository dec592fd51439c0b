"""PushMember: a running PushConsumer, which pulls, locks queues and calls the listener (wire.md 12.2)."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from lockstep.client.consumer.broker_requests import Listening
from lockstep.client.consumer.cache.arrivals import Arrivals
from lockstep.client.consumer.dispatch.base import ServiceParts
from lockstep.client.consumer.dispatch.direct import ConsumeDirectly
from lockstep.client.consumer.dispatch.table import OrderingRow
from lockstep.client.consumer.flow_control import FlowControl
from lockstep.client.consumer.left_work import LeftWork
from lockstep.client.consumer.listener import AnyListener, AroundListener, ListenerCall
from lockstep.client.consumer.member import GroupMember, MemberSettings
from lockstep.client.consumer.ownership.first_offset import FirstOffset
from lockstep.client.consumer.ownership.hold import Hold
from lockstep.client.consumer.ownership.lock_port import Locks
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.ownership.reset import OffsetReset
from lockstep.client.consumer.ownership.ways import OwnershipWish
from lockstep.client.consumer.pull_loop import PullLoop
from lockstep.client.consumer.pull_request import PullCalls, PullResult
from lockstep.client.consumer.send_back import DeadLetters
from lockstep.protocol.bodies.heartbeat import ConsumeType, SubscriptionData
from lockstep.protocol.codes import PullSysFlag, ResponseCode
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import is_retry_topic
from lockstep.protocol.selector import KeyOf
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import RequestRefused

__all__ = ["Consumption", "PushMember"]

_ANNOUNCE_AGAIN_MS: Final = 5_000  # two members with other topics must not announce them all the time
_SUSPEND = int(PullSysFlag.SUSPEND)
_SUSPEND_AND_TEXT = _SUSPEND | int(PullSysFlag.SUBSCRIPTION)
_CONSEQUENCE: Final = {
    True: "the queue stays locked until its lock expires",
    False: "its messages are delivered again",
}


class Consumption(NamedTuple):
    """The listener of a consumer, and the order it is called in. `key_of` counts with ordering "key" alone."""

    listener: AnyListener
    ordering: OrderingRow
    key_of: KeyOf
    trace_path: str | None
    ownership: OwnershipWish = OwnershipWish()


class PushMember(GroupMember):
    """A member that hands messages to a listener."""

    consume_type = ConsumeType.CONSUME_PASSIVELY

    def __init__(
        self, settings: MemberSettings, subscriptions: dict[str, SubscriptionData], consumption: Consumption
    ) -> None:
        self._consumption = consumption
        self._ordering = ordering = consumption.ordering
        super().__init__(settings, subscriptions, consumption.trace_path)
        config, member = self.config, self.membership
        self._new_cache = ordering.caches(config, consumption.key_of)
        self._suspended = False
        self._announced_ms = 0
        self._said_others = False
        self._pool = self.runtime.new_worker_pool(f"{settings.group} listener", config.consume_threads)
        around = AroundListener(settings.hooks, settings.tenant, config, self.runtime)
        left = LeftWork(self.runtime, self.log, settings.group)
        now_ms = self.runtime.now_ms
        call = ListenerCall(consumption.listener, self._pool, self.log, ordering.contract, around, now_ms, left)
        parts = ServiceParts(member=member, call=call, pool=self._pool, locks=self._locks, stats=self.stats)
        self.service = ordering.new_service(parts)
        self._flow = FlowControl.of_push(config, checks_span=ordering.checks_span)
        calls = PullCalls(self.instance, settings.group, settings.hooks)
        self._pulls = PullLoop(member, self, calls, self._flow, self.stats, self._new_dead_letters())
        self.first_offset = FirstOffset(self.instance, settings.group, config, self.offsets)
        self._reset = OffsetReset(member, self._locks, self._rebalance, done=self.rebalance_soon)
        directly = ConsumeDirectly(self.runtime, settings.group, call, self.service.between_runs)
        self._listening: Listening = Listening(
            ordering.needs_lock, config.consume_threads, directly, self._reset.start, self._released
        )

    def _new_dead_letters(self) -> DeadLetters | None:
        """For messages that cannot be read; a broadcasting consumer sends nothing back."""
        if not self.config.unreadable_to_dead_letters or self._settings.broadcasting:
            return None
        return DeadLetters(self.membership)

    def _new_locks(self) -> Locks:
        """A broadcasting consumer shares its queues with no other member: it needs no lock, in any order."""
        needed = self._ordering.needs_lock and not self._settings.broadcasting
        return self._consumption.ownership.locks(self.membership, self, self._settings.tenant, needed=needed)

    # Life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        await super().start()
        self.service.start()
        self._locks.start()

    async def stop(self) -> list[ProcessQueue]:
        """A listener that does not return within `await_termination_ms` is logged.

        Its queue stays locked until the lock expires, because the listener may still be at work.
        """
        self._reset.stop()
        # First the listeners end, then the last offsets are stored, then the locks are given up: the next owner begins
        # behind what was handled.
        stuck = await super().stop()
        self.service.close()
        await self._locks.settle()
        self._pool.close()
        if self.membership.trace is not None and not stuck:
            # A stuck listener that returns later is still recorded.
            self.membership.trace.close()
        return stuck

    async def _end_consumption(self) -> list[ProcessQueue]:
        timeout_ms = self.config.await_termination_ms
        stuck = await self.service.stop(timeout_ms)
        for process_queue in stuck:
            consequence = _CONSEQUENCE[self._locks.needed]
            self.log.error(
                "listener_stuck", queue=str(process_queue.queue), waited_ms=timeout_ms, consequence=consequence
            )
        # Only now: until the listeners have ended, their messages stay cached.
        self._pulls.stop_all()
        await self._locks.settle()
        return stuck

    # Calls of the user ---------------------------------------------------------------------------------------

    def suspend(self) -> None:
        self._suspended = True

    def resume(self) -> None:
        self._suspended = False
        self.rebalance_soon()

    def set_consume_thread_count(self, count: int) -> None:
        self.service.set_consume_thread_count(count)
        self._listening.consume_thread_count = count

    # Queues --------------------------------------------------------------------------------------------------

    def new_process_queue(self, queue: MessageQueue, period: int, now_ms: int, hold: Hold) -> ProcessQueue:
        cache = self._new_cache()
        if self.stats.measured:
            cache.arrivals = Arrivals()
        return ProcessQueue(queue, period, now_ms, hold, cache)

    def queue_acquired(self, process_queue: ProcessQueue) -> None:
        self._locks.acquired(process_queue, self._pulls.start)

    def queue_dropped(self, process_queue: ProcessQueue, why: str) -> None:
        """The consume service sets the offset after each listener call."""
        self._locks.dropped(process_queue, why)

    async def queues_changed(self, topic: str) -> None:
        self._flow.share_out(
            topic, [queue for queue, process_queue in self.table.items() if not process_queue.life.dropped]
        )
        await super().queues_changed(topic)

    async def _broker_connected(self, address: str, endpoint: Endpoint) -> None:
        """A broker that restarted has no locks: renew the held ones before another client takes them."""
        if self._stopping:
            return
        # First the locks, then the rebalance: a queue that was lost meanwhile is given up in that round.
        await self._locks.lock_all_over(address, endpoint)
        if self.table:
            self.rebalance_soon()

    def _connection_ended(self, address: str) -> None:
        self._locks.connection_ended(address)

    def _released(self, queues: tuple[MessageQueue, ...]) -> None:
        self.runtime.create_task(self.take_released(queues), name="take released locks")

    # What locks ask for (LockOwner) --------------------------------------------------------------------------

    def lock_reacquired(self, process_queue: ProcessQueue) -> None:
        self.membership.record("lock_lost", process_queue, why="it ran out before it was renewed")
        # Another member may have owned the queue meanwhile. What is cached here may be handled already.
        self._rebalance.drop(process_queue, "its lock had run out: it begins anew")
        self.rebalance_soon()

    def cancel_calls(self, process_queue: ProcessQueue) -> None:
        self.service.cancel_calls(process_queue)

    def drop(self, process_queue: ProcessQueue, why: str) -> None:
        self._rebalance.drop(process_queue, why)

    def on_thread(self, function: Callable[[], object]) -> Awaitable[object]:
        return self._pool.submit(function)

    # Offsets -------------------------------------------------------------------------------------------------

    def _persist(self, owned: list[ProcessQueue]) -> None:
        super()._persist(self._locks.commit(owned))

    async def _persist_last(self) -> None:
        others = await self._locks.commit_last([pq for pq in self.table.values() if not pq.life.dropped])
        # Only for queues whose lock is still trusted, or the next owner's offset would be lost.
        super()._persist([pq for pq in others if self.membership.holds_lock(pq)])

    # Subscriptions -------------------------------------------------------------------------------------------

    def topics(self) -> Iterable[str]:
        return self._subscriptions if self._has_topics else ()

    @property
    def _has_topics(self) -> bool:
        return any(not is_retry_topic(topic) for topic in self._subscriptions)

    def _subscription_unknown(self, topic: str) -> None:
        """Another member announced other topics, and a broker keeps what was announced last: announce ours again.

        Without this the topic would stand still until the next heartbeat, for up to 30 s.
        """
        now_ms = self.runtime.now_ms()
        if now_ms - self._announced_ms < _ANNOUNCE_AGAIN_MS:
            return
        self._announced_ms = now_ms
        if not self._said_others:
            self._said_others = True
            why = "a broker does not know this subscription: all members of a group must have the same ones"
            self.log.warning("subscriptions_differ", group=self._settings.group, topic=topic, why=why)
        self.subscriptions_changed()

    # Pulls (PullOwner) ---------------------------------------------------------------------------------------

    @property
    def pull_flags(self) -> int:
        return _SUSPEND_AND_TEXT if self.config.post_subscription_when_pull else _SUSPEND

    def pause_ms(self, process_queue: ProcessQueue) -> int:
        return self.config.pull_delay_when_suspended_ms if self._suspended else 0

    def retry_ms(self, process_queue: ProcessQueue) -> int:
        return self.config.pull_delay_when_exception_ms

    def refused(self, process_queue: ProcessQueue, error: Exception) -> bool:
        if isinstance(error, RequestRefused) and error.code == ResponseCode.SUBSCRIPTION_NOT_EXIST:
            self._subscription_unknown(process_queue.queue.topic)
        return self._locks.refused(process_queue, error)

    def subscription(self, topic: str) -> SubscriptionData | None:
        return self._subscriptions.get(topic)

    def take(self, process_queue: ProcessQueue, messages: list[MessageExt]) -> None:
        if process_queue.cache.arrivals is not None:
            process_queue.cache.arrivals.pulled(messages[-1].queue_offset, self.runtime.now_ms())
        self.service.submit(process_queue, messages)

    def nothing_found(self, process_queue: ProcessQueue, result: PullResult) -> None:
        # The queue is handled up to here, so this offset may be stored although no message moved it (wire.md 12.6).
        if process_queue.cache.is_empty:
            self.offsets.update(process_queue.queue, result.next_begin_offset, increase_only=True)

    async def offset_illegal(self, process_queue: ProcessQueue, result: PullResult) -> None:
        """10 s later the offset is stored, and the queue may be acquired again (wire.md 12.6).

        If the broker's log lost its newest messages, those before them may be cached here and not handled yet. The
        queue begins there then; RocketMQ begins at the end, and skips them.
        """
        process_queue.life.dropped = True
        offsets, delay_ms = range(result.min_offset, result.max_offset), self.config.offset_illegal_delay_ms
        await self._reset.correct(process_queue, offsets, result.next_begin_offset, delay_ms)

    async def log_went_back(self, process_queue: ProcessQueue, begin: int) -> None:
        # First dropped: no call may begin with messages that the broker does not have any more.
        process_queue.life.dropped = True
        await self._reset.correct(process_queue, range(begin), begin, delay_ms=0)
