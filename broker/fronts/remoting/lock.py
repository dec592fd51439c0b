"""LOCK_BATCH_MQ, UNLOCK_BATCH_MQ and our LIST_LOCKS (wire.md 7)."""

from collections.abc import Sequence
from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.durable_answer import Begun, answer_when_durable
from lockstep.broker.fronts.remoting.in_steps import reply_in_steps
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.broker.ownership.answers import FenceAnswer, LockAnswer, Locked, LockOutcome
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
# Log events of one request and outcome; above that, one event has their count.
_LINES_MAX: Final = 100
_EVENTS: Final = {  # for one queue, and for many
    LockOutcome.GRANTED: ("lock_granted", "locks_granted"),
    LockOutcome.RENEWED: ("lock_renewed", "locks_renewed"),
    LockOutcome.TAKEN_OVER: ("lock_taken_over", "locks_taken_over"),
    LockOutcome.REACQUIRED: ("lock_reacquired_by_owner", "locks_reacquired_by_owner"),
    LockOutcome.REFUSED: ("lock_refused", "locks_refused"),
    LockOutcome.TABLE_FULL: ("lock_table_full", "lock_table_full"),
}


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
    asked, ownership = _read_queues(broker, command), broker.ownership
    locked = ownership.lock(asked, connection, now_ms, each=broker.config.log_debug)
    # Nearly all requests only renew, and need no event.
    if locked.answers:
        _log_answers(broker, asked, locked.answers)
    reply = command.reply(_SUCCESS, body=_encoded(locked, command.serialize_type))
    # A new epoch must be on the disk before a client acts under it: else a restarted broker could grant it again.
    if ownership.is_durable:
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


def _log_answers(broker: Broker, asked: LockBatchBody, answers: Sequence[LockAnswer]) -> None:
    by_outcome: dict[LockOutcome, list[LockAnswer]] = {}
    for answer in answers:
        by_outcome.setdefault(answer.outcome, []).append(answer)
    for outcome, alike in by_outcome.items():
        if outcome is not LockOutcome.RENEWED or broker.config.log_debug:
            _log(broker, asked, outcome, alike)


def _log(broker: Broker, body: LockBatchBody, outcome: LockOutcome, answers: Sequence[LockAnswer]) -> None:
    """One event a queue; one event for all if they are many, or if the table is full."""
    facts = {"group": body.consumer_group, "client_id": body.client_id}
    event, event_of_many = _EVENTS[outcome]
    if outcome is LockOutcome.TABLE_FULL:
        broker.log.warning(
            event, **facts, count=len(answers), first=str(answers[0].queue), entries=len(broker.ownership.table)
        )
    elif len(answers) > _LINES_MAX:
        broker.log.info(event_of_many, **facts, count=len(answers), first=str(answers[0].queue))
    else:
        log = broker.log.debug if outcome is LockOutcome.RENEWED else broker.log.info
        for answer in answers:
            log(event, **facts, queue=str(answer.queue), **_about(answer))


def _about(answer: LockAnswer) -> dict[str, object]:
    """The fields of an event about another owner and the age of the lock."""
    if answer.outcome is LockOutcome.GRANTED:
        return {}
    if answer.fence is not FenceAnswer.OK:
        return {"owner": answer.other, "answer": answer.fence.name}
    if answer.outcome in (LockOutcome.RENEWED, LockOutcome.REACQUIRED):
        return {"age_ms": answer.age_ms}
    of_other = "from_client_id" if answer.outcome is LockOutcome.TAKEN_OVER else "owner"
    return {of_other: answer.other, "age_ms": answer.age_ms}


def unlock_batch(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Release the queues that the caller owns. Others are logged and ignored, and the answer is SUCCESS."""
    body = _read_queues(broker, command)
    refused = broker.ownership.unlock(body, connection, now_ms)
    facts = {"group": body.consumer_group, "client_id": body.client_id}
    if len(body.mq_set) > _LINES_MAX:
        released_count = len(body.mq_set) - len(refused)
        broker.log.info("locks_released", **facts, count=released_count, ignored_count=len(refused))
        return command.reply(ResponseCode.SUCCESS)
    # The answer is SUCCESS in any case, as in RocketMQ. Only the log says what was ignored.
    owners = {answer.queue: answer.other for answer in refused}
    for queue in body.mq_set:
        if queue in owners:
            broker.log.info("unlock_ignored", **facts, queue=str(queue), owner=owners[queue])
        else:
            broker.log.info("lock_released", **facts, queue=str(queue))
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
