"""Transactions: half messages, their commit or rollback, and checks with producers (wire.md 11)."""

from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.query import message_by_offset
from lockstep.broker.fronts.remoting.message import message_by_id
from lockstep.broker.fronts.remoting.notices import connection_of
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.broker.messages.delays.service import record_of
from lockstep.broker.messages.transactions.half_messages import HalfMessage
from lockstep.broker.messages.transactions.recovery import mark_of
from lockstep.protocol.codes import PROPERTIES_BYTES_MAX, RequestCode, ResponseCode, SysFlag
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.headers.admin import ResumeCheckHalfMessageRequestHeader
from lockstep.protocol.headers.messaging import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.ids import encode_offset_message_id
from lockstep.protocol.messages.message import MessageExt, decode_messages, encode_stored_message
from lockstep.protocol.names import HALF_TOPIC, TRANSACTION_GIVEN_UP_TOPIC
from lockstep.store import Record, StoreFull

__all__ = ["check_transactions", "end_transaction", "resume_check"]

_COMMIT: Final = int(SysFlag.TRANSACTION_COMMIT)
_ROLLBACK: Final = int(SysFlag.TRANSACTION_MASK)  # both bits
_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
_DECISIONS: Final = {_COMMIT: "committed", _ROLLBACK: "rolled back"}
_UNKNOWN: Final = 0
_DIGITS_MAX: Final = 10
_CHECKED_AT_ONCE_MAX: Final = 200  # about ten milliseconds of work
# RocketMQ's fileReservedTime, 72 h: older half messages are given up.
_RETENTION_MS: Final = 72 * 3_600_000


# Commit and rollback ----------------------------------------------------------------------------------------------


def end_transaction(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Commit or roll back a half message. A producer that does not know yet gets no answer, as in RocketMQ.

    Ending a message again changes nothing, also by an earlier copy; RocketMQ commits it again. A message whose topic
    was deleted since ends without being committed; RocketMQ would store it.
    """
    header = command.decode_header(EndTransactionRequestHeader)
    if header.commit_or_rollback == _UNKNOWN:
        return None
    decision = _DECISIONS.get(header.commit_or_rollback)
    if decision is None:
        raise HeaderError(f"the field commitOrRollback must be 8, 12 or 0, not {header.commit_or_rollback}")
    message = _half_message(broker, header)
    if broker.messages.halves.is_open(message.queue_offset):
        mark = mark_of(broker.messages.store, message.queue_offset, now_ms)
        is_sent = header.commit_or_rollback == _COMMIT and not _is_gone(broker, message)
        _put_all(broker, [_committed(message, now_ms), mark] if is_sent else [mark])
        # Only after it is stored: if that fails, the producer may try again.
        broker.messages.halves.ended(message.queue_offset)
        broker.log.debug("transaction_ended", decision=decision, group=header.producer_group, msg_id=header.msg_id)
    remark = None if header.commit_or_rollback == _COMMIT else "rolled back"  # RocketMQ sends a remark too
    return command.reply(ResponseCode.SUCCESS, remark=remark)


def _half_message(broker: Broker, header: EndTransactionRequestHeader) -> MessageExt:
    """The half message of a request. Raises Refusal unless offsets and producer group match."""
    message = decode_messages(message_by_offset(broker, header.commit_log_offset), unzip=False)[0]
    group = message.properties.get(names.PGROUP)
    if message.topic != HALF_TOPIC:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the message at {header.commit_log_offset} is no half message")
    if group != header.producer_group:
        raise Refusal(
            ResponseCode.SYSTEM_ERROR, f"the half message has producer group {group!r}, not {header.producer_group!r}"
        )
    if message.queue_offset != header.tran_state_table_offset:
        remark = f"the half message has offset {message.queue_offset}, not {header.tran_state_table_offset}"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    return message


def _is_gone(broker: Broker, message: MessageExt) -> bool:
    """Was the topic of a half message deleted since? If so, it is logged."""
    topic = message.properties.get(names.REAL_TOPIC, "")
    if not broker.catalog.topics.is_gone(topic, message.commit_log_offset):
        return False
    broker.log.info("half_message_of_deleted_topic", topic=topic, queue_offset=message.queue_offset)
    return True


def _committed(message: MessageExt, now_ms: int) -> Record:
    """The committed message, for its own topic."""
    properties = message.properties
    record = record_of(message, properties, properties[names.REAL_TOPIC], int(properties[names.REAL_QID]), now_ms)
    sys_flag = record.sys_flag & ~_TRANSACTION | _COMMIT
    return record._replace(sys_flag=sys_flag, prepared_transaction_offset=message.commit_log_offset)


def _put_all(broker: Broker, records: list[Record]) -> list[HalfMessage]:
    """Store all or none: a committed message without its mark would be committed again after a restart."""
    try:
        stored = broker.messages.put_all(records)
    except StoreFull as why:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(why)) from None
    return [HalfMessage(result.queue_offset, result.commit_log_offset) for result in stored]


def resume_check(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Store a half message again, with its checks counted from 0; also one that was given up.

    RocketMQ makes a half message of any message, and a second one of a half message that is still undecided, so that
    it may be committed twice. Here the others are refused, and the new copy replaces the undecided one.
    """
    header = command.decode_header(ResumeCheckHalfMessageRequestHeader)
    message = decode_messages(message_by_id(broker, header.msg_id), unzip=False)[0]
    if message.topic not in (HALF_TOPIC, TRANSACTION_GIVEN_UP_TOPIC):
        remark = f"message {header.msg_id} is in topic {message.topic!r}, and no half message"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    if _is_gone(broker, message):
        remark = f"the topic of message {header.msg_id} was deleted"
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
    properties = {**message.properties, names.TRANSACTION_CHECK_TIMES: "0"}
    record = record_of(message, properties, HALF_TOPIC, 0, now_ms)
    if len(record.properties) > PROPERTIES_BYTES_MAX:
        remark = f"with a count of checks the properties have more than {PROPERTIES_BYTES_MAX} bytes"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    (half,) = _put_all(broker, [record])
    # A message that was given up has no offset in the half topic: it gets one that no half message has.
    broker.messages.halves.moved(
        message.queue_offset if message.topic == HALF_TOPIC else ~message.commit_log_offset, half
    )
    broker.log.info("half_message_resumed", group=properties.get(names.PGROUP), msg_id=header.msg_id)
    return command.reply(ResponseCode.SUCCESS)


# Checks -----------------------------------------------------------------------------------------------------------


def check_transactions(broker: Broker, now_ms: int) -> None:
    """Ask producers about half messages whose time to decide is over: every 60 s, up to 15 times each.

    One call checks a bounded number; `halves.next_due_ms` is the time of the next call. As in RocketMQ the first round
    creates the topic of half messages, and the topic of marks is never created.
    """
    broker.catalog.topics.ensure_system_topic(HALF_TOPIC, now_ms)
    for half in broker.messages.halves.take_round(
        now_ms, broker.config.transaction_check_interval_ms, _CHECKED_AT_ONCE_MAX
    ):
        data = broker.messages.store.message_at(half.commit_log_offset)
        if data is None:
            broker.messages.halves.ended(half.queue_offset)
            broker.log.warning("half_message_lost", queue_offset=half.queue_offset)
            continue
        message = decode_messages(data, unzip=False)[0]
        age_ms = now_ms - message.born_timestamp
        try:
            if _is_gone(broker, message):
                _end_unsent(broker, message, now_ms)
            elif _check_count(message) >= broker.config.transaction_check_max or age_ms > _RETENTION_MS:
                _give_up(broker, message, now_ms)
            elif age_ms > _immunity_ms(broker, message) or age_ms < 0:
                _check(broker, message, now_ms)
        except Refusal as why:
            broker.log.error("half_message_not_stored", reason=str(why))
            return


def _check_count(message: MessageExt) -> int:
    """The number of checks so far."""
    return _number(message.properties.get(names.TRANSACTION_CHECK_TIMES, "")) or 0


def _number(text: str) -> int | None:
    """The value of a property; None for text that is no number."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX else None


def _immunity_ms(broker: Broker, message: MessageExt) -> int:
    """How long the producer has to decide; a property of the message may set it."""
    seconds = _number(message.properties.get(names.CHECK_IMMUNITY_TIME_IN_SECONDS, ""))
    return broker.config.transaction_timeout_ms if seconds is None else seconds * 1000


def _check(broker: Broker, message: MessageExt, now_ms: int) -> None:
    """Store the message again at the end of the half topic, and ask a producer, which answers with the new offsets."""
    properties = dict(message.properties)
    times = _check_count(message) + 1
    properties[names.TRANSACTION_CHECK_TIMES] = str(times)
    record = record_of(message, properties, HALF_TOPIC, 0, now_ms)
    if len(record.properties) > PROPERTIES_BYTES_MAX:
        # The count of checks does not fit.
        _give_up(broker, message, now_ms)
        return
    (half,) = _put_all(broker, [record])
    broker.messages.halves.moved(message.queue_offset, half)
    group = properties.get(names.PGROUP, "")
    connection = broker.members.producers.any_connection(group)
    if connection is None:
        broker.log.warning("transaction_check_no_producer", group=group, times=times)
        return
    unique_key = properties.get(names.UNIQ_KEY)
    offset_id = encode_offset_message_id(
        broker.messages.store.store_host, broker.messages.store.store_port, half.commit_log_offset
    )
    header = CheckTransactionStateRequestHeader(*half, unique_key, unique_key, offset_id)
    body = _as_sent(broker, record, properties, half)
    connection_of(connection).send_one_way(RemotingCommand(RequestCode.CHECK_TRANSACTION_STATE, header, body))


def _as_sent(broker: Broker, record: Record, properties: dict[str, str], half: HalfMessage) -> bytes:
    """The half message with the topic and queue of its send."""
    as_sent = record._replace(queue_id=int(properties[names.REAL_QID]))
    topic, store = properties[names.REAL_TOPIC].encode(), broker.messages.store
    return encode_stored_message(as_sent, topic, *half, store.store_host, store.store_port)


def _end_unsent(broker: Broker, message: MessageExt, now_ms: int) -> None:
    _put_all(broker, [mark_of(broker.messages.store, message.queue_offset, now_ms)])
    broker.messages.halves.ended(message.queue_offset)


def _give_up(broker: Broker, message: MessageExt, now_ms: int) -> None:
    """Move a message to TRANS_CHECK_MAX_TIME_TOPIC: after 15 checks, when it is too old, or too large for a count."""
    broker.catalog.topics.ensure_system_topic(TRANSACTION_GIVEN_UP_TOPIC, now_ms)
    copy = record_of(message, message.properties, TRANSACTION_GIVEN_UP_TOPIC, 0, now_ms)
    _put_all(broker, [copy, mark_of(broker.messages.store, message.queue_offset, now_ms)])
    broker.messages.halves.ended(message.queue_offset)
    broker.log.warning("half_message_given_up", group=message.properties.get(names.PGROUP), msg_id=message.msg_id)
