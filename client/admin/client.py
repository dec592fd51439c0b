"""AdminClient: requests of tools to brokers and name servers. Topics and offsets are here, the rest in its bases."""

from typing import Any, Final

from lockstep.client.admin.base import NotLockstepError
from lockstep.client.admin.groups import GroupAdmin
from lockstep.client.admin.messages import MessageAdmin
from lockstep.client.admin.queues import QueueOffsets
from lockstep.client.errors import ClientError, NoRouteError
from lockstep.protocol.bodies.admin import QueryConsumeQueueResponseBody, TopicOffset, TopicStatsTable
from lockstep.protocol.bodies.attributes import MESSAGE_TYPE
from lockstep.protocol.bodies.broker import TopicConfig, TopicList
from lockstep.protocol.bodies.client import ResetOffsetBody
from lockstep.protocol.bodies.config import TopicConfigWrapper
from lockstep.protocol.bodies.name_server import KvTable
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import (
    DeleteTopicInNameServerRequestHeader,
    DeleteTopicRequestHeader,
    QueryConsumeQueueRequestHeader,
    ResetOffsetRequestHeader,
    TopicRequestHeader,
)
from lockstep.protocol.headers.messaging import (
    CreateTopicRequestHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import (
    DEAD_LETTER_PREFIX,
    DEFAULT_TOPIC,
    RETRY_PREFIX,
    check_topic,
    is_retry_topic,
    is_system_topic,
    reply_topic,
)
from lockstep.remoting.errors import RequestRefused

__all__ = ["AdminClient", "NotLockstepError"]

_SIZES_MAX: Final = 32  # of the newest messages of a queue, for their mean
_END: Final = -1  # as a time: the end of the queue


class AdminClient(GroupAdmin, MessageAdmin, QueueOffsets):
    """`async with AdminClient(name_server="127.0.0.1:9876") as admin: await admin.list_locks()`

    Every method raises RemotingError when a broker does not answer or refuses, and NoRouteError when no name server
    answers or knows the topic.
    """

    # Brokers -------------------------------------------------------------------------------------------------

    async def broker_runtime(self, address: str) -> dict[str, str]:
        """Return rates, totals and the state of the store, by RocketMQ's names; texts of the broker (wire.md 2.6)."""
        return dict((await self._ask_for(KvTable, address, RequestCode.GET_BROKER_RUNTIME_INFO)).table)

    async def broker_settings(self, address: str) -> dict[str, str]:
        """Return the settings of the broker at an address, by name."""
        reply = await self._ask(address, RequestCode.GET_BROKER_CONFIG)
        self._take(address, RequestCode.GET_BROKER_CONFIG, reply)
        lines = [line.partition("=") for line in reply.body.decode("utf-8", "replace").splitlines()]
        return {name.strip(): value.strip() for name, found, value in lines if found}

    # Topics --------------------------------------------------------------------------------------------------

    async def topics(self) -> list[str]:
        """Return all topics of the name server, sorted. System, retry and dead-letter topics are among them."""
        code = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        names = await self._started().routes.ask_for(TopicList, code, self._take)
        return sorted(names.topic_list)

    async def user_topics(self) -> list[str]:
        """Return the topics that are not of brokers, clusters, groups or RocketMQ itself, sorted."""
        brokers = await self.brokers()
        own = {broker.broker_name for broker in brokers} | {broker.cluster for broker in brokers}
        own |= {reply_topic(broker.cluster) for broker in brokers}
        return [topic for topic in await self.topics() if topic not in own and not _is_made_by_brokers(topic)]

    async def create_topic(
        self, topic: str, queues: int = 4, *, broker_name: str | None = None, message_type: str | None = None
    ) -> None:
        """Create a topic, or change it, on one broker or on all. Raises LocalProtocolError too.

        Args:
            message_type: One of RocketMQ 5's; its brokers of 4 ignore it. None: a topic that is there keeps its own.
        """
        attributes = None if message_type is None else f"+{MESSAGE_TYPE}={message_type}"
        await self.put_topic(TopicConfig(topic, queues, queues), attributes, broker_name=broker_name)

    async def put_topic(
        self, config: TopicConfig, attributes: str | None = None, *, broker_name: str | None = None
    ) -> None:
        """Create a topic, or change it, on one broker or on all. Raises LocalProtocolError too.

        Args:
            config: Without its attributes.
            attributes: How those change, as `+message.type=FIFO,-name`; brokers of RocketMQ 4 ignore it.
        """
        check_topic(config.topic_name)
        fewest = min(config.read_queue_nums, config.write_queue_nums)
        if fewest < 1:
            raise ClientError(f"a topic has at least one queue, not {fewest}")
        chosen = [b for b in await self.brokers() if broker_name in (None, b.broker_name) and b.master_addr]
        if not chosen:
            raise NoRouteError(f"no broker named {broker_name!r}" if broker_name else "no broker is registered")
        header = CreateTopicRequestHeader(
            config.topic_name, DEFAULT_TOPIC, config.read_queue_nums, config.write_queue_nums, config.perm,
            topic_sys_flag=config.topic_sys_flag, order=config.order, attributes=attributes,
        )  # fmt: skip
        for broker in chosen:  # a change: see `_ask_these`
            assert broker.master_addr is not None
            await self._ask(broker.master_addr, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def message_types(self) -> dict[str, str]:
        """Return the type of each topic that has one; when brokers differ, that of the first. Of 4 none has one."""

        bodies = reversed((await self._ask_all(self._topic_table)).values())
        return {one.topic_name: one.message_type for body in bodies for one in body.topics if one.attributes}

    async def topic_configs(self, topic: str) -> dict[str, TopicConfig]:
        """Return the settings of the topic by the name of each broker that has it. Raises TopicNotFoundError."""
        bodies = await self._ask_these(await self._masters_by_name(topic), self._topic_table)
        return {name: one for name, body in bodies.items() for one in body.topics if one.topic_name == topic}

    async def _topic_table(self, address: str) -> TopicConfigWrapper:
        return await self._ask_for(TopicConfigWrapper, address, RequestCode.GET_ALL_TOPIC_CONFIG)

    async def delete_topic(self, topic: str) -> None:
        """Delete the topic on every broker that has it, and on the name server. Raises TopicNotFoundError."""
        for address in (await self._masters_by_name(topic)).values():
            await self._ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic))
        header = DeleteTopicInNameServerRequestHeader(topic)
        for server in await self._started().name_servers.all():
            await self._ask(server, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Return the lowest and the next offset of each queue, and the time at which its last message was stored."""
        code, header = RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(topic)

        async def ask(address: str) -> TopicStatsTable:
            return await self._ask_for(TopicStatsTable, address, code, header)

        bodies = (await self._ask_these(await self._masters_by_name(topic), ask)).values()
        found = {queue: of for body in bodies for queue, of in body.offset_table.items()}
        return {queue: found[queue] for queue in sorted(found)}

    async def stored_bytes(self, queue: MessageQueue, first: int, end: int) -> int | None:
        """Return about how many bytes the messages of a queue take: their number times the mean size of the newest.

        Args:
            first, end: Its first offset, and the one after the last.

        Returns:
            None: Its broker does not say the sizes.
        """
        if end <= first:
            return 0
        begin = max(first, end - _SIZES_MAX)
        header = QueryConsumeQueueRequestHeader(queue.topic, queue.queue_id, begin, end - begin)
        address = await self._master_of(queue)
        try:
            body = await self._ask_for(QueryConsumeQueueResponseBody, address, RequestCode.QUERY_CONSUME_QUEUE, header)
        except RequestRefused:
            return None
        sizes = [entry.physic_size for entry in body.queue_data]
        return round(sum(sizes) / len(sizes) * (end - first)) if sizes else None

    async def all_groups(self) -> dict[str, list[str]]:
        """Return the topics of each group that is online or has offsets stored.

        Of Apache's brokers: the groups that have offsets or a retry topic.
        """
        try:
            return await self.groups()
        except NotLockstepError:
            groups = await self.groups_with_retry_topic() | await self.groups_with_offsets()
            return {group: groups[group] for group in sorted(groups)}

    async def groups_with_retry_topic(self) -> dict[str, list[str]]:
        """Return the groups that have a retry topic at the name server, sorted, with no topics."""
        return {topic.removeprefix(RETRY_PREFIX): [] for topic in await self.topics() if is_retry_topic(topic)}

    # Offsets -------------------------------------------------------------------------------------------------

    async def consumer_offset(self, group: str, queue: MessageQueue) -> int | None:
        """Return the next offset that the group will consume; None without a stored offset."""
        header = QueryConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id)
        try:
            return await self._offset(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except RequestRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def update_consumer_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store an offset. A Lockstep broker with fenced locks takes it although another client owns the queue."""
        address = await self._master_of(queue)
        reset = True if await self.is_lockstep(address) else None
        header = UpdateConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, offset, reset=reset)
        await self._ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int = _END, *, force: bool = True
    ) -> dict[MessageQueue, int] | None:
        """Tell the members to continue at a time (request 222, wire.md 2.4).

        Args:
            timestamp_ms: epoch ms; -1 means the end of each queue.
            force: False: do not move any queue forward.

        Returns:
            The new offset of each queue; None when no member is online. Then nothing has changed, and
            `update_consumer_offset` can be used.

        Raises:
            RequestRefused: for example, the group never committed an offset of a queue.
        """
        header = ResetOffsetRequestHeader(topic, group, timestamp_ms, force)
        offsets: dict[MessageQueue, int] | None = None
        for address in (await self._masters_by_name(topic)).values():
            try:
                body = await self._ask_for(ResetOffsetBody, address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            except RequestRefused as error:
                if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                    continue
                raise
            offsets = (offsets or {}) | dict(body.offset_table)
        return offsets

    async def _ask_queue(self, queue: MessageQueue, code: RequestCode, header: tuple[Any, ...]) -> RemotingCommand:
        return await self._ask(await self._master_of(queue), code, header)


def _is_made_by_brokers(topic: str) -> bool:
    return is_system_topic(topic) or is_retry_topic(topic) or topic.startswith((DEAD_LETTER_PREFIX, "RMQ_SYS_"))
