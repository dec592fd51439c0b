"""The locks whose end must be noticed when it comes: those of our clients, and those for which clients wait."""

import heapq
import itertools
from collections.abc import Iterator
from typing import Final

from lockstep.broker.fence.period import FencedLock

__all__ = ["TAKEN_AT_ONCE_MAX", "DueLocks"]

TAKEN_AT_ONCE_MAX: Final = 200  # in one turn of the event loop: a few milliseconds
_REPLACED_MAX: Final = 1000


class DueLocks:
    """`next_due_ms`: the earliest end; None when no lock is watched."""

    def __init__(self) -> None:
        self._ends: list[tuple[int, int, FencedLock]] = []  # a heap; entries of an earlier watch of a lock stay in it
        self._serials = itertools.count()
        self._watched_count = 0
        self.next_due_ms: int | None = None  # looked at after each read, so it is no property

    def watch(self, lock: FencedLock) -> None:
        """`take` returns the lock when its time has come. A time that was put off meanwhile is no reason not to."""
        if lock.watched_ms is not None and lock.watched_ms <= lock.ends_ms:
            return
        self._watched_count += lock.watched_ms is None
        lock.watched_ms = lock.ends_ms
        heapq.heappush(self._ends, (lock.ends_ms, next(self._serials), lock))
        if len(self._ends) > self._watched_count + _REPLACED_MAX:
            self._ends = [one for one in self._ends if one[0] == one[2].watched_ms]
            heapq.heapify(self._ends)
        self._find_next()

    def _find_next(self) -> None:
        while self._ends and self._ends[0][0] != self._ends[0][2].watched_ms:
            heapq.heappop(self._ends)
        self.next_due_ms = self._ends[0][0] if self._ends else None

    def forget(self, lock: FencedLock) -> None:
        """The lock is not in the table any more."""
        self._watched_count -= lock.watched_ms is not None
        lock.watched_ms = None
        self._find_next()

    def take_some(self, now_ms: int) -> Iterator[FencedLock]:
        """Locks whose time was due by now, a bounded number; the rest stays due, so the timer comes back at once.

        The end of a lock may have been put off; then watch it again.
        """
        left = TAKEN_AT_ONCE_MAX
        while left and self._ends and self._ends[0][0] <= now_ms:
            ends_ms, _, lock = heapq.heappop(self._ends)
            if lock.watched_ms == ends_ms:
                left -= 1
                self.forget(lock)
                yield lock
