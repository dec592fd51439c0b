"""MessageAdmin: reads messages by key, by id and by queue offset (wire.md 2.3, 2.8)."""

from typing import Final, NamedTuple

from lockstep.client.admin.base import AdminBase
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from lockstep.protocol.errors import RemoteProtocolError
from lockstep.protocol.headers.admin import QueryMessageRequestHeader, ViewMessageRequestHeader
from lockstep.protocol.headers.messaging import PullMessageRequestHeader, PullMessageResponseHeader
from lockstep.protocol.messages.ids import decode_offset_message_id
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.pulled import Taken, decode_pulled, decode_records, take
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RequestRefused, must_succeed

__all__ = ["PULL_ANSWERS", "MessageAdmin", "QueueSlice", "id_address"]

_TOOLS_GROUP: Final = "TOOLS_CONSUMER"  # every broker has this group, for tools
PULL_ANSWERS: Final = frozenset({
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
})  # fmt: skip
_END_OF_TIME_MS: Final = 2**63 - 1
_KEY_MAX_NUM: Final = 64  # brokers return at most 64 at once (maxMsgsNumBatch)


class QueueSlice(NamedTuple):
    """Messages from an offset on, the next offset to read, and the bounds of the queue."""

    messages: list[MessageExt]
    next_offset: int
    min_offset: int
    max_offset: int


def id_address(message_id: str) -> str:
    """Return the "host:port" of the broker in an offset message id. Raises ValueError for any other text."""
    parts = decode_offset_message_id(message_id)
    if not 0 < parts.port < 65536 or parts.commit_log_offset < 0:
        raise ValueError(f"{message_id} names no broker")
    if len(parts.host) == 4:
        return f"{'.'.join(map(str, parts.host))}:{parts.port}"
    from ipaddress import IPv6Address  # imported here, because it is rarely needed and slows the start

    return f"[{IPv6Address(parts.host)}]:{parts.port}"


class MessageAdmin(AdminBase):
    """Each method raises RequestRefused when a broker refuses, and TopicNotFoundError for an unknown topic."""

    async def view_message(self, message_id: str) -> MessageExt:
        """Read a message by its offset message id. Raises ValueError for another kind of id."""
        address = id_address(message_id)
        names = {broker.master_addr: broker.broker_name for broker in await self.brokers()}
        header = ViewMessageRequestHeader(decode_offset_message_id(message_id).commit_log_offset)
        reply = await self._ask(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        return _only_one(await self._unpacked(reply.body, names.get(address, "")), address)

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = _END_OF_TIME_MS,
        count_max: int = _KEY_MAX_NUM,
        unique: bool = False,
    ) -> list[MessageExt]:
        """Return messages by key from all brokers, in the order of their store times.

        Brokers search by a hash of the key; messages with another key are removed here (wire.md 2.3).

        Args:
            unique: `key` is a UNIQ_KEY; else it is one of the KEYS.
            count_max: each broker returns its newest messages, up to this number and up to 64.
        """
        header = QueryMessageRequestHeader(topic, key, min(count_max, _KEY_MAX_NUM), begin_ms, end_ms, unique or None)

        async def ask(address: str) -> bytes:
            try:
                return (await self._ask(address, RequestCode.QUERY_MESSAGE, header)).body
            except RequestRefused as error:
                if error.code == ResponseCode.QUERY_NOT_FOUND:
                    return b""
                raise

        bodies = await self._ask_these(await self._masters_by_name(topic), ask)
        found = [message for name, body in bodies.items() for message in await self._readable(body, name)]
        found = [message for message in found if message.topic == topic and _has_key(message, key, unique=unique)]
        return sorted(found, key=_by_time)[-count_max:]

    async def read_queue(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count_max: int = 32,
        expression: str = "*",
        wait_ms: int = 0,
    ) -> QueueSlice:
        """Read up to `count_max` messages from `offset` on, without joining a group. Raises FilterError.

        If there is none within `wait_ms`, the result has no messages. If the queue does not have the offset,
        `next_offset` is the nearest that it has.
        """
        tags = SubscriptionData.parse(queue.topic, expression).tags_set
        flags = PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if wait_ms else 0)
        header = PullMessageRequestHeader(
            _TOOLS_GROUP, queue.topic, queue.queue_id, offset, count_max, int(flags), 0, wait_ms, 0, expression, "TAG"
        )
        address = await self._master_of(queue)
        endpoint = await self._started().dialer.endpoint(address)
        timeout_ms = self._config.request_timeout_ms + wait_ms
        reply = await self._reply(endpoint, RequestCode.PULL_MESSAGE, header, timeout_ms)
        must_succeed(reply, address, RequestCode.PULL_MESSAGE, PULL_ANSWERS)
        bounds = reply.decode_header(PullMessageResponseHeader)
        taken: Taken | None = Taken([], bounds.next_begin_offset)
        if reply.code == ResponseCode.SUCCESS:
            pulled = await self._started().unpack(decode_pulled(reply.body, queue.broker_name))
            taken = take(pulled, reply.body, queue, offset, count_max, bounds.next_begin_offset)
        if taken is None:
            # Its first record cannot be read. Alone it is returned as a message with an error.
            return await self.read_queue(queue, offset, count_max=1, expression=expression, wait_ms=wait_ms)
        messages = taken.messages
        if tags and not taken.is_raw:  # the broker matched their hashes
            messages = [message for message in messages if message.tags in tags]
        return QueueSlice(messages, taken.next_offset, bounds.min_offset, bounds.max_offset)

    async def _read_one(self, queue: MessageQueue, offset: int) -> QueueSlice:
        return await self.read_queue(queue, offset, count_max=1)

    async def _readable(self, data: bytes, broker_name: str) -> list[MessageExt]:
        """The messages before the first damaged record, which is logged. Answers of other brokers are not affected."""
        pulled, instance = decode_pulled(data, broker_name), self._started()
        if pulled.cut is not None:
            instance.log.error("message_unreadable", broker=broker_name, error=pulled.cut)
        return await instance.unpack_all(pulled)

    async def _unpacked(self, data: bytes, broker_name: str) -> list[MessageExt]:
        return await self._started().unpack_all(decode_records(data, broker_name))


def _only_one(messages: list[MessageExt], address: str) -> MessageExt:
    if len(messages) != 1:
        raise RemoteProtocolError(f"{address} answered with {len(messages)} messages instead of one")
    return messages[0]


def _has_key(message: MessageExt, key: str, *, unique: bool) -> bool:
    return message.msg_id == key if unique else key in (message.keys or "").split(" ")


def _by_time(message: MessageExt) -> tuple[int, str, int, int]:
    return message.store_timestamp, message.broker_name, message.queue_id, message.queue_offset
