"""PullConsumer: its user decides when to pull, and from which offset (wire.md 12.10)."""

from collections.abc import Callable

from lockstep.client.admin.queues import QueueQueries
from lockstep.client.callables import check_function, log_or_raise
from lockstep.client.consumer.consumer import GroupConsumer
from lockstep.client.consumer.member import GroupMember, MemberSettings
from lockstep.client.consumer.offsets.store import ReadOffsetType
from lockstep.client.consumer.ownership.hold import NoHold
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.pull_request import PullCalls, PullRequest, PullResult, PullStatus
from lockstep.client.consumer.send_back import SendBack
from lockstep.client.errors import ConsumerError
from lockstep.client.hooks import ConsumeMessageHook
from lockstep.client.message_selector import Expression, subscription_of
from lockstep.client.pull_config import PullConsumerConfig
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import PullSysFlag
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_topic

__all__ = ["MessageQueueListener", "PullConsumer", "PullMember"]

MessageQueueListener = Callable[[str, list[MessageQueue], list[MessageQueue]], None]
"""`(topic, all its queues, those of this consumer)`, called on the loop after a rebalance changed them."""

_TEXT = int(PullSysFlag.SUBSCRIPTION)
_TEXT_AND_SUSPEND = _TEXT | int(PullSysFlag.SUSPEND)


class PullMember(GroupMember):
    """A member whose user pulls.

    Args:
        changed: called with a topic after a round of the rebalance that changed this member's queues of it.
    """

    def __init__(
        self, settings: MemberSettings, subscriptions: dict[str, SubscriptionData], changed: Callable[[str], None]
    ) -> None:
        super().__init__(settings, subscriptions)
        self.calls = PullCalls(self.instance, settings.group, settings.hooks, settings.tenant)
        self.updated: dict[MessageQueue, int] = {}  # the offsets that the user set
        self.joined: set[str] = set()  # topics that a rebalance shared out once at least
        self._on_changed = changed

    async def join(self, topic: str) -> None:
        """Announce a subscription that was just added, and share out the queues of its topic."""
        await self.instance.routes.fetch(topic)
        await self.instance.heartbeat_all()
        await self.rebalance_now()
        self.joined.add(topic)

    def owned(self, topic: str) -> list[MessageQueue]:
        return sorted(queue for queue, held in self.table.items() if queue.topic == topic and not held.life.dropped)

    def queue_acquired(self, process_queue: ProcessQueue) -> None:
        """RocketMQ forgets an offset that was set before the queue was acquired (removeDirtyOffset)."""
        offset = self.updated.get(process_queue.queue)
        if offset is not None:
            self.offsets.update(process_queue.queue, offset)

    def queue_dropped(self, process_queue: ProcessQueue, why: str) -> None:
        """The rebalance stores its offset after this; later ones are the next owner's."""
        self.updated.pop(process_queue.queue, None)

    async def queues_changed(self, topic: str) -> None:
        self._on_changed(topic)
        await super().queues_changed(topic)

    def _persist_all(self) -> None:
        """The user may set offsets of queues that it does not own."""
        self.offsets.persist(self.updated, lambda _: None)


class PullConsumer(GroupConsumer[PullConsumerConfig, PullMember]):
    """RocketMQ's DefaultMQPullConsumer: its user chooses the queue and the offset of each pull, and stores offsets.

    Members of a group share the queues of their topics (`fetch_message_queues_in_balance`), but a member may pull other
    queues too. It joins a topic with `register_topic`, or when the topic is first pulled or asked for.

    The arguments of the constructor are those of GroupConsumer.

    Raises:
        ConsumerError: by calls while the consumer does not run.
        RemotingError: by calls, when a broker refuses or does not answer.
        NoRouteError: by calls, when no name server answers.
    """

    _config_class = PullConsumerConfig

    def _set_up(self) -> None:
        self._listeners: dict[str, MessageQueueListener] = {}

    # Topics --------------------------------------------------------------------------------------------------

    def register_topic(self, topic: str) -> None:
        """Share the queues of a topic with the other members. Raises LocalProtocolError for an illegal name."""
        topic = self._tenant.wrap(topic)
        check_topic(topic)
        if topic not in self._subscriptions:
            self._subscriptions[topic] = SubscriptionData.parse(topic, "*")
            if self._member is not None:
                self._member.rebalance_soon()

    def register_message_queue_listener(self, topic: str, listener: MessageQueueListener) -> None:
        """Call `listener` after each change of this consumer's queues of the topic."""
        check_function("listener", listener, "topic", "all_queues", "own_queues")
        self.register_topic(topic)
        self._listeners[self._tenant.wrap(topic)] = listener

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Call the hook around each pull: as in RocketMQ, messages that are handed out count as consumed."""
        self._hooks.add_consume(hook)

    async def fetch_subscribe_message_queues(self, topic: str) -> list[MessageQueue]:
        """Ask the name server for all readable queues of a topic, sorted. Raises TopicNotFoundError."""
        return self._bare(await self._running().queries.queues(self._tenant.wrap(topic)))

    async def fetch_message_queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that the last rebalance gave this member, sorted."""
        topic = self._tenant.wrap(topic)
        return self._bare((await self._joined(topic)).owned(topic))

    # Pulls ---------------------------------------------------------------------------------------------------

    async def pull(
        self,
        queue: MessageQueue,
        expression: Expression,
        offset: int,
        max_nums: int,
        timeout_ms: int | None = None,
    ) -> PullResult:
        """Pull the messages that a queue has now. This commits nothing: see `update_consume_offset`.

        Args:
            expression: tags, as "*", "TagA", "TagA || TagB"; or a MessageSelector.
            offset: of the first message.
            max_nums: the most messages to return.
            timeout_ms: how long the answer may take; None: the setting.

        Raises:
            FilterError: the expression is not legal.
        """
        timeout_ms = self.config.consumer_pull_timeout_ms if timeout_ms is None else timeout_ms
        return await self._pull(queue, expression, offset, max_nums, _TEXT, timeout_ms)

    async def pull_block_if_not_found(
        self, queue: MessageQueue, expression: Expression, offset: int, max_nums: int
    ) -> PullResult:
        """As `pull`, but a broker without a message waits for one, `pull_suspend_ms` at most."""
        return await self._pull(queue, expression, offset, max_nums, _TEXT_AND_SUSPEND, self.config.pull_timeout_ms)

    async def _pull(
        self, queue: MessageQueue, expression: Expression, offset: int, max_nums: int, sys_flag: int, timeout_ms: int
    ) -> PullResult:
        if offset < 0:
            raise ConsumerError(f"offset must be 0 or more, not {offset}")
        if max_nums <= 0:
            raise ConsumerError(f"max_nums must be at least 1, not {max_nums}")
        queue = self._tenant.wrap_queue(queue)
        subscription = subscription_of(queue.topic, expression)
        member = await self._joined(queue.topic)
        source = member.calls.source(queue)
        endpoint = await member.calls.endpoint(queue, source)
        request = PullRequest(
            queue,
            subscription,
            offset,
            max_nums,
            sys_flag,
            suspend_ms=self.config.pull_suspend_ms,
            timeout_ms=timeout_ms,
        )
        began_ms = member.runtime.now_ms()
        result = await member.calls.call(request, source, endpoint)
        if result.status is PullStatus.FOUND:
            member.stats.pulled(queue.topic, len(result.messages), member.runtime.now_ms() - began_ms)
        if self._hooks.active:
            self._hooks.handed_out(result.messages, queue)
        return result

    # Offsets -------------------------------------------------------------------------------------------------

    async def fetch_consume_offset(self, queue: MessageQueue, *, from_store: bool = False) -> int:
        """Return the next offset of the group; -1: it has none.

        Args:
            from_store: ask the broker, or the file of a broadcasting consumer, even if a later offset was set here.
        """
        member, queue = self._running(), self._tenant.wrap_queue(queue)
        kind = ReadOffsetType.READ_FROM_STORE if from_store else ReadOffsetType.MEMORY_FIRST_THEN_STORE
        offset = await member.offsets.read(queue, kind)
        if queue in member.updated:
            # The offset that was read must not be stored in its place.
            member.offsets.update(queue, member.updated[queue])
        return offset

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Set the next offset in memory. It is stored every 5 s, when the queue is given up, and at the shutdown.

        Raises:
            ValueError: No broker can store it: a queue's number has 31 bits, an offset 63.
        """
        if not 0 <= queue.queue_id < 1 << 31 or not -1 <= offset < 1 << 63:
            raise ValueError(f"offset {offset} of queue {queue}: a queue's number has 31 bits, an offset 63, or is -1")
        member, queue = self._running(), self._tenant.wrap_queue(queue)
        member.offsets.update(queue, offset)
        member.updated[queue] = offset

    async def persist(self, *queues: MessageQueue) -> None:
        """Store the offsets of these queues, without any of all updated ones, and return when that is done."""
        wrapped = [self._tenant.wrap_queue(queue) for queue in queues]
        member = self._running()
        await member.store_now(wrapped or tuple(member.updated))

    # Questions -----------------------------------------------------------------------------------------------

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message will get."""
        return await self._queries.max_offset(self._tenant.wrap_queue(queue))

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._queries.min_offset(self._tenant.wrap_queue(queue))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message that was stored at this time (epoch ms) or later; else the end."""
        return await self._queries.search_offset(self._tenant.wrap_queue(queue), timestamp_ms)

    async def earliest_msg_store_time_ms(self, queue: MessageQueue) -> int:
        """Return when the first message of the queue was stored (epoch ms); -1: the queue is empty."""
        return await self._queries.earliest_store_time_ms(self._tenant.wrap_queue(queue))

    async def view_message(self, offset_message_id: str) -> MessageExt:
        """Raises ValueError for a text that is no offset message id."""
        return await self._queries.view_message(offset_message_id)

    async def send_message_back(self, message: MessageExt, delay_level: int) -> None:
        """Send a message to the group's retry topic, which delivers it again after a delay.

        Args:
            delay_level: 0: the broker chooses the level by the number of attempts; -1: a dead letter at once.

        Raises:
            ConsumerError: no broker takes it.
        """
        member = self._running()
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
        now_ms = member.runtime.now_ms()
        process_queue = ProcessQueue(queue, 0, now_ms, NoHold(now_ms))
        send_back = SendBack(member.membership)
        if not await send_back.send(process_queue, message, delay_level):
            raise ConsumerError(f"no broker took message {message.msg_id} back; the log says why")

    # Life ----------------------------------------------------------------------------------------------------

    def _new_member(self, settings: MemberSettings) -> PullMember:
        return PullMember(settings, self._subscriptions, self._notify)

    async def _joined(self, topic: str) -> PullMember:
        member = self._running()
        if topic not in self._subscriptions:
            check_topic(topic)
            self._subscriptions[topic] = SubscriptionData.parse(topic, "*")
        if topic not in member.joined:
            await member.join(topic)
        return member

    @property
    def _queries(self) -> QueueQueries:
        return self._running().queries

    def _notify(self, topic: str) -> None:
        listener, member = self._listeners.get(topic), self._member
        if listener is None or member is None:
            return
        route = member.instance.routes.known(topic)
        everything = self._bare(route.readable_queues(topic)) if route is not None else []
        try:
            listener(self._tenant.bare(topic), everything, self._bare(member.owned(topic)))
        except BaseException as error:
            log_or_raise(self._log, "queue_listener_failed", error, topic=topic)
