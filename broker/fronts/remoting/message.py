"""Messages by key, by commit log offset and by index entry: codes 12, 33 and 321 (wire.md 2.3)."""

from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.query import message_by_offset, messages_by_key
from lockstep.broker.fronts.remoting.in_steps import AnswerSteps, answer_in_steps, reply_in_steps
from lockstep.protocol.bodies.admin import ConsumeQueueData, QueryConsumeQueueResponseBody
from lockstep.protocol.bodies.records import record_to_wire
from lockstep.protocol.bodies.rows import BodySteps, encode_list
from lockstep.protocol.codes import FRAME_BYTES_MAX, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.headers.admin import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from lockstep.store.base import KeyQuery

__all__ = ["query_consume_queue", "query_message", "view_message"]

# Our limit: the frame also has a header.
_BODY_BYTES_MAX: Final = FRAME_BYTES_MAX - 64 * 1024
# Our limit: an entry has about 150 bytes in a reply.
_ENTRIES_MAX: Final = 50_000


def query_message(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Messages with the key in KEYS or UNIQ_KEY, oldest first; if they do not fit into a frame, the newest."""
    header = command.decode_header(QueryMessageRequestHeader)
    if header.max_num < 0:
        raise HeaderError(f"the field maxNum must not be negative, but is {header.max_num}")
    return answer_in_steps(broker, connection, command, _query(broker, command, header))


def _query(broker: Broker, command: RemotingCommand, header: QueryMessageRequestHeader) -> AnswerSteps:
    query = KeyQuery(header.topic, header.key, header.max_num, header.begin_timestamp, header.end_timestamp)
    result = yield from messages_by_key(broker, query, unique=bool(header.unique_key_query))
    response = QueryMessageResponseHeader(result.last_timestamp, result.last_commit_log_offset)
    if not result.messages:
        remark = f"no message of topic {header.topic!r} has the key {header.key!r} in that time"
        return command.reply(ResponseCode.QUERY_NOT_FOUND, response, remark=remark)
    return command.reply(ResponseCode.SUCCESS, response, b"".join(_newest_that_fit(result.messages)))


def _newest_that_fit(messages: list[bytes]) -> list[bytes]:
    left_bytes = _BODY_BYTES_MAX
    for i in range(len(messages) - 1, -1, -1):
        left_bytes -= len(messages[i])
        if left_bytes < 0:
            return messages[i + 1 :]
    return messages


def view_message(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    offset = command.decode_header(ViewMessageRequestHeader).offset
    return command.reply(ResponseCode.SUCCESS, body=message_by_offset(broker, offset))


def query_consume_queue(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Entries of a consume queue, and the subscription of a group. `eval` is always false, as in RocketMQ."""
    header = command.decode_header(QueryConsumeQueueRequestHeader)
    topic, queue_id, group = header.topic, header.queue_id, header.consumer_group
    low, high = broker.messages.store.min_offset(topic, queue_id), broker.messages.store.max_offset(topic, queue_id)
    if not low <= header.first_index < high:
        remark = f"Index {header.first_index} of {queue_id}@{topic} is not exist!"
        return command.reply(ResponseCode.SUCCESS, remark=remark)
    subscription, filter_data = None, None
    if group is not None:
        members = broker.members.consumers.groups.get(group)
        subscription = members.subscriptions.get(topic) if members is not None else None
        filter_data = f"{group}@{topic} is not online!" if subscription is None else "null"
    found = 0

    def body() -> BodySteps:
        around = QueryConsumeQueueResponseBody((), high, low, subscription, filter_data).to_wire()
        entries = broker.messages.store.entries(
            topic, queue_id, header.first_index, min(header.entry_count, _ENTRIES_MAX)
        )
        nonlocal found
        found = len(entries)
        rows = (record_to_wire(ConsumeQueueData(*entry)) for entry in entries)
        return encode_list(around, "queueData", rows, command.serialize_type)

    # RocketMQ sends a remark too.
    return reply_in_steps(broker, connection, command, body, lambda: f"{found} entries of {queue_id}@{topic}")
