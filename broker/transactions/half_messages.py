"""Half messages: stored, and not to be seen before their producer has decided (wire.md 11).

They stand in a topic of their own. What is kept here is which of them are undecided, and when the next round of
questions is due. Rounds are counted from the start of the broker, as in RocketMQ.
"""

from collections import deque
from typing import NamedTuple

__all__ = ["HalfMessage", "HalfMessages"]


class HalfMessage(NamedTuple):
    """Where it stands in the log; its queue offset in the half topic is its name."""

    queue_offset: int
    commit_log_offset: int


class HalfMessages:
    """`next_due_ms`: when the next round looks for undecided messages, whether or not there are any by then."""

    def __init__(self, first_round_ms: int) -> None:
        self._open: dict[int, int] = {}  # queue offset -> commit log offset, in order
        self._latest: dict[int, int] = {}  # queue offset of an earlier copy -> of the one that is open
        self._earlier: dict[int, list[int]] = {}  # and back: of the open one -> of its earlier copies
        self._round: deque[int] = deque()  # queue offsets of those that the round under way has not come to
        self.next_due_ms = first_round_ms

    def __len__(self) -> int:
        return len(self._open)

    def began(self, half: HalfMessage) -> None:
        """Stored. The next round comes to it."""
        self._open[half.queue_offset] = half.commit_log_offset

    def moved(self, queue_offset: int, half: HalfMessage) -> None:
        """It was stored again as `half`. Its producer may still end it by the offset of any earlier copy.

        Args:
            queue_offset: Of the undecided copy, or of an earlier one.
        """
        queue_offset = self._latest.get(queue_offset, queue_offset)
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

    def take_round(self, now_ms: int, interval_ms: int, count_max: int) -> list[HalfMessage]:
        """The next ones of this round, oldest first. Until it came to all that were undecided, it is due still."""
        if not self._round:
            self._round.extend(self._open)
        taken: list[HalfMessage] = []
        while self._round and len(taken) < count_max:
            queue_offset = self._round.popleft()
            if queue_offset in self._open:
                taken.append(HalfMessage(queue_offset, self._open[queue_offset]))
        if not self._round:
            self.next_due_ms = _next_round_ms(self.next_due_ms, now_ms, interval_ms)
        return taken


def _next_round_ms(due_ms: int, now_ms: int, interval_ms: int) -> int:
    """When the round after the one of `due_ms` is, at `now_ms`.

    A round that is a little early or late does not move those after it. Rounds that were missed are left out, and a
    clock that was set back by more than an interval begins the count anew.
    """
    late_ms = now_ms - due_ms
    if late_ms < -interval_ms:
        return now_ms + interval_ms
    return due_ms + (max(0, late_ms // interval_ms) + 1) * interval_ms
