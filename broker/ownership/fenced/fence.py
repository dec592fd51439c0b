"""Fence: what a broker with fenced locks does beside its lock table (docs/fencing.md)."""

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from lockstep.broker.connection import Connection
from lockstep.broker.messages.refused_pulls import RefusedPulls
from lockstep.broker.ownership.changes import ChangeCause, OwnerChange
from lockstep.broker.ownership.fenced.checks import FenceChecks
from lockstep.broker.ownership.fenced.locks import FencedLocks
from lockstep.broker.ownership.fenced.notices import LockNotices
from lockstep.broker.sliced_work import SlicedWork, Steps
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.logs import EventLog

__all__ = ["Fence", "LockPersistence"]

# A connection that ends ends so many of its locks at once, the others in steps. Each takes some 16 us.
_ENDED_AT_ONCE_MAX: Final = 200


class LockPersistence(Protocol):
    """Keeps the lock table on the disk."""

    @property
    def is_durable(self) -> bool:
        """Whether all changes so far are on the disk."""

    def owner_changed(self, change: OwnerChange) -> None: ...
    def when_durable(self, then: Callable[[str], None]) -> None:
        """Call `then` when all changes so far are on the disk, or with the reason why they are not."""

    def tick(self) -> None:
        """Called every 10 s: write what no answer waits for."""


class Fence:
    """`checks` decide on requests, `pulls` are those that are held, `notices` go to clients that wait for a queue.

    Attributes:
        persistence: None for a broker in memory.
        on_owner_changed: Called at each change of an owner or an epoch.
        on_silent: Called with the group, the client id and the time when the last lease of a client of ours has ended.
    """

    def __init__(
        self,
        locks: FencedLocks,
        checks: FenceChecks,
        pulls: RefusedPulls,
        notices: LockNotices,
        work: SlicedWork,
        log: EventLog,
    ) -> None:
        self._locks = locks
        self._work = work
        self._log = log
        self.checks = checks
        self.pulls = pulls
        self.notices = notices
        self.persistence: LockPersistence | None = None
        self.on_silent: Callable[[str, str, int], None] = lambda *_: None
        self.on_owner_changed: Callable[[OwnerChange], None] = lambda _: None
        self._looked: set[tuple[Connection, str, str]] = set()  # at `_looked_ms`, for silent clients
        self._looked_ms = 0
        locks.on_owner_changed = self.owner_changed

    def bind(self, connection: Connection, client_id: str, consumer_groups: Iterable[str], now_ms: int) -> None:
        """A heartbeat or lock request says that this client, with these groups, speaks over the connection."""
        is_new = False
        for group in consumer_groups:
            is_new |= self.checks.clients.bind(connection, group, client_id)
        if is_new:
            self.pulls.bound(connection, now_ms)

    def owner_changed(self, change: OwnerChange) -> None:
        """Another period of ownership began, or one ended."""
        group, queue = change.consumer_group, change.queue
        if change.new is not None and self.checks.resets and not self._goes_on(change):
            # The new period begins at the stored offset. So its owner has taken the reset.
            self.checks.resets.end((group, queue.topic, queue.queue_id))
        self.on_owner_changed(change)
        if self.persistence is not None:
            self.persistence.owner_changed(change)
        self.notices.owner_changed(change)
        self.pulls.owner_changed(group, (queue.topic, queue.queue_id), change.now_ms)
        if change.cause is ChangeCause.LEASE_ENDED and change.old is not None:
            self._look_for_silence(group, change.old, queue, change.now_ms)

    def _goes_on(self, change: OwnerChange) -> bool:
        """Whether the new owner commits as before: it reclaimed its queue, or does not know that its lock had ended."""
        if change.cause is ChangeCause.RECLAIMED:
            return True
        lock = self._locks.entry(change.consumer_group, change.queue.topic, change.queue.queue_id)
        return change.old == change.new and lock is not None and not lock.fenced

    def _look_for_silence(self, group: str, client_id: str, queue: MessageQueue, now_ms: int) -> None:
        """Each look reads all locks of a connection, whose leases end together: one look for all of them."""
        lock = self._locks.entry(group, queue.topic, queue.queue_id)
        # Without a connection since a restart, the owner is no member of the group by it.
        if lock is None or lock.connection is None:
            return
        if now_ms != self._looked_ms:
            self._looked_ms = now_ms
            self._looked.clear()
        client = (lock.connection, group, client_id)
        if client not in self._looked:
            self._looked.add(client)
            if self._locks.is_silent(lock, now_ms):
                self.on_silent(group, client_id, now_ms)

    def on_closed(self, connection: Connection) -> None:
        self.checks.clients.on_closed(connection)
        self.pulls.on_closed(connection)

    def connection_ended(self, connection: Connection, now_ms: int) -> None:
        """Called after `on_closed`, with the time: lock delays begin if the peer ended the connection.

        Some thousands of locks end in steps, all as of `now_ms`.
        """
        if self._end_some(connection, now_ms):
            self._work.start(("locks of", connection), self._end_rest(connection, now_ms))

    def _end_rest(self, connection: Connection, now_ms: int) -> Steps:
        while self._end_some(connection, now_ms):
            yield None

    def _end_some(self, connection: Connection, now_ms: int) -> bool:
        """Returns whether the connection has more locks."""
        by_peer = connection.ended_by_peer
        delayed_count, has_more = self._locks.connection_ended(connection, by_peer, now_ms, _ENDED_AT_ONCE_MAX)
        if delayed_count:
            self._log.info("locks_delayed", peer=connection.address, count=delayed_count)
        return has_more

    def end_locks(self, now_ms: int) -> None:
        """Called when a lock delay or a lease for which clients wait is over, and again until none is due."""
        self._locks.due(now_ms)
        self.notices.check()

    def expire(self, now_ms: int) -> None:
        """Called every 10 s."""
        self.checks.resets.expire(now_ms)
        if self.persistence is not None:
            self.persistence.tick()
