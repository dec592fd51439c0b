"""PullConsumer: pulls when its user says so, and from where (wire.md 12.10)."""

from collections.abc import Callable

from lockstep.client.admin.queues import QueueQueries
from lockstep.client.consumer.consumer import GroupConsumer
from lockstep.client.consumer.member import GroupMember, MemberSettings
from lockstep.client.consumer.offsets.store import ReadOffsetType
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.client.consumer.pull_request import PullCalls, PullRequest, PullResult, PullStatus
from lockstep.client.consumer.send_back import SendBack
from lockstep.client.errors import ConsumerError
from lockstep.client.hooks import ConsumeMessageHook
from lockstep.client.message_selector import Expression, subscription_of
from lockstep.client.pull_config import PullConsumerConfig
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import PullSysFlag
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_topic
from lockstep.remoting.logs import log_exception

__all__ = ["MessageQueueListener", "PullConsumer", "PullMember"]

MessageQueueListener = Callable[[str, list[MessageQueue], list[MessageQueue]], None]
"""`(topic, all its queues, those of this consumer)`, called on the loop after a rebalance changed something."""

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
        return sorted(queue for queue, held in self.table.items() if queue.topic == topic and not held.dropped)

    def queue_acquired(self, process_queue: ProcessQueue) -> None:
        """RocketMQ forgets an offset that was set before the queue was acquired (removeDirtyOffset)."""
        offset = self.updated.get(process_queue.queue)
        if offset is not None:
            self.offsets.update(process_queue.queue, offset)

    def queue_dropped(self, process_queue: ProcessQueue) -> None:
        """The rebalance stores its offset after this; later ones are the next owner's."""
        self.updated.pop(process_queue.queue, None)

    async def queues_changed(self, topic: str) -> None:
        self._on_changed(topic)
        await super().queues_changed(topic)

    async def _persist_all(self) -> None:
        """The user may set offsets of queues that it does not own."""
        self.offsets.persist(self.updated, lambda _queue, _offset: None)


class PullConsumer(GroupConsumer[PullConsumerConfig, PullMember]):
    """RocketMQ's DefaultMQPullConsumer: its user says which queue is pulled, from which offset, and what is done.

    Members of a group share the queues of their topics (`fetch_message_queues_in_balance`), but nothing keeps one from
    pulling others. A topic becomes the member's with `register_topic`, or when it is first pulled or asked for.
    Calls raise ConsumerError while the consumer does not run, RemotingError when a broker refuses or does not answer,
    NoRouteError when no name server does.
    """

    _config_class = PullConsumerConfig

    def _set_up(self) -> None:
        self._listeners: dict[str, MessageQueueListener] = {}

    # Topics --------------------------------------------------------------------------------------------------

    def register_topic(self, topic: str) -> None:
        """Take part in sharing out the topic's queues. Raises LocalProtocolError."""
        topic = self._tenant.wrap(topic)
        check_topic(topic)
        if topic not in self._subscriptions:
            self._subscriptions[topic] = SubscriptionData.parse(topic, "*")
            if self._member is not None:
                self._member.rebalance_soon()

    def register_message_queue_listener(self, topic: str, listener: MessageQueueListener) -> None:
        """`listener` hears of every change of this consumer's queues of the topic."""
        self.register_topic(topic)
        self._listeners[self._tenant.wrap(topic)] = listener

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Called before and after each pull's messages are handed out, which as in RocketMQ counts as consumed."""
        self._hooks.add_consume(hook)

    async def fetch_subscribe_message_queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic, sorted, as the name server knows them now. Raises TopicNotFoundError."""
        return self._bare(await self._running().queries.queues(self._tenant.wrap(topic)))

    async def fetch_message_queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that are this member's, sorted; as the last round of the rebalance left it."""
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
        """What there is now from `offset` on, at most `max_nums` messages whose tag the expression names, or that a
        MessageSelector selects.

        Nothing is committed by it: see `update_consume_offset`. Raises FilterError.
        """
        timeout_ms = self.config.consumer_pull_timeout_ms if timeout_ms is None else timeout_ms
        return await self._pull(queue, expression, offset, max_nums, _TEXT, timeout_ms)

    async def pull_block_if_not_found(
        self, queue: MessageQueue, expression: Expression, offset: int, max_nums: int
    ) -> PullResult:
        """As `pull`, but when there is nothing the broker waits for a message, `pull_suspend_ms` at most."""
        return await self._pull(queue, expression, offset, max_nums, _TEXT_AND_SUSPEND, self.config.pull_timeout_ms)

    async def _pull(
        self, queue: MessageQueue, expression: Expression, offset: int, max_nums: int, sys_flag: int, timeout_ms: int
    ) -> PullResult:
        if offset < 0:
            raise ConsumerError(f"an offset is 0 or more, not {offset}")
        if max_nums <= 0:
            raise ConsumerError(f"a pull is for at least one message, not {max_nums}")
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
        """Where the group goes on: the next offset, or -1 when it has none. `from_store`: as it is kept by the broker,
        or in the file of a broadcasting consumer, whatever was updated since."""
        member, queue = self._running(), self._tenant.wrap_queue(queue)
        kind = ReadOffsetType.READ_FROM_STORE if from_store else ReadOffsetType.MEMORY_FIRST_THEN_STORE
        offset = await member.offsets.read(queue, kind)
        if queue in member.updated:  # the offset that was read must not be stored in its place
            member.offsets.update(queue, member.updated[queue])
        return offset

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """In memory; it is stored every 5 s, when the queue is given away, and at the shutdown."""
        member, queue = self._running(), self._tenant.wrap_queue(queue)
        member.offsets.update(queue, offset)
        member.updated[queue] = offset

    async def persist(self, *queues: MessageQueue) -> None:
        """Store the offsets of these queues, or of all that were updated, and return when it is done."""
        wrapped = [self._tenant.wrap_queue(queue) for queue in queues]
        member = self._running()
        await member.store_now(wrapped or tuple(member.updated))

    # Questions -----------------------------------------------------------------------------------------------

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message will get."""
        return await self._queries.max_offset(self._tenant.wrap_queue(queue))

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._queries.min_offset(self._tenant.wrap_queue(queue))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message that was stored at this time (epoch) or later."""
        return await self._queries.search_offset(self._tenant.wrap_queue(queue), timestamp_ms)

    async def earliest_msg_store_time_ms(self, queue: MessageQueue) -> int:
        """When the queue's first message was stored (epoch); -1: there is none."""
        return await self._queries.earliest_store_time_ms(self._tenant.wrap_queue(queue))

    async def view_message(self, offset_message_id: str) -> MessageExt:
        """Raises ValueError for a text that is no offset message id."""
        return await self._queries.view_message(offset_message_id)

    async def send_message_back(self, message: MessageExt, delay_level: int) -> None:
        """The broker puts it into the group's retry topic after the delay of this level; 0: of the level that its
        attempts make due; -1: it is a dead letter at once. Raises ConsumerError when no broker takes it."""
        member = self._running()
        queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
        process_queue = ProcessQueue(queue, 0, member.runtime.now_ms(), needs_lock=False)
        send_back = SendBack(member.membership)
        if not await send_back.send(process_queue, message, delay_level):
            raise ConsumerError(f"no broker took message {message.msg_id} back; the log says why")

    # Life ----------------------------------------------------------------------------------------------------

    def _new_member(self, settings: MemberSettings) -> PullMember:
        return PullMember(settings, self._subscriptions, self._tell)

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

    def _tell(self, topic: str) -> None:
        listener, member = self._listeners.get(topic), self._member
        if listener is None or member is None:
            return
        route = member.instance.routes.known(topic)
        everything = self._bare(route.readable_queues(topic)) if route is not None else []
        try:
            listener(self._tenant.bare(topic), everything, self._bare(member.owned(topic)))
        except Exception as error:
            log_exception(self._log, "queue listener failed", error, topic=topic)
