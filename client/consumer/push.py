"""PushConsumer: pulls by itself and calls the listener, message after message or without order (wire.md 12.2)."""

from lockstep.client.config import CONSUME_THREADS_MAX, ConsumerConfig
from lockstep.client.consumer.dispatch.message_key import MessageKey, key_function
from lockstep.client.consumer.dispatch.table import ORDERINGS, OrderingName
from lockstep.client.consumer.listener import AnyListener
from lockstep.client.consumer.ownership.allocation.average import AllocateMessageQueueStrategy, allocate_averagely
from lockstep.client.consumer.push_member import PushEngine, PushOptions
from lockstep.client.errors import ConsumerError
from lockstep.client.hook_calls import ConsumeHooks
from lockstep.client.hooks import ConsumeMessageHook, FilterMessageHook
from lockstep.client.instance.client import MQClientInstance, name_server_addresses
from lockstep.client.instance.registry import claim_group
from lockstep.client.lifecycle import Lifecycle, ServiceState
from lockstep.client.message_selector import Expression, check_at_brokers, subscription_of
from lockstep.order.trace import TraceWriter
from lockstep.protocol.bodies.heartbeat import ConsumerData, ConsumeType, MessageModel, SubscriptionData
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group, check_topic, retry_topic
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.remoting.endpoint import Endpoint
from lockstep.remoting.logs import EventLog, StdlibLog
from lockstep.remoting.runtime import AsyncioRuntime, Runtime

__all__ = ["PushConsumer"]


class PushConsumer(Lifecycle):
    """Subscribe, register a listener, `start()`; or all of it in `async with`.

    The listener is `listener(messages, context) -> status`, `async def` or plain; plain ones run on threads of the
    consumer's own. `ordering` says what is kept in order, and which statuses there are: "queue" is RocketMQ's orderly
    consumption, "none" its concurrent one; with "key" each sharding key is in order, or what `key` says instead: a
    function of the message, or a property's name, as "KEYS". In `message_model` BROADCASTING every consumer of the
    group gets every message; not given, it is the config's. `namespace` parts the topics and groups of tenants, as a
    Producer's. `name_server` is "host:port[;host:port]" or the environment's NAMESRV_ADDR. `trace` names a file that
    gets a JSON line for everything that matters to order.
    """

    error = ConsumerError

    def __init__(
        self,
        group: str,
        *,
        name_server: str | None = None,
        namespace: str | None = None,
        config: ConsumerConfig | None = None,
        listener: AnyListener | None = None,
        ordering: OrderingName = "queue",
        key: MessageKey | None = None,
        message_model: MessageModel | None = None,
        strategy: AllocateMessageQueueStrategy = allocate_averagely,
        trace: str | None = None,
        runtime: Runtime | None = None,
        log: EventLog | None = None,
    ) -> None:
        check_group(group)
        if ordering not in ORDERINGS:
            raise ConsumerError(f"ordering must be one of {', '.join(map(repr, ORDERINGS))}, not {ordering!r}")
        self._tenant = NamesOfTenant(namespace)
        self.group = self._tenant.wrap(group)
        check_group(self.group)
        self.config = config or ConsumerConfig()
        self.ordering = ordering
        if key is not None and ordering != "key":
            raise ConsumerError(f"key is for ordering='key', not {ordering!r}")
        self._log = log or StdlibLog("lockstep.client")
        self._key_of = key_function(key, self._log)
        self.message_model = message_model or self.config.message_model
        self._name_servers = name_server_addresses(name_server, self.config)
        self._listener = listener
        self._strategy = strategy
        self._trace_path = trace
        self._given_runtime = runtime
        self._hooks = ConsumeHooks(self.group, self._log, self._tenant)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._trace: TraceWriter | None = None
        self._instance: MQClientInstance | None = None
        self._engine: PushEngine | None = None

    # Subscriptions -------------------------------------------------------------------------------------------

    def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Messages of `topic` whose tag the expression names: "*", "TagA", "TagA || TagB"; or a MessageSelector's.

        May be called while the consumer runs: the brokers hear of it at once, and a new topic's queues are shared out
        by the rebalance that follows. All members of a group should want the same. Raises FilterError,
        LocalProtocolError, ConsumerError when the consumer is shut down.
        """
        self._check_not_over()
        topic = self._tenant.wrap(topic)
        check_topic(topic)
        version_ms = 0 if self._instance is None else self._instance.runtime.now_ms()
        self._subscriptions[topic] = subscription_of(topic, expression, version_ms)
        self._subscriptions_changed()

    def unsubscribe(self, topic: str) -> None:
        """While the consumer runs: the topic's queues are dropped, their offsets stored and their locks freed."""
        self._check_not_over()
        if self._subscriptions.pop(self._tenant.wrap(topic), None) is not None:
            self._subscriptions_changed()

    def _check_not_over(self) -> None:
        if self.state is ServiceState.SHUTDOWN_ALREADY:
            raise self.wrong_state()

    def _subscriptions_changed(self) -> None:
        if self._engine is not None:
            self._engine.subscriptions_changed()

    def register_listener(self, listener: AnyListener) -> None:
        self._listener = listener

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Called before and after each listener call."""
        self._hooks.add_consume(hook)

    def register_filter_message_hook(self, hook: FilterMessageHook) -> None:
        """Called with what each pull brought, after its tags were looked at."""
        self._hooks.add_filter(hook)

    # Life ----------------------------------------------------------------------------------------------------

    def _check_complete(self) -> None:
        if self._listener is None:
            raise ConsumerError("no listener: call register_listener(listener) before start()")
        if not self._subscriptions:
            raise ConsumerError("no subscription: call subscribe(topic) before start()")

    async def _start(self) -> None:
        """Raises ConsumerError, NoRouteError when no name server answers. A broker may refuse an expression."""
        assert self._listener is not None
        runtime = self._given_runtime or AsyncioRuntime()
        now_ms = runtime.now_ms()
        for topic, data in self._subscriptions.items():
            self._subscriptions[topic] = data._replace(sub_version=now_ms)
        if self.message_model is MessageModel.CLUSTERING:  # a broadcasting consumer sends nothing back
            retry = retry_topic(self.group)
            self._subscriptions[retry] = SubscriptionData.parse(retry, "*", now_ms)
        self._instance = instance = MQClientInstance(
            runtime,
            self._name_servers,
            self.config,
            self._log,
            consumer_data=self._consumer_data,
            # Its offset file is found by the name, at the next start too.
            instance_name=self.config.instance_name if self.message_model is MessageModel.BROADCASTING else None,
            on_ids_changed=lambda _group: self._rebalance_soon(),
            on_broker_connected=self._broker_connected,
        )
        self._claim = claim_group(instance, "consumer", self.group)
        try:
            if self._trace_path is not None:
                self._trace = TraceWriter(runtime, self._trace_path, instance.client_id, self.group)
            options = PushOptions(
                group=self.group,
                config=self.config,
                listener=self._listener,
                ordering=ORDERINGS[self.ordering],
                key_of=self._key_of,
                message_model=self.message_model,
                strategy=self._strategy,
                hooks=self._hooks,
                tenant=self._tenant,
            )
            self._engine = PushEngine(instance, options, self._subscriptions, self._trace)
            await self._engine.load_offsets()
            for topic in list(self._subscriptions):
                await instance.routes.fetch(topic)
            await check_at_brokers(instance, self.group, list(self._subscriptions.values()))
            await instance.heartbeat_all()
        except BaseException:
            await self._shutdown()  # `async with` does not, when it was never entered
            raise
        self._engine.start()

    async def _shutdown(self) -> None:
        """Let running listeners end, store offsets, unlock, unregister.

        A listener that does not return within `await_termination_ms` is named in the log; its queue stays locked
        until the lock expires, because it may still be at work.
        """
        instance, engine = self._instance, self._engine
        assert instance is not None
        stuck = await engine.stop() if engine is not None else []
        await instance.shutdown(self.group)
        self._claim.release()
        if engine is not None:
            engine.close()
        if self._trace is not None and not stuck:  # a stuck listener that returns after all leaves its record
            self._trace.close()

    # While it runs -------------------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Pull nothing more until `resume()`, each queue within a second; what is in hand is still consumed."""
        self._running_engine().suspend()

    def resume(self) -> None:
        self._running_engine().resume()

    def set_consume_thread_count(self, count: int) -> None:
        """From 1 to 1000 listener calls at a time from now on, instead of the setting's. Raises ConsumerError."""
        if not 1 <= count <= CONSUME_THREADS_MAX:
            raise ConsumerError(f"consume_thread_count must be from 1 to {CONSUME_THREADS_MAX}, not {count}")
        self._running_engine().set_consume_thread_count(count)

    def _running_engine(self) -> PushEngine:
        if self._engine is None or self.state is not ServiceState.RUNNING:
            raise self.wrong_state()
        return self._engine

    @property
    def message_accumulation(self) -> int:
        """How many messages lay on the brokers behind the last pulled ones, in all queues of this client together."""
        table = {} if self._engine is None else self._engine.table
        return sum(process_queue.message_accumulation for process_queue in table.values() if not process_queue.dropped)

    @property
    def client_id(self) -> str:
        if self._instance is None:
            raise self.wrong_state()
        return self._instance.client_id

    @property
    def assigned_queues(self) -> list[MessageQueue]:
        """The queues this consumer owns now, sorted; the retry topic's among them."""
        table = {} if self._engine is None else self._engine.table
        bare = self._tenant.bare_queue
        return sorted(bare(queue) for queue, process_queue in table.items() if not process_queue.dropped)

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The first offset that is not handled yet, of each queue of `assigned_queues` that is being pulled."""
        table = {} if self._engine is None else self._engine.table
        bare = self._tenant.bare_queue
        owned = [(queue, table[queue]) for queue in sorted(table) if not table[queue].dropped]
        return {bare(queue): held.position for queue, held in owned if held.positioned}

    # Callbacks of the instance -------------------------------------------------------------------------------

    def _consumer_data(self) -> ConsumerData:
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_PASSIVELY,
            self.message_model,
            self.config.consume_from_where,
            tuple(self._subscriptions.values()),
            self.config.unit_mode,
        )

    def _rebalance_soon(self) -> None:
        if self._engine is not None:
            self._engine.rebalance_soon()

    async def _broker_connected(self, address: str, endpoint: Endpoint) -> None:
        if self._engine is not None:
            await self._engine.broker_connected(address, endpoint)
