"""What a pull brought, where one record of it may be none: every other message is read all the same."""

from typing import Final, NamedTuple

from lockstep.protocol.compression import PLAIN_BYTES_MAX
from lockstep.protocol.message import MessageExt, decode_into, encode_stored_message
from lockstep.protocol.model import MessageQueue

__all__ = ["Pulled", "Taken", "decode_pulled", "take", "unpack"]

_NO_HOST: Final = bytes(4)
_NOWHERE: Final = -1  # in the log: a broker that is asked to send it back must not find another message


class Pulled(NamedTuple):
    """`packed` are the places of messages whose body is still compressed; `cut` why there are no more of them."""

    messages: list[MessageExt]
    packed: list[int]
    cut: str | None


class Taken(NamedTuple):
    """Messages, and the offset to go on from. `is_raw`: the one message is a record that nobody can read."""

    messages: list[MessageExt]
    next_offset: int
    is_raw: bool = False


def decode_pulled(buffer: bytes, broker_name: str) -> Pulled:
    messages: list[MessageExt] = []
    packed: list[int] = []
    cut = decode_into(messages, packed, buffer, broker_name)
    return Pulled(messages, packed, cut)


def unpack(pulled: Pulled, plain_bytes_max: int = PLAIN_BYTES_MAX) -> Pulled:
    """With bodies unpacked. Once they have `plain_bytes_max` bytes together, what follows is left to the next pull."""
    messages, size = pulled.messages.copy(), 0
    for place in pulled.packed:
        if size >= plain_bytes_max:
            return Pulled(messages[:place], [], "the bodies before it are large enough")
        messages[place] = messages[place].unpacked()
        size += len(messages[place].body)
    return Pulled(messages, [], pulled.cut)


def take(pulled: Pulled, data: bytes, queue: MessageQueue, offset: int, count: int, next_offset: int) -> Taken | None:
    """What a queue's reader is to have of a pull.

    Args:
        data: The reply's body; `offset` and `count` is what was asked for, `next_offset` where the broker goes on.

    Returns:
        Messages up to the first record that cannot be read. When that is the first one: the record itself, as a message
        with its bytes as the body, if no more than one was asked for; else None, and one is to be asked for.
    """
    if pulled.cut is None:
        return Taken(pulled.messages, next_offset)
    if pulled.messages:
        return Taken(pulled.messages, pulled.messages[-1].queue_offset + 1)
    if count > 1:
        return None
    at = max(next_offset - 1, offset)
    return Taken([_raw(data, queue, at, pulled.cut)], at + 1, is_raw=True)


def _raw(data: bytes, queue: MessageQueue, offset: int, why: str) -> MessageExt:
    stored = encode_stored_message(
        queue.queue_id, 0, offset, _NOWHERE, 0, 0, _NO_HOST, 0, 0, _NO_HOST, 0, 0, 0, data, queue.topic.encode(), b""
    )
    (message,) = decode_pulled(stored, queue.broker_name).messages
    return message.unreadable(f"the stored record cannot be read: {why}")
