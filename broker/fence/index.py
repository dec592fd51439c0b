"""The fenced locks of a broker: by group and queue, by the connection of the last renewal, and by age."""

from collections import OrderedDict
from collections.abc import Iterator

from lockstep.broker.connection import Connection
from lockstep.broker.fence.period import FencedLock
from lockstep.broker.fence.waiters import QueueKey

__all__ = ["LockIndex"]


class LockIndex:
    def __init__(self) -> None:
        self._by_queue: dict[str, dict[QueueKey, FencedLock]] = {}
        self._by_age: OrderedDict[FencedLock, None] = OrderedDict()  # by last renewal, oldest first
        self._by_connection: dict[Connection, dict[FencedLock, None]] = {}

    def __len__(self) -> int:
        return len(self._by_age)

    def __contains__(self, lock: FencedLock) -> bool:
        """Whether it is the present lock of its queue."""
        return lock in self._by_age

    def get(self, consumer_group: str, key: QueueKey) -> FencedLock | None:
        of_group = self._by_queue.get(consumer_group)
        return of_group.get(key) if of_group is not None else None

    def count_of(self, consumer_group: str) -> int:
        return len(self._by_queue.get(consumer_group, ()))

    def of_connection(self, connection: Connection) -> list[FencedLock]:
        return list(self._by_connection.get(connection, ()))

    def any_live(self, connection: Connection | None, consumer_group: str, now_ms: int) -> bool:
        """Whether a lock of this group that was renewed over this connection still has an owner."""
        if connection is None:
            return False
        locks = self._by_connection.get(connection, {})  # the last one in it ends late, most often
        return any(lock.consumer_group == consumer_group and lock.is_live(now_ms) for lock in reversed(locks))

    def oldest(self) -> FencedLock | None:
        """The one that was renewed the longest time ago."""
        return next(iter(self._by_age), None)

    def sorted(self, consumer_group: str | None) -> Iterator[FencedLock]:
        """All, or those of one group, by group and queue."""
        for group in sorted(self._by_queue) if consumer_group is None else [consumer_group]:
            for _, lock in sorted(self._by_queue.get(group, {}).items()):
                yield lock

    def put(self, lock: FencedLock) -> None:
        self._by_queue.setdefault(lock.consumer_group, {})[lock.key] = lock
        self._by_age[lock] = None

    def renewed(self, lock: FencedLock, connection: Connection) -> None:
        self._by_age.move_to_end(lock)
        if lock.connection is not connection:
            self.connect(lock, connection)

    def connect(self, lock: FencedLock, connection: Connection | None) -> None:
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
        of_group = self._by_queue[lock.consumer_group]
        del of_group[lock.key]
        if not of_group:
            del self._by_queue[lock.consumer_group]
        self.connect(lock, None)
