"""Half messages: stored in their own topic, and invisible to consumers until their producer commits (wire.md 11).

This table has the undecided ones, and the time of the next round of checks. As in RocketMQ rounds are counted from the
start of the broker.
"""

from collections import deque
from typing import NamedTuple

from lockstep.protocol.messages import properties as names
from lockstep.protocol.names import HALF_TOPIC

__all__ = ["HalfMessage", "HalfMessages", "half_of"]


class HalfMessage(NamedTuple):
    """The place of a half message; its queue offset in the half topic identifies it."""

    queue_offset: int
    commit_log_offset: int


class HalfMessages:
    """The undecided half messages. `next_due_ms`: epoch ms of the next round of checks."""

    def __init__(self, first_round_ms: int) -> None:
        self._open: dict[int, int] = {}  # queue offset -> commit log offset, in order
        self._latest: dict[int, int] = {}  # queue offset of an earlier copy -> of the open one
        self._earlier: dict[int, list[int]] = {}  # queue offset of the open one -> of its earlier copies
        self._round: deque[int] = deque()  # queue offsets that the current round has still to return
        self.next_due_ms = first_round_ms

    def __len__(self) -> int:
        return len(self._open)

    def began(self, half: HalfMessage) -> None:
        """A half message was stored. The next round returns it."""
        self._open[half.queue_offset] = half.commit_log_offset

    def moved(self, queue_offset: int, half: HalfMessage) -> None:
        """It was stored again as `half`. Its producer may still end it by the offset of any earlier copy.

        Args:
            queue_offset: Of the undecided copy, of an earlier one, or of one that had ended.
        """
        queue_offset = self._latest.get(queue_offset, queue_offset)
        self._open.pop(queue_offset, None)
        self._open[half.queue_offset] = half.commit_log_offset
        copies = [*self._earlier.pop(queue_offset, ()), queue_offset]
        self._earlier[half.queue_offset] = copies
        self._latest.update(dict.fromkeys(copies, half.queue_offset))

    def is_open(self, queue_offset: int) -> bool:
        """Whether a half message is undecided; `queue_offset` may be that of an earlier copy."""
        return self._latest.get(queue_offset, queue_offset) in self._open

    def ended(self, queue_offset: int) -> None:
        """A half message was committed, rolled back, given up, or dropped by the store."""
        latest = self._latest.get(queue_offset, queue_offset)
        for earlier in self._earlier.pop(latest, ()):
            del self._latest[earlier]
        self._open.pop(latest, None)

    def take_round(self, now_ms: int, interval_ms: int, count_max: int) -> list[HalfMessage]:
        """The next messages of this round, oldest first. The round stays due until every undecided one was returned."""
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
    """Epoch ms of the round after the one of `due_ms`, at `now_ms`.

    A round that is a little early or late does not shift later rounds. Missed rounds are left out. If the clock was
    set back by more than an interval, rounds are counted from now.
    """
    late_ms = now_ms - due_ms
    if late_ms < -interval_ms:
        return now_ms + interval_ms
    return due_ms + (max(0, late_ms // interval_ms) + 1) * interval_ms


def half_of(properties: dict[str, str], topic: str, queue_id: int) -> tuple[str, int]:
    """The topic and queue of a stored half message. Its properties keep its own; a delay is removed, as in Java."""
    properties.pop(names.DELAY, None)
    properties[names.REAL_TOPIC] = topic
    properties[names.REAL_QID] = str(queue_id)
    return HALF_TOPIC, 0
