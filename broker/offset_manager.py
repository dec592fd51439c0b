"""Committed offsets: (topic, group) -> queue id -> next offset to consume (wire.md 8.1 and 8.2)."""

from collections.abc import Iterator
from typing import Final

__all__ = ["ConsumerOffsetManager"]

NO_OFFSET: Final = -1


class ConsumerOffsetManager:
    def __init__(self) -> None:
        self._table: dict[tuple[str, str], dict[int, int]] = {}

    def commit(self, consumer_group: str, topic: str, queue_id: int, committed_offset: int) -> int:
        """Store any value, also a lower one. Returns what was stored before, -1 if nothing."""
        offsets = self._table.setdefault((topic, consumer_group), {})
        before = offsets.get(queue_id, NO_OFFSET)
        offsets[queue_id] = committed_offset
        return before

    def query(self, consumer_group: str, topic: str, queue_id: int) -> int:
        """The committed offset; -1 for none, and a stored negative one counts as none."""
        offsets = self._table.get((topic, consumer_group))
        return max(NO_OFFSET, offsets.get(queue_id, NO_OFFSET)) if offsets else NO_OFFSET

    def query_or_start(self, consumer_group: str, topic: str, queue_id: int, min_offset: int) -> int | None:
        """The committed offset; 0 where none is known and nothing was dropped yet; None: the caller must decide.

        RocketMQ also demands that offset 0 is not "on disk"; in a memory store it never is.
        """
        committed = self.query(consumer_group, topic, queue_id)
        if committed >= 0:
            return committed
        return 0 if min_offset <= 0 else None

    def committed_below(self, topic: str, queue_id: int, offset: int) -> Iterator[tuple[str, int]]:
        """(group, committed offset) of the groups that have not consumed the queue up to `offset`."""
        for (of_topic, consumer_group), offsets in self._table.items():
            committed = offsets.get(queue_id, NO_OFFSET) if of_topic == topic else NO_OFFSET
            if 0 <= committed < offset:
                yield consumer_group, committed

    def groups(self) -> dict[str, list[str]]:
        """Group -> the topics it has offsets of."""
        result: dict[str, list[str]] = {}
        for topic, consumer_group in self._table:
            result.setdefault(consumer_group, []).append(topic)
        return result
