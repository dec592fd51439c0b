"""AdminClient: what tools ask brokers and name servers. Here topics and offsets; the rest is in its bases."""

from typing import Any, Final

from lockstep.client.admin.base import NotLockstepError
from lockstep.client.admin.groups import GroupAdmin
from lockstep.client.admin.messages import MessageAdmin
from lockstep.client.errors import ClientError, NoRouteError
from lockstep.protocol.bodies.admin import TopicOffset, TopicStatsTable
from lockstep.protocol.bodies.broker import TopicList
from lockstep.protocol.bodies.client import ResetOffsetBody
from lockstep.protocol.codes import Permission, RequestCode, ResponseCode
from lockstep.protocol.headers.admin import (
    DeleteTopicInNameServerRequestHeader,
    DeleteTopicRequestHeader,
    ResetOffsetRequestHeader,
    TopicRequestHeader,
)
from lockstep.protocol.headers.messaging import (
    CreateTopicRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import DEFAULT_TOPIC, check_topic
from lockstep.remoting.errors import RequestRefused

__all__ = ["AdminClient", "NotLockstepError"]

_END: Final = -1  # of a queue, where a reset names a time


class AdminClient(GroupAdmin, MessageAdmin):
    """`async with AdminClient(name_server="127.0.0.1:9876") as admin: await admin.list_locks()`

    Every call raises RemotingError when a broker does not answer or refuses, NoRouteError when no name server
    answers or none knows the topic.
    """

    # Topics --------------------------------------------------------------------------------------------------

    async def topics(self) -> list[str]:
        """Every topic the name server knows, sorted; system, retry and dead-letter topics among them."""
        names = await self._started().routes.ask_for(TopicList, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(names.topic_list)

    async def create_topic(self, topic: str, queues: int = 4, *, broker_name: str | None = None) -> None:
        """Make a topic, or change its number of queues, on one broker or on all. Raises LocalProtocolError too."""
        check_topic(topic)
        if queues < 1:
            raise ClientError(f"a topic has at least one queue, not {queues}")
        chosen = [b for b in await self.brokers() if broker_name in (None, b.broker_name) and b.master_addr]
        if not chosen:
            raise NoRouteError(f"no broker named {broker_name!r}" if broker_name else "no broker is registered")
        perm = int(Permission.READ | Permission.WRITE)
        header = CreateTopicRequestHeader(topic, DEFAULT_TOPIC, queues, queues, perm)
        for broker in chosen:
            assert broker.master_addr is not None
            await self._ask(broker.master_addr, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def delete_topic(self, topic: str) -> None:
        """From every broker that has it, and from the name server. Raises TopicNotFoundError."""
        for address in (await self._masters_by_name(topic)).values():
            await self._ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic))
        header = DeleteTopicInNameServerRequestHeader(topic)
        for server in await self._started().name_servers.all():
            await self._ask(server, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    async def topic_stats(self, topic: str) -> dict[MessageQueue, TopicOffset]:
        """Least and next offset of each queue, and when its last message was stored."""
        found: dict[MessageQueue, TopicOffset] = {}
        for address in (await self._masters_by_name(topic)).values():
            header = TopicRequestHeader(topic)
            found |= (
                await self._ask_for(TopicStatsTable, address, RequestCode.GET_TOPIC_STATS_INFO, header)
            ).offset_table
        return {queue: found[queue] for queue in sorted(found)}

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int:
        """Epoch ms of the first message that is still there, -1 without one."""
        header = QueueRequestHeader(queue.topic, queue.queue_id)
        reply = await self._ask(await self._master_of(queue), RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        return reply.decode_header(TimestampResponseHeader).timestamp

    # Offsets -------------------------------------------------------------------------------------------------

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message will get."""
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET, QueueRequestHeader(queue.topic, queue.queue_id))

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET, QueueRequestHeader(queue.topic, queue.queue_id))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms)
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def consumer_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The next offset the group will consume, None when it has none."""
        header = QueryConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id)
        try:
            return await self._offset(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except RequestRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def update_consumer_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, offset)
        await self._ask(await self._master_of(queue), RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int = _END, *, force: bool = True
    ) -> dict[MessageQueue, int] | None:
        """Have the members told to go on at a time, -1 for the end; where each queue will (222, wire.md 2.4).

        Without `force` no queue goes forward. None when no member is online: then nothing has changed, and
        `update_consumer_offset` does it. Raises RequestRefused, as for a group that never committed on a queue.
        """
        header = ResetOffsetRequestHeader(topic, group, timestamp_ms, force)
        told: dict[MessageQueue, int] | None = None
        for address in (await self._masters_by_name(topic)).values():
            try:
                body = await self._ask_for(ResetOffsetBody, address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            except RequestRefused as error:
                if error.code == ResponseCode.CONSUMER_NOT_ONLINE:
                    continue
                raise
            told = (told or {}) | dict(body.offset_table)
        return told

    async def _offset(self, queue: MessageQueue, code: RequestCode, header: tuple[Any, ...]) -> int:
        reply = await self._ask(await self._master_of(queue), code, header)
        return reply.decode_header(OffsetResponseHeader).offset
