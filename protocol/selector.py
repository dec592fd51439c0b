"""The sharding key of a message, and the queue of a key. All producers use the same rule (wire.md 12.11)."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Final, TypeVar

from lockstep.protocol.filter import java_string_hash
from lockstep.protocol.messages.message import MessageExt

__all__ = ["SHARDING_KEY_OF", "KeyOf", "queue_of_group", "queue_of_hash"]

KeyOf = Callable[[MessageExt], str | None]
SHARDING_KEY_OF: Final[KeyOf] = attrgetter("sharding_key")

Q = TypeVar("Q")
_64_BITS: Final = 2**64 - 1

_string_hash = lru_cache(maxsize=16_384)(java_string_hash)


def queue_of_hash(queues: Sequence[Q], arg: object) -> Q:
    """Select a queue like Java's SelectMessageQueueByHash, `abs(hashCode() % n)`: all languages get the same queue.

    `arg` is a text, hashed like Java's String, or a number, hashed like Java's Integer and Long.
    """
    value = _string_hash(arg) if type(arg) is str else _hash_code(arg)
    # Java's % truncates towards zero, so its absolute value is the remainder of the absolute hash.
    return queues[abs(value) % len(queues)]


def queue_of_group(message_group: str, queue_count: int) -> int:
    """The place of a message group's queue among the write queues of a topic, as RocketMQ 5's proxy chooses it.

    The queues are in the order of their brokers' names and their ids. It is a consistent hash: of a topic that grows
    from n to m queues, so much as n/m of the groups stay.

    Args:
        message_group: Hashed like Java's String.
        queue_count: At least 1.

    Source: wire.md 18.6
    """
    # Java extends the sign of the 32 bits.
    state, place = _string_hash(message_group) & _64_BITS, 0
    while True:
        state = (2862933555777941757 * state + 1) & _64_BITS
        following = int((place + 1) / (((state >> 33) + 1) / 2**31))
        if following >= queue_count:
            return place
        place = following


def _hash_code(arg: object) -> int:
    if isinstance(arg, int):
        if -0x80000000 <= arg <= 0x7FFFFFFF:
            return int(arg)
        folded = (arg ^ (arg & 0xFFFFFFFFFFFFFFFF) >> 32) & 0xFFFFFFFF
        return folded - 0x100000000 if folded >= 0x80000000 else folded
    return _string_hash(str(arg))
