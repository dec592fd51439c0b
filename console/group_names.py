"""GroupNames: the groups that all brokers name, with their topics. A broker may name any number of either."""

import sys
from collections.abc import Iterable, Mapping
from typing import Final

from lockstep.console.bounds import TEXT_MAX

__all__ = ["GroupNames"]

_ENTRY_BYTES: Final = 100  # of a dict, about


class GroupNames:
    """Joins the answers of brokers.

    Args:
        groups_max: The first by name are kept.
        bytes_max: Memory of the names of topics. Topics beyond it are left out, their groups are not.

    Attributes:
        groups_left_out, topics_left_out: Whether one of the two bounds was met.
    """

    def __init__(self, groups_max: int, bytes_max: int) -> None:
        self._groups_max = groups_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._topics: dict[str, dict[str, None]] = {}
        self.groups_left_out = False
        self.topics_left_out = False

    def add(self, groups: Mapping[str, Iterable[str]]) -> None:
        """Add what one broker says: topics by group. Names that are too long are left out."""
        for name, topics in groups.items():
            if len(name) > TEXT_MAX:
                continue
            known = self._topics.setdefault(name, {})
            for topic in topics:
                if topic not in known and len(topic) <= TEXT_MAX:
                    self._add(known, topic)
        if len(self._topics) > self._groups_max:
            self.groups_left_out = True
            self._topics = {name: self._topics[name] for name in sorted(self._topics)[: self._groups_max]}
            self._bytes = sum(_bytes_of(topic) for known in self._topics.values() for topic in known)

    def _add(self, known: dict[str, None], topic: str) -> None:
        size = _bytes_of(topic)
        if self._bytes + size > self._bytes_max:
            self.topics_left_out = True
            return
        known[topic] = None
        self._bytes += size

    def by_name(self) -> dict[str, list[str]]:
        """Return the topics of each group, the groups sorted."""
        return {name: list(self._topics[name]) for name in sorted(self._topics)}


def _bytes_of(topic: str) -> int:
    return sys.getsizeof(topic) + _ENTRY_BYTES
