"""Committed offsets and the bounds of queues: codes 14, 15, 29, 30, 31, 32 (wire.md 8)."""

from lockstep.broker.catalog.offsets import NO_OFFSET
from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.durable_answer import Begun, answer_when_durable
from lockstep.broker.fronts.remoting.refusal import Refusal, check_limit, refuse_if
from lockstep.broker.ownership.claim import Claim, Claiming
from lockstep.broker.ownership.denial import Denial
from lockstep.broker.sliced_work import Steps
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError, short_text
from lockstep.protocol.headers.messaging import (
    OffsetResponseHeader,
    PullMessageRequestHeader,
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
from lockstep.protocol.names import check_group
from lockstep.protocol.tuples import new_tuple

__all__ = [
    "check_capacity",
    "commit_together",
    "commit_with_pull",
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
    # A young queue answers 0 instead of "not found", as in RocketMQ (wire.md 8.1).
    offset = broker.catalog.offsets.query_or_start(
        group, topic, queue_id, broker.messages.store.min_offset(topic, queue_id)
    )
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
    stored = _check_commit(broker, connection, header, header.commit_offset, now_ms)
    # The reset comes from an administrator: the owner of the queue has no say.
    if header.reset and broker.ownership.reset(
        header.consumer_group, header.topic, {header.queue_id: header.commit_offset}, now_ms
    ):
        broker.catalog.offsets.commit(*header[:4])
    else:
        refuse_if(_commit(broker, connection, header, header.commit_offset, stored, now_ms, True))
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
        period = (None, None) if epoch == NO_EPOCH else (epoch, client_id)
        claim = new_tuple(Claim, (group, topic, queue_id, *period))
        try:
            stored = _check_commit(broker, connection, claim, offset, now_ms)
        except Refusal as why:
            rows.append((why.code, -1, -1))
            remarks.append(str(why))
            continue
        denial = _commit(broker, connection, claim, offset, stored, now_ms, True)
        if denial is None:
            rows.append((_SUCCESS, offset, -1))
        else:
            rows.append((denial.code, -1, -1))
            remarks.append(denial.remark)
    return None if command.is_one_way else command.reply(ResponseCode.SUCCESS, body=encode_rows(rows, remarks))


def _check_commit(broker: Broker, connection: Connection, claim: Claiming, offset: int, now_ms: int) -> int:
    """Return the offset that is stored now; -1 for none.

    Raises:
        Refusal: an invalid group, an unknown topic or queue, an offset below -1, and a full table.
    """
    group, topic, queue_id = claim.consumer_group, claim.topic, claim.queue_id
    stored = broker.catalog.offsets.stored(group, topic, queue_id)
    if stored is None:  # else it was checked then
        try:
            check_group(group)
        except LocalProtocolError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
    config = broker.catalog.topics.get(topic)
    if config is None:
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {short_text(topic)} not exist!")  # RocketMQ 5's words
    # While a topic shrinks it has more read queues, while it grows more write queues. Both may be committed.
    if not (0 <= queue_id < config.read_queue_nums or 0 <= queue_id < config.write_queue_nums):
        queue_nums = max(config.read_queue_nums, config.write_queue_nums)
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"topic {topic} has queues 0 to {queue_nums - 1}, not {queue_id}")
    if offset < NO_OFFSET:
        # ali-ons writes -1 for no offset (wire.md 8.1).
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"an offset must be at least 0, or -1 for none, not {offset}")
    if stored is None:
        check_capacity(broker, connection, 1, now_ms)
        return NO_OFFSET
    return stored


def check_capacity(broker: Broker, connection: Connection, count: int, now_ms: int) -> None:
    """Raises Refusal when `count` more offsets do not fit into the table.

    Then offsets of deleted topics are removed, in steps, so that a later request may fit.
    """
    offsets = broker.catalog.offsets
    if count <= 0 or len(offsets) + count <= broker.config.offset_entries_max:
        return
    # To look through the table for deleted topics pays only when a topic was deleted since the last look.
    if offsets.deletions_seen != broker.catalog.topics.deletions:
        offsets.deletions_seen = broker.catalog.topics.deletions
        broker.work.start(offsets, _forget_deleted(broker))
    check_limit(broker, connection, "offset_entries_max", len(offsets) + count, now_ms)


def _forget_deleted(broker: Broker) -> Steps:
    forgotten_count = yield from broker.catalog.offsets.forget_topics(
        lambda topic: broker.catalog.topics.get(topic) is None
    )
    if forgotten_count:
        broker.log.info("offsets_of_deleted_topics_forgotten", count=forgotten_count)


def _commit(
    broker: Broker,
    connection: Connection,
    claim: Claiming,
    offset: int,
    before: int,
    now_ms: int,
    alone: bool,
) -> Denial | None:
    """Store what the sender may. Returns why it was not stored.

    A lower offset than `before`, the stored one, is logged, because only a reset should commit one.
    """
    ownership = broker.ownership
    # First the check, then the store: a client that lost the queue must not move the offset of its successor.
    denial = ownership.deny_commit(connection, claim, offset, before, now_ms, alone)
    if denial is not None:
        return denial
    broker.catalog.offsets.commit(claim.consumer_group, claim.topic, claim.queue_id, offset)
    if offset < before:
        broker.log.warning(
            "offset_committed_backwards",
            group=claim.consumer_group,
            topic=claim.topic,
            queue_id=claim.queue_id,
            before=before,
            committed_offset=offset,
            peer=connection.address,
        )
    ownership.committed(claim, now_ms, alone)
    return None


def commit_with_pull(broker: Broker, connection: Connection, header: PullMessageRequestHeader, now_ms: int) -> None:
    """Commit the offset in a pull. If it is refused, the pull is answered without it."""
    try:
        stored = _check_commit(broker, connection, header, header.commit_offset, now_ms)
    except Refusal as refusal:
        broker.log.info("pull_commit_refused", peer=connection.address, reason=str(refusal))
        return
    _commit(broker, connection, header, header.commit_offset, stored, now_ms, False)  # denials are logged


def reset_own_offset(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """The owner of a queue sets its offset, also back, but not beyond the end of the queue.

    A new epoch begins, so late commits of the old one are refused.
    """
    header = command.decode_header(ResetOwnOffsetRequestHeader)
    ownership = broker.ownership
    # First all checks: the owner, the form of the offset, the end of the queue. Only then anything is stored.
    refuse_if(ownership.deny_reset(connection, header, now_ms))
    stored = _check_commit(broker, connection, header, header.offset, now_ms)
    refuse_if(ownership.deny_reset_to(connection, header, header.offset, stored, now_ms))
    broker.catalog.offsets.commit(*header[:4])
    # First the offset, then the epoch: a commit that is on its way under the old epoch is refused from now on, so it
    # cannot undo the reset.
    grant = ownership.begin_epoch(connection, header, now_ms)
    if isinstance(grant, Denial):
        raise Refusal(grant.code, grant.remark)
    reply = command.reply(ResponseCode.SUCCESS, ResetOwnOffsetResponseHeader(grant.epoch, grant.lease_ms))
    queue = MessageQueue(header.topic, broker.config.broker_name, header.queue_id)
    begun = Begun(header.consumer_group, [(queue, grant.epoch)], now_ms)
    return answer_when_durable(broker, connection, command, reply, begun)


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
