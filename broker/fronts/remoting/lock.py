"""LOCK_BATCH_MQ, UNLOCK_BATCH_MQ and our LIST_LOCKS (wire.md 7)."""

from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core import claim as core
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.durable_answer import Begun, answer_when_durable
from lockstep.broker.fronts.remoting.in_steps import reply_in_steps
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.broker.ownership.answers import FenceAnswer, Locked, LockOutcome
from lockstep.broker.request_body import (
    CLIENT_ID_LENGTH_MAX,
    NAME_LENGTH_MAX,
    check_name_length,
    read_body,
)
from lockstep.protocol.bodies.codec import encode_body, encode_part
from lockstep.protocol.bodies.lock_changes import LockChangesBody
from lockstep.protocol.bodies.locks import (
    LockBatchBody,
    LockRefusal,
    encode_locked,
    granted_to_wire,
    read_plain_batch,
)
from lockstep.protocol.bodies.rows import BodySteps, encode_list
from lockstep.protocol.codes import ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.headers.messaging import ListLockChangesRequestHeader, ListLocksRequestHeader

__all__ = ["list_lock_changes", "list_locks", "lock_batch", "unlock_batch"]

_HELD: Final = "HELD"  # the answer to a claim that must wait
_MSGPACK: Final = int(SerializeType.MSGPACK)
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_INT32_MAX: Final = 2**31 - 1
# Changes of owners in one answer: some 5 ms of work.
_CHANGES_MAX: Final = 1000


def _read_queues(broker: Broker, command: RemotingCommand) -> LockBatchBody:
    """The body, with each queue once: RocketMQ reads a set. Raises BodyError."""
    body = read_plain_batch(command.body) if command.serialize_type != _MSGPACK else None
    if body is None:
        body = read_body(LockBatchBody, command)
    queues_max, setting = broker.ownership.queues_max
    if len(body.mq_set) > queues_max:
        raise BodyError(f"{len(body.mq_set)} queues in one request; at most {queues_max} are allowed ({setting})")
    check_name_length("consumerGroup", body.consumer_group)
    check_name_length("clientId", body.client_id, CLIENT_ID_LENGTH_MAX)
    for topic, broker_name, queue_id in body.mq_set:
        if not -_INT32_MAX - 1 <= queue_id <= _INT32_MAX:
            raise BodyError(f"the member queueId must fit 32 bits, not {queue_id}")
        if len(topic) > NAME_LENGTH_MAX or len(broker_name) > NAME_LENGTH_MAX:
            check_name_length("topic", topic)
            check_name_length("brokerName", broker_name)
    return body.once()


def lock_batch(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand | None:
    """Answer with the queues that the caller owns now. An empty answer is no error.

    The answer leaves when the periods of ownership that it is about are on the disk, if the broker keeps them there.
    """
    asked = _read_queues(broker, command)
    locked = core.claim(broker, connection, asked, now_ms)
    reply = command.reply(_SUCCESS, body=_encoded(locked, command.serialize_type))
    # A new epoch must be on the disk before a client acts under it: else a restarted broker could grant it again.
    if broker.ownership.is_durable:
        return reply
    return answer_when_durable(broker, connection, command, reply, Begun(asked.consumer_group, locked.begun, now_ms))


def _encoded(locked: Locked, serialize_type: int) -> bytes:
    """Without epochs, RocketMQ's reply."""
    if locked.epochs is None:
        return encode_locked(locked.queues, serialize_type)
    refusals = [
        LockRefusal(
            answer.queue,
            _HELD if answer.fence is FenceAnswer.OK else answer.fence.name,
            answer.other or "",
            answer.wait_ms,
        )
        for answer in locked.answers
        if answer.grant is None
    ]
    wire = granted_to_wire(locked.queues, locked.epochs, locked.lease_ms, refusals)
    return encode_part(wire, serialize_type, "LockOkBody")


def unlock_batch(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """The answer is SUCCESS also when the caller does not own a queue, as in RocketMQ."""
    core.release(broker, connection, _read_queues(broker, command), now_ms)
    return command.reply(ResponseCode.SUCCESS)


def list_lock_changes(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """The last changes of owners from a cursor on. A cursor that is too old begins with the oldest change kept."""
    header, journal = command.decode_header(ListLockChangesRequestHeader), broker.ownership.journal
    wanted = _CHANGES_MAX if header.count_max is None else header.count_max
    if wanted <= 0:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"countMax must be above 0, not {wanted}")
    changes, cursor = journal.since(header.cursor, header.consumer_group, min(wanted, _CHANGES_MAX))
    refused_count = broker.ownership.counts.outcomes[LockOutcome.REFUSED]
    fenced_counts = broker.ownership.denial_counts()
    body = LockChangesBody(journal.started_ms, now_ms, journal.first, cursor, changes, refused_count, fenced_counts)
    return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))


def list_locks(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand | None:
    """The entries of one group, or of all groups if they fit into one answer."""
    header = command.decode_header(ListLocksRequestHeader)
    rows_max = broker.config.lock_entries_per_group_max
    if header.consumer_group is None and len(broker.ownership.table) > rows_max:
        remark = f"{len(broker.ownership.table)} locks are too many for one answer (at most {rows_max}); name a group"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def body() -> BodySteps:
        rows = (row.to_wire() for row in broker.ownership.table.rows(now_ms, header.consumer_group))
        return encode_list({}, "lockTable", rows, command.serialize_type)

    return reply_in_steps(broker, connection, command, body)
