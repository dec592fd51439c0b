"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE (wire.md 4)."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.refusal import Refusal, check_owner
from lockstep.broker.fronts.remoting.send_target import SendTarget, send_target
from lockstep.broker.fronts.remoting.transaction import half_of
from lockstep.broker.messages.delays.service import DelayedPlace
from lockstep.broker.messages.transactions.half_messages import HalfMessage
from lockstep.broker.ownership.claim import Claim
from lockstep.broker.ownership.denial import Act
from lockstep.protocol.codes import (
    PROPERTIES_BYTES_MAX,
    LanguageCode,
    RequestCode,
    ResponseCode,
    SysFlag,
)
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BatchTooLong, BodyError, HeaderError, short_text
from lockstep.protocol.filter import tags_code
from lockstep.protocol.headers.messaging import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.batch import BatchRecord, decode_batch
from lockstep.protocol.messages.properties import decode_properties, encode_properties, find_property
from lockstep.protocol.names import RETRY_PREFIX, SCHEDULE_TOPIC, is_retry_topic
from lockstep.protocol.tuples import new_tuple
from lockstep.store import AppendResult, Record, StoreFull

__all__ = [
    "IPV4_HOSTS",
    "batch_response",
    "check_body",
    "encoded",
    "refuse_unreadable",
    "refused",
    "send_message",
    "tags_code_of",
]

_HEADERS: Final[dict[int, type[SendMessageRequestHeader]]] = {
    RequestCode.SEND_MESSAGE: SendMessageRequestHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageRequestHeaderV2,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageRequestHeaderV2,
}
_LONG_NAMES: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE)
_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_CPP: Final = int(LanguageCode.CPP)
_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
IPV4_HOSTS: Final = ~int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_REGION: Final = "DefaultRegion"
_TRACE_ON: Final = "true"
_SUCCESS: Final = int(ResponseCode.SUCCESS)
# Of few tags, because a tag may have 32 KB.
tags_code_of = lru_cache(maxsize=512)(tags_code)


def send_message(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """The message is stored, or refused with a reason; with a send sequence only in its turn."""
    try:
        header = command.decode_header(_HEADERS[command.code])
    except HeaderError as error:
        return refuse_unreadable(command, error)
    sequence_key = None
    try:
        if header.send_sequence is not None:
            # A send out of its turn is not stored: it would stand before an earlier message of its producer
            # (docs/order.md 2).
            sequence_key = (header.sender_id or "", header.topic, header.queue_id)
            refusal = broker.messages.send_sequences.refusal(
                sequence_key, header.send_generation or 0, header.send_sequence, connection, now_ms
            )
            if refusal is not None:
                raise Refusal(ResponseCode.SEND_OUT_OF_SEQUENCE, refusal)
        if header.lock_epoch is not None:
            _check_dead_letter(broker, connection, header, now_ms)
        if command.code == _BATCH or header.batch or _is_cpp_batch(broker, command):
            reply = command.reply(_SUCCESS, _store_batch(broker, connection, command, header, now_ms))
        else:
            reply = _store_one(broker, connection, command, header, now_ms)
    except Refusal as why:
        return _refuse(broker, connection, command, header, why.code, str(why))
    except StoreFull as why:
        return _refuse(broker, connection, command, header, ResponseCode.SERVICE_NOT_AVAILABLE, str(why))
    if sequence_key is not None:
        # Only now: a refused message keeps its turn, so that no later one is stored before it.
        broker.messages.send_sequences.stored(sequence_key)
    return reply


def _check_dead_letter(broker: Broker, connection: Connection, header: SendMessageRequestHeader, now_ms: int) -> None:
    """An ordered consumer sends a message to its retry topic under the epoch of the message's queue."""
    group, topic, queue_id = header.topic.removeprefix(RETRY_PREFIX), header.lock_topic or "", header.lock_queue_id or 0
    claim = Claim(group, topic, queue_id, header.lock_epoch, header.lock_client_id)
    check_owner(broker, connection, claim, Act.DEAD_LETTER, now_ms)


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


# One message ------------------------------------------------------------------------------------------------------


def _store_one(
    broker: Broker, connection: Connection, command: RemotingCommand, header: SendMessageRequestHeader, now_ms: int
) -> RemotingCommand:
    # Checks 1 to 7 of wire.md 4.7, and then 8, the body.
    target = send_target(broker, command, header, now_ms)
    check_body(broker, command.body)
    properties = decode_properties(header.properties) if header.properties else {}
    # WAIT is for the broker that stores the message, and is not stored. CLUSTER tells readers where it was stored.
    properties.pop(names.WAIT, None)
    properties[names.CLUSTER] = broker.config.cluster
    topic, queue_id, dead_letter = target
    code = tags_code_of(properties.get(names.TAGS))
    place, half = None, False
    if names.DELAY in properties or names.TRAN_MSG in properties or header.sys_flag & _PREPARED:
        # A half message waits in a topic of its own for the end of its transaction, without a delay (wire.md 11).
        if half := _is_half(broker, header, properties):
            topic, queue_id = half_of(properties, topic, queue_id)
            header = header._replace(sys_flag=header.sys_flag & ~_TRANSACTION)
        elif dead_letter and broker.config.dead_letter_at_once:
            properties.pop(names.DELAY, None)
        place = None if half else _delayed_place(broker, properties, target, now_ms)
        if place is not None:
            topic, queue_id, code = SCHEDULE_TOPIC, place.queue_id, place.deliver_at_ms
    text = encoded(encode_properties(properties))
    born_host, born_port = broker.members.born_host(connection)
    record = new_tuple(
        Record,
        (
            topic,
            queue_id,
            header.flag,
            header.sys_flag & IPV4_HOSTS,
            header.born_timestamp,
            born_host,
            born_port,
            now_ms,
            header.reconsume_times or 0,
            0,
            command.body,
            text,
            code,
        ),
    )
    commit_log_offset, queue_offset = broker.messages.put(record)
    if place is not None:
        # First stored, then timed: a timer must find the message.
        broker.messages.delays.waits(place.deliver_at_ms)
    elif half:
        broker.messages.halves.began(HalfMessage(queue_offset, commit_log_offset))
    return command.reply(_SUCCESS, _response(broker, target.queue_id, commit_log_offset, queue_offset))


def _response(broker: Broker, queue_id: int, commit_log_offset: int, queue_offset: int) -> SendMessageResponseHeader:
    message_id = f"{broker.messages.message_id_prefix}{commit_log_offset:016X}"
    return new_tuple(SendMessageResponseHeader, (message_id, queue_id, queue_offset, None, _REGION, _TRACE_ON))


def _delayed_place(broker: Broker, properties: dict[str, str], target: SendTarget, now_ms: int) -> DelayedPlace | None:
    try:
        return broker.messages.delays.place(properties, target.topic, target.queue_id, now_ms)
    except ValueError as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None


def encoded(properties: str) -> bytes:
    """Raises Refusal for more properties than a message can have."""
    text = properties.encode("utf-8", "replace")
    if len(text) > PROPERTIES_BYTES_MAX:
        remark = f"the properties have {len(text)} bytes; at most {PROPERTIES_BYTES_MAX} are allowed"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
    return text


def check_body(broker: Broker, body: bytes) -> None:
    """Raises Refusal for a body over the limit."""
    limit = broker.config.max_message_bytes
    if len(body) > limit:
        remark = f"the body has {len(body)} bytes; at most {limit} are allowed"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)


def _is_half(broker: Broker, header: SendMessageRequestHeader, properties: dict[str, str]) -> bool:
    """Is this a half message of a transaction? Raises Refusal when the broker rejects transactions."""
    half = properties.get(names.TRAN_MSG, "").lower() == "true"
    if half and broker.config.reject_transactions:
        raise Refusal(ResponseCode.NO_PERMISSION, "this broker rejects transactional messages (reject_transactions)")
    if header.sys_flag & _PREPARED and not half:
        raise Refusal(ResponseCode.NO_PERMISSION, "a half message must have the property TRAN_MSG=true")
    return half


# Batches ----------------------------------------------------------------------------------------------------------


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


def _store_batch(
    broker: Broker, connection: Connection, command: RemotingCommand, header: SendMessageRequestHeader, now_ms: int
) -> SendMessageResponseHeader:
    """Store all messages of a batch or none; they get consecutive queue offsets."""
    # As in RocketMQ (wire.md 4.4): a batch has no count of retries.
    if is_retry_topic(header.topic):
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot go to a retry topic")
    target = send_target(broker, command, header, now_ms)
    check_body(broker, command.body)
    shared = {**decode_properties(header.properties or ""), names.CLUSTER: broker.config.cluster}
    _check_batch(header, shared)
    appended = encode_properties(shared)
    topic, queue_id, _ = target
    try:
        batch = decode_batch(command.body, broker.config.batch_messages_max)
    except BatchTooLong as error:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
    # First the sum, then the messages: the texts are not built for a batch that is refused.
    _check_shared(broker, appended, len(batch))
    sys_flag, born_host = header.sys_flag & IPV4_HOSTS, broker.members.born_host(connection)
    times = (header.born_timestamp, *born_host, now_ms, header.reconsume_times or 0, 0)
    records = [
        new_tuple(Record, (topic, queue_id, flag, sys_flag, *times, body, text, code))
        for flag, body, text, code in [_checked(record, appended) for record in batch]
    ]
    return batch_response(broker, queue_id, broker.messages.put_all(records))


def batch_response(broker: Broker, queue_id: int, stored: Sequence[AppendResult]) -> SendMessageResponseHeader:
    """The answer to a send of these messages, which are next to each other in the queue."""
    message_ids = ",".join([f"{broker.messages.message_id_prefix}{result.commit_log_offset:016X}" for result in stored])
    return SendMessageResponseHeader(message_ids, queue_id, stored[0].queue_offset, None, _REGION, _TRACE_ON)


def _check_batch(header: SendMessageRequestHeader, shared: dict[str, str]) -> None:
    """Refuse a batch with a delay or a transaction. Such properties of its single messages have no effect."""
    delay = shared.get(names.DELAY, "0")
    if delay != "0":
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"a batch cannot be delayed, but its DELAY is {short_text(delay)}")
    if header.sys_flag & _TRANSACTION:
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be part of a transaction")


def _check_shared(broker: Broker, appended: str, count: int) -> None:
    """Each message gets the properties of the batch: 10,000 empty ones could become 300 MB. Raises Refusal."""
    limit = broker.config.max_message_bytes
    if len(appended) * count > limit:
        what = f"the batch's {len(appended)} characters of properties, for each of {count} messages"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"{what}, are more than the {limit} bytes of a body")


def _checked(record: BatchRecord, appended: str) -> tuple[int, bytes, bytes, int]:
    """(flag, body, properties, tag hash) of a message of a batch. `appended`: the properties of the batch.

    The message's own text is not changed, so a name may occur twice; readers use the last (wire.md 4.4).
    """
    own = record.properties
    between = names.PAIR_END if own and not own.endswith(names.PAIR_END) else ""
    text = f"{own}{between}{appended}"
    return record.flag, record.body, encoded(text), tags_code_of(find_property(text, names.TAGS))
