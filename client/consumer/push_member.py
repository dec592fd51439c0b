"""What a started PushConsumer runs on: its parts, put together, and the work that goes from one to another."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.around_listener import AroundListener
from lockstep.client.consumer.broker_requests import BrokerCalls
from lockstep.client.consumer.dead_letters import DeadLetters
from lockstep.client.consumer.dispatch.base import ConsumeService, ServiceParts
from lockstep.client.consumer.dispatch.direct import ConsumeDirectly
from lockstep.client.consumer.dispatch.stats import SAMPLE_INTERVAL_MS, ConsumeStats
from lockstep.client.consumer.dispatch.table import OrderingRow
from lockstep.client.consumer.flow_control import FlowControl
from lockstep.client.consumer.listener import AnyListener, ListenerCall
from lockstep.client.consumer.membership import Membership
from lockstep.client.consumer.offsets.initial import FirstOffset
from lockstep.client.consumer.offsets.local_file import LocalFileOffsetStore, offset_folder
from lockstep.client.consumer.offsets.store import OffsetStore, RemoteBrokerOffsetStore
from lockstep.client.consumer.ownership.allocation.average import AllocateMessageQueueStrategy
from lockstep.client.consumer.ownership.locks import Locks, NoLocks, QueueLocks
from lockstep.client.consumer.ownership.rebalance import Rebalance
from lockstep.client.consumer.ownership.reset import OffsetReset
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.client.consumer.pull_loop import PullLoop
from lockstep.client.hook_calls import ConsumeHooks
from lockstep.client.instance.client import MQClientInstance
from lockstep.order.trace import TraceWriter
from lockstep.protocol.bodies.heartbeat import MessageModel, SubscriptionData
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.protocol.selector import KeyOf
from lockstep.remoting.endpoint import Endpoint
from lockstep.remoting.logs import log_exception

__all__ = ["PushEngine", "PushOptions"]

_STUCK: Final = {
    True: "listener stuck: left running, its queue stays locked until the lock expires",
    False: "listener stuck: left running, its messages come again",
}


class PushOptions(NamedTuple):
    """What the user chose."""

    group: str
    config: ConsumerConfig
    listener: AnyListener
    ordering: OrderingRow
    key_of: KeyOf  # counts with ordering "key" alone
    message_model: MessageModel
    strategy: AllocateMessageQueueStrategy
    hooks: ConsumeHooks
    tenant: NamesOfTenant


class PushEngine:
    """`subscriptions` is the consumer's own, by topic."""

    def __init__(
        self,
        instance: MQClientInstance,
        options: PushOptions,
        subscriptions: dict[str, SubscriptionData],
        trace: TraceWriter | None,
    ) -> None:
        group, config, runtime = options.group, options.config, instance.runtime
        self._instance = instance
        self._runtime = runtime
        self._log = instance.log
        self._config = config
        self._subscriptions = subscriptions
        self._trace = trace
        self._offsets = self._new_offset_store(options)
        self._member = Membership(
            instance=instance,
            group=group,
            config=config,
            offsets=self._offsets,
            message_model=options.message_model,
            trace=trace,
        )
        self.table = self._member.table
        self.new_process_queue = options.ordering.process_queues(config, options.key_of)
        self._wake = asyncio.Event()
        self._rebalancing: asyncio.Task[None] | None = None
        self._pulling: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._stopping = False

        self._pool = runtime.new_worker_pool(f"{group} listener", config.consume_threads)
        self._locks = self._new_locks(options)
        self._stats = ConsumeStats(runtime.now_ms())
        around = AroundListener(options.hooks, options.tenant, config, runtime)
        call = ListenerCall(options.listener, self._pool, self._log, options.ordering.contract, around)
        self.service = self._new_service(options, call)
        self._flow = FlowControl(config, checks_span=options.ordering.checks_span)
        self._pulls = self._new_pulls(options)
        strategy = None if options.message_model is MessageModel.BROADCASTING else options.strategy
        self._rebalance = Rebalance(self._member, self._locks, self, strategy)
        self._reset = OffsetReset(self._member, self._locks, self._rebalance, done=self._wake.set)
        self._calls = self._new_calls(options, call)
        instance.serve(self._calls.handlers)

    def _new_service(self, options: PushOptions, call: ListenerCall[Any]) -> ConsumeService:
        parts = ServiceParts(member=self._member, call=call, pool=self._pool, locks=self._locks, stats=self._stats)
        return options.ordering.new_service(parts)

    def _new_pulls(self, options: PushOptions) -> PullLoop:
        return PullLoop(
            self._instance,
            options.group,
            self._config,
            self._offsets,
            subscription=self._subscriptions.get,
            first_offset=FirstOffset(self._instance, self._config, self._offsets),
            submit=self.service.submit,
            offset_illegal=self._offset_illegal,
            flow=self._flow,
            stats=self._stats,
            trace=self._trace,
            hooks=options.hooks,
            dead_letters=self._new_dead_letters(options),
        )

    def _new_dead_letters(self, options: PushOptions) -> DeadLetters | None:
        """For messages that cannot be read; a broadcasting consumer sends nothing back."""
        if not self._config.unreadable_to_dead_letters or options.message_model is MessageModel.BROADCASTING:
            return None
        return DeadLetters(self._instance, options.group, self._config, self._trace)

    def _new_calls(self, options: PushOptions, call: ListenerCall[Any]) -> BrokerCalls:
        return BrokerCalls(
            self._instance,
            options.group,
            self._config,
            self.table,
            offsets=self._offsets,
            stats=self._stats,
            directly=ConsumeDirectly(self._runtime, options.group, call, self.service.between_runs),
            subscriptions=lambda: list(self._subscriptions.values()),
            orderly=options.ordering.needs_lock,
            message_model=options.message_model,
            reset=self._reset.start,
        )

    def _new_offset_store(self, options: PushOptions) -> OffsetStore:
        if options.message_model is MessageModel.CLUSTERING:
            return RemoteBrokerOffsetStore(self._instance, options.group)
        folder = offset_folder(self._config.local_offset_folder)
        return LocalFileOffsetStore(self._runtime, folder, self._instance.client_id, options.group, self._log)

    def _new_locks(self, options: PushOptions) -> Locks:
        """A broadcasting consumer shares its queues with nobody of its group: it needs no lock, in any order."""
        if options.ordering.needs_lock and options.message_model is MessageModel.CLUSTERING:
            return QueueLocks(self._member, on_reacquired=self._lock_reacquired)
        return NoLocks(self._runtime)

    # Life ----------------------------------------------------------------------------------------------------

    async def load_offsets(self) -> None:
        """Raises ConsumerError."""
        await self._offsets.load()

    def start(self) -> None:
        config, schedule = self._config, self._instance.schedule
        self._instance.start()
        self.service.start()
        if self._locks.needed:
            schedule.every(
                config.lock_interval_ms, self._locks.lock_all, first_ms=config.lock_first_delay_ms, name="lock all"
            )
        persist_ms = config.persist_consumer_offset_interval_ms
        schedule.every(
            persist_ms, self._persist_all, first_ms=config.persist_consumer_offset_first_ms, name="persist offsets"
        )
        schedule.every(SAMPLE_INTERVAL_MS, self._sample, first_ms=SAMPLE_INTERVAL_MS, name="statistics")
        self._rebalancing = self._runtime.create_task(self._rebalance_forever(), name="rebalance")

    async def stop(self) -> list[ProcessQueue]:
        """Let running listeners end, store offsets, unlock; the queues whose listener is stuck.

        Offsets are stored before the locks go, so that the next owner starts where this one ended.
        """
        self._stopping = True
        self._reset.stop()
        if self._rebalancing is not None:
            self._wake.set()
            await self._rebalancing  # to the end of its round: a lock on its way must come into the table, to be freed
        await self._instance.schedule.stop()
        stuck = await self.service.stop(self._config.await_termination_ms)
        for process_queue in stuck:
            self._log.error(
                _STUCK[self._locks.needed],
                queue=str(process_queue.queue),
                waited_ms=self._config.await_termination_ms,
            )
        held = [queue for queue, process_queue in self.table.items() if process_queue not in stuck]
        try:
            await self._persist_all()
            for process_queue in self.table.values():
                self._rebalance.drop(process_queue, "shutdown")
        except OSError as error:  # of the trace: what it cannot record is not committed, and the locks go all the same
            self._log.error("trace not written", error=str(error))
        for process_queue in self.table.values():
            process_queue.dropped = True
        for task in list(self._pulling.values()):
            task.cancel()
        await self._offsets.close()
        await self._locks.unlock_all(held)
        return stuck

    def close(self) -> None:
        self._pool.close()

    def rebalance_soon(self) -> None:
        self._wake.set()

    def subscriptions_changed(self) -> None:
        if not self._stopping:
            self._runtime.create_task(self._announce_subscriptions(), name="announce subscriptions")

    async def _announce_subscriptions(self) -> None:
        """The brokers of all topics hear of it, those of a new topic too; then queues are taken and left."""
        routes = self._instance.routes
        try:
            for topic in [topic for topic in self._subscriptions if routes.known(topic) is None]:
                await routes.fetch(topic)
            await self._instance.heartbeat_all()
        except Exception as error:  # the rebalance asks for the route again, and the next heartbeat tells the same
            self._log.warning("subscriptions not announced", error=f"{type(error).__name__}: {error}")
        self._wake.set()

    def suspend(self) -> None:
        self._pulls.suspended = True

    def resume(self) -> None:
        self._pulls.suspended = False
        self._wake.set()

    def set_consume_thread_count(self, count: int) -> None:
        self.service.set_consume_thread_count(count)
        self._calls.consume_thread_count = count

    async def broker_connected(self, address: str, endpoint: Endpoint) -> None:
        """A broker that restarted has no locks: renew at once what we hold, before somebody else takes it."""
        if self.table and not self._stopping:
            await self._locks.lock_all_over(address, endpoint)
            self._wake.set()

    # Work ----------------------------------------------------------------------------------------------------

    async def _rebalance_forever(self) -> None:
        """At the start, every 20 s, and at once when the group's members changed."""
        while not self._stopping:
            self._wake.clear()
            try:
                await self._rebalance.run()
            except Exception as error:
                log_exception(self._log, "rebalance failed", error)
            try:
                await asyncio.wait_for(self._wake.wait(), self._config.rebalance_interval_ms / 1000)
            except TimeoutError:
                pass

    def topics(self) -> Iterable[str]:
        return self._subscriptions

    def queue_acquired(self, process_queue: ProcessQueue) -> None:
        task = self._runtime.create_task(self._pulls.run(process_queue), name=f"pull {process_queue.queue}")
        self._pulling[process_queue] = task
        task.add_done_callback(lambda _: self._pulling.pop(process_queue, None))

    def queue_dropped(self, process_queue: ProcessQueue) -> None:
        pass  # the consume service sets the offset after each listener call

    async def queues_changed(self, topic: str) -> None:
        """The topic's subscription gets a new version and the brokers hear of it at once (wire.md 12.3)."""
        self._flow.share_out(topic, [queue for queue, process_queue in self.table.items() if not process_queue.dropped])
        data = self._subscriptions.get(topic)
        if data is not None:  # else it was left meanwhile
            self._subscriptions[topic] = data._replace(sub_version=self._runtime.now_ms())
        await self._instance.heartbeat_all()

    def _lock_reacquired(self, process_queue: ProcessQueue) -> None:
        self._rebalance.drop(process_queue, "its lock had run out: it begins anew")
        self._wake.set()

    async def _persist_all(self) -> None:
        """Offsets of queues that this client still owns; a stale owner's must not overwrite its successor's."""
        owned = [pq for pq in self.table.values() if not pq.dropped and self._member.holds_lock(pq)]
        self._rebalance.persist(owned)

    async def _offset_illegal(self, process_queue: ProcessQueue) -> None:
        """10 s later the broker's offset is taken and stored, and the queue may be acquired again (wire.md 12.6)."""
        await self._reset.correct(process_queue, self._config.offset_illegal_delay_ms)

    async def _sample(self) -> None:
        self._stats.sample(self._runtime.now_ms())
