"""LOCK_BATCH_MQ, UNLOCK_BATCH_MQ and our LIST_LOCKS (wire.md 7)."""

from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core import claim as core
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.after import After, Begun
from lockstep.broker.fronts.remoting.in_steps import reply_in_steps
from lockstep.broker.fronts.remoting.lock_bodies import encode_answer, read_asked
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.broker.ownership.answers import LockOutcome
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.lock_changes import LockChangesBody
from lockstep.protocol.bodies.rows import BodySteps, encode_list
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import ListLockChangesRequestHeader, ListLocksRequestHeader

__all__ = ["list_lock_changes", "list_locks", "lock_batch", "unlock_batch"]

_SUCCESS: Final = int(ResponseCode.SUCCESS)
# Changes of owners in one answer: some 5 ms of work.
_CHANGES_MAX: Final = 1000


def lock_batch(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> After:
    """Answer with the queues that the caller owns now. An empty answer is no error.

    The answer leaves when the periods of ownership that it is about are on the disk, if the broker keeps them there.
    """
    queues_max = broker.ownership.queues_max
    asked = read_asked(command, queues_max)
    locked = core.claim(broker, connection, asked, now_ms)
    reply = command.reply(_SUCCESS, body=encode_answer(command, queues_max, locked))
    # A new epoch must be on the disk before a client acts under it: else a restarted broker could grant it again.
    return After(reply, Begun(asked.consumer_group, locked.begun, now_ms))


def unlock_batch(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """The answer is SUCCESS also when the caller does not own a queue, as in RocketMQ."""
    core.release(broker, connection, read_asked(command, broker.ownership.queues_max), now_ms)
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
