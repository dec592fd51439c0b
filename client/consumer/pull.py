"""PullConsumer: pulls when its user says so, and from where (wire.md 12.10)."""

from collections.abc import Callable, Iterable

from lockstep.client.admin.queues import QueueQueries
from lockstep.client.consumer.offsets.store import ReadOffsetType
from lockstep.client.consumer.ownership.allocation.average import AllocateMessageQueueStrategy, allocate_averagely
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.client.consumer.pull_member import MemberOptions, PullMember
from lockstep.client.consumer.pull_request import PullRequest, PullResult, PullStatus
from lockstep.client.consumer.send_back import SendBack
from lockstep.client.errors import ConsumerError
from lockstep.client.hook_calls import ConsumeHooks
from lockstep.client.hooks import ConsumeMessageHook, FilterMessageHook
from lockstep.client.instance.client import name_server_addresses
from lockstep.client.lifecycle import Lifecycle, ServiceState
from lockstep.client.message_selector import Expression, subscription_of
from lockstep.client.pull_config import PullConsumerConfig
from lockstep.protocol.bodies.heartbeat import MessageModel, SubscriptionData
from lockstep.protocol.codes import PullSysFlag
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group, check_topic
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.remoting.logs import EventLog, StdlibLog, log_exception
from lockstep.remoting.runtime import AsyncioRuntime, Runtime

__all__ = ["MessageQueueListener", "PullConsumer"]

MessageQueueListener = Callable[[str, list[MessageQueue], list[MessageQueue]], None]
"""`(topic, all its queues, those of this consumer)`, called on the loop after a rebalance changed something."""

_TEXT = int(PullSysFlag.SUBSCRIPTION)
_TEXT_AND_SUSPEND = _TEXT | int(PullSysFlag.SUSPEND)


class PullConsumer(Lifecycle):
    """RocketMQ's DefaultMQPullConsumer: its user says which queue is pulled, from which offset, and what is done.

    Members of a group share the queues of their topics (`fetch_message_queues_in_balance`), but nothing keeps one from
    pulling others. A topic becomes the member's with `register_topic`, or when it is first pulled or asked for.
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
        config: PullConsumerConfig | None = None,
        message_model: MessageModel = MessageModel.CLUSTERING,
        strategy: AllocateMessageQueueStrategy = allocate_averagely,
        runtime: Runtime | None = None,
        log: EventLog | None = None,
    ) -> None:
        check_group(group)
        self._tenant = NamesOfTenant(namespace)
        self.group = self._tenant.wrap(group)
        check_group(self.group)
        self.config = config or PullConsumerConfig()
        self.message_model = message_model
        self._name_servers = name_server_addresses(name_server, self.config)
        self._strategy = strategy
        self._given_runtime = runtime
        self._log = log or StdlibLog("lockstep.client")
        self._hooks = ConsumeHooks(self.group, self._log, self._tenant)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._listeners: dict[str, MessageQueueListener] = {}
        self._updated: dict[MessageQueue, int] = {}  # the offsets that the user set
        self._member: PullMember | None = None

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

    def register_filter_message_hook(self, hook: FilterMessageHook) -> None:
        """Called with what each pull brought, after its tags were looked at."""
        self._hooks.add_filter(hook)

    async def fetch_subscribe_message_queues(self, topic: str) -> list[MessageQueue]:
        """All readable queues of a topic, sorted, as the name server knows them now. Raises TopicNotFoundError."""
        return self._bare(await self._running().queries.queues(self._tenant.wrap(topic)))

    async def fetch_message_queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that are this member's, sorted; as the last round of the rebalance left it."""
        topic = self._tenant.wrap(topic)
        return self._mine(await self._joined(topic), topic)

    def _mine(self, member: PullMember, topic: str) -> list[MessageQueue]:
        mine = [queue for queue, held in member.table.items() if queue.topic == topic and not held.dropped]
        return self._bare(sorted(mine))

    def _bare(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [self._tenant.bare_queue(queue) for queue in queues]

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
        if queue in self._updated:  # before, or while the answer was on its way
            member.offsets.update(queue, self._updated[queue])  # what was read is not what is to be stored
        return offset

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """In memory; it is stored every 5 s, when the queue is given away, and at the shutdown."""
        queue = self._tenant.wrap_queue(queue)
        self._running().offsets.update(queue, offset)
        self._updated[queue] = offset

    async def persist(self, *queues: MessageQueue) -> None:
        """Store the offsets of these queues, or of all that were updated, and return when it is done."""
        wrapped = [self._tenant.wrap_queue(queue) for queue in queues]
        await self._running().store_now(wrapped or tuple(self._updated))

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
        send_back = SendBack(member.instance, self.group, member.config, None)
        if not await send_back.send(process_queue, message, delay_level):
            raise ConsumerError(f"no broker took message {message.msg_id} back; the log says why")

    @property
    def client_id(self) -> str:
        if self._member is None:
            raise self.wrong_state()
        return self._member.instance.client_id

    # Life ----------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        options = MemberOptions(
            group=self.group,
            name_servers=self._name_servers,
            config=self.config,
            message_model=self.message_model,
            strategy=self._strategy,
            hooks=self._hooks,
            tenant=self._tenant,
        )
        self._member = member = PullMember(
            self._given_runtime or AsyncioRuntime(),
            options,
            self._log,
            self._subscriptions,
            on_acquired=self._gained,
            on_dropped=self._lost,
            on_changed=self._tell,
            to_persist=lambda: self._updated,
        )
        await member.start()

    async def _shutdown(self) -> None:
        """Store the offsets and leave the group."""
        assert self._member is not None
        await self._member.stop()
        await self._member.leave()

    def _running(self) -> PullMember:
        if self._member is None or self.state is not ServiceState.RUNNING:
            raise self.wrong_state()
        return self._member

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

    def _gained(self, process_queue: ProcessQueue) -> None:
        """RocketMQ forgets an offset that was set before the queue was its own (removeDirtyOffset)."""
        offset, member = self._updated.get(process_queue.queue), self._member
        if offset is not None and member is not None:
            member.offsets.update(process_queue.queue, offset)

    def _lost(self, process_queue: ProcessQueue) -> None:
        """The rebalance stores its offset with that; from then on it is its new owner's."""
        self._updated.pop(process_queue.queue, None)

    def _tell(self, topic: str) -> None:
        listener, member = self._listeners.get(topic), self._member
        if listener is None or member is None:
            return
        route = member.instance.routes.known(topic)
        everything = self._bare(route.readable_queues(topic)) if route is not None else []
        try:
            listener(self._tenant.bare(topic), everything, self._mine(member, topic))
        except Exception as error:
            log_exception(self._log, "queue listener failed", error, topic=topic)
