"""Transactions: half messages, their commit or rollback, and checks with producers (wire.md 11)."""

from typing import Final

from lockstep.broker.core.append import place_later
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.query import message_by_id, message_by_offset
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.messages.delays.service import DelayedPlace, record_of
from lockstep.broker.messages.transactions.half_messages import HalfMessage
from lockstep.broker.messages.transactions.recovery import mark_of
from lockstep.protocol.codes import PROPERTIES_BYTES_MAX, SysFlag
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import MessageExt, decode_messages, encode_stored_message
from lockstep.protocol.names import HALF_TOPIC, TRANSACTION_GIVEN_UP_TOPIC
from lockstep.store import Record, StoreFull

__all__ = ["check_transactions", "end_transaction", "resume_check"]

_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
_COMMITTED: Final = int(SysFlag.TRANSACTION_COMMIT)
_DIGITS_MAX: Final = 10
_CHECKED_AT_ONCE_MAX: Final = 200  # about ten milliseconds of work
# RocketMQ's fileReservedTime, 72 h: older half messages are given up.
_RETENTION_MS: Final = 72 * 3_600_000


# Commit and rollback ----------------------------------------------------------------------------------------------


def end_transaction(broker: Broker, producer_group: str, half: HalfMessage, is_committed: bool, now_ms: int) -> None:
    """Commit or roll back a half message.

    Ending a message again changes nothing, also by an earlier copy; RocketMQ commits it again. A message whose topic
    was deleted since ends without being committed; RocketMQ would store it.

    Raises:
        Refused: There is no such half message of the group.
        StoreFull: The message stays undecided.
    """
    message = _half_message(broker, producer_group, half)
    if not broker.messages.halves.is_open(half.queue_offset):
        return
    mark = mark_of(broker.messages.store, half.queue_offset, now_ms)
    if is_committed and not _is_gone(broker, message):
        record, place = _committed(broker, message, now_ms)
        stored = _put_all(broker, [record, mark])
        if place is not None:
            broker.messages.waits(place, stored[0].queue_offset)
    else:
        _put_all(broker, [mark])
    # Only after it is stored: if that fails, the producer may try again.
    broker.messages.halves.ended(half.queue_offset)
    decision = "committed" if is_committed else "rolled back"
    broker.log.debug("transaction_ended", decision=decision, group=producer_group, msg_id=message.msg_id)


def _half_message(broker: Broker, producer_group: str, half: HalfMessage) -> MessageExt:
    """Raises Refused unless offsets and producer group match."""
    message = decode_messages(message_by_offset(broker, half.commit_log_offset), unzip=False)[0]
    group = message.properties.get(names.PGROUP)
    if message.topic != HALF_TOPIC:
        raise Refused(Reason.INVALID, f"the message at {half.commit_log_offset} is no half message")
    if group != producer_group:
        raise Refused(Reason.INVALID, f"the half message has producer group {group!r}, not {producer_group!r}")
    if message.queue_offset != half.queue_offset:
        remark = f"the half message has offset {message.queue_offset}, not {half.queue_offset}"
        raise Refused(Reason.INVALID, remark)
    return message


def _is_gone(broker: Broker, message: MessageExt) -> bool:
    """Was the topic of a half message deleted since? If so, it is logged."""
    topic = message.properties.get(names.REAL_TOPIC, "")
    if not broker.catalog.topics.is_gone(topic, message.commit_log_offset):
        return False
    broker.log.info("half_message_of_deleted_topic", topic=topic, queue_offset=message.queue_offset)
    return True


def _committed(broker: Broker, message: MessageExt, now_ms: int) -> tuple[Record, DelayedPlace | None]:
    """The committed message, for its own topic; or for where it waits for its time. Raises Refused."""
    properties = dict(message.properties)
    topic, queue_id = properties[names.REAL_TOPIC], int(properties[names.REAL_QID])
    place = place_later(broker, properties, topic, queue_id, now_ms)
    record = record_of(message, properties, topic, queue_id, now_ms)
    if place is not None:
        record = record._replace(topic=place.topic, queue_id=place.queue_id, tags_code=place.deliver_at_ms)
    sys_flag = record.sys_flag & ~_TRANSACTION | _COMMITTED
    return record._replace(sys_flag=sys_flag, prepared_transaction_offset=message.commit_log_offset), place


def _put_all(broker: Broker, records: list[Record]) -> list[HalfMessage]:
    """Store all or none: a committed message without its mark would be committed again after a restart."""
    stored = broker.messages.put_all(records)
    return [HalfMessage(result.queue_offset, result.commit_log_offset) for result in stored]


def resume_check(broker: Broker, message_id: str | None, now_ms: int) -> None:
    """Store a half message again, with its checks counted from 0; also one that was given up.

    RocketMQ makes a half message of any message, and a second one of a half message that is still undecided, so that
    it may be committed twice. Here the others are refused, and the new copy replaces the undecided one.

    Args:
        message_id: An offset message id.

    Raises:
        Refused: It is no half message, or its topic is gone.
        StoreFull: Nothing changed.
    """
    message = decode_messages(message_by_id(broker, message_id), unzip=False)[0]
    if message.topic not in (HALF_TOPIC, TRANSACTION_GIVEN_UP_TOPIC):
        remark = f"message {message_id} is in topic {message.topic!r}, and no half message"
        raise Refused(Reason.INVALID, remark)
    if _is_gone(broker, message):
        remark = f"the topic of message {message_id} was deleted"
        raise Refused(Reason.NO_TOPIC, remark)
    properties = {**message.properties, names.TRANSACTION_CHECK_TIMES: "0"}
    record = record_of(message, properties, HALF_TOPIC, 0, now_ms)
    if len(record.properties) > PROPERTIES_BYTES_MAX:
        remark = f"with a count of checks the properties have more than {PROPERTIES_BYTES_MAX} bytes"
        raise Refused(Reason.INVALID, remark)
    (half,) = _put_all(broker, [record])
    # A message that was given up has no offset in the half topic: it gets one that no half message has.
    broker.messages.halves.moved(
        message.queue_offset if message.topic == HALF_TOPIC else ~message.commit_log_offset, half
    )
    broker.log.info("half_message_resumed", group=properties.get(names.PGROUP), msg_id=message_id)


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
        except StoreFull as why:
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
    peer = broker.members.producers.any_connection(group)
    if peer is None:
        broker.log.warning("transaction_check_no_producer", group=group, times=times)
        return
    broker.front.transaction_undecided(peer, _as_sent(broker, record, properties, half))


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
