"""LitePullConsumer: pulls in the background, and hands messages out when its user asks (wire.md 12.10)."""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Self

from lockstep.client.callables import check_function
from lockstep.client.consumer.consumer import GroupConsumer
from lockstep.client.consumer.lite_member import LiteMember
from lockstep.client.consumer.member import MemberSettings
from lockstep.client.consumer.ownership.topic_watch import TopicMessageQueueChangeListener
from lockstep.client.errors import ConsumerError
from lockstep.client.lifecycle import ServiceState
from lockstep.client.message_selector import Expression, subscription_of
from lockstep.client.pull_config import LitePullConsumerConfig
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_topic

__all__ = ["LitePullConsumer"]


class _Kind(Enum):
    """How a consumer gets its queues. The first choice is final."""

    NONE = "neither"
    SUBSCRIBE = "subscribe()"
    ASSIGN = "assign()"


class LitePullConsumer(GroupConsumer[LitePullConsumerConfig, LiteMember]):
    """RocketMQ's DefaultLitePullConsumer: `subscribe` or `assign`, then `poll`, or `async for message in consumer`.

    Messages of one queue come in order. The messages that a call returns count as handled when the next call begins.
    With `auto_commit`, the offsets of handled messages are committed every 5 s, when a queue is given up, and at the
    shutdown. So after a shutdown in the middle of handling only the messages of the last call come again. `commit`
    commits those too. Several tasks may poll one consumer only if this rule is right for them.

    The arguments of the constructor are those of GroupConsumer.

    Raises:
        ConsumerError: by calls while the consumer does not run.
        RemotingError: by calls, when a broker refuses or does not answer.
        NoRouteError: by calls, when no name server answers.
    """

    _config_class = LitePullConsumerConfig

    def _set_up(self) -> None:
        self._kind = _Kind.NONE
        self._expressions: dict[str, SubscriptionData] = {}  # of assigned topics
        self._assigned: list[MessageQueue] = []
        self._listeners: dict[str, TopicMessageQueueChangeListener] = {}
        self._commit_due_ms = 0

    # Which queues --------------------------------------------------------------------------------------------

    def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Share the queues of a topic with the other members of the group.

        Args:
            expression: tags, as "*", "TagA", "TagA || TagB"; or a MessageSelector.

        Raises:
            FilterError: the expression is not legal.
            LocalProtocolError: the topic is not a legal name.
            ConsumerError: after `assign`, or the consumer is shut down.
        """
        self._choose(_Kind.SUBSCRIBE)
        self._subscribe(topic, expression)

    def unsubscribe(self, topic: str) -> None:
        if self._subscriptions.pop(self._tenant.wrap(topic), None) is not None and self._member is not None:
            self._member.rebalance_soon()

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Own exactly these queues, even if another member has them. Raises ConsumerError after `subscribe`."""
        assigned = list(dict.fromkeys(self._wrap(queues)))
        if not assigned:
            raise ConsumerError("assign() needs at least one queue")
        self._choose(_Kind.ASSIGN)
        self._assigned = assigned
        if self._member is not None:
            self._member.assign(assigned)

    def set_sub_expression_for_assign(self, topic: str, expression: Expression) -> None:
        """Filter the messages of assigned queues of a topic, as in `subscribe`. After the start: ConsumerError."""
        if self.state is not ServiceState.CREATE_JUST:
            raise ConsumerError("set_sub_expression_for_assign() is for a consumer that is not started yet")
        topic = self._tenant.wrap(topic)
        self._expressions[topic] = subscription_of(topic, expression)

    def _choose(self, kind: _Kind) -> None:
        if self.state not in (ServiceState.CREATE_JUST, ServiceState.RUNNING):
            raise self.wrong_state()
        if self._kind not in (_Kind.NONE, kind):
            raise ConsumerError(
                f"subscribe and assign are mutually exclusive: this consumer has its queues by {self._kind.value}"
            )
        self._kind = kind

    def assignment(self) -> list[MessageQueue]:
        """Return the queues that this consumer owns now, sorted."""
        return self._bare(self._running().lite_queues.queues)

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """Ask the name server for all readable queues of a topic. Raises TopicNotFoundError."""
        return self._bare(await self._running().queries.queues(self._tenant.wrap(topic)))

    async def register_topic_message_queue_change_listener(
        self, topic: str, listener: TopicMessageQueueChangeListener
    ) -> None:
        """Call `listener(topic, queues)` within 30 s after the queues of the topic changed."""
        check_function("listener", listener, "topic", "queues")
        wrapped, notify = self._tenant.wrap(topic), listener
        check_topic(wrapped)
        if self._tenant:

            def notify(_topic: str, queues: Collection[MessageQueue]) -> None:
                listener(topic, self._bare(queues))

        self._listeners[wrapped] = notify
        if self._member is not None:
            await self._member.watch.register(wrapped, notify)

    # Messages ------------------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int | None = None) -> list[MessageExt]:
        """Return the messages of one pull of one queue; [] when none come within `timeout_ms` (the setting: 5 s)."""
        timeout_ms = self.config.poll_timeout_ms if timeout_ms is None else timeout_ms
        if timeout_ms < 0:
            raise ConsumerError(f"timeout_ms must be 0 ms or more, not {timeout_ms}")
        member = self._running()
        self._commit_if_due(member)
        return await member.next_messages(timeout_ms)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageExt:
        """Return the next message; the iteration ends with the shutdown."""
        while self._member is not None and self.state is ServiceState.RUNNING:
            self._commit_if_due(self._member)
            messages = await self._member.next_messages(self.config.auto_commit_interval_ms, 1)
            if messages:
                return messages[0]
        if self.state is ServiceState.SHUTDOWN_ALREADY:
            raise StopAsyncIteration
        raise self.wrong_state()

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling these queues. Messages that were pulled before are still handed out."""
        self._pause(queues, paused=True)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again, within a second."""
        self._pause(queues, paused=False)

    def _pause(self, queues: Iterable[MessageQueue], *, paused: bool) -> None:
        member = self._running()
        for queue in self._wrap(queues):
            member.owned(queue).paused = paused

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at `offset`. Raises ConsumerError when the queue is not owned or has no such offset."""
        await self._running().seek(self._tenant.wrap_queue(queue), offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        member, queue = self._running(), self._tenant.wrap_queue(queue)
        member.owned(queue)
        await member.seek(queue, await member.queries.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Skip all messages that are in the queue now."""
        member, queue = self._running(), self._tenant.wrap_queue(queue)
        member.owned(queue)
        await member.seek(queue, await member.queries.max_offset(queue))

    # Offsets -------------------------------------------------------------------------------------------------

    def commit(self, queues: Iterable[MessageQueue] | Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what was handed out so far. It is stored within 5 s, at the shutdown, or when a queue is given up.

        Args:
            queues: queues to commit, None: all; or an offset for each queue: messages below it are handled.
        """
        self._commit(self._running(), queues)

    async def commit_sync(self, queues: Iterable[MessageQueue] | Mapping[MessageQueue, int] | None = None) -> None:
        """As `commit`, and the offsets are stored when this returns."""
        member = self._running()
        await member.store_now(self._commit(member, queues))

    def _commit(
        self, member: LiteMember, queues: Iterable[MessageQueue] | Mapping[MessageQueue, int] | None
    ) -> list[MessageQueue]:
        if isinstance(queues, Mapping):
            return member.commit_offsets({self._tenant.wrap_queue(queue): offset for queue, offset in queues.items()})
        return member.commit(member.lite_queues.queues if queues is None else self._wrap(queues))

    def _commit_if_due(self, member: LiteMember) -> None:
        """Commit every 5 s, and only in a call for messages: that call says that earlier messages are handled."""
        now_ms = member.runtime.now_ms()
        if self.config.auto_commit and now_ms >= self._commit_due_ms:
            self._commit_due_ms = now_ms + self.config.auto_commit_interval_ms
            member.commit_handled()

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the stored offset of the group; None: there is none."""
        return await self._running().committed(self._tenant.wrap_queue(queue))

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message that was stored at this time (epoch ms) or later; else the end."""
        return await self._running().queries.search_offset(self._tenant.wrap_queue(queue), timestamp_ms)

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The next offset to hand out, of each queue where it is known."""
        known = [lite for lite in self._running().lite_queues.all() if lite.position >= 0]
        return {self._tenant.bare_queue(lite.queue): lite.position for lite in known}

    # Life ----------------------------------------------------------------------------------------------------

    def _new_member(self, settings: MemberSettings) -> LiteMember:
        member = LiteMember(settings, self.config, self._subscriptions, self._expressions)
        member.balances = not self._assigned
        return member

    async def _start(self) -> None:
        await super()._start()
        assert self._member is not None
        try:
            for topic, listener in list(self._listeners.items()):
                await self._member.watch.register(topic, listener)
        except BaseException:
            await self._member.stop()
            raise
        if self._assigned:
            self._member.assign(self._assigned)
