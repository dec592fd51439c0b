"""Queries about the queues of a topic: their offsets and times (wire.md 2.2, 8.2)."""

from abc import ABC, abstractmethod
from typing import Any

from lockstep.client.admin.messages import PULL_ANSWERS, QueueSlice, id_address
from lockstep.client.errors import TopicNotFoundError
from lockstep.client.instance.client import MQClientInstance
from lockstep.protocol.codes import PullSysFlag, RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import RemoteProtocolError
from lockstep.protocol.headers.admin import ViewMessageRequestHeader
from lockstep.protocol.headers.messaging import (
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
)
from lockstep.protocol.messages.ids import decode_offset_message_id
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.pulled import decode_pulled, decode_records
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import must_succeed

__all__ = ["QueueOffsets", "QueueQueries"]


class QueueOffsets(ABC):
    """Offsets and times of one queue, from its master broker."""

    async def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message will get."""
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET, QueueRequestHeader(queue.topic, queue.queue_id))

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET, QueueRequestHeader(queue.topic, queue.queue_id))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message stored at `timestamp_ms` (epoch ms) or later; without one the end.

        Brokers answer with a message that is near in time, which may be older: after the last message with the last
        one, and with any of those of one millisecond (wire.md 8.2). So the store times around it are read.
        """
        header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms)
        near = await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        if near < 0:
            return near
        found = await self._read_one(queue, near)
        low, high = max(found.min_offset, 0), max(found.max_offset, 0)
        looked_at, step = near, 1
        # All messages below `low` are older, none from `high` on is. Most searches end after the second message.
        while low < high:
            if not low <= looked_at < high:
                looked_at = (low + high) // 2
            if looked_at != near:
                found = await self._read_one(queue, looked_at)
            if looked_at < found.min_offset or any(of.store_timestamp < timestamp_ms for of in found.messages):
                low, looked_at = looked_at + 1, looked_at + step
            else:
                high, looked_at = looked_at, looked_at - step
            step *= 2
        return low

    async def earliest_store_time_ms(self, queue: MessageQueue) -> int:
        """Return the time at which the first message was stored, in epoch ms; -1 without a message."""
        header = QueueRequestHeader(queue.topic, queue.queue_id)
        reply = await self._ask_queue(queue, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        return reply.decode_header(TimestampResponseHeader).timestamp

    async def _offset(self, queue: MessageQueue, code: RequestCode, header: tuple[Any, ...]) -> int:
        return (await self._ask_queue(queue, code, header)).decode_header(OffsetResponseHeader).offset

    @abstractmethod
    async def _ask_queue(self, queue: MessageQueue, code: RequestCode, header: tuple[Any, ...]) -> RemotingCommand:
        """Raises RequestRefused for any code but SUCCESS."""

    @abstractmethod
    async def _read_one(self, queue: MessageQueue, offset: int) -> QueueSlice:
        """Read the message at an offset, if there is one."""


class QueueQueries(QueueOffsets):
    """The queries of a client. Each raises RemotingError, NoRouteError; RequestRefused when the broker refuses.

    Args:
        group: that reads: an account may have the right to no other.
        epoch: of the fenced lock of the queue that is asked about; 0: none.
    """

    def __init__(self, instance: MQClientInstance, group: str, epoch: int = 0) -> None:
        self._instance = instance
        self._group = group
        self._fence = (epoch, instance.client_id) if epoch else ()

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of the topic, sorted, as the name server has them. Raises TopicNotFoundError."""
        route = await self._instance.routes.fetch(topic)
        queues = route.readable_queues(topic) if route is not None else []
        if not queues:
            raise TopicNotFoundError(f"topic {topic!r} has no queue to read from")
        return queues

    async def view_message(self, offset_message_id: str) -> MessageExt:
        """Read a message from the broker that its id names. Raises ValueError for another kind of id."""
        address = id_address(offset_message_id)
        code = RequestCode.VIEW_MESSAGE_BY_ID
        header = ViewMessageRequestHeader(decode_offset_message_id(offset_message_id).commit_log_offset)
        reply = await self._instance.call_address(address, code, header)
        must_succeed(reply, address, code)
        broker_name = self._instance.routes.broker_name_at(address) or ""
        messages = await self._instance.unpack_all(decode_records(reply.body, broker_name))
        if len(messages) != 1:
            raise RemoteProtocolError(f"{address} answered with {len(messages)} messages for one id")
        return messages[0]

    async def _ask_queue(self, queue: MessageQueue, code: RequestCode, header: tuple[Any, ...]) -> RemotingCommand:
        if self._instance.routes.master_address(queue.broker_name) is None:
            await self._instance.routes.fetch(queue.topic)
        reply = await self._instance.call(queue.broker_name, code, header)
        must_succeed(reply, queue.broker_name, code)
        return reply

    async def _read_one(self, queue: MessageQueue, offset: int) -> QueueSlice:
        flags = int(PullSysFlag.SUBSCRIPTION)  # the request has its own filter, and commits nothing
        header = PullMessageRequestHeader(
            self._group, queue.topic, queue.queue_id, offset, 1, flags, 0, 0, 0, "*", "TAG", *self._fence
        )
        reply = await self._instance.call(queue.broker_name, RequestCode.PULL_MESSAGE, header)
        must_succeed(reply, queue.broker_name, RequestCode.PULL_MESSAGE, PULL_ANSWERS)
        bounds = reply.decode_header(PullMessageResponseHeader)
        messages = decode_pulled(reply.body, queue.broker_name).messages
        return QueueSlice(messages, bounds.next_begin_offset, bounds.min_offset, bounds.max_offset)
