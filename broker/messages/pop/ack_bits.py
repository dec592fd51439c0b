"""Acknowledgements of a delivery as the bits of a number: bit n is of its message n, whatever lies between them."""

from bisect import bisect_left
from collections.abc import Sequence

__all__ = ["bit_of", "first_open"]


def bit_of(queue_offset: int, queue_offsets: Sequence[int]) -> int:
    """Of one of these messages, which ascend; 0: it is none of them."""
    place = bisect_left(queue_offsets, queue_offset)
    return 1 << place if place < len(queue_offsets) and queue_offsets[place] == queue_offset else 0


def first_open(acked: int, queue_offsets: Sequence[int]) -> int | None:
    """The first of these messages whose bit is not set; None: all are."""
    # What it adds to is the lowest bit that is not set.
    place = (~acked & (acked + 1)).bit_length() - 1
    return queue_offsets[place] if place < len(queue_offsets) else None
