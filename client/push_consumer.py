"""PushConsumer with an orderly listener: pulls by itself, calls the listener message after message (wire.md 12.2)."""

import asyncio

from lockstep.client.allocate import AllocateMessageQueueStrategy, allocate_averagely
from lockstep.client.broker_calls import BrokerCalls
from lockstep.client.config import ConsumerConfig
from lockstep.client.consume_directly import ConsumeDirectly
from lockstep.client.consume_orderly import ConsumeMessageOrderlyService
from lockstep.client.consume_stats import SAMPLE_INTERVAL_MS, ConsumeStats
from lockstep.client.dead_letters import DeadLetters
from lockstep.client.errors import ConsumerError
from lockstep.client.first_offset import FirstOffset
from lockstep.client.instance import MQClientInstance, name_server_addresses
from lockstep.client.lifecycle import Lifecycle
from lockstep.client.listener import ListenerCall, OrderlyListener
from lockstep.client.offset_reset import OffsetReset
from lockstep.client.offset_store import RemoteBrokerOffsetStore
from lockstep.client.process_queue import ProcessQueue
from lockstep.client.pull import PullLoop
from lockstep.client.queue_locks import QueueLocks
from lockstep.client.rebalance import Rebalance
from lockstep.client.trace import TraceWriter
from lockstep.protocol.heartbeat import ConsumerData, ConsumeType, MessageModel, SubscriptionData
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group, check_topic, retry_topic
from lockstep.remoting.endpoint import Endpoint
from lockstep.remoting.logs import EventLog, StdlibLog
from lockstep.remoting.runtime import AsyncioRuntime, Runtime

__all__ = ["PushConsumer"]


class PushConsumer(Lifecycle):
    """Subscribe, register a listener, `start()`; or all of it in `async with`.

    The listener is `listener(messages, context) -> ConsumeOrderlyStatus | None`, `async def` or plain; plain ones
    run on threads of the consumer's own. `name_server` is "host:port[;host:port]" or the environment's
    NAMESRV_ADDR. `trace` names a file that gets a JSON line for everything that matters to order.
    """

    def __init__(
        self,
        group: str,
        *,
        name_server: str | None = None,
        config: ConsumerConfig | None = None,
        listener: OrderlyListener | None = None,
        strategy: AllocateMessageQueueStrategy = allocate_averagely,
        trace: str | None = None,
        runtime: Runtime | None = None,
        log: EventLog | None = None,
    ) -> None:
        check_group(group)
        self.group = group
        self.config = config or ConsumerConfig()
        self._name_servers = name_server_addresses(name_server)
        self._listener = listener
        self._strategy = strategy
        self._trace_path = trace
        self._given_runtime = runtime
        self._log = log or StdlibLog("lockstep.client")
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._table: dict[MessageQueue, ProcessQueue] = {}
        self._wake = asyncio.Event()
        self._trace: TraceWriter | None = None
        self._instance: MQClientInstance | None = None
        self._rebalancing: asyncio.Task[None] | None = None
        self._pulling: dict[ProcessQueue, asyncio.Task[None]] = {}
        self._stopping = False

    # Before the start ----------------------------------------------------------------------------------------

    def subscribe(self, topic: str, expression: str = "*") -> None:
        """Messages of `topic` whose tag the expression names: "*", "TagA", "TagA || TagB".

        Raises FilterError, LocalProtocolError.
        """
        check_topic(topic)
        version_ms = 0 if self._instance is None else self._instance.runtime.now_ms()
        self._subscriptions[topic] = SubscriptionData.parse(topic, expression, version_ms)
        self._wake.set()

    def unsubscribe(self, topic: str) -> None:
        self._subscriptions.pop(topic, None)
        self._wake.set()

    def register_listener(self, listener: OrderlyListener) -> None:
        self._listener = listener

    # Life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises ConsumerError, NoRouteError when no name server answers."""
        if self._instance is not None:
            raise ConsumerError("this consumer was started before; make a new one")
        if self._listener is None:
            raise ConsumerError("no listener: call register_listener(listener) before start()")
        if not self._subscriptions:
            raise ConsumerError("no subscription: call subscribe(topic) before start()")
        runtime = self._given_runtime or AsyncioRuntime()
        now_ms = runtime.now_ms()
        self._subscriptions = {topic: data._replace(sub_version=now_ms) for topic, data in self._subscriptions.items()}
        retry = retry_topic(self.group)
        self._subscriptions[retry] = SubscriptionData.parse(retry, "*", now_ms)
        self._instance = instance = MQClientInstance(
            runtime,
            self._name_servers,
            self.config,
            self._log,
            consumer_data=self._consumer_data,
            on_ids_changed=lambda _group: self._wake.set(),
            on_broker_connected=self._broker_connected,
        )
        if self._trace_path is not None:
            self._trace = TraceWriter(runtime, self._trace_path, instance.client_id, self.group)
        self._assemble(instance, self._listener)
        try:
            for topic in list(self._subscriptions):
                await instance.routes.fetch(topic)
            await instance.heartbeat_all()
        except BaseException:
            await self.shutdown()  # `async with` does not, when it was never entered
            raise
        self._start_tasks(instance)

    def _assemble(self, instance: MQClientInstance, listener: OrderlyListener) -> None:
        group, config, trace, runtime = self.group, self.config, self._trace, instance.runtime
        self._pool = runtime.new_worker_pool(f"{group} listener", config.consume_thread_count)
        self._offsets = RemoteBrokerOffsetStore(instance, group)
        self._locks = QueueLocks(instance, group, config, self._table, trace, self._lock_won_back)
        self._stats = ConsumeStats(runtime.now_ms())
        call = ListenerCall(listener, self._pool, self._log)
        self._service = ConsumeMessageOrderlyService(
            runtime=runtime,
            config=config,
            call=call,
            locks=self._locks,
            offsets=self._offsets,
            dead_letters=DeadLetters(instance, group, config, trace),
            stats=self._stats,
            trace=trace,
            log=self._log,
        )
        self._pulls = PullLoop(
            instance,
            group,
            config,
            self._offsets,
            subscription=self._subscriptions.get,
            first_offset=FirstOffset(instance, config, self._offsets),
            submit=self._service.submit,
            offset_illegal=self._offset_illegal,
            stats=self._stats,
            trace=trace,
        )
        self._rebalance = Rebalance(
            instance,
            group,
            config,
            self._table,
            locks=self._locks,
            offsets=self._offsets,
            strategy=self._strategy,
            topics=lambda: list(self._subscriptions),
            on_added=self._start_pulling,
            on_changed=self._queues_changed,
            trace=trace,
        )
        self._reset = OffsetReset(
            instance, self._table, self._locks, self._offsets, self._rebalance, done=self._wake.set, trace=trace
        )
        calls = BrokerCalls(
            instance,
            group,
            config,
            self._table,
            offsets=self._offsets,
            stats=self._stats,
            directly=ConsumeDirectly(runtime, group, call, self._service.between_runs),
            subscriptions=lambda: list(self._subscriptions.values()),
            reset=self._reset.start,
        )
        instance.serve(calls.handlers)

    def _start_tasks(self, instance: MQClientInstance) -> None:
        config, schedule = self.config, instance.schedule
        instance.start()
        schedule.every(
            config.lock_interval_ms, self._locks.lock_all, first_ms=config.lock_first_delay_ms, name="lock all"
        )
        persist_ms = config.persist_consumer_offset_interval_ms
        schedule.every(persist_ms, self._persist_all, first_ms=persist_ms, name="persist offsets")
        schedule.every(SAMPLE_INTERVAL_MS, self._sample, first_ms=SAMPLE_INTERVAL_MS, name="statistics")
        self._rebalancing = instance.runtime.create_task(self._rebalance_forever(), name="rebalance")

    async def shutdown(self) -> None:
        """Let running listeners end, store offsets, unlock, unregister.

        Offsets are stored before the locks go, so that the next owner starts where this one ended. A listener
        that does not return within `await_termination_ms` is named in the log; its queue stays locked until the
        lock expires, because it may still be at work.
        """
        instance = self._instance
        if instance is None or self._stopping:
            return
        self._stopping = True
        self._reset.stop()
        if self._rebalancing is not None:
            self._wake.set()
            await self._rebalancing  # to the end of its round: a lock on its way must come into the table, to be freed
        await instance.schedule.stop()
        stuck = await self._service.stop(self.config.await_termination_ms)
        for process_queue in stuck:
            self._log.error(
                "listener stuck: left running, its queue stays locked until the lock expires",
                queue=str(process_queue.queue),
                waited_ms=self.config.await_termination_ms,
            )
        held = [queue for queue, process_queue in self._table.items() if process_queue not in stuck]
        try:
            await self._persist_all()
            for process_queue in self._table.values():
                self._rebalance.drop(process_queue, "shutdown")
        except OSError as error:  # of the trace: what it cannot record is not committed, and the locks go all the same
            self._log.error("trace not written", error=str(error))
        for process_queue in self._table.values():
            process_queue.dropped = True
        for task in list(self._pulling.values()):
            task.cancel()
        await self._locks.unlock_all(held)
        await instance.shutdown(self.group)
        self._pool.close()
        if self._trace is not None and not stuck:  # a stuck listener that returns after all leaves its record
            self._trace.close()

    @property
    def client_id(self) -> str:
        if self._instance is None:
            raise ConsumerError("this consumer is not started")
        return self._instance.client_id

    @property
    def assigned_queues(self) -> list[MessageQueue]:
        """The queues this consumer owns now, sorted; the retry topic's among them."""
        return sorted(queue for queue, process_queue in self._table.items() if not process_queue.dropped)

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The first offset that is not handled yet, of each queue of `assigned_queues` that is being pulled."""
        return {queue: self._table[queue].position for queue in self.assigned_queues if self._table[queue].positioned}

    # Work ----------------------------------------------------------------------------------------------------

    def _consumer_data(self) -> ConsumerData:
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            self.config.consume_from_where,
            tuple(self._subscriptions.values()),
        )

    async def _rebalance_forever(self) -> None:
        """At the start, every 20 s, and at once when the group's members changed."""
        while not self._stopping:
            self._wake.clear()
            try:
                await self._rebalance.run()
            except Exception as error:
                self._log.error("rebalance failed", error=f"{type(error).__name__}: {error}")
            try:
                await asyncio.wait_for(self._wake.wait(), self.config.rebalance_interval_ms / 1000)
            except TimeoutError:
                pass

    def _start_pulling(self, process_queue: ProcessQueue) -> None:
        assert self._instance is not None
        runtime = self._instance.runtime
        task = runtime.create_task(self._pulls.run(process_queue), name=f"pull {process_queue.queue}")
        self._pulling[process_queue] = task
        task.add_done_callback(lambda _: self._pulling.pop(process_queue, None))

    async def _queues_changed(self, topic: str) -> None:
        """The topic's subscription gets a new version and the brokers hear of it at once (wire.md 12.3)."""
        assert self._instance is not None
        now_ms = self._instance.runtime.now_ms()
        self._subscriptions[topic] = self._subscriptions[topic]._replace(sub_version=now_ms)
        await self._instance.heartbeat_all()

    async def _broker_connected(self, address: str, endpoint: Endpoint) -> None:
        """A broker that restarted has no locks: renew at once what we hold, before somebody else takes it."""
        if self._table and not self._stopping:
            await self._locks.lock_all_over(address, endpoint)
            self._wake.set()

    def _lock_won_back(self, process_queue: ProcessQueue) -> None:
        self._rebalance.drop(process_queue, "its lock had run out: it begins anew")
        self._wake.set()

    async def _persist_all(self) -> None:
        """Offsets of queues that this client still owns; a stale owner's must not overwrite its successor's."""
        assert self._instance is not None
        now_ms, live_ms = self._instance.runtime.now_ms(), self.config.lock_max_live_time_ms
        owned = [pq for pq in self._table.values() if not pq.dropped and pq.holds_lock(now_ms, live_ms)]
        self._rebalance.persist(owned)

    async def _offset_illegal(self, process_queue: ProcessQueue) -> None:
        """10 s later the broker's offset is taken and stored, and the queue may be acquired again (wire.md 12.6)."""
        assert self._instance is not None
        await asyncio.sleep(self.config.offset_illegal_delay_ms / 1000)
        await self._reset.restart({process_queue: process_queue.next_offset})

    async def _sample(self) -> None:
        assert self._instance is not None
        self._stats.sample(self._instance.runtime.now_ms())
