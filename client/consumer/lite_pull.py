"""LitePullConsumer: messages when its user asks for them, pulled ahead in the background (wire.md 12.10)."""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Self

from lockstep.client.consumer.lite_member import LiteEngine
from lockstep.client.consumer.ownership.allocation.average import AllocateMessageQueueStrategy, allocate_averagely
from lockstep.client.consumer.ownership.topic_watch import TopicMessageQueueChangeListener
from lockstep.client.consumer.pull_member import MemberOptions
from lockstep.client.errors import ConsumerError
from lockstep.client.hook_calls import ConsumeHooks
from lockstep.client.hooks import FilterMessageHook
from lockstep.client.instance.client import name_server_addresses
from lockstep.client.lifecycle import Lifecycle, ServiceState
from lockstep.client.message_selector import Expression, subscription_of
from lockstep.client.pull_config import LitePullConsumerConfig
from lockstep.protocol.bodies.heartbeat import MessageModel, SubscriptionData
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group, check_topic
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.remoting.logs import EventLog, StdlibLog
from lockstep.remoting.runtime import AsyncioRuntime, Runtime

__all__ = ["LitePullConsumer"]


class _Kind(Enum):
    """How a consumer comes by its queues; once chosen it stays."""

    NONE = "neither"
    SUBSCRIBE = "subscribe()"
    ASSIGN = "assign()"


class LitePullConsumer(Lifecycle):
    """RocketMQ's DefaultLitePullConsumer: `subscribe` or `assign`, then `poll`, or `async for message in consumer`.

    Messages of one queue come in order. What a call hands out counts as handled with the next call; with `auto_commit`
    what is handled is committed every 5 s, when a queue is given away, and at the shutdown. So a message that was
    handed out last, and no other, comes again after a crash or a shutdown in the middle of its handling; `commit`
    says that it is handled, too. Several tasks may poll only if that rule suits them.

    Calls raise ConsumerError while the consumer does not run, RemotingError when a broker refuses or does not answer,
    NoRouteError when no name server does.
    """

    error = ConsumerError

    def __init__(
        self,
        group: str,
        *,
        name_server: str | None = None,
        namespace: str | None = None,
        config: LitePullConsumerConfig | None = None,
        message_model: MessageModel = MessageModel.CLUSTERING,
        strategy: AllocateMessageQueueStrategy = allocate_averagely,
        runtime: Runtime | None = None,
        log: EventLog | None = None,
    ) -> None:
        check_group(group)
        self._tenant = NamesOfTenant(namespace)
        self.group = self._tenant.wrap(group)
        check_group(self.group)
        self.config = config or LitePullConsumerConfig()
        self.message_model = message_model
        self._name_servers = name_server_addresses(name_server, self.config)
        self._strategy = strategy
        self._given_runtime = runtime
        self._log = log or StdlibLog("lockstep.client")
        self._hooks = ConsumeHooks(self.group, self._log, self._tenant)
        self._kind = _Kind.NONE
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._expressions: dict[str, SubscriptionData] = {}  # of assigned topics
        self._assigned: list[MessageQueue] = []
        self._listeners: dict[str, TopicMessageQueueChangeListener] = {}
        self._engine: LiteEngine | None = None
        self._commit_due_ms = 0

    # Which queues --------------------------------------------------------------------------------------------

    def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Share the topic's queues with the group's other members; messages whose tag the expression names, or that a
        MessageSelector selects.

        Raises FilterError, LocalProtocolError, ConsumerError after `assign`.
        """
        self._choose(_Kind.SUBSCRIBE)
        topic = self._tenant.wrap(topic)
        check_topic(topic)
        version_ms = 0 if self._engine is None else self._engine.runtime.now_ms()
        self._subscriptions[topic] = subscription_of(topic, expression, version_ms)
        if self._engine is not None:
            self._engine.join_soon(topic)

    def unsubscribe(self, topic: str) -> None:
        if self._subscriptions.pop(self._tenant.wrap(topic), None) is not None and self._engine is not None:
            self._engine.member.rebalance_soon()

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Have these queues, and no others, whoever else has them. Raises ConsumerError after `subscribe`."""
        assigned = list(dict.fromkeys(self._wrap(queues)))
        if not assigned:
            raise ConsumerError("assign() needs a queue at least")
        self._choose(_Kind.ASSIGN)
        self._assigned = assigned
        if self._engine is not None:
            self._engine.assign(assigned)

    def set_sub_expression_for_assign(self, topic: str, expression: Expression) -> None:
        """Of assigned queues of the topic, messages that the expression names, as in `subscribe`; else all. Before the
        start."""
        if self.state is not ServiceState.CREATE_JUST:
            raise ConsumerError("set_sub_expression_for_assign() is for a consumer that is not started yet")
        topic = self._tenant.wrap(topic)
        self._expressions[topic] = subscription_of(topic, expression)

    def _wrap(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [self._tenant.wrap_queue(queue) for queue in queues]

    def _bare(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [self._tenant.bare_queue(queue) for queue in queues]

    def register_filter_message_hook(self, hook: FilterMessageHook) -> None:
        """Called with what each pull brought, after its tags were looked at."""
        self._hooks.add_filter(hook)

    def _choose(self, kind: _Kind) -> None:
        if self.state not in (ServiceState.CREATE_JUST, ServiceState.RUNNING):
            raise self.wrong_state()
        if self._kind not in (_Kind.NONE, kind):
            raise ConsumerError(
                f"subscribe and assign are mutually exclusive: this consumer has its queues by {self._kind.value}"
            )
        self._kind = kind

    def assignment(self) -> list[MessageQueue]:
        """The queues this consumer has now, sorted."""
        return self._bare(self._running().lite_queues.queues)

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of the topic, as the name server knows them now. Raises TopicNotFoundError."""
        return self._bare(await self._running().member.queries.queues(self._tenant.wrap(topic)))

    async def register_topic_message_queue_change_listener(
        self, topic: str, listener: TopicMessageQueueChangeListener
    ) -> None:
        """`listener(topic, queues)` when the topic has other queues than before, within 30 s of it."""
        wrapped, told = self._tenant.wrap(topic), listener
        check_topic(wrapped)
        if self._tenant:

            def told(_topic: str, queues: Collection[MessageQueue]) -> None:
                listener(topic, self._bare(queues))

        self._listeners[wrapped] = told
        if self._engine is not None:
            await self._engine.watch.register(wrapped, told)

    # Messages ------------------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int | None = None) -> list[MessageExt]:
        """The messages of one pull, of one queue; [] when there are none for `timeout_ms` (the setting: 5 s)."""
        timeout_ms = self.config.poll_timeout_ms if timeout_ms is None else timeout_ms
        if timeout_ms < 0:
            raise ConsumerError(f"a timeout is 0 ms or more, not {timeout_ms}")
        engine = self._running()
        self._commit_if_due(engine)
        return await engine.next_messages(timeout_ms)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        """The next message; the iteration ends with the shutdown."""
        while self._engine is not None and self.state is ServiceState.RUNNING:
            self._commit_if_due(self._engine)
            messages = await self._engine.next_messages(self.config.auto_commit_interval_ms, 1)
            if messages:
                return messages[0]
        if self.state is ServiceState.SHUTDOWN_ALREADY:
            raise StopAsyncIteration
        raise self.wrong_state()

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull nothing more of these queues; what was pulled before is still handed out."""
        self._pause(queues, paused=True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull them again, within a second."""
        self._pause(queues, paused=False)

    def _pause(self, queues: Iterable[MessageQueue], *, paused: bool) -> None:
        engine = self._running()
        for queue in self._wrap(queues):
            engine.owned(queue).paused = paused

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on there: the next messages of the queue are those from `offset` on. Raises ConsumerError when the queue
        is another's, or has no such offset."""
        await self._running().seek(self._tenant.wrap_queue(queue), offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        engine, queue = self._running(), self._tenant.wrap_queue(queue)
        engine.owned(queue)
        await engine.seek(queue, await engine.member.queries.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """What is in the queue now is skipped."""
        engine, queue = self._running(), self._tenant.wrap_queue(queue)
        engine.owned(queue)
        await engine.seek(queue, await engine.member.queries.max_offset(queue))

    # Offsets -------------------------------------------------------------------------------------------------

    def commit(self, queues: Iterable[MessageQueue] | Mapping[MessageQueue, int] | None = None) -> None:
        """Everything handed out so far is handled, of these queues or of all; or, given offsets, all below them.

        It is stored within 5 s, at the shutdown, or when the queue is given away.
        """
        self._commit(self._running(), queues)

    async def commit_sync(self, queues: Iterable[MessageQueue] | Mapping[MessageQueue, int] | None = None) -> None:
        """As `commit`, and it is stored when this returns."""
        engine = self._running()
        await engine.member.store_now(self._commit(engine, queues))

    def _commit(
        self, engine: LiteEngine, queues: Iterable[MessageQueue] | Mapping[MessageQueue, int] | None
    ) -> list[MessageQueue]:
        if isinstance(queues, Mapping):
            return engine.commit_offsets({self._tenant.wrap_queue(queue): offset for queue, offset in queues.items()})
        return engine.commit(engine.lite_queues.queues if queues is None else self._wrap(queues))

    def _commit_if_due(self, engine: LiteEngine) -> None:
        """Every 5 s, and only in a call for messages: what was handed out before is handled then."""
        now_ms = engine.runtime.now_ms()
        if self.config.auto_commit and now_ms >= self._commit_due_ms:
            self._commit_due_ms = now_ms + self.config.auto_commit_interval_ms
            engine.commit_handled()

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset as it is stored, None when there is none."""
        return await self._running().committed(self._tenant.wrap_queue(queue))

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at this time (epoch) or later."""
        return await self._running().member.queries.search_offset(self._tenant.wrap_queue(queue), timestamp_ms)

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """What is handed out next, of each queue where that is known."""
        known = [lite for lite in self._running().lite_queues.all() if lite.position >= 0]
        return {self._tenant.bare_queue(lite.queue): lite.position for lite in known}

    @property
    def client_id(self) -> str:
        if self._engine is None:
            raise self.wrong_state()
        return self._engine.member.instance.client_id

    # Life ----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        """Raises NoRouteError when no name server answers."""
        options = MemberOptions(
            group=self.group,
            name_servers=self._name_servers,
            config=self.config,
            message_model=self.message_model,
            strategy=self._strategy,
            hooks=self._hooks,
            tenant=self._tenant,
            consume_from_where=self.config.consume_from_where,
        )
        runtime = self._given_runtime or AsyncioRuntime()
        now_ms = runtime.now_ms()
        for topic, data in self._subscriptions.items():
            self._subscriptions[topic] = data._replace(sub_version=now_ms)
        engine = LiteEngine(runtime, options, self.config, self._log, self._subscriptions, self._expressions)
        await engine.start(self._assigned, self._listeners)
        self._engine = engine

    async def _shutdown(self) -> None:
        """Commit what is handled, if commits are automatic; store the offsets and leave the group."""
        assert self._engine is not None
        await self._engine.stop()

    def _running(self) -> LiteEngine:
        if self._engine is None or self.state is not ServiceState.RUNNING:
            raise self.wrong_state()
        return self._engine
