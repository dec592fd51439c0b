"""How a message finds its queue (wire.md 12.11)."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from lockstep.protocol.filter import java_string_hash
from lockstep.protocol.model import Message, MessageQueue

__all__ = ["MessageQueueSelector", "select_by_hash"]

_string_hash = lru_cache(maxsize=16_384)(java_string_hash)

MessageQueueSelector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]
"""`(queues, message, arg) -> queue`, one of the topic's writable queues, which come sorted."""


def select_by_hash(queues: Sequence[MessageQueue], _message: Message | None, arg: object) -> MessageQueue:
    """Java's SelectMessageQueueByHash: `abs(hashCode() % n)`, so that producers in every language agree.

    `arg` is a text, whose hash is Java's String.hashCode, or a number, as Java's Integer and Long.
    """
    value = _string_hash(arg) if type(arg) is str else _hash_code(arg)
    # Java's % truncates towards zero, and abs of that is the remainder of the absolute value.
    return queues[abs(value) % len(queues)]


def _hash_code(arg: object) -> int:
    if isinstance(arg, int):
        if -0x80000000 <= arg <= 0x7FFFFFFF:
            return int(arg)
        folded = (arg ^ (arg & 0xFFFFFFFFFFFFFFFF) >> 32) & 0xFFFFFFFF
        return folded - 0x100000000 if folded >= 0x80000000 else folded
    return _string_hash(str(arg))
