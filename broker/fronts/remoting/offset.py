"""Committed offsets and the bounds of queues: codes 14, 15, 29, 30, 31, 32 (wire.md 8)."""

from lockstep.broker.connection import Connection
from lockstep.broker.core import commit as core
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Refused
from lockstep.broker.fronts.remoting.after import After, Begun
from lockstep.broker.fronts.remoting.refusal import code_of, refuse_if
from lockstep.broker.ownership.claim import Claim
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    ResetOwnOffsetRequestHeader,
    ResetOwnOffsetResponseHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.protocol.headers.together import CommitTogetherRequestHeader
from lockstep.protocol.messages.together import NO_EPOCH, decode_commits, encode_rows
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.tuples import new_tuple

__all__ = [
    "commit_together",
    "earliest_store_time",
    "max_offset",
    "min_offset",
    "query_offset",
    "recovered_offset",
    "reset_own_offset",
    "search_offset",
    "update_offset",
]

_NO_TIMESTAMP = -1
_SUCCESS = int(ResponseCode.SUCCESS)


def query_offset(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """QUERY_NOT_FOUND, and no other code, means that the group has no offset (wire.md 8.3)."""
    header = command.decode_header(QueryConsumerOffsetRequestHeader)
    group, topic, queue_id = header
    offset = core.query_offset(broker, group, topic, queue_id)
    if offset is None:
        remark = f"group {group!r} has no offset of {topic}:{queue_id}, and its first messages are gone"
        return command.reply(ResponseCode.QUERY_NOT_FOUND, remark=remark)
    return command.reply(ResponseCode.SUCCESS, OffsetResponseHeader(offset))


def update_offset(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Commit one offset. An unknown topic or queue is refused, as in RocketMQ 5; 4.9 stores such offsets forever.

    Java's and Go's clients commit one-way, so they see no error when their topic was deleted.
    """
    header = command.decode_header(UpdateConsumerOffsetRequestHeader)
    store = core.set_offset if header.reset else core.commit
    refuse_if(store(broker, connection, header, header.commit_offset, now_ms))
    if command.is_one_way:
        return None
    reply = command.reply(ResponseCode.SUCCESS)
    # RocketMQ's reply has this field, empty.
    reply.ext_fields = {}
    return reply


def commit_together(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Many commits of one group in one frame (docs/wire.md 17.2). Each is stored or refused as by itself."""
    header = command.decode_header(CommitTogetherRequestHeader)
    group, client_id = header.consumer_group, header.lock_client_id
    rows, remarks = list[tuple[int, int, int]](), list[str]()
    for topic, queue_id, offset, epoch in decode_commits(command.body, header.commit_count):
        # Each commit is checked under the epoch of its own queue.
        fenced = epoch != NO_EPOCH
        fields = (group, topic, queue_id, epoch, client_id) if fenced else (group, topic, queue_id, None, None)
        try:
            denial = core.commit(broker, connection, new_tuple(Claim, fields), offset, now_ms)
        except Refused as why:
            rows.append((code_of(why), -1, -1))
            remarks.append(str(why))
            continue
        if denial is None:
            rows.append((_SUCCESS, offset, -1))
        else:
            rows.append((denial.code, -1, -1))
            remarks.append(denial.remark)
    return None if command.is_one_way else command.reply(ResponseCode.SUCCESS, body=encode_rows(rows, remarks))


def reset_own_offset(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> After:
    """Answered when the new epoch is on the disk."""
    header = command.decode_header(ResetOwnOffsetRequestHeader)
    grant = core.begin_at(broker, connection, header, header.offset, now_ms)
    reply = command.reply(ResponseCode.SUCCESS, ResetOwnOffsetResponseHeader(grant.epoch, grant.lease_ms))
    queue = MessageQueue(header.topic, broker.config.broker_name, header.queue_id)
    return After(reply, Begun(header.consumer_group, [(queue, grant.epoch)], now_ms))


def max_offset(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    header = command.decode_header(QueueRequestHeader)
    return command.reply(ResponseCode.SUCCESS, OffsetResponseHeader(broker.messages.store.max_offset(*header)))


def min_offset(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    header = command.decode_header(QueueRequestHeader)
    return command.reply(ResponseCode.SUCCESS, OffsetResponseHeader(broker.messages.store.min_offset(*header)))


def recovered_offset(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Where the queue ended when the broker opened its log (docs/wire.md 17.4)."""
    header = command.decode_header(QueueRequestHeader)
    return command.reply(ResponseCode.SUCCESS, OffsetResponseHeader(broker.messages.store.recovered_offset(*header)))


def search_offset(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    header = command.decode_header(SearchOffsetRequestHeader)
    offset = broker.messages.store.offset_at(header.topic, header.queue_id, header.timestamp)
    return command.reply(ResponseCode.SUCCESS, OffsetResponseHeader(offset))


def earliest_store_time(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    topic, queue_id = command.decode_header(QueueRequestHeader)
    stored = broker.messages.store.store_timestamp(topic, queue_id, broker.messages.store.min_offset(topic, queue_id))
    return command.reply(ResponseCode.SUCCESS, TimestampResponseHeader(_NO_TIMESTAMP if stored is None else stored))
