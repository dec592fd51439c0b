"""The locks whose end must be noticed when it comes: those of our clients, and those for which clients wait."""

import itertools
from collections.abc import Iterator
from typing import Final

from sortedcontainers import SortedDict

from lockstep.broker.fence.period import FencedLock

__all__ = ["TAKEN_AT_ONCE_MAX", "DueLocks"]

TAKEN_AT_ONCE_MAX: Final = 200  # in one turn of the event loop: a few milliseconds


class DueLocks:
    """`next_due_ms`: the earliest end; None when no lock is watched."""

    def __init__(self) -> None:
        self._locks = SortedDict()  # (end, number of the watch): FencedLock
        self._serials = itertools.count()
        self.next_due_ms: int | None = None  # looked at after each read, so it is no property

    def watch(self, lock: FencedLock) -> None:
        """`take_some` returns the lock when its time has come, also if its end was put off meanwhile."""
        if lock.watched is not None and lock.watched[0] <= lock.ends_ms:
            return
        self.forget(lock)
        lock.watched = (lock.ends_ms, next(self._serials))
        self._locks[lock.watched] = lock
        self._find_next()

    def forget(self, lock: FencedLock) -> None:
        """The lock is not in the table any more."""
        if lock.watched is not None:
            del self._locks[lock.watched]
            lock.watched = None
            self._find_next()

    def _find_next(self) -> None:
        self.next_due_ms = self._locks.peekitem(0)[0][0] if self._locks else None

    def take_some(self, now_ms: int) -> Iterator[FencedLock]:
        """Locks whose time was due by now, a bounded number; the rest stays due, so the timer comes back at once.

        The end of a lock may have been put off; then watch it again.
        """
        for _ in range(TAKEN_AT_ONCE_MAX):
            if self.next_due_ms is None or self.next_due_ms > now_ms:
                return
            lock: FencedLock = self._locks.peekitem(0)[1]
            self.forget(lock)
            yield lock
