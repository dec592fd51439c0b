"""LOCK_BATCH_MQ, UNLOCK_BATCH_MQ and our LIST_LOCKS (wire.md 7)."""

from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core import Broker
from lockstep.broker.lock_manager import LockAnswer, LockOutcome
from lockstep.protocol.bodies import LockBatchBody, LockOkBody, LockTableBody
from lockstep.protocol.body_codec import decode_body, encode_body
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.headers import ListLocksRequestHeader

__all__ = ["list_locks", "lock_batch", "unlock_batch"]

_INT32_MAX: Final = 2**31 - 1


def _asked(command: RemotingCommand) -> LockBatchBody:
    """The body with each queue once: RocketMQ reads a set. Raises BodyError."""
    body = decode_body(LockBatchBody, command.body, command.serialize_type)
    for queue in body.mq_set:
        if not -_INT32_MAX - 1 <= queue.queue_id <= _INT32_MAX:
            raise BodyError(f"the member queueId must fit 32 bits, not {queue.queue_id}")
    return body._replace(mq_set=tuple(dict.fromkeys(body.mq_set)))


def lock_batch(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Answers with the queues that the caller owns now; none is not an error."""
    body = _asked(command)
    answers = broker.locks.try_lock_batch(body.consumer_group, body.client_id, body.mq_set, now_ms)
    granted = []
    for answer in answers:
        if answer.outcome.owned:
            granted.append(answer.queue)
        if answer.outcome is not LockOutcome.RENEWED or broker.config.log_debug:
            _log(broker, body, answer)
    reply_body = encode_body(LockOkBody(tuple(granted)), command.serialize_type)
    return command.reply(ResponseCode.SUCCESS, body=reply_body)


def _log(broker: Broker, body: LockBatchBody, answer: LockAnswer) -> None:
    facts = {"group": body.consumer_group, "queue": str(answer.queue), "client_id": body.client_id}
    if answer.outcome is LockOutcome.RENEWED:
        broker.log.debug("lock renewed", **facts, age_ms=answer.age_ms)
    elif answer.outcome is LockOutcome.GRANTED:
        broker.log.info("lock granted", **facts)
    elif answer.outcome is LockOutcome.TAKEN_OVER:
        broker.log.info("lock expired and taken over", **facts, from_client_id=answer.other, age_ms=answer.age_ms)
    else:
        broker.log.info("lock refused", **facts, owner=answer.other, age_ms=answer.age_ms)


def unlock_batch(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Only an owner's unlock does anything; any other is logged and answered with success all the same."""
    body = _asked(command)
    refused = broker.locks.unlock_batch(body.consumer_group, body.client_id, body.mq_set)
    owners = {answer.queue: answer.other for answer in refused}
    for queue in body.mq_set:
        facts = {"group": body.consumer_group, "queue": str(queue), "client_id": body.client_id}
        if queue in owners:
            broker.log.info("unlock ignored: not the owner", **facts, owner=owners[queue])
        else:
            broker.log.info("lock released", **facts)
    return command.reply(ResponseCode.SUCCESS)


def list_locks(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    header = command.decode_header(ListLocksRequestHeader)
    table = LockTableBody(broker.locks.list(now_ms, header.consumer_group))
    return command.reply(ResponseCode.SUCCESS, body=encode_body(table, command.serialize_type))
