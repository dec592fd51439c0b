"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE (wire.md 4)."""

from functools import lru_cache
from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core import Broker
from lockstep.broker.processors.refusal import Refusal
from lockstep.broker.processors.send_target import SendTarget, send_target
from lockstep.broker.store import Record, StoreFull
from lockstep.protocol import properties as names
from lockstep.protocol.codes import (
    PROPERTIES_BYTES_MAX,
    LanguageCode,
    RequestCode,
    ResponseCode,
    SysFlag,
)
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.filter import tags_code
from lockstep.protocol.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader
from lockstep.protocol.message import BatchRecord, decode_batch
from lockstep.protocol.names import is_retry_topic
from lockstep.protocol.properties import decode_properties, encode_properties

__all__ = ["send_message"]

_HEADERS: Final[dict[int, type[SendMessageRequestHeader]]] = {
    RequestCode.SEND_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageRequestHeaderV2,
}
_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_CPP: Final = int(LanguageCode.CPP)
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_IPV4_HOSTS: Final = ~int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_REGION: Final = "DefaultRegion"
_TRACE_ON: Final = "true"
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_new_record = tuple.__new__  # as the class itself, at half the cost: every send makes one
_tags_code = lru_cache(maxsize=4096)(tags_code)


def send_message(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Stored, or refused with a reason; a send of a lane is stored in its turn or not at all."""
    header = command.decode_header(_HEADERS[command.code])
    lane_key = None
    try:
        if header.lane_sequence is not None:
            lane_key = (header.lane_id or "", header.topic, header.queue_id)
            refusal = broker.lanes.refusal(
                lane_key, header.lane_generation or 0, header.lane_sequence, connection, now_ms
            )
            if refusal is not None:
                raise Refusal(ResponseCode.SEND_OUT_OF_SEQUENCE, refusal)
        if command.code == _BATCH or header.batch or _is_cpp_batch(broker, command):
            response = _store_batch(broker, connection, command, header, now_ms)
        else:
            response = _store_one(broker, connection, command, header, now_ms)
    except Refusal as why:
        return _refuse(broker, connection, command, header, why.code, str(why))
    except StoreFull as why:
        return _refuse(broker, connection, command, header, ResponseCode.SERVICE_NOT_AVAILABLE, str(why))
    if lane_key is not None:
        broker.lanes.stored(lane_key)
    return command.reply(_SUCCESS, response)


def _refuse(
    broker: Broker,
    connection: Connection,
    command: RemotingCommand,
    header: SendMessageRequestHeader,
    code: ResponseCode,
    remark: str,
) -> RemotingCommand:
    broker.log.info("send refused", topic=header.topic, code=code.name, reason=remark, peer=connection.address)
    reply = command.reply(code, remark=remark)
    reply.ext_fields = {"MSG_REGION": _REGION, "TRACE_ON": _TRACE_ON}
    return reply


# One message ------------------------------------------------------------------------------------------------------


def _store_one(
    broker: Broker, connection: Connection, command: RemotingCommand, header: SendMessageRequestHeader, now_ms: int
) -> SendMessageResponseHeader:
    target = send_target(broker, command, header, now_ms)
    _check_body(broker, command.body)
    properties = decode_properties(header.properties) if header.properties else {}
    properties.pop(names.WAIT, None)
    properties[names.CLUSTER] = broker.config.cluster
    if target.dead_letter:
        properties.pop(names.DELAY, None)
    if names.DELAY in properties or names.TRAN_MSG in properties or header.sys_flag & _PREPARED:
        _check_served(header, properties)
    text = encode_properties(properties)
    tags = properties.get(names.TAGS)
    message_id, queue_offset = _append(
        broker, connection, header, target, command.body, header.flag, text, tags, now_ms
    )
    return SendMessageResponseHeader(message_id, target.queue_id, queue_offset, None, _REGION, _TRACE_ON)


def _append(
    broker: Broker,
    connection: Connection,
    header: SendMessageRequestHeader,
    target: SendTarget,
    body: bytes,
    flag: int,
    properties: str,
    tags: str | None,
    now_ms: int,
) -> tuple[str, int]:
    """Store a message that passed every check. Returns its offset message id and queue offset."""
    code = _tags_code(tags)
    born_host, born_port = broker.born_host(connection)
    topic, queue_id, _ = target
    fields = (
        topic,
        queue_id,
        flag,
        header.sys_flag & _IPV4_HOSTS,
        header.born_timestamp,
        born_host,
        born_port,
        now_ms,
        header.reconsume_times or 0,
        0,
        body,
        _encoded(properties),
        code,
    )
    commit_log_offset, queue_offset = broker.store.append(_new_record(Record, fields))
    broker.hold.on_arrival(topic, queue_id, queue_offset, code)
    return f"{broker.message_id_prefix}{commit_log_offset:016X}", queue_offset


def _encoded(properties: str) -> bytes:
    encoded = properties.encode("utf-8", "replace")
    if len(encoded) > PROPERTIES_BYTES_MAX:
        remark = f"the properties have {len(encoded)} bytes; at most {PROPERTIES_BYTES_MAX} are allowed"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
    return encoded


def _check_body(broker: Broker, body: bytes) -> None:
    limit = broker.config.max_message_bytes
    if len(body) > limit:
        remark = f"the body has {len(body)} bytes; at most {limit} are allowed"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)


def _check_served(header: SendMessageRequestHeader, properties: dict[str, str]) -> None:
    """What this broker does not do yet is refused, never stored as something else."""
    delay = properties.get(names.DELAY)
    if delay is not None and delay != "0":
        remark = f"delay level {delay} is not served yet by this broker; send without DELAY"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
    if header.sys_flag & _PREPARED or properties.get(names.TRAN_MSG, "").lower() == "true":
        remark = "transactional messages are not served yet by this broker"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)


# Batches ----------------------------------------------------------------------------------------------------------


def _is_cpp_batch(broker: Broker, command: RemotingCommand) -> bool:
    """librocketmq's batches: marked "1", which means false in Java, and a body that is well formed."""
    fields = command.ext_fields
    if not fields or command.language != _CPP or not broker.config.accept_cpp_batches:
        return False
    if "1" not in (str(fields.get("m")), str(fields.get("batch"))):
        return False
    try:
        return bool(decode_batch(command.body))
    except BodyError:
        return False


def _store_batch(
    broker: Broker, connection: Connection, command: RemotingCommand, header: SendMessageRequestHeader, now_ms: int
) -> SendMessageResponseHeader:
    """All messages of a batch or none; they get consecutive queue offsets."""
    if is_retry_topic(header.topic):
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot go to a retry topic")
    target = send_target(broker, command, header, now_ms)
    _check_body(broker, command.body)
    shared = {**decode_properties(header.properties or ""), names.CLUSTER: broker.config.cluster}
    checked = [_checked(header, record, shared) for record in decode_batch(command.body)]
    stored = [
        _append(broker, connection, header, target, body, flag, text, tags, now_ms)
        for flag, body, text, tags in checked
    ]
    message_ids = ",".join(message_id for message_id, _ in stored)
    return SendMessageResponseHeader(message_ids, target.queue_id, stored[0][1], None, _REGION, _TRACE_ON)


def _checked(
    header: SendMessageRequestHeader, record: BatchRecord, shared: dict[str, str]
) -> tuple[int, bytes, str, str | None]:
    """(flag, body, properties, tags) of a message of a batch; the batch's own properties stand behind the record's."""
    properties = {**decode_properties(record.properties), **shared}
    _check_served(header, properties)
    text = encode_properties(properties)
    _encoded(text)
    return record.flag, record.body, text, properties.get(names.TAGS)
