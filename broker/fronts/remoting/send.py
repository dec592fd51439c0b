"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE (wire.md 4)."""

from collections.abc import Sequence
from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.append import append, append_batch
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Refused
from lockstep.broker.fronts.remoting.after import After, Answer, What
from lockstep.broker.fronts.remoting.refusal import code_of
from lockstep.protocol.codes import LanguageCode, RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BatchTooLong, BodyError, HeaderError
from lockstep.protocol.headers.messaging import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    TimedSendResponseHeader,
)
from lockstep.protocol.messages.batch import decode_batch
from lockstep.protocol.tuples import new_tuple
from lockstep.store import AppendResult, StoreFull

__all__ = ["as_unsafe", "batch_response", "limit_of_retries", "refuse_unreadable", "refused", "send_message"]

_HEADERS: Final[dict[int, type[SendMessageRequestHeader]]] = {
    RequestCode.SEND_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageRequestHeaderV2,
}
_LOG: Final = What.LOG
_LONG_NAMES: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_CPP: Final = int(LanguageCode.CPP)
_REGION: Final = "DefaultRegion"
_TRACE_ON: Final = "true"
_SUCCESS: Final = int(ResponseCode.SUCCESS)
# V3_4_9: older clients send no limit of retries (wire.md 1.4).
_HONOURS_MAX_RECONSUME_TIMES: Final = 121


def send_message(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> Answer:
    """The message, or the batch, is stored, or refused with a reason."""
    try:
        header = command.decode_header(_HEADERS[command.code])
    except HeaderError as error:
        return refuse_unreadable(command, error)
    body, retries_max = command.body, limit_of_retries(command, header.max_reconsume_times)
    try:
        if command.code == _BATCH or header.batch or _is_cpp_batch(broker, command):
            queue_id, stored = append_batch(broker, connection, header, body, now_ms, retries_max)
            return After(command.reply(_SUCCESS, batch_response(broker, queue_id, stored)), _LOG)
        queue_id, commit_log_offset, queue_offset, handle = append(
            broker, connection, header, body, now_ms, retries_max
        )
    except Refused as why:
        return _refuse(broker, connection, command, header, code_of(why), str(why))
    except StoreFull as why:
        return _refuse(broker, connection, command, header, ResponseCode.SERVICE_NOT_AVAILABLE, str(why))
    message_id = f"{broker.messages.message_id_prefix}{commit_log_offset:016X}"
    answer = (message_id, queue_id, queue_offset, None, _REGION, _TRACE_ON)
    if handle is not None:
        return After(command.reply(_SUCCESS, TimedSendResponseHeader(*answer, handle)), _LOG)
    reply = command.reply(_SUCCESS, new_tuple(SendMessageResponseHeader, answer))
    return new_tuple(After, (reply, _LOG))


def as_unsafe(broker: Broker, command: RemotingCommand, reply: RemotingCommand, reason: str) -> RemotingCommand:
    """The message may not be on the disk: the answer says so, and later messages of its sequence are refused."""
    header = command.decode_header(_HEADERS[command.code])
    if header.send_sequence is not None:
        key = (header.sender_id or "", header.topic, header.queue_id)
        broker.messages.send_sequences.failed(key, header.send_generation or 0)
    reply.code, reply.remark = ResponseCode.FLUSH_DISK_TIMEOUT, reason
    return reply


def limit_of_retries(command: RemotingCommand, asked: int | None) -> int | None:
    """The number of retries that a client asks for, if it is new enough. None: the group's configuration says it."""
    return asked if command.version >= _HONOURS_MAX_RECONSUME_TIMES else None


def refuse_unreadable(command: RemotingCommand, error: HeaderError) -> RemotingCommand:
    """Refuse a send without a topic, which RocketMQ checks first. Raises `error` for other unreadable headers."""
    topic = "topic" if command.code in _LONG_NAMES else "b"
    if command.positional is not None or (command.ext_fields or {}).get(topic):
        raise error
    return refused(command, ResponseCode.SYSTEM_ERROR, str(error))


def refused(command: RemotingCommand, code: ResponseCode, remark: str) -> RemotingCommand:
    """A refusal with the two fields that each of RocketMQ's replies to a send has."""
    reply = command.reply(code, remark=remark)
    reply.ext_fields = {"MSG_REGION": _REGION, "TRACE_ON": _TRACE_ON}
    return reply


def _refuse(
    broker: Broker,
    connection: Connection,
    command: RemotingCommand,
    header: SendMessageRequestHeader,
    code: ResponseCode,
    remark: str,
) -> RemotingCommand:
    broker.log.info("send_refused", topic=header.topic, code=code.name, reason=remark, peer=connection.address)
    return refused(command, code, remark)


def _is_cpp_batch(broker: Broker, command: RemotingCommand) -> bool:
    """Is it a batch of librocketmq? It marks batches with "1", which is false in Java; the body must be well formed."""
    fields = command.ext_fields
    if not fields or command.language != _CPP or not broker.config.accept_cpp_batches:
        return False
    # Long and short names of the field: librocketmq sends batches with code 10 or 310 (wire.md 4.4).
    if "1" not in (str(fields.get("m")), str(fields.get("batch"))):
        return False
    try:
        return bool(decode_batch(command.body, broker.config.batch_messages_max))
    except BatchTooLong:
        return True
    except BodyError:
        return False


def batch_response(broker: Broker, queue_id: int, stored: Sequence[AppendResult]) -> SendMessageResponseHeader:
    """The answer to a send of these messages, which are next to each other in the queue."""
    message_ids = ",".join([f"{broker.messages.message_id_prefix}{result.commit_log_offset:016X}" for result in stored])
    return SendMessageResponseHeader(message_ids, queue_id, stored[0].queue_offset, None, _REGION, _TRACE_ON)
