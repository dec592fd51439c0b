"""LOCK_BATCH_MQ, UNLOCK_BATCH_MQ and our LIST_LOCKS (wire.md 7)."""

from collections.abc import Sequence
from typing import Any, Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.durable_answer import Begun, answer_when_durable
from lockstep.broker.fronts.remoting.in_steps import reply_in_steps
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.broker.ownership.fenced.locks import FenceAnswer, FencedAnswer, FencedLocks
from lockstep.broker.ownership.rocketmq_locks import LockAnswer, LockOutcome
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
    LockOkBody,
    LockRefusal,
    encode_locked,
    read_plain_batch,
    renewed_to_wire,
)
from lockstep.protocol.bodies.rows import BodySteps, encode_list
from lockstep.protocol.codes import ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.headers.messaging import ListLockChangesRequestHeader, ListLocksRequestHeader

__all__ = ["list_lock_changes", "list_locks", "lock_batch", "unlock_batch"]

_Answer = LockAnswer | FencedAnswer
_HELD: Final = "HELD"  # the answer to a claim that must wait
_MSGPACK: Final = int(SerializeType.MSGPACK)
_RENEWED: Final = LockOutcome.RENEWED
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
    queues_max, setting = broker.config.lock_queues_per_request_max, "lock_queues_per_request_max"
    if broker.fenced is not None and broker.config.fenced_queues_per_request_max < queues_max:
        queues_max, setting = broker.config.fenced_queues_per_request_max, "fenced_queues_per_request_max"
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
    """Answer with the queues that the caller owns now. An empty answer is no error."""
    body, locks = _read_queues(broker, command), broker.locks
    if isinstance(locks, FencedLocks):
        return _lock_fenced(broker, locks, connection, command, body, now_ms)
    answers = locks.try_lock_batch(body.consumer_group, body.client_id, body.mq_set, now_ms)
    granted = body.mq_set
    # Nearly all requests only renew. Then the reply has the queues of the request, and no answer needs an event.
    if not broker.config.log_debug and [answer.outcome for answer in answers].count(_RENEWED) == len(answers):
        broker.lock_counts.outcomes[_RENEWED] += len(answers)
    else:
        _record_answers(broker, body, answers, now_ms)
        granted = tuple([answer.queue for answer in answers if answer.outcome.owned])
    return command.reply(_SUCCESS, body=encode_locked(granted, command.serialize_type))


def _lock_fenced(
    broker: Broker,
    locks: FencedLocks,
    connection: Connection,
    command: RemotingCommand,
    body: LockBatchBody,
    now_ms: int,
) -> RemotingCommand | None:
    """An answer leaves when the periods of ownership that it is about are on the disk, if the broker has one."""
    assert broker.fence is not None
    # First the client of this connection, then its locks: the end of the connection begins their lock delay.
    broker.fence.bind(connection, body.client_id, [body.consumer_group], now_ms)
    group, client_id, queues, epochs = body
    wire: dict[str, Any]
    answers: Sequence[FencedAnswer] = ()
    if (
        epochs is not None
        and not broker.config.log_debug  # it wants an event for each queue
        and locks.renew_all(body, connection, now_ms)
    ):
        broker.lock_counts.outcomes[LockOutcome.RENEWED] += len(queues)
        wire = renewed_to_wire(queues, epochs, locks.settings.lease_ms)
    else:
        answers = locks.try_lock_batch(group, client_id, queues, epochs, connection, now_ms)
        _record_answers(broker, body, answers, now_ms)
        wire = _ok(body, answers).to_wire()
    reply = command.reply(ResponseCode.SUCCESS, body=encode_part(wire, command.serialize_type, "LockOkBody"))
    persistence = broker.fence.persistence
    # A new epoch must be on the disk before a client acts under it: else a restarted broker could grant it again.
    if persistence is None or persistence.is_durable:
        return reply
    begun = [
        (answer.queue, answer.grant.epoch)
        for answer in answers
        if answer.grant is not None and answer.outcome is not LockOutcome.RENEWED
    ]
    return answer_when_durable(broker, connection, command, reply, Begun(group, begun, now_ms))


def _ok(body: LockBatchBody, answers: Sequence[FencedAnswer]) -> LockOkBody:
    """Without epochs in the request, RocketMQ's reply."""
    queues = tuple(answer.queue for answer in answers if answer.grant is not None)
    # An unmodified client reads only the queues that it got. It learns of no wait and no epoch (wire.md 7.1).
    if body.epochs is None:
        return LockOkBody(queues)
    refusals = [
        LockRefusal(
            answer.queue,
            _HELD if answer.fence is FenceAnswer.OK else answer.fence.name,
            answer.other or "",
            answer.wait_ms,
        )
        for answer in answers
        if answer.grant is None
    ]
    return LockOkBody(queues, tuple(answer.grant for answer in answers if answer.grant is not None), tuple(refusals))


def _record_answers(broker: Broker, body: LockBatchBody, answers: Sequence[_Answer], now_ms: int) -> None:
    """Log the answers; the journal gets the refusals."""
    by_outcome: dict[LockOutcome, list[_Answer]] = {}
    for answer in answers:
        by_outcome.setdefault(answer.outcome, []).append(answer)
        if answer.outcome is LockOutcome.REFUSED:
            broker.lock_journal.refused(body.consumer_group, answer.queue, body.client_id, answer.other, now_ms)
    for outcome, alike in by_outcome.items():
        broker.lock_counts.outcomes[outcome] += len(alike)
        if outcome is not LockOutcome.RENEWED or broker.config.log_debug:
            _log(broker, body, outcome, alike)


def _log(broker: Broker, body: LockBatchBody, outcome: LockOutcome, answers: Sequence[_Answer]) -> None:
    """One event a queue; one event for all if they are many, or if the table is full."""
    facts = {"group": body.consumer_group, "client_id": body.client_id}
    event, event_of_many = _EVENTS[outcome]
    if outcome is LockOutcome.TABLE_FULL:
        broker.log.warning(event, **facts, count=len(answers), first=str(answers[0].queue), entries=len(broker.locks))
    elif len(answers) > _LINES_MAX:
        broker.log.info(event_of_many, **facts, count=len(answers), first=str(answers[0].queue))
    else:
        log = broker.log.debug if outcome is LockOutcome.RENEWED else broker.log.info
        for answer in answers:
            log(event, **facts, queue=str(answer.queue), **_about(answer))


def _about(answer: _Answer) -> dict[str, object]:
    """The fields of an event about another owner and the age of the lock."""
    if answer.outcome is LockOutcome.GRANTED:
        return {}
    if isinstance(answer, FencedAnswer) and answer.fence is not FenceAnswer.OK:
        return {"owner": answer.other, "answer": answer.fence.name}
    if answer.outcome in (LockOutcome.RENEWED, LockOutcome.REACQUIRED):
        return {"age_ms": answer.age_ms}
    of_other = "from_client_id" if answer.outcome is LockOutcome.TAKEN_OVER else "owner"
    return {of_other: answer.other, "age_ms": answer.age_ms}


def unlock_batch(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Release the queues that the caller owns; with fenced locks, those under its epochs.

    Others are logged and ignored, and the answer is SUCCESS.
    """
    body, locks = _read_queues(broker, command), broker.locks
    refused: Sequence[_Answer]
    if isinstance(locks, FencedLocks):
        assert broker.fence is not None
        broker.fence.bind(connection, body.client_id, [body.consumer_group], now_ms)
        refused = locks.unlock_batch(body.consumer_group, body.client_id, body.mq_set, body.epochs, now_ms)
    else:
        # Only the owner's request frees a queue; any other is ignored (wire.md 7.2).
        refused = locks.unlock_batch(body.consumer_group, body.client_id, body.mq_set, now_ms)
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
    header, journal = command.decode_header(ListLockChangesRequestHeader), broker.lock_journal
    wanted = _CHANGES_MAX if header.count_max is None else header.count_max
    if wanted <= 0:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"countMax must be above 0, not {wanted}")
    changes, cursor = journal.since(header.cursor, header.consumer_group, min(wanted, _CHANGES_MAX))
    refused_count = broker.lock_counts.outcomes[LockOutcome.REFUSED]
    fenced_counts = None
    if broker.fence is not None:
        refused = broker.fence.checks.denials.refused
        fenced_counts = {f"{act}.{reason}": count for (act, reason), count in sorted(refused.items())}
    body = LockChangesBody(journal.started_ms, now_ms, journal.first, cursor, changes, refused_count, fenced_counts)
    return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))


def list_locks(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand | None:
    """The entries of one group, or of all groups if they fit into one answer."""
    header = command.decode_header(ListLocksRequestHeader)
    rows_max = broker.config.lock_entries_per_group_max
    if header.consumer_group is None and len(broker.locks) > rows_max:
        remark = f"{len(broker.locks)} locks are too many for one answer (at most {rows_max}); name a group"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def body() -> BodySteps:
        rows = (row.to_wire() for row in broker.locks.rows(now_ms, header.consumer_group))
        return encode_list({}, "lockTable", rows, command.serialize_type)

    return reply_in_steps(broker, connection, command, body)
