"""A run of messages: they are stored next to each other, with one write."""

from collections.abc import Callable, Sequence
from typing import Final

from lockstep.protocol.messages.message import encode_stored_message
from lockstep.protocol.tuples import new_tuple
from lockstep.store.base import AppendResult, Record

__all__ = ["bytes_at_most", "encode_run"]

# Of a message: the fixed part and the longest topic.
_OVERHEAD_BYTES_MAX: Final = 512


def bytes_at_most(records: Sequence[Record]) -> int:
    """A bound of the stored size of these messages."""
    return sum([len(record.body) + len(record.properties) for record in records]) + _OVERHEAD_BYTES_MAX * len(records)


def encode_run(
    records: Sequence[Record],
    next_of: Callable[[str, int], tuple[bytes, int]],
    start: int,
    host: tuple[bytes, int],
) -> tuple[list[bytes], list[AppendResult]]:
    """Encode messages of any queues for one write.

    Args:
        next_of: The encoded topic and the next queue offset of a topic's queue. It is asked once for each queue.
        start: The commit log offset of the first one.
        host: The address and port of the store.

    Returns:
        The bytes and the place of each.
    """
    pieces, places = list[bytes](), list[AppendResult]()
    nexts: dict[tuple[str, int], tuple[bytes, int]] = {}
    address, port = host
    for record in records:
        key = record.topic, record.queue_id
        topic, queue_offset = nexts.get(key) or next_of(*key)
        piece = encode_stored_message(record, topic, queue_offset, start, address, port)
        pieces.append(piece)
        places.append(new_tuple(AppendResult, (start, queue_offset)))
        nexts[key] = topic, queue_offset + 1
        start += len(piece)
    return pieces, places
