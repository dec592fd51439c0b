"""Half messages: stored, and not to be seen before their producer has decided (wire.md 11).

They stand in a topic of their own. What is kept here is which of them are undecided, and when the next round of
questions is due; nothing runs while there is none.
"""

from collections import deque
from typing import NamedTuple

__all__ = ["HalfMessage", "HalfMessages"]


class HalfMessage(NamedTuple):
    """Where it stands in the log; its queue offset in the half topic is its name."""

    queue_offset: int
    commit_log_offset: int


class HalfMessages:
    """`next_due_ms`: when the producers of undecided messages are asked next; None while there are none."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # queue offset -> commit log offset, in order
        self._latest: dict[int, int] = {}  # queue offset of an earlier copy -> of the one that is open
        self._earlier: dict[int, list[int]] = {}  # and back: of the open one -> of its earlier copies
        self._round: deque[int] = deque()  # queue offsets of those that the round under way has not come to
        self.next_due_ms: int | None = None

    def __len__(self) -> int:
        return len(self._open)

    def began(self, half: HalfMessage, next_round_ms: int) -> None:
        """Stored. The first undecided one sets when the round is; later ones are part of it."""
        self._open[half.queue_offset] = half.commit_log_offset
        if self.next_due_ms is None:
            self.next_due_ms = next_round_ms

    def moved(self, queue_offset: int, half: HalfMessage) -> None:
        """Stored anew. Its producer may still end it by the place that it knows."""
        del self._open[queue_offset]
        self._open[half.queue_offset] = half.commit_log_offset
        copies = [*self._earlier.pop(queue_offset, ()), queue_offset]
        self._earlier[half.queue_offset] = copies
        self._latest.update(dict.fromkeys(copies, half.queue_offset))

    def is_open(self, queue_offset: int) -> bool:
        """Undecided, under this place or under a later one."""
        return self._latest.get(queue_offset, queue_offset) in self._open

    def ended(self, queue_offset: int) -> None:
        """Committed, rolled back, given up, or gone from the store."""
        latest = self._latest.get(queue_offset, queue_offset)
        for earlier in self._earlier.pop(latest, ()):
            del self._latest[earlier]
        self._open.pop(latest, None)
        if not self._open:
            self.next_due_ms = None
            self._round.clear()

    def take_round(self, next_round_ms: int, count_max: int) -> list[HalfMessage]:
        """The next ones of this round, oldest first. Until it came to all that were undecided, it is due still."""
        if not self._round:
            self._round.extend(self._open)
        taken: list[HalfMessage] = []
        while self._round and len(taken) < count_max:
            queue_offset = self._round.popleft()
            if queue_offset in self._open:
                taken.append(HalfMessage(queue_offset, self._open[queue_offset]))
        if not self._round:
            self.next_due_ms = next_round_ms if self._open else None
        return taken
