"""The fenced locks of a broker: by group and queue, by the connection of the last renewal, by age, and by end."""

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from sortedcontainers import SortedDict

from lockstep.broker.ownership.fenced.period import FencedLock
from lockstep.broker.ownership.fenced.states import LockState
from lockstep.broker.ownership.fenced.waiters import QueueKey
from lockstep.broker.ownership.port import KEPT_LIVES
from lockstep.broker.peer import Peer
from lockstep.protocol.bodies.locks import LockBatchBody

__all__ = ["TAKEN_AT_ONCE_MAX", "DueLocks", "LockIndex"]

_HELD: Final = LockState.HELD
_FREED_MAX: Final = 10_000
# In one turn of the event loop: a few milliseconds of work.
TAKEN_AT_ONCE_MAX: Final = 200


class LockIndex:
    def __init__(self) -> None:
        self._by_queue: dict[tuple[str, str, int], FencedLock] = {}  # group, topic, queue id
        self._of_group: dict[str, dict[QueueKey, FencedLock]] = {}
        self.find: Callable[[tuple[str, str, int]], FencedLock | None] = self._by_queue.get  # no call in Python
        self._by_age: OrderedDict[FencedLock, None] = OrderedDict()  # by last renewal, oldest first
        self._by_connection: dict[Peer, dict[FencedLock, None]] = {}
        self._freed: OrderedDict[tuple[str, str, int], int] = OrderedDict()  # until when `was_freed` knows of it

    def __len__(self) -> int:
        return len(self._by_age)

    def __contains__(self, lock: FencedLock) -> bool:
        """Whether it is the present lock of its queue."""
        return lock in self._by_age

    def was_freed(self, key: tuple[str, str, int], now_ms: int) -> bool:
        """Whether the queue was unlocked not long ago, and no client has locked it since."""
        return now_ms < self._freed.get(key, 0)

    def held(self, asked: LockBatchBody, now_ms: int) -> list[FencedLock] | None:
        """The locks of all queues of a request; None unless its client holds each of them under its epoch."""
        (group, client_id, queues, epochs), find, locks = asked, self.find, []
        for (topic, _, queue_id), epoch in zip(queues, epochs or (), strict=True):
            lock = find((group, topic, queue_id))
            if lock is None or lock.epoch != epoch or lock.client_id != client_id:
                return None
            if lock.state is not _HELD or now_ms >= lock.ends_ms:
                return None
            locks.append(lock)
        return locks

    def count_of(self, consumer_group: str) -> int:
        return len(self._of_group.get(consumer_group, ()))

    def groups(self) -> tuple[str, ...]:
        return tuple(self._of_group)

    def held_topics(self, consumer_group: str, now_ms: int) -> Iterator[str]:
        """The topic of each queue of this moment that a client of the group owns, one by one."""
        locks = tuple(self._of_group.get(consumer_group, {}).values())
        return (lock.queue.topic for lock in locks if lock.is_live(now_ms))

    def last_owners(self, consumer_group: str) -> Iterator[tuple[str, int, str, int]]:
        """Topic, queue id, client id, and since when; also of locks that have ended, one by one."""
        for lock in tuple(self._of_group.get(consumer_group, {}).values()):
            yield (*lock.key, lock.client_id, lock.acquired_ms)

    def of_connection(self, connection: Peer) -> list[FencedLock]:
        return list(self._by_connection.get(connection, ()))

    def any_live(self, connection: Peer | None, consumer_group: str, now_ms: int) -> bool:
        """Whether a lock of this group that was renewed over this connection still has an owner."""
        if connection is None:
            return False
        locks = self._by_connection.get(connection, {})
        # The lock that came last mostly ends last: look from the end.
        return any(lock.consumer_group == consumer_group and lock.is_live(now_ms) for lock in reversed(locks))

    def oldest(self) -> FencedLock | None:
        """The one that was renewed the longest time ago."""
        return next(iter(self._by_age), None)

    def sorted(self, consumer_group: str | None) -> Iterator[FencedLock]:
        """All, or those of one group, by group and queue."""
        for group in sorted(self._of_group) if consumer_group is None else [consumer_group]:
            for _, lock in sorted(self._of_group.get(group, {}).items()):
                yield lock

    def put(self, lock: FencedLock) -> None:
        self._by_queue[lock.consumer_group, *lock.key] = lock
        self._freed.pop((lock.consumer_group, *lock.key), None)
        self._of_group.setdefault(lock.consumer_group, {})[lock.key] = lock
        self._by_age[lock] = None

    def renew(self, locks: Iterable[FencedLock], connection: Peer, now_ms: int, lease_ms: int) -> None:
        ends_ms, to_youngest = now_ms + lease_ms, self._by_age.move_to_end
        for lock in locks:
            lock.renewed_ms, lock.ends_ms, lock.lease_ms = now_ms, ends_ms, lease_ms
            to_youngest(lock)
            if lock.connection is not connection:
                self.connect(lock, connection)

    def connect(self, lock: FencedLock, connection: Peer | None) -> None:
        """Note the connection of the last grant or renewal."""
        if lock.connection is not None:
            of_connection = self._by_connection[lock.connection]
            del of_connection[lock]
            if not of_connection:
                del self._by_connection[lock.connection]
        lock.connection = connection
        if connection is not None:
            self._by_connection.setdefault(connection, {})[lock] = None

    def remove(self, lock: FencedLock) -> None:
        del self._by_age[lock]
        del self._by_queue[lock.consumer_group, *lock.key]
        if lock.state is LockState.FREE:
            self._freed[lock.consumer_group, *lock.key] = lock.ends_ms + KEPT_LIVES * lock.lease_ms
            if len(self._freed) > _FREED_MAX:
                self._freed.popitem(last=False)
        of_group = self._of_group[lock.consumer_group]
        del of_group[lock.key]
        if not of_group:
            del self._of_group[lock.consumer_group]
        self.connect(lock, None)


class DueLocks:
    """The locks whose end must be noticed when it comes: those of our clients, and those for which clients wait.

    `next_due_ms`: the earliest end; None when no lock is watched.
    """

    def __init__(self) -> None:
        self._locks = SortedDict()  # (end, number of the watch): FencedLock
        self._serials = itertools.count()
        # Looked at after each read, so it is no property.
        self.next_due_ms: int | None = None

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
