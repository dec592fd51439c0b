"""Bodies of lock requests and of their answers, remembered by their bytes.

A client renews every 20 s with the body of the time before, and gets the answer of the time before.
"""

from functools import lru_cache
from typing import Final

from lockstep.broker.ownership.answers import FenceAnswer, Locked
from lockstep.broker.request_body import CLIENT_ID_LENGTH_MAX, DIALECT_BYTES_MAX, NAME_LENGTH_MAX, check_name_length
from lockstep.protocol.bodies.codec import decode_body, encode_part
from lockstep.protocol.bodies.locks import (
    LockBatchBody,
    LockRefusal,
    encode_locked,
    granted_to_wire,
    read_plain_batch,
)
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError

__all__ = ["encode_answer", "read_asked"]

_HELD: Final = "HELD"  # the answer to a claim that must wait
_MSGPACK: Final = int(SerializeType.MSGPACK)
_INT32_MAX: Final = 2**31 - 1
# So many requests and answers are remembered, each of at most so many bytes, which are 25 queues in JSON: 10 MB in all.
_REMEMBERED_MAX: Final = 512
_BYTES_MAX: Final = 2048


def read_asked(command: RemotingCommand, queues_max: tuple[int, str]) -> LockBatchBody:
    """The body of a request, with each queue once: RocketMQ reads a set.

    Args:
        queues_max: How many queues it may have, and the setting that says so.

    Raises:
        BodyError: It is unreadable, or too large.
    """
    read = _remember_asked if len(command.body) <= _BYTES_MAX else _read
    return read(command.body, command.serialize_type, queues_max)


def encode_answer(command: RemotingCommand, queues_max: tuple[int, str], locked: Locked) -> bytes:
    """The body of the answer to a request that `read_asked` has read."""
    if locked.answers or len(command.body) > _BYTES_MAX:
        return _encode(locked, command.serialize_type)
    # Without answers all queues were renewed, so the answer follows from the request.
    return _remember_renewed(command.body, command.serialize_type, queues_max, locked.lease_ms)


def _read(data: bytes, serialize_type: int, queues_max: tuple[int, str]) -> LockBatchBody:
    body = read_plain_batch(data) if serialize_type != _MSGPACK else None
    if body is None:
        body = decode_body(LockBatchBody, data, serialize_type, dialect_bytes_max=DIALECT_BYTES_MAX)
    count_max, setting = queues_max
    if len(body.mq_set) > count_max:
        raise BodyError(f"{len(body.mq_set)} queues in one request; at most {count_max} are allowed ({setting})")
    check_name_length("consumerGroup", body.consumer_group)
    check_name_length("clientId", body.client_id, CLIENT_ID_LENGTH_MAX)
    for topic, broker_name, queue_id in body.mq_set:
        if not -_INT32_MAX - 1 <= queue_id <= _INT32_MAX:
            raise BodyError(f"the member queueId must fit 32 bits, not {queue_id}")
        if len(topic) > NAME_LENGTH_MAX or len(broker_name) > NAME_LENGTH_MAX:
            check_name_length("topic", topic)
            check_name_length("brokerName", broker_name)
    return body.once()


_remember_asked = lru_cache(_REMEMBERED_MAX)(_read)


@lru_cache(_REMEMBERED_MAX)
def _remember_renewed(data: bytes, serialize_type: int, queues_max: tuple[int, str], lease_ms: int) -> bytes:
    """`lease_ms`: 0 where the broker gives no epochs."""
    asked = _remember_asked(data, serialize_type, queues_max)
    return _encode(Locked(asked.mq_set, (), asked.epochs if lease_ms else None, lease_ms), serialize_type)


def _encode(locked: Locked, serialize_type: int) -> bytes:
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
