"""Committed offsets: (topic, group) -> queue id -> next offset to consume (wire.md 8.1 and 8.2)."""

from collections.abc import Callable, Generator, Mapping
from typing import Final

__all__ = ["NO_OFFSET", "ConsumerOffsetManager"]

NO_OFFSET: Final = -1
_LOOKED_AT_A_STEP: Final = 512


class ConsumerOffsetManager:
    """The table of committed offsets.

    `when_committed`: called with group, topic, queue id and offset before each commit is stored.
    """

    def __init__(self) -> None:
        self.when_committed: list[Callable[[str, str, int, int], object]] = []
        self._table: dict[tuple[str, str], dict[int, int]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}  # group -> topics
        self._groups_of: dict[str, dict[str, None]] = {}  # topic -> groups
        self._count = 0
        self._copies: dict[tuple[str, str], dict[int, int]] = {}  # never changed after they were returned
        self._changed: set[tuple[str, str]] = set()  # since the last copy
        self._leaving: dict[str, dict[str, None]] = {}  # deleted topic -> groups whose offsets are still in the table
        self.copy_count = 0  # copies of the table that differ
        self.deletions_seen = -1  # `TopicConfigManager.deletions` at the last removal

    def __len__(self) -> int:
        """The number of offsets of all groups, topics and queues."""
        return self._count

    def _offsets(self, topic: str, consumer_group: str) -> dict[int, int]:
        """The offsets of a group's topic, for a change; created if needed."""
        self._settle(topic, consumer_group)
        self._changed.add((topic, consumer_group))
        offsets = self._table.get((topic, consumer_group))
        if offsets is None:
            offsets = self._table[topic, consumer_group] = {}
            self._topics_of.setdefault(consumer_group, {})[topic] = None
            self._groups_of.setdefault(topic, {})[consumer_group] = None
        return offsets

    def _remove(self, topic: str, consumer_group: str) -> None:
        self._changed.add((topic, consumer_group))
        self._count -= len(self._table.pop((topic, consumer_group)))
        for index, name, other in (
            (self._topics_of, consumer_group, topic),
            (self._groups_of, topic, consumer_group),
        ):
            names = index.get(name, {})
            names.pop(other, None)
            if not names:
                index.pop(name, None)

    def _settle(self, topic: str, consumer_group: str) -> None:
        """Remove now what `forget_topic` has not reached yet."""
        leaving = self._leaving.get(topic)
        if leaving is not None and consumer_group in leaving:
            del leaving[consumer_group]
            self._remove(topic, consumer_group)

    def commit(self, consumer_group: str, topic: str, queue_id: int, committed_offset: int) -> int:
        """Store any value, also a lower one. Returns the previous value; -1 for none."""
        for callback in self.when_committed:
            callback(consumer_group, topic, queue_id, committed_offset)
        before = self.stored(consumer_group, topic, queue_id)
        if before == committed_offset:
            # Most commits repeat the last one: nothing to copy or to write.
            return before
        offsets = self._offsets(topic, consumer_group)
        if before is None:
            self._count += 1
        offsets[queue_id] = committed_offset
        return NO_OFFSET if before is None else before

    def stored(self, consumer_group: str, topic: str, queue_id: int) -> int | None:
        """The stored value; None: there is none, so that a commit grows the table."""
        if self._leaving:
            self._settle(topic, consumer_group)
        offsets = self._table.get((topic, consumer_group))
        return offsets.get(queue_id) if offsets else None

    def forget_topic(self, topic: str) -> Generator[None, None, int]:
        """Remove the offsets of a topic that was deleted just now. Returns steps, which return how many they removed.

        No group has an offset of it any more, also before the first step: a new topic may have its name at once.
        """
        self._leaving.setdefault(topic, {}).update(self._groups_of.pop(topic, {}))
        return self._forget_leaving(topic)

    def _forget_leaving(self, topic: str) -> Generator[None, None, int]:
        forgotten_count = looked_at = 0
        while leaving := self._leaving.get(topic):
            consumer_group = next(reversed(leaving))
            forgotten_count += len(self._table.get((topic, consumer_group), ()))
            self._settle(topic, consumer_group)
            looked_at += 1
            if looked_at % _LOOKED_AT_A_STEP == 0:
                yield None
        self._leaving.pop(topic, None)
        return forgotten_count

    def forget_topics(self, is_gone: Callable[[str], bool]) -> Generator[None, None, int]:
        """Remove the offsets of deleted topics, some a step. Returns how many."""
        forgotten_count = looked_at = 0
        for topic in list(self._groups_of):
            for consumer_group in list(self._groups_of.get(topic, ())) if is_gone(topic) else ():
                offsets = self._table.get((topic, consumer_group))
                if offsets is not None:
                    forgotten_count += len(offsets)
                    self._remove(topic, consumer_group)
                looked_at += 1
                if looked_at % _LOOKED_AT_A_STEP == 0:
                    yield None
            looked_at += 1
            if looked_at % _LOOKED_AT_A_STEP == 0:
                yield None
        return forgotten_count

    def query(self, consumer_group: str, topic: str, queue_id: int) -> int:
        """The committed offset; -1 for none or a negative one."""
        committed = self.stored(consumer_group, topic, queue_id)
        return NO_OFFSET if committed is None else max(NO_OFFSET, committed)

    def query_or_start(self, consumer_group: str, topic: str, queue_id: int, min_offset: int) -> int | None:
        """The committed offset; 0 without one if the queue still has its first message; else None.

        RocketMQ also requires that offset 0 is not "on disk"; in a memory store it never is.
        """
        committed = self.stored(consumer_group, topic, queue_id)
        if committed is not None and committed >= 0:
            return committed
        return 0 if min_offset <= 0 else None

    def lower_to(self, max_offsets: Mapping[tuple[str, int], int]) -> None:
        """After a crash that lost the newest messages: lower committed offsets to the ends of their queues."""
        self._changed.update(self._table)
        for (topic, _), offsets in self._table.items():
            for queue_id, committed in offsets.items():
                offsets[queue_id] = min(committed, max_offsets.get((topic, queue_id), committed))

    def groups_of(self, topic: str) -> list[str]:
        """Groups with offsets of a topic."""
        return list(self._groups_of.get(topic, ()))

    def topics_of(self, consumer_group: str) -> list[str]:
        """Topics with offsets of a group."""
        return list(self._topics_of.get(consumer_group, ()))

    def queues_of(self, consumer_group: str, topic: str) -> dict[int, int]:
        """Queue id -> committed offset, as stored."""
        self._settle(topic, consumer_group)
        return dict(self._table.get((topic, consumer_group), {}))

    @property
    def table(self) -> Mapping[tuple[str, str], Mapping[int, int]]:
        """(topic, group) -> queue id -> committed offset; a live view."""
        return self._table

    def all(self) -> dict[tuple[str, str], dict[int, int]]:
        """A copy of the table: (topic, group) -> queue id -> committed offset.

        Called every five seconds, so only groups that changed since the last call are copied.
        """
        changed, self._changed = self._changed, set()
        self.copy_count += bool(changed)
        for key in changed:
            offsets = self._table.get(key)
            if offsets is None:
                self._copies.pop(key, None)
            else:
                self._copies[key] = dict(offsets)
        if not self._leaving:
            return dict(self._copies)
        leaving = self._leaving
        return {key: offsets for key, offsets in self._copies.items() if key[1] not in leaving.get(key[0], ())}

    def clone(self, source_group: str, to_group: str, topic: str) -> None:
        """Replace the offsets of a group in a topic by those of another group."""
        self._settle(topic, source_group)
        offsets = self._table.get((topic, source_group))
        if offsets is not None:
            copied = dict(offsets)
            own = self._offsets(topic, to_group)
            self._count += len(copied) - len(own)
            own.clear()
            own.update(copied)

    def remove_group(self, consumer_group: str) -> None:
        for topic in list(self._topics_of.get(consumer_group, ())):
            self._leaving.get(topic, {}).pop(consumer_group, None)
            self._remove(topic, consumer_group)

    def groups(self) -> list[str]:
        """Groups with offsets."""
        return list(self._topics_of)
