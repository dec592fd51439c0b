"""PushConsumer: pulls messages and hands them to a listener, in order or without (wire.md 12.2)."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from lockstep.client.callables import check_function
from lockstep.client.config import CONSUME_THREADS_MAX, ConsumerConfig, Fenced
from lockstep.client.consumer.cache.key_queues import MessageKey, key_function
from lockstep.client.consumer.consumer import GroupConsumer
from lockstep.client.consumer.dispatch.table import ORDERINGS, OrderingName
from lockstep.client.consumer.listener import LISTENER_PARAMETERS, AnyListener
from lockstep.client.consumer.member import MemberSettings
from lockstep.client.consumer.metrics import consumer_rows
from lockstep.client.consumer.ownership.allocation.average import AllocateMessageQueueStrategy, allocate_averagely
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.ownership.user_calls import OnAcquired, OnLost
from lockstep.client.consumer.ownership.ways import OwnershipWish, fenced_of
from lockstep.client.consumer.pop.member import PopConsumption, PopMember
from lockstep.client.consumer.pop_calls import check_headers
from lockstep.client.consumer.push_member import Consumption, PushMember
from lockstep.client.errors import ConsumerError
from lockstep.client.hooks import ConsumeMessageHook
from lockstep.client.lifecycle import ServiceState
from lockstep.client.message_selector import Expression
from lockstep.protocol.bodies.client import ProcessQueueInfo
from lockstep.protocol.bodies.heartbeat import MessageModel, SubscriptionData
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import retry_topic
from lockstep.protocol.signature import Credentials
from lockstep.remoting.host.runtime import Runtime
from lockstep.remoting.logs import EventLog
from lockstep.remoting.tls.options import TlsOptions

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["PushConsumer"]


class PushConsumer(GroupConsumer[ConsumerConfig, PushMember | PopMember]):
    """RocketMQ's DefaultMQPushConsumer: subscribe, register a listener, then `start()`, or use `async with`.

    The listener is `listener(messages, context) -> status`. It is an `async def`, or a plain function that runs on the
    consumer's threads. The arguments that are not listed here are those of every consumer, see GroupConsumer.

    Args:
        listener: may also be given by `register_listener`.
        ordering: "queue" keeps the order of each queue, as RocketMQ's orderly consumption; "key" that of each sharding
            key; "none" no order, as RocketMQ's concurrent consumption. It decides which statuses a listener returns.
        key: with ordering "key", the sharding key of a message: a function of the message, or the name of a property,
            such as "KEYS". Not with `pop`.
        message_model: in BROADCASTING every consumer of the group gets every message; None: the setting's.
        fenced: True: queues are owned under fenced locks, and brokers without them are refused; "if the broker can":
            those are used with RocketMQ's locks; None: the setting's (docs/fencing.md). With ordering "queue" or "key".
        on_acquired: with fenced locks, `on_acquired(queue, epoch)` is called, and awaited, before the first call of the
            listener in a period of ownership; when it raises, it is called again. A plain function runs on a thread.
        on_lost: with fenced locks, `on_lost(queue, epoch, why)` is called once when a period ends: after the last call
            if the queue is given away, and at once if the lock is lost.
        on_lock_lost: "cancel" the running calls of an `async def` listener, or let them "finish"; None: the setting's.
        pop: no queue is owned, the broker delivers messages for a time: RocketMQ 5's POP mode. RocketMQ then keeps the
            order of each queue, and Lockstep with `--lock-mode fenced` that of each sharding key.
        trace: a file that gets a JSON line for each event that matters to order; with `pop` not without order.
        metrics: a registry of prometheus_client that gets the metrics of this consumer while it runs (docs/metrics.md).

    Raises:
        ConsumerError: an argument is not allowed.
        LocalProtocolError: see GroupConsumer.
        SettingError: see GroupConsumer; or fenced locks are asked for without an order that needs locks.
    """

    _config_class = ConsumerConfig
    _may_lock = True

    def __init__(
        self,
        group: str,
        *,
        name_server: str | None = None,
        namespace: str | None = None,
        config: ConsumerConfig | None = None,
        credentials: Credentials | None = None,
        tls: TlsOptions | bool | None = None,
        listener: AnyListener | None = None,
        ordering: OrderingName = "queue",
        key: MessageKey | None = None,
        message_model: MessageModel | None = None,
        strategy: AllocateMessageQueueStrategy = allocate_averagely,
        fenced: bool | Literal["if the broker can"] | None = None,
        on_acquired: OnAcquired | None = None,
        on_lost: OnLost | None = None,
        on_lock_lost: Literal["cancel", "finish"] | None = None,
        pop: bool = False,
        trace: str | None = None,
        metrics: "CollectorRegistry | None" = None,
        runtime: Runtime | None = None,
        log: EventLog | None = None,
    ) -> None:
        _check_functions(listener, on_acquired, on_lost)
        if ordering not in ORDERINGS:
            raise ConsumerError(f"ordering must be one of {', '.join(map(repr, ORDERINGS))}, not {ordering!r}")
        if key is not None and ordering != "key":
            raise ConsumerError(f"key is for ordering='key', not {ordering!r}")
        config = config or ConsumerConfig()
        if on_lock_lost is not None:
            config = replace(config, on_lock_lost=on_lock_lost)
        super().__init__(
            group,
            name_server=name_server,
            namespace=namespace,
            config=config,
            credentials=credentials,
            tls=tls,
            message_model=message_model or config.message_model,
            strategy=strategy,
            runtime=runtime,
            log=log,
        )
        self.ordering = ordering
        self.fenced = config.fenced if fenced is None else fenced_of(fenced)
        self._ownership = OwnershipWish(self.fenced, on_acquired, on_lost)
        broadcasting = self.message_model is MessageModel.BROADCASTING
        self._ownership.check(ordering, strategy, needs_lock=ORDERINGS[ordering].needs_lock, broadcasting=broadcasting)
        self.pop = pop
        if pop:
            self._check_pop(owns=bool(on_acquired or on_lost), key=key, trace=trace)
        self._listener = listener
        self._key_of = key_function(key, self._log)
        self._trace_path = trace
        self._metrics = metrics
        self._end_metrics: Callable[[], None] = lambda: None

    def _check_pop(self, *, owns: bool, key: MessageKey | None, trace: str | None) -> None:
        check_headers(self.config)
        if self.message_model is MessageModel.BROADCASTING:
            raise ConsumerError("pop is for clustering: a broadcasting consumer reads everything by itself")
        if self.fenced is not Fenced.NO or owns:
            raise ConsumerError("pop owns no queues: fenced, on_acquired and on_lost are for pulls")
        if key is not None:
            raise ConsumerError("key is for pulls: with pop the brokers know the sharding key alone")
        if trace is not None and self.ordering == "none":
            raise ConsumerError("a trace is judged for order: with pop it needs ordering='queue' or 'key'")

    # Subscriptions -------------------------------------------------------------------------------------------

    def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Consume the messages of a topic that match an expression.

        A running consumer announces it to the brokers at once and rebalances. All members of a group should have the
        same subscriptions.

        Args:
            expression: tags, as "*", "TagA", "TagA || TagB"; or a MessageSelector.

        Raises:
            FilterError: the expression is not legal.
            LocalProtocolError: the topic is not a legal name.
            ConsumerError: the consumer is shut down.
        """
        self._check_not_over()
        self._subscribe(topic, expression)

    def unsubscribe(self, topic: str) -> None:
        """Drop the queues of a topic; a running consumer stores their offsets and releases their locks.

        With `pop` it gives back the messages that no listener has; a call that runs goes on.
        """
        self._check_not_over()
        if self._subscriptions.pop(self._tenant.wrap(topic), None) is not None and self._member is not None:
            self._member.subscriptions_changed()

    def _check_not_over(self) -> None:
        if self.state is ServiceState.SHUTDOWN_ALREADY:
            raise self.wrong_state()

    def register_listener(self, listener: AnyListener) -> None:
        """Raises ConsumerError for a listener that cannot be called as one."""
        check_function("listener", listener, *LISTENER_PARAMETERS)
        self._listener = listener

    @property
    def listener(self) -> AnyListener | None:
        return self._listener

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Call the hook before and after each listener call."""
        self._hooks.add_consume(hook)

    # Life ----------------------------------------------------------------------------------------------------

    def _check_complete(self) -> None:
        if self._listener is None:
            raise ConsumerError("no listener: call register_listener(listener) before start()")
        if not self._subscriptions:
            raise ConsumerError("no subscription: call subscribe(topic) before start()")

    async def _start(self) -> None:
        if self.message_model is MessageModel.CLUSTERING and not self.pop:
            # A broadcasting consumer sends nothing back; pops bring the messages of the retry topic by themselves.
            retry = retry_topic(self.group)
            self._subscriptions[retry] = SubscriptionData.parse(retry, "*")
        await super()._start()
        if self._metrics is not None:
            from lockstep.client.metrics import attach  # imported here: it needs the extra `metrics`

            assert self._member is not None
            member = self._member
            self._end_metrics = attach(self._metrics, partial(consumer_rows, member.membership, member.stats))

    async def _shutdown(self) -> None:
        self._end_metrics()
        await super()._shutdown()

    def _new_member(self, settings: MemberSettings) -> PushMember | PopMember:
        assert self._listener is not None
        if self.pop:
            popping = PopConsumption(self._listener, self.ordering, self._key_of, self._trace_path)
            return PopMember(settings, self._subscriptions, popping)
        ordering = ORDERINGS[self.ordering]
        consumption = Consumption(self._listener, ordering, self._key_of, self._trace_path, self._ownership)
        return PushMember(settings, self._subscriptions, consumption)

    # While it runs -------------------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Stop pulling until `resume()`, each queue within a second. Cached messages are still consumed."""
        self._running().suspend()

    def resume(self) -> None:
        self._running().resume()

    def set_consume_thread_count(self, count: int) -> None:
        """Run `count` listener calls at a time from now on, from 1 to 1000. Raises ConsumerError."""
        if not isinstance(count, int) or not 1 <= count <= CONSUME_THREADS_MAX:
            raise ConsumerError(f"consume_thread_count must be from 1 to {CONSUME_THREADS_MAX}, not {count!r}")
        self._running().set_consume_thread_count(count)

    @property
    def _owned(self) -> list[ProcessQueue]:
        table = {} if self._member is None else self._member.table
        return [table[queue] for queue in sorted(table) if not table[queue].life.dropped]

    @property
    def message_accumulation(self) -> int:
        """The number of messages on the brokers behind the last pulled ones, in all queues of this consumer."""
        return sum(process_queue.cache.message_accumulation for process_queue in self._owned)

    @property
    def assigned_queues(self) -> list[MessageQueue]:
        """The queues that this consumer owns now, sorted; those of the retry topic too."""
        return sorted(self._bare(process_queue.queue for process_queue in self._owned))

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The first offset that is not handled yet, of each queue of `assigned_queues` that is being pulled.

        Within a call of a listener its own queue's may be older: the native part commits up to 64 calls together.
        """
        bare = self._tenant.bare_queue
        return {bare(held.queue): held.cache.position for held in self._owned if held.positioned}

    @property
    def process_queues(self) -> dict[MessageQueue, ProcessQueueInfo]:
        """The cache, the lock and the offset of each queue in the table of this consumer, retry topics included.

        Within a call of a listener they may be older, as `positions`.
        """
        if self._member is None:
            return {}
        table, offsets = self._member.table, self._member.offsets
        return {queue: table[queue].info(offsets.in_memory(queue)) for queue in sorted(table)}

    @property
    def periods(self) -> list[ProcessQueue]:
        """The periods of ownership in the table of this consumer, by queue: to show them, not to change."""
        return [] if self._member is None else [period for _, period in sorted(self._member.table.items())]


def _check_functions(listener: AnyListener | None, on_acquired: OnAcquired | None, on_lost: OnLost | None) -> None:
    """Raises ConsumerError."""
    for what, function, *parameters in (
        ("listener", listener, *LISTENER_PARAMETERS),
        ("on_acquired", on_acquired, "queue", "epoch"),
        ("on_lost", on_lost, "queue", "epoch", "why"),
    ):
        if function is not None:
            check_function(str(what), function, *map(str, parameters))
