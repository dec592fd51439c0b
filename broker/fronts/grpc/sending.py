"""Sends: messages of a request are stored, and half messages committed or rolled back."""

from functools import partial
from typing import Final, NamedTuple

from lockstep.broker.core.append import Appended, append, append_batch
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.recall import recall
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.core.transaction import end_transaction as end
from lockstep.broker.fronts.grpc.call import Call, answer_with
from lockstep.broker.fronts.grpc.failures import PROXY, Failure
from lockstep.broker.fronts.grpc.parts import Parts, answer_when_kept
from lockstep.broker.fronts.grpc.routes import accepted_types
from lockstep.broker.fronts.grpc.translate import duration_ms, group_of, plain_body, properties_of, type_of
from lockstep.broker.fronts.grpc.validation import check_body, check_message, check_topic
from lockstep.broker.messages.transactions.half_messages import HalfMessage
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.codes import SysFlag
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.batch import BatchRecord, encode_batch
from lockstep.protocol.messages.properties import encode_properties
from lockstep.protocol.selector import queue_of_group

__all__ = ["end_transaction", "recall_message", "send_message"]

_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_MS_PER_S: Final = 1000
_BATCHED: Final = (pb.NORMAL, pb.FIFO)
_DELAY_MS_MAX: Final = 24 * 3_600_000
_RECOVERY_S_MAX: Final = 3600


class _Send(NamedTuple):
    """See `Send`. Nothing creates a topic, numbers a send or claims a queue here."""

    topic: str
    queue_id: int
    sys_flag: int
    born_timestamp: int
    properties: str | None
    default_topic: str = ""
    default_topic_queue_nums: int = 0
    reconsume_times: int | None = None
    flag: int = 0
    send_generation: int | None = None
    send_sequence: int | None = None
    sender_id: str | None = None
    lock_epoch: int | None = None
    lock_client_id: str | None = None
    lock_topic: str | None = None
    lock_queue_id: int | None = None


def send_message(parts: Parts, call: Call, request: pb.SendMessageRequest, now_ms: int) -> None:
    """Store the messages of a request; several go to one queue, all or none."""
    messages, broker = list(request.messages), parts.broker
    if not messages:
        raise Failure(pb.MESSAGE_CORRUPTED, "no message to send")
    topic = check_topic(messages[0].topic)
    if any(one.topic != messages[0].topic for one in messages[1:]):
        raise Failure(pb.MESSAGE_CORRUPTED, "topic in message is not same")
    bodies = _checked(broker, messages, now_ms)
    config = broker.catalog.topics.get(topic)
    if config is None:
        raise _wrong_type("UNSPECIFIED", type_of(messages[0]))
    for one in messages:
        kind = _check_type(config, one)
        # A batch is stored at once, for all to read.
        if len(messages) > 1 and kind not in _BATCHED:
            name = pb.MessageType.Name(kind)
            raise Failure(pb.BAD_REQUEST, f"messages of type {name} cannot be sent with others in one request")
    queue_id = _queue_of(config, messages, broker)
    answer = pb.SendMessageResponse()
    entry = answer.entries.add()
    entry.message_id = entry.transaction_id = messages[0].system_properties.message_id
    if len(messages) == 1:
        stored = _store(parts, call, messages[0], kind, bodies[0], topic, queue_id, now_ms)
        # RocketMQ's proxy leaves the padding out.
        entry.offset, entry.recall_handle = stored.queue_offset, (stored.recall_handle or "").rstrip("=")
    else:
        entry.offset = _store_all(parts, call, messages, bodies, topic, queue_id, now_ms)
    entry.status.code, entry.status.message = pb.OK, "OK"
    parts.when_kept(partial(_leave, call, answer))


def _check_type(config: TopicConfig, message: pb.Message) -> pb.MessageType:
    """A topic that takes messages in order gets no others, which would stand between them. Raises Failure."""
    kind = type_of(message)
    if kind not in accepted_types(config):
        raise _wrong_type(config.message_type, kind)
    return kind


def _wrong_type(expected: str, given: pb.MessageType) -> Failure:
    actual = pb.MessageType.Name(given)
    text = f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}"
    return Failure(pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, PROXY + text)


def _leave(call: Call, answer: pb.SendMessageResponse, reason: str) -> None:
    if reason:
        # It is stored, and may be read later.
        answer.entries[0].status.code = pb.MASTER_PERSISTENCE_TIMEOUT
        answer.entries[0].status.message = reason
    answer.status.CopyFrom(answer.entries[0].status)
    answer_with(call, answer)


def _checked(broker: Broker, messages: list[pb.Message], now_ms: int) -> list[bytes]:
    """The plain bodies of messages that may be stored. Raises Failure."""
    bytes_max = broker.config.max_message_bytes
    bodies, left = list[bytes](), bytes_max
    for message in messages:
        # Together they may be no longer than one, also unpacked: a small request may hold thousands of gzip bodies.
        bodies.append(plain_body(message, left))
        left -= len(bodies[-1])
        check_body(bodies[-1], bytes_max, left)
        _check_message(message, now_ms)
    return bodies


def _check_message(message: pb.Message, now_ms: int) -> None:
    """Raises Failure."""
    check_message(message)
    system = message.system_properties
    if system.HasField("delivery_timestamp") and duration_ms(system.delivery_timestamp) > now_ms + _DELAY_MS_MAX:
        text = f"the max delay time of message is too large, max is {_DELAY_MS_MAX}"
        raise Failure(pb.ILLEGAL_DELIVERY_TIME, text)
    if system.orphaned_transaction_recovery_duration.seconds > _RECOVERY_S_MAX:
        text = f"the max transaction recovery time of message is too large, max is {_RECOVERY_S_MAX}"
        raise Failure(pb.BAD_REQUEST, text)


def _queue_of(config: TopicConfig, messages: list[pb.Message], broker: Broker) -> int:
    """The queue of a message group; any queue for others. Raises Failure.

    As in RocketMQ, also for several messages at once, whatever group they have: their senders choose between order
    and batches. In fenced mode a batch of one group keeps its order, and one of several is refused.
    """
    if config.write_queue_nums <= 0:
        raise Failure(pb.INTERNAL_SERVER_ERROR, f"topic {config.topic_name!r} has no write queue")
    groups = {group_of(one) for one in messages}
    if len(messages) == 1 or broker.config.lock_mode == "fenced":
        if len(groups) > 1:
            raise Failure(pb.BAD_REQUEST, "the messages of a request are of more than one message group")
        if group := groups.pop():
            return queue_of_group(group, config.write_queue_nums)
    return broker.rng.randrange(config.write_queue_nums)


def _store(
    parts: Parts,
    call: Call,
    message: pb.Message,
    kind: pb.MessageType,
    body: bytes,
    topic: str,
    queue_id: int,
    now_ms: int,
) -> Appended:
    """Raises Refused, StoreFull."""
    properties, system = properties_of(message, topic), message.system_properties
    is_half = kind == pb.TRANSACTION
    if is_half:
        properties[names.TRAN_MSG] = "true"
        if system.HasField("orphaned_transaction_recovery_duration"):
            seconds = system.orphaned_transaction_recovery_duration.seconds
            properties[names.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(seconds)
    born_ms = duration_ms(system.born_timestamp) if system.HasField("born_timestamp") else now_ms
    send = _Send(topic, queue_id, _PREPARED if is_half else 0, born_ms, encode_properties(properties))
    stored = append(parts.broker, call.peer, send, body, now_ms)
    if is_half:
        half = HalfMessage(stored.queue_offset, stored.commit_log_offset)
        parts.undecided.add(topic, system.message_id, half, now_ms)
    return stored


def _store_all(
    parts: Parts, call: Call, messages: list[pb.Message], bodies: list[bytes], topic: str, queue_id: int, now_ms: int
) -> int:
    """Returns the queue offset of the first. Raises Refused, StoreFull."""
    records = [
        BatchRecord(0, body, encode_properties(properties_of(message, topic)))
        for message, body in zip(messages, bodies, strict=True)
    ]
    send = _Send(topic, queue_id, 0, now_ms, None)
    _, stored = append_batch(parts.broker, call.peer, send, encode_batch(records), now_ms)
    return stored[0].queue_offset


def end_transaction(parts: Parts, call: Call, request: pb.EndTransactionRequest, now_ms: int) -> None:
    """Commit or roll back. Without a resolution the producer is asked again, as in RocketMQ."""
    topic = check_topic(request.topic)
    if not request.transaction_id.strip():
        raise Failure(pb.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
    found = parts.undecided.find(topic, request.transaction_id, now_ms)
    if found is None:
        raise Failure(pb.INTERNAL_SERVER_ERROR, f"{PROXY}cannot found transaction data")
    if request.resolution in (pb.COMMIT, pb.ROLLBACK):
        end(parts.broker, topic, found.half, request.resolution == pb.COMMIT, now_ms)
    # Only after it is stored: if that fails, the producer may try again.
    parts.undecided.remove(topic, request.transaction_id)
    answer_when_kept(parts, call, pb.EndTransactionResponse(), pb.MASTER_PERSISTENCE_TIMEOUT)


def recall_message(parts: Parts, call: Call, request: pb.RecallMessageRequest, now_ms: int) -> None:
    """A message that waits for its time is not delivered."""
    topic = check_topic(request.topic)
    config = parts.broker.catalog.topics.get(topic)
    if config is None or pb.DELAY not in accepted_types(config):
        raise _wrong_type("UNSPECIFIED" if config is None else config.message_type, pb.DELAY)
    try:
        message_id = recall(parts.broker, topic, request.recall_handle, now_ms)
    except Refused as why:
        if why.reason is Reason.NO_TOPIC:
            raise
        raise Failure(pb.INTERNAL_SERVER_ERROR, PROXY + str(why)) from why
    answer_when_kept(parts, call, pb.RecallMessageResponse(message_id=message_id), pb.MASTER_PERSISTENCE_TIMEOUT)
