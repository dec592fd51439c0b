"""Append: a message that was sent is stored, or a batch of them. Delays, half messages and send sequences included."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.owner import check_owner
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.core.send_target import SendTarget, Target, send_target
from lockstep.broker.messages.delays.service import DelayedPlace
from lockstep.broker.messages.delays.timers import TimerRefused
from lockstep.broker.messages.send_sequences import SequenceKey
from lockstep.broker.messages.transactions.half_messages import HalfMessage, half_of
from lockstep.broker.ownership.claim import Claim, OfMessage
from lockstep.broker.ownership.denial import Act
from lockstep.broker.peer import Peer
from lockstep.protocol.codes import PROPERTIES_BYTES_MAX, SysFlag
from lockstep.protocol.errors import BatchTooLong, short_text
from lockstep.protocol.filter import tags_code_of
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.batch import BatchRecord, decode_batch
from lockstep.protocol.messages.properties import decode_properties, encode_properties, find_property
from lockstep.protocol.names import RETRY_PREFIX, TIMER_TOPIC, is_retry_topic
from lockstep.protocol.recall import RecallHandle
from lockstep.protocol.tuples import new_tuple
from lockstep.store import AppendResult, Record

__all__ = ["IPV4_HOSTS", "Appended", "Send", "append", "append_batch", "check_body", "encoded", "place_later"]

_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_UNUSUAL: Final = frozenset((names.DELAY, names.TRAN_MSG, *names.TIMERS))
IPV4_HOSTS: Final = ~int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)


class Send(Target, OfMessage, Protocol):
    """A message without its body, or what the messages of a batch share.

    `send_sequence`, `send_generation` and `sender_id` number the sends of a producer to one queue. The `lock_` fields
    are those of a dead letter that an ordered consumer sends: its period of ownership, and the queue of the message.
    """

    @property
    def sys_flag(self) -> int: ...
    @property
    def born_timestamp(self) -> int: ...
    @property
    def flag(self) -> int: ...
    @property
    def properties(self) -> str | None: ...
    @property
    def send_generation(self) -> int | None: ...
    @property
    def send_sequence(self) -> int | None: ...
    @property
    def sender_id(self) -> str | None: ...


class Appended(NamedTuple):
    """Where a message is. `queue_id`: the one for which it was sent; a delayed message lies elsewhere first.

    `recall_handle`: of one that waits for its time.
    """

    queue_id: int
    commit_log_offset: int
    queue_offset: int
    recall_handle: str | None


# One message ------------------------------------------------------------------------------------------------------


def append(
    broker: Broker, peer: Peer, send: Send, body: bytes, now_ms: int, retries_max: int | None = None
) -> Appended:
    """Store one message; with a send sequence only in its turn.

    Args:
        retries_max: For a retry topic: more retries make a dead letter. None: as many as its group has.

    Raises:
        Refused: It is not stored.
        StoreFull: It is not stored.
    """
    key = None if send.send_sequence is None else _take_turn(broker, peer, send, send.send_sequence, now_ms)
    if send.lock_epoch is not None:
        _check_dead_letter(broker, peer, send, now_ms)
    stored = _store(broker, peer, send, body, now_ms, retries_max)
    if key is not None:
        # Only now: a refused message keeps its turn, so that no later one is stored before it.
        broker.messages.send_sequences.stored(key)
    return stored


def _store(broker: Broker, peer: Peer, send: Send, body: bytes, now_ms: int, retries_max: int | None) -> Appended:
    # Checks 1 to 7 of wire.md 4.7, and then 8, the body.
    target = send_target(broker, send, now_ms, retries_max)
    check_body(broker, body)
    properties = decode_properties(send.properties) if send.properties else {}
    # WAIT is for the broker that stores the message, and is not stored. CLUSTER tells readers where it was stored.
    properties.pop(names.WAIT, None)
    properties[names.CLUSTER] = broker.config.cluster
    topic, queue_id, dead_letter = target
    code, sys_flag = tags_code_of(properties.get(names.TAGS)), send.sys_flag
    place, half = None, False
    if not _UNUSUAL.isdisjoint(properties) or sys_flag & _PREPARED:
        # A half message waits in a topic of its own for the end of its transaction, without a delay (wire.md 11).
        if half := _is_half(broker, sys_flag, properties):
            topic, queue_id = half_of(properties, topic, queue_id)
            sys_flag &= ~_TRANSACTION
        elif dead_letter and broker.config.dead_letter_at_once:
            properties.pop(names.DELAY, None)
        place = None if half else place_later(broker, properties, target.topic, target.queue_id, now_ms)
        if place is not None:
            topic, queue_id, code = place
    text = encoded(encode_properties(properties))
    born_host, born_port = broker.members.born_host(peer)
    record = new_tuple(
        Record,
        (
            topic,
            queue_id,
            send.flag,
            sys_flag & IPV4_HOSTS,
            send.born_timestamp,
            born_host,
            born_port,
            now_ms,
            send.reconsume_times or 0,
            0,
            body,
            text,
            code,
        ),
    )
    commit_log_offset, queue_offset = broker.messages.put(record)
    if place is not None:
        broker.messages.waits(place, queue_offset)
    elif half:
        broker.messages.halves.began(HalfMessage(queue_offset, commit_log_offset))
    handle = None if place is None else _recall_handle(broker, target.topic, place, properties)
    return new_tuple(Appended, (target.queue_id, commit_log_offset, queue_offset, handle))


def _recall_handle(broker: Broker, topic: str, place: DelayedPlace, properties: dict[str, str]) -> str | None:
    """As in RocketMQ none for a delay level, and none for a retry."""
    message_id = properties.get(names.UNIQ_KEY)
    if place.topic != TIMER_TOPIC or message_id is None or is_retry_topic(topic):
        return None
    return RecallHandle(topic, broker.config.broker_name, place.deliver_at_ms, message_id).encode()


def _take_turn(broker: Broker, peer: Peer, send: Send, sequence: int, now_ms: int) -> SequenceKey:
    """A send out of its turn is not stored: it would stand before an earlier one of its producer (docs/order.md 2)."""
    key = (send.sender_id or "", send.topic, send.queue_id)
    why = broker.messages.send_sequences.refusal(key, send.send_generation or 0, sequence, peer, now_ms)
    if why is not None:
        raise Refused(Reason.OUT_OF_SEQUENCE, why)
    return key


def _check_dead_letter(broker: Broker, peer: Peer, send: Send, now_ms: int) -> None:
    """An ordered consumer sends a message to its retry topic under the epoch of the message's queue."""
    group, topic, queue_id = send.topic.removeprefix(RETRY_PREFIX), send.lock_topic or "", send.lock_queue_id or 0
    claim = Claim(group, topic, queue_id, send.lock_epoch, send.lock_client_id)
    check_owner(broker, peer, claim, Act.DEAD_LETTER, now_ms)


def place_later(
    broker: Broker, properties: dict[str, str], topic: str, queue_id: int, now_ms: int
) -> DelayedPlace | None:
    """As `Messages.place_later`. Raises Refused."""
    try:
        return broker.messages.place_later(properties, topic, queue_id, now_ms)
    except TimerRefused as why:
        raise Refused(Reason.INVALID if why.is_full else Reason.ILLEGAL_MESSAGE, str(why)) from None
    except ValueError as error:
        raise Refused(Reason.INVALID, str(error)) from None


def encoded(properties: str) -> bytes:
    """Raises Refused for more properties than a message can have."""
    text = properties.encode("utf-8", "replace")
    if len(text) > PROPERTIES_BYTES_MAX:
        remark = f"the properties have {len(text)} bytes; at most {PROPERTIES_BYTES_MAX} are allowed"
        raise Refused(Reason.ILLEGAL_MESSAGE, remark)
    return text


def check_body(broker: Broker, body: bytes) -> None:
    """Raises Refused for a body over the limit."""
    limit = broker.config.max_message_bytes
    if len(body) > limit:
        raise Refused(Reason.ILLEGAL_MESSAGE, f"the body has {len(body)} bytes; at most {limit} are allowed")


def _is_half(broker: Broker, sys_flag: int, properties: dict[str, str]) -> bool:
    """Is this a half message of a transaction? Raises Refused when the broker rejects transactions."""
    half = properties.get(names.TRAN_MSG, "").lower() == "true"
    if half and broker.config.reject_transactions:
        raise Refused(Reason.NOT_PERMITTED, "this broker rejects transactional messages (reject_transactions)")
    if sys_flag & _PREPARED and not half:
        raise Refused(Reason.NOT_PERMITTED, "a half message must have the property TRAN_MSG=true")
    return half


# Batches ----------------------------------------------------------------------------------------------------------


def append_batch(
    broker: Broker, peer: Peer, send: Send, body: bytes, now_ms: int, retries_max: int | None = None
) -> tuple[int, list[AppendResult]]:
    """Store all messages of a batch or none; they get consecutive queue offsets.

    Args:
        body: As `decode_batch` reads it.

    Returns:
        The queue, and where each message is.

    Raises:
        Refused: Nothing is stored.
        StoreFull: Nothing is stored.
    """
    key = None if send.send_sequence is None else _take_turn(broker, peer, send, send.send_sequence, now_ms)
    if send.lock_epoch is not None:
        _check_dead_letter(broker, peer, send, now_ms)
    # As in RocketMQ (wire.md 4.4): a batch has no count of retries.
    if is_retry_topic(send.topic):
        raise Refused(Reason.ILLEGAL_MESSAGE, "a batch cannot go to a retry topic")
    target = send_target(broker, send, now_ms, retries_max)
    check_body(broker, body)
    shared = {**decode_properties(send.properties or ""), names.CLUSTER: broker.config.cluster}
    _check_batch(broker, send, shared)
    appended = encode_properties(shared)
    try:
        batch = decode_batch(body, broker.config.batch_messages_max)
    except BatchTooLong as error:
        raise Refused(Reason.ILLEGAL_MESSAGE, str(error)) from None
    # First the sum, then the messages: the texts are not built for a batch that is refused.
    _check_shared(broker, appended, len(batch))
    stored = broker.messages.put_all(
        _records(broker, peer, send, target, [_checked(one, appended) for one in batch], now_ms)
    )
    if key is not None:
        broker.messages.send_sequences.stored(key)
    return target.queue_id, stored


_Checked = tuple[int, bytes, bytes, int]  # of a message of a batch: flag, body, properties, tag hash


def _records(
    broker: Broker, peer: Peer, send: Send, target: SendTarget, batch: Sequence[_Checked], now_ms: int
) -> list[Record]:
    sys_flag, born_host = send.sys_flag & IPV4_HOSTS, broker.members.born_host(peer)
    times = (send.born_timestamp, *born_host, now_ms, send.reconsume_times or 0, 0)
    topic, queue_id, _ = target
    return [
        new_tuple(Record, (topic, queue_id, flag, sys_flag, *times, body, text, code))
        for flag, body, text, code in batch
    ]


def _check_batch(broker: Broker, send: Send, shared: dict[str, str]) -> None:
    """Refuse a batch with a delay or a transaction. Such properties of its single messages have no effect."""
    delay = shared.get(names.DELAY, "0")
    if delay != "0":
        raise Refused(Reason.ILLEGAL_MESSAGE, f"a batch cannot be delayed, but its DELAY is {short_text(delay)}")
    if broker.messages.knows_timers and any(name in shared for name in names.TIMERS):
        raise Refused(Reason.ILLEGAL_MESSAGE, "a batch cannot wait for a time")
    if send.sys_flag & _TRANSACTION:
        raise Refused(Reason.ILLEGAL_MESSAGE, "a batch cannot be part of a transaction")


def _check_shared(broker: Broker, appended: str, count: int) -> None:
    """Each message gets the properties of the batch: 10,000 empty ones could become 300 MB. Raises Refused."""
    limit = broker.config.max_message_bytes
    if len(appended) * count > limit:
        what = f"the batch's {len(appended)} characters of properties, for each of {count} messages"
        raise Refused(Reason.ILLEGAL_MESSAGE, f"{what}, are more than the {limit} bytes of a body")


def _checked(record: BatchRecord, appended: str) -> _Checked:
    """`appended`: the properties of the batch.

    The message's own text is not changed, so a name may occur twice; readers use the last (wire.md 4.4).
    """
    own = record.properties
    between = names.PAIR_END if own and not own.endswith(names.PAIR_END) else ""
    text = f"{own}{between}{appended}"
    return record.flag, record.body, encoded(text), tags_code_of(find_property(text, names.TAGS))
