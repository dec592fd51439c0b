"""Queues cut into slices for batches that need no order. Plain arithmetic, as Kafka's source does it."""

from collections.abc import Iterator

from lockstep.protocol.model import MessageQueue

__all__ = ["Range", "split_slices"]

Range = tuple[MessageQueue, int, int]
"""(queue, first offset, offset behind the last)."""


def split_slices(ranges: list[Range], min_partitions: int) -> Iterator[Range]:
    """At least so many ranges, where there are so many messages: long ones are cut into equal parts."""
    total = sum(end - start for _, start, end in ranges)
    for queue, start, end in ranges:
        count = end - start
        # rounded up, so that the parts of all are never fewer than asked for
        parts = 1 if len(ranges) >= min_partitions else min(count, -(-count * min_partitions // total))
        for i in range(parts):
            yield queue, start + count * i // parts, start + count * (i + 1) // parts
