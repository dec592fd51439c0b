"""The sharding key of a message, and the queue of a key. All producers use the same rule (wire.md 12.11)."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Final, TypeVar

from lockstep.protocol.filter import java_string_hash
from lockstep.protocol.messages.message import MessageExt

__all__ = ["SHARDING_KEY_OF", "KeyOf", "queue_of_hash"]

KeyOf = Callable[[MessageExt], str | None]
SHARDING_KEY_OF: Final[KeyOf] = attrgetter("sharding_key")

Q = TypeVar("Q")

_string_hash = lru_cache(maxsize=16_384)(java_string_hash)


def queue_of_hash(queues: Sequence[Q], arg: object) -> Q:
    """Select a queue like Java's SelectMessageQueueByHash, `abs(hashCode() % n)`: all languages get the same queue.

    `arg` is a text, hashed like Java's String, or a number, hashed like Java's Integer and Long.
    """
    value = _string_hash(arg) if type(arg) is str else _hash_code(arg)
    # Java's % truncates towards zero, so its absolute value is the remainder of the absolute hash.
    return queues[abs(value) % len(queues)]


def _hash_code(arg: object) -> int:
    if isinstance(arg, int):
        if -0x80000000 <= arg <= 0x7FFFFFFF:
            return int(arg)
        folded = (arg ^ (arg & 0xFFFFFFFFFFFFFFFF) >> 32) & 0xFFFFFFFF
        return folded - 0x100000000 if folded >= 0x80000000 else folded
    return _string_hash(str(arg))
