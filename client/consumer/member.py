"""GroupMember: the part of a running consumer that push, lite pull and pull consumers share (wire.md 12.1 to 12.3).

It owns the client instance, the consume offsets, the queues and the rebalance that gives and takes them, and the order
of start and shutdown. A subclass is one kind of consumer: it says what happens to a queue that is acquired or dropped.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from lockstep.client.admin.queues import QueueQueries
from lockstep.client.callables import log_or_raise, must_propagate
from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.broker_requests import BrokerCalls, Listening
from lockstep.client.consumer.dispatch.stats import SAMPLE_INTERVAL_MS, ConsumerStatsManager
from lockstep.client.consumer.offsets.local_file import LocalFileOffsetStore, offset_folder
from lockstep.client.consumer.offsets.store import OffsetStore, RemoteBrokerOffsetStore
from lockstep.client.consumer.ownership.allocation.average import AllocateMessageQueueStrategy, strategy_name
from lockstep.client.consumer.ownership.hold import Hold
from lockstep.client.consumer.ownership.lock_port import Locks, NoLocks
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.ownership.rebalance import Rebalance
from lockstep.client.hook_calls import ConsumeHooks
from lockstep.client.instance.client import ClientRole, MQClientInstance
from lockstep.client.instance.registry import claim_group
from lockstep.client.message_selector import check_at_brokers
from lockstep.client.pull_config import PullConsumerConfig, member_config
from lockstep.order.traces.trace import TraceWriter
from lockstep.protocol.bodies.heartbeat import ConsumerData, ConsumeType, MessageModel, SubscriptionData
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.messaging import UpdateConsumerOffsetRequestHeader
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import must_succeed
from lockstep.remoting.host.runtime import Runtime
from lockstep.remoting.logs import EventLog
from lockstep.remoting.settings import Address

__all__ = ["GroupMember", "MemberSettings"]

_SETTLE_MS: Final = 200  # most queues have moved by then


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The choices of a user, for every kind of consumer.

    Args:
        group: with its namespace, as brokers know it.
        config: the settings of the user's kind of consumer.
        measured: times of listener calls are kept, for metrics.
    """

    runtime: Runtime
    log: EventLog
    group: str
    tenant: NamesOfTenant
    name_servers: tuple[Address, ...]
    config: ConsumerConfig | PullConsumerConfig
    message_model: MessageModel
    strategy: AllocateMessageQueueStrategy
    hooks: ConsumeHooks
    measured: bool = False

    @property
    def broadcasting(self) -> bool:
        return self.message_model is MessageModel.BROADCASTING


class GroupMember(ABC):
    """A member of a consumer group, from its start to its shutdown.

    Args:
        settings: the choices of the user.
        subscriptions: by topic. The dictionary belongs to the consumer, which may change it at any time.
        trace_path: the file for the records that order is judged by.

    Raises:
        DuplicateConsumerGroupError: another consumer of this process has the same group and client id.
    """

    consume_type: ClassVar[ConsumeType] = ConsumeType.CONSUME_ACTIVELY
    _listening: Listening | None = None

    def __init__(
        self, settings: MemberSettings, subscriptions: dict[str, SubscriptionData], trace_path: str | None = None
    ) -> None:
        config = settings.config
        self.runtime = settings.runtime
        self.log = settings.log
        self.config = config if isinstance(config, ConsumerConfig) else member_config(config)
        self.pops_in_order: bool | None = None  # None: it owns queues, or has a listener, which says it
        self.balances = True  # False: the user assigns the queues, and no rebalance changes them
        self._settings = settings
        self._subscriptions = subscriptions
        self._wake = asyncio.Event()
        self._is_due = False  # a round waits for the least time between two
        self._round = asyncio.Lock()
        self._rebalancing: asyncio.Task[None] | None = None
        self._stopping = False
        self._left = False  # the group: nothing is subscribed any more, or it stops
        self.instance = MQClientInstance(
            settings.runtime,
            settings.name_servers,
            config,
            settings.log,
            ClientRole(
                consumer_data=self._consumer_data,
                # The offset file of a broadcasting member is found by this name, after a restart too.
                instance_name=config.instance_name if settings.broadcasting else None,
                on_ids_changed=lambda _group: self.rebalance_soon(),
                on_broker_connected=self._broker_connected,
                on_connection_ended=self._connection_ended,
            ),
        )
        self._claim = claim_group(self.instance, "consumer", settings.group)
        try:
            self.membership = self._new_membership(trace_path)
        except OSError:
            self._claim.release()
            raise
        self.table = self.membership.table
        self.offsets = self.membership.offsets
        self.queries = QueueQueries(self.instance, settings.group)
        self.stats = ConsumerStatsManager(
            settings.runtime.now_ms(), measured=settings.measured, slow_ms=self.config.lock_max_live_time_ms
        )
        self._locks = self._new_locks()
        strategy = None if settings.broadcasting else settings.strategy
        self._rebalance = Rebalance(self.membership, self._locks, self, strategy)

    def _new_membership(self, trace_path: str | None) -> Membership:
        settings, client_id = self._settings, self.instance.client_id
        trace = None if trace_path is None else TraceWriter(self.runtime, trace_path, client_id, settings.group)
        return Membership(
            instance=self.instance,
            group=settings.group,
            config=self.config,
            offsets=self._new_offset_store(),
            message_model=settings.message_model,
            trace=trace,
        )

    def _new_offset_store(self) -> OffsetStore:
        group = self._settings.group
        if not self._settings.broadcasting:
            return RemoteBrokerOffsetStore(self.instance, group)
        folder = offset_folder(self.config.local_offset_folder)
        return LocalFileOffsetStore(self.runtime, folder, self.instance.client_id, group, self.log)

    # A kind of consumer fills these in -----------------------------------------------------------------------

    @abstractmethod
    def queue_acquired(self, process_queue: ProcessQueue) -> None:
        """A queue is in the table now."""

    @abstractmethod
    def queue_dropped(self, process_queue: ProcessQueue, why: str) -> None:
        """A queue is given up; its offset in memory is stored after this call."""

    def new_process_queue(self, queue: MessageQueue, period: int, now_ms: int, hold: Hold) -> ProcessQueue:
        return ProcessQueue(queue, period, now_ms, hold)

    def _new_locks(self) -> Locks:
        return NoLocks(self.runtime)

    async def _broker_connected(self, address: str, endpoint: Endpoint) -> None:  # noqa: B027 - most do nothing
        """A new connection has sent its heartbeat and is not in general use yet."""

    def _connection_ended(self, address: str) -> None:  # noqa: B027
        """A connection ended, to a broker or a name server."""

    async def _end_consumption(self) -> list[ProcessQueue]:
        """Pull and handle nothing more. Returns the queues whose listener still runs."""
        return []

    async def _has_left(self) -> None:  # noqa: B027
        """The brokers know that this member has left; its connections are still open."""

    # Life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group. A start that fails leaves nothing behind.

        Raises:
            ConsumerError: the stored offsets cannot be read, or a broker cannot filter by a subscription.
            NoRouteError: no name server answers.
        """
        settings, subscriptions = self._settings, self._subscriptions
        explained = self._rebalance.explanations.text
        calls = BrokerCalls(
            self.membership,
            settings.config,
            self.stats,
            subscriptions,
            self._listening,
            explained,
            None if settings.broadcasting or self.pops_in_order is not None else strategy_name(settings.strategy),
            self.pops_in_order,
        )
        self.instance.serve(calls.handlers)
        try:
            await self.offsets.load()
            for topic in list(subscriptions):
                await self.instance.routes.fetch(topic)
            await check_at_brokers(self.instance, settings.group, list(subscriptions.values()))
            await self.instance.heartbeat_all()
            await self._locks.check_brokers()
        except BaseException:
            await self.stop()
            raise
        schedule, config = self.instance.schedule, self.config
        interval_ms, first_ms = config.persist_consumer_offset_interval_ms, config.persist_consumer_offset_first_ms
        self.instance.start()
        schedule.every(interval_ms, self._persist_all, first_ms=first_ms, name="persist offsets")
        schedule.every(SAMPLE_INTERVAL_MS, self._sample, first_ms=SAMPLE_INTERVAL_MS, name="statistics")
        self._rebalancing = self.runtime.create_task(self._rebalance_forever(), name="rebalance")

    async def stop(self) -> list[ProcessQueue]:
        """Leave the group. Returns the queues whose listener still runs.

        Offsets are stored before locks are released, so that the next owner begins where this one ended.
        """
        self._stopping = True
        if self._rebalancing is not None:
            self._wake.set()
            # Wait for the whole round: a lock on its way must reach the table to be released.
            await self._rebalancing
        async with self._round:
            # Also for a round that a new topic began.
            pass
        await self.instance.schedule.stop()
        stuck = await self._end_consumption()
        held = [queue for queue, process_queue in self.table.items() if process_queue not in stuck]
        try:
            await self._persist_last()
            for process_queue in list(self.table.values()):
                self._rebalance.drop(process_queue, "shutdown")
        except OSError as error:
            # The trace cannot be written: offsets without a record are not stored, but locks are released.
            self.log.error("trace_not_written", error=str(error))
        for process_queue in self.table.values():
            process_queue.life.dropped = True
        await self.offsets.close()
        await self._locks.unlock_all(held)
        # No heartbeat of a new connection makes it a member again.
        self._left = True
        await self.instance.leave(self._settings.group)
        await self._has_left()
        self.instance.close()
        self._claim.release()
        return stuck

    # Subscriptions -------------------------------------------------------------------------------------------

    def topics(self) -> Iterable[str]:
        return self._subscriptions

    @property
    def _has_topics(self) -> bool:
        """Whether it may own a queue. A member that may not leaves the group, or its share would have no owner."""
        return True

    @property
    def _holds(self) -> bool:
        """Whether it has messages, or may have some: it does not leave the group then."""
        return bool(self.table)

    def _consumer_data(self) -> ConsumerData | None:
        if self._left:
            return None
        return ConsumerData(
            self._settings.group,
            self.consume_type,
            self._settings.message_model,
            self.config.consume_from_where,
            tuple(self._subscriptions.values()),
            self.config.unit_mode,
        )

    def subscriptions_changed(self) -> None:
        """Tell the brokers of all topics, those of new topics too, and rebalance; does not wait for it."""
        if self._stopping:
            return
        if self._has_topics:
            self._left = False
            self.runtime.create_task(self._announce_subscriptions(), name="announce subscriptions")
        else:
            # Not announced: the brokers would refuse the pulls of the other members until their next heartbeat.
            self._wake.set()

    async def _announce_subscriptions(self) -> None:
        try:
            for topic in [topic for topic in self._subscriptions if self.instance.routes.known(topic) is None]:
                await self.instance.routes.fetch(topic)
            await self.instance.heartbeat_all()
        except BaseException as error:
            # The next rebalance fetches the route, and the next heartbeat announces the same.
            if must_propagate(error):
                raise
            if not self._stopping:
                self.log.warning("subscriptions_not_announced", error=f"{type(error).__name__}: {error}")
        self._wake.set()

    # Rebalance -----------------------------------------------------------------------------------------------

    def rebalance_soon(self) -> None:
        self._wake.set()

    async def rebalance_now(self) -> None:
        """Run one round; the table holds its result when this returns."""
        async with self._round:
            if self.balances and not self._stopping:
                await self._balance()
                if not self._has_topics and not self._holds and not self._left:
                    await self._leave_group()

    async def _balance(self) -> None:
        await self._rebalance.run()

    async def _leave_group(self) -> None:
        """Its queues are given up; without this, the other members would go on to count it for the topics it left."""
        self._left = True
        why = "no topic is subscribed any more: the other members share its queues"
        self.log.info("group_left", group=self._settings.group, why=why)
        await self.instance.leave(self._settings.group)

    async def take_released(self, queues: Iterable[MessageQueue]) -> None:
        """Ask for queues that a broker says have no owner any more.

        Not while a round is due: its members are others, and a queue that the old share takes would move again.
        """
        if self._is_due or self._wake.is_set():
            return
        try:
            async with self._round:
                if self.balances and not self._stopping:
                    await self._rebalance.take_released(queues)
        except BaseException as error:
            # The next round asks for them.
            log_or_raise(self.log, "rebalance_failed", error)

    async def _rebalance_forever(self) -> None:
        """At the start, every 20 s, and when the members of the group change: at once, or `rebalance_min_interval_ms`
        after the last round began, and after the start."""
        began_ms = self._monotonic_ms()
        while True:
            end_ms = began_ms + self.config.rebalance_min_interval_ms
            while not self._stopping and (left_ms := end_ms - self._monotonic_ms()) > 0:
                self._wake.clear()
                await self._wait_to_wake(left_ms)
            if self._stopping:
                return
            self._wake.clear()
            self._is_due = False
            began_ms = self._monotonic_ms()
            try:
                await self.rebalance_now()
            except BaseException as error:
                log_or_raise(self.log, "rebalance_failed", error)
            await self._wait_to_wake(self._until_next_round_ms())
            self._is_due = True

    def _until_next_round_ms(self) -> int:
        """Without a notice."""
        rebalance, interval_ms = self._rebalance, self.config.rebalance_interval_ms
        if rebalance.unsettled:
            return min(_SETTLE_MS, interval_ms)
        # RocketMQ 5 soon repeats a round that did not get its share, or could not give up the rest; 4.9.8 does not.
        least_ms = self.config.rebalance_min_interval_ms
        return min(least_ms, interval_ms) if least_ms and not rebalance.balanced else interval_ms

    def _monotonic_ms(self) -> int:
        return self.runtime.monotonic_ns() // 1_000_000

    async def _wait_to_wake(self, timeout_ms: int) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def queues_changed(self, topic: str) -> None:
        """The subscription gets a new version, and the brokers get it at once (wire.md 12.3)."""
        subscription = self._subscriptions.get(topic)
        if subscription is not None:  # None: the user unsubscribed meanwhile
            self._subscriptions[topic] = subscription._replace(sub_version=self.runtime.now_ms())
        await self.instance.heartbeat_all()

    # Offsets and statistics ----------------------------------------------------------------------------------

    async def store_now(self, queues: Iterable[MessageQueue]) -> None:
        """Store the offsets of these queues, as far as they are known, and return when that is done.

        Raises:
            RemotingError, NoRouteError: a broker did not store one.
            ConsumerError: the file of a broadcasting member cannot be written.
        """
        known = [(queue, offset) for queue in queues if (offset := self.offsets.in_memory(queue)) >= 0]
        if self._settings.broadcasting:
            self.offsets.persist([queue for queue, _ in known], lambda _: None)
            await self.offsets.flush()
            return
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        for queue, offset in known:
            header = UpdateConsumerOffsetRequestHeader(self._settings.group, queue.topic, queue.queue_id, offset)
            must_succeed(await self.instance.call(queue.broker_name, code, header), queue.broker_name, code)

    def _persist_all(self) -> None:
        """Store the offsets of owned queues. One whose lock may be lost is left out: its new owner stores them."""
        now_ms = self.runtime.now_ms()
        self._persist([pq for pq in self.table.values() if not pq.life.dropped and pq.hold.is_trusted(now_ms)])

    def _persist(self, owned: list[ProcessQueue]) -> None:
        self._rebalance.persist(owned)

    async def _persist_last(self) -> None:
        """Store the offsets before the queues are dropped at the shutdown."""
        self._persist_all()

    def _sample(self) -> None:
        self.stats.sample(self.runtime.now_ms())
