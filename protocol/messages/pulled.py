"""Decodes the reply to a pull. If one record is damaged, the messages before it are still read."""

from typing import Final, NamedTuple

from lockstep.protocol.errors import BodyError
from lockstep.protocol.messages.compression import PLAIN_BYTES_MAX
from lockstep.protocol.messages.message import MessageExt, Record, decode_into, encode_stored_message, unpacked
from lockstep.protocol.model import MessageQueue

__all__ = ["Pulled", "Taken", "decode_pulled", "decode_records", "take", "unpack", "unpack_all"]

# 64 messages (the limit of one query) of 4 MiB each.
_ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
_NO_HOST: Final = bytes(4)
# No log offset: a send-back of a raw record must not find another message.
_NOWHERE: Final = -1


class Pulled(NamedTuple):
    """Decoded messages.

    Attributes:
        packed: Indexes of messages whose body is still compressed.
        cut: The error of the first damaged record; None if all records were read.
        unreadable: Whether a message has a `body_error`.
    """

    messages: list[MessageExt]
    packed: list[int]
    cut: str | None
    unreadable: bool = False


class Taken(NamedTuple):
    """Messages, and the offset of the next pull.

    Attributes:
        unreadable: Whether a message has a `body_error`.
        is_raw: Whether the only message contains the bytes of a damaged record.
    """

    messages: list[MessageExt]
    next_offset: int
    unreadable: bool = False
    is_raw: bool = False


def decode_pulled(buffer: bytes, broker_name: str) -> Pulled:
    messages: list[MessageExt] = []
    packed: list[int] = []
    cut = decode_into(messages, packed, buffer, broker_name)
    return Pulled(messages, packed, cut)


def decode_records(buffer: bytes, broker_name: str) -> Pulled:
    """Like `decode_pulled`, but raises BodyError if a record is damaged."""
    pulled = decode_pulled(buffer, broker_name)
    if pulled.cut is not None:
        raise BodyError(pulled.cut)
    return pulled


def unpack_all(pulled: Pulled, plain_bytes_max: int = _ANSWER_BYTES_MAX) -> list[MessageExt]:
    """Unpack all bodies. After `plain_bytes_max` bytes the other bodies stay packed, with a `body_error`."""
    unpacked = unpack(pulled, plain_bytes_max).messages
    left = pulled.messages[len(unpacked) :]
    why = f"not unpacked: the bodies before it in the same answer have over {plain_bytes_max} bytes"
    places = {place - len(unpacked) for place in pulled.packed}
    return unpacked + [message.unreadable(why) if place in places else message for place, message in enumerate(left)]


def unpack(pulled: Pulled, plain_bytes_max: int = PLAIN_BYTES_MAX) -> Pulled:
    """Unpack bodies until they have `plain_bytes_max` bytes. The other messages are left to the next pull."""
    messages, size, unreadable = pulled.messages.copy(), 0, False
    for place in pulled.packed:
        if size >= plain_bytes_max:
            return Pulled(messages[:place], [], "the bodies before it are large enough", unreadable)
        message = messages[place] = unpacked(messages[place])
        size += len(message.body)
        unreadable = unreadable or message.body_error is not None
    return Pulled(messages, [], pulled.cut, unreadable)


def take(pulled: Pulled, data: bytes, queue: MessageQueue, offset: int, count: int, next_offset: int) -> Taken | None:
    """The messages of a pull, and the offset of the next pull.

    Args:
        data: The body of the reply.
        offset: The requested queue offset; `count` is the requested number of messages.
        next_offset: The next offset that the broker answered.

    Returns:
        Messages up to the first damaged record. If the first record is damaged: for `count` 1 a message with the record
        as its body; otherwise None, and the caller requests one message.
    """
    if pulled.cut is None:
        return Taken(pulled.messages, next_offset, pulled.unreadable)
    if pulled.messages:
        return Taken(pulled.messages, pulled.messages[-1].queue_offset + 1, pulled.unreadable)
    if count > 1:
        return None
    at = max(next_offset - 1, offset)
    return Taken([_raw(data, queue, at, pulled.cut)], at + 1, unreadable=True, is_raw=True)


def _raw(data: bytes, queue: MessageQueue, offset: int, why: str) -> MessageExt:
    record = Record(queue.topic, queue.queue_id, 0, 0, 0, _NO_HOST, 0, 0, 0, 0, data, b"", 0)
    stored = encode_stored_message(record, queue.topic.encode(), offset, _NOWHERE, _NO_HOST, 0)
    (message,) = decode_pulled(stored, queue.broker_name).messages
    return message.unreadable(f"the stored record cannot be read: {why}")
