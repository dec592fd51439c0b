"""PushConsumer: pulls by itself and calls the listener, message after message or without order (wire.md 12.2)."""

from lockstep.client.config import CONSUME_THREADS_MAX, ConsumerConfig
from lockstep.client.consumer.consumer import GroupConsumer
from lockstep.client.consumer.dispatch.key_queues import MessageKey, key_function
from lockstep.client.consumer.dispatch.table import ORDERINGS, OrderingName
from lockstep.client.consumer.listener import AnyListener
from lockstep.client.consumer.member import MemberSettings
from lockstep.client.consumer.ownership.allocation.average import AllocateMessageQueueStrategy, allocate_averagely
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.client.consumer.push_member import Consumption, PushMember
from lockstep.client.errors import ConsumerError
from lockstep.client.hooks import ConsumeMessageHook
from lockstep.client.lifecycle import ServiceState
from lockstep.client.message_selector import Expression
from lockstep.protocol.bodies.heartbeat import MessageModel, SubscriptionData
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import retry_topic
from lockstep.remoting.logs import EventLog
from lockstep.remoting.runtime import Runtime

__all__ = ["PushConsumer"]


class PushConsumer(GroupConsumer[ConsumerConfig, PushMember]):
    """Subscribe, register a listener, `start()`; or all of it in `async with`.

    The listener is `listener(messages, context) -> status`, `async def` or plain; plain ones run on threads of the
    consumer's own. `ordering` says what is kept in order, and which statuses there are: "queue" is RocketMQ's orderly
    consumption, "none" its concurrent one; with "key" each sharding key is in order, or what `key` says instead: a
    function of the message, or a property's name, as "KEYS". In `message_model` BROADCASTING every consumer of the
    group gets every message; not given, it is the config's. `namespace` parts the topics and groups of tenants, as a
    Producer's. `name_server` is "host:port[;host:port]" or the environment's NAMESRV_ADDR. `trace` names a file that
    gets a JSON line for everything that matters to order.
    """

    _config_class = ConsumerConfig

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
        if ordering not in ORDERINGS:
            raise ConsumerError(f"ordering must be one of {', '.join(map(repr, ORDERINGS))}, not {ordering!r}")
        if key is not None and ordering != "key":
            raise ConsumerError(f"key is for ordering='key', not {ordering!r}")
        config = config or ConsumerConfig()
        super().__init__(
            group,
            name_server=name_server,
            namespace=namespace,
            config=config,
            message_model=message_model or config.message_model,
            strategy=strategy,
            runtime=runtime,
            log=log,
        )
        self.ordering = ordering
        self._listener = listener
        self._key_of = key_function(key, self._log)
        self._trace_path = trace

    # Subscriptions -------------------------------------------------------------------------------------------

    def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Messages of `topic` whose tag the expression names: "*", "TagA", "TagA || TagB"; or a MessageSelector's.

        May be called while the consumer runs: the brokers hear of it at once, and a new topic's queues are shared out
        by the rebalance that follows. All members of a group should want the same. Raises FilterError,
        LocalProtocolError, ConsumerError when the consumer is shut down.
        """
        self._check_not_over()
        self._subscribe(topic, expression)

    def unsubscribe(self, topic: str) -> None:
        """While the consumer runs: the topic's queues are dropped, their offsets stored and their locks freed."""
        self._check_not_over()
        if self._subscriptions.pop(self._tenant.wrap(topic), None) is not None and self._member is not None:
            self._member.subscriptions_changed()

    def _check_not_over(self) -> None:
        if self.state is ServiceState.SHUTDOWN_ALREADY:
            raise self.wrong_state()

    def register_listener(self, listener: AnyListener) -> None:
        self._listener = listener

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Called before and after each listener call."""
        self._hooks.add_consume(hook)

    # Life ----------------------------------------------------------------------------------------------------

    def _check_complete(self) -> None:
        if self._listener is None:
            raise ConsumerError("no listener: call register_listener(listener) before start()")
        if not self._subscriptions:
            raise ConsumerError("no subscription: call subscribe(topic) before start()")

    async def _start(self) -> None:
        if self.message_model is MessageModel.CLUSTERING:  # a broadcasting consumer sends nothing back
            retry = retry_topic(self.group)
            self._subscriptions[retry] = SubscriptionData.parse(retry, "*")
        await super()._start()

    def _new_member(self, settings: MemberSettings) -> PushMember:
        assert self._listener is not None
        consumption = Consumption(self._listener, ORDERINGS[self.ordering], self._key_of, self._trace_path)
        return PushMember(settings, self._subscriptions, consumption)

    # While it runs -------------------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Pull nothing more until `resume()`, each queue within a second; what is in hand is still consumed."""
        self._running().suspend()

    def resume(self) -> None:
        self._running().resume()

    def set_consume_thread_count(self, count: int) -> None:
        """From 1 to 1000 listener calls at a time from now on, instead of the setting's. Raises ConsumerError."""
        if not 1 <= count <= CONSUME_THREADS_MAX:
            raise ConsumerError(f"consume_thread_count must be from 1 to {CONSUME_THREADS_MAX}, not {count}")
        self._running().set_consume_thread_count(count)

    @property
    def _owned(self) -> list[ProcessQueue]:
        table = {} if self._member is None else self._member.table
        return [table[queue] for queue in sorted(table) if not table[queue].dropped]

    @property
    def message_accumulation(self) -> int:
        """The number of messages on the brokers behind the last pulled ones, in all queues of this client together."""
        return sum(process_queue.message_accumulation for process_queue in self._owned)

    @property
    def assigned_queues(self) -> list[MessageQueue]:
        """The queues that this consumer owns now, sorted; those of the retry topic too."""
        return sorted(self._bare(process_queue.queue for process_queue in self._owned))

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The first offset that is not handled yet, of each queue of `assigned_queues` that is being pulled."""
        bare = self._tenant.bare_queue
        return {bare(held.queue): held.position for held in self._owned if held.positioned}
