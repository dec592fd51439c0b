"""Committed offsets and the bounds of queues: codes 14, 15, 29, 30, 31, 32 (wire.md 8)."""

from lockstep.broker.connection import Connection
from lockstep.broker.core import Broker
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)

__all__ = [
    "commit_offset",
    "earliest_store_time",
    "max_offset",
    "min_offset",
    "query_offset",
    "search_offset",
    "update_offset",
]

_NO_TIMESTAMP = -1


def query_offset(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """QUERY_NOT_FOUND, and no other code, means that nothing is known (wire.md 8.3)."""
    header = command.decode_header(QueryConsumerOffsetRequestHeader)
    group, topic, queue_id = header
    offset = broker.offsets.query_or_start(group, topic, queue_id, broker.store.min_offset(topic, queue_id))
    if offset is None:
        remark = f"group {group!r} has no offset of {topic}:{queue_id}, and its first messages are gone"
        return command.reply(ResponseCode.QUERY_NOT_FOUND, remark=remark)
    return command.reply(ResponseCode.SUCCESS, OffsetResponseHeader(offset))


def update_offset(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    header = command.decode_header(UpdateConsumerOffsetRequestHeader)
    commit_offset(broker, connection, header.consumer_group, header.topic, header.queue_id, header.commit_offset)
    reply = command.reply(ResponseCode.SUCCESS)
    reply.ext_fields = {}
    return reply


def commit_offset(
    broker: Broker, connection: Connection, group: str, topic: str, queue_id: int, committed_offset: int
) -> None:
    """Any value is stored; one that goes back is logged, because only a reset should do that."""
    before = broker.offsets.commit(group, topic, queue_id, committed_offset)
    if committed_offset < before:
        broker.log.warning(
            "offset committed backwards",
            group=group,
            topic=topic,
            queue_id=queue_id,
            before=before,
            committed_offset=committed_offset,
            peer=connection.address,
        )


def max_offset(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    header = command.decode_header(QueueRequestHeader)
    return command.reply(ResponseCode.SUCCESS, OffsetResponseHeader(broker.store.max_offset(*header)))


def min_offset(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    header = command.decode_header(QueueRequestHeader)
    return command.reply(ResponseCode.SUCCESS, OffsetResponseHeader(broker.store.min_offset(*header)))


def search_offset(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    header = command.decode_header(SearchOffsetRequestHeader)
    offset = broker.store.offset_at(header.topic, header.queue_id, header.timestamp)
    return command.reply(ResponseCode.SUCCESS, OffsetResponseHeader(offset))


def earliest_store_time(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    topic, queue_id = command.decode_header(QueueRequestHeader)
    stored = broker.store.store_timestamp(topic, queue_id, broker.store.min_offset(topic, queue_id))
    return command.reply(ResponseCode.SUCCESS, TimestampResponseHeader(_NO_TIMESTAMP if stored is None else stored))
