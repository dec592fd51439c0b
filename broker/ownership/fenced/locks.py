"""Queue locks of `--lock-mode fenced`: each period of ownership has an epoch, which requests are checked against.

docs/fencing.md has the rules; broker/ownership/fenced/states.py is the table of transitions of one lock.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from lockstep.broker.ownership.answers import FenceAnswer, LockAnswer, LockOutcome
from lockstep.broker.ownership.changes import ChangeCause, OwnerChange
from lockstep.broker.ownership.fenced.index import DueLocks, LockIndex
from lockstep.broker.ownership.fenced.period import Epochs, FencedLock, FenceSettings
from lockstep.broker.ownership.fenced.states import TRANSITIONS, LockEvent, LockState
from lockstep.broker.ownership.fenced.waiters import LockWaiters, QueueKey
from lockstep.broker.ownership.port import KEPT_LIVES
from lockstep.broker.peer import Peer
from lockstep.protocol.bodies.locks import LockBatchBody, LockGrant, LockTableRow
from lockstep.protocol.model import MessageQueue
from lockstep.store.format.lock_table import StoredLock

__all__ = ["FenceSettings", "FencedLock", "FencedLocks", "StoredLock"]

# Java unlocks a queue before it commits its last offset.
_LEGACY_UNLOCK_MS: Final = 1000


class _Asker(NamedTuple):
    consumer_group: str
    client_id: str
    fenced: bool
    connection: Peer


class FencedLocks:
    """The table of locks; no clock and no I/O.

    Args:
        boot: Of its epochs: epoch ms at the start, or one more than the kept one.

    Attributes:
        waiters: Clients whose claims were refused, and those of them that are to be told, once a loop turn.
        on_owner_changed: Called at each change of an owner or an epoch.
        on_removed: Called when a queue has no lock any more, also none that has ended.
        changes, refusals: Numbers of changes by cause, and of requests under an epoch that were refused, by answer.
    """

    def __init__(self, settings: FenceSettings, boot: int) -> None:
        self.settings = settings
        self.on_owner_changed: Callable[[OwnerChange], None] = lambda _: None
        self.on_removed: Callable[[FencedLock], None] = lambda _: None
        self.changes: Counter[ChangeCause] = Counter()
        self.refusals: Counter[FenceAnswer] = Counter()
        self.epochs = Epochs(boot)
        self._grace_ends_ms: int | None = None
        self._locks = LockIndex()
        # By (group, topic, queue id).
        self.find = self._locks.find
        self.was_freed = self._locks.was_freed
        self.groups = self._locks.groups
        self.held_topics = self._locks.held_topics
        self.last_owners = self._locks.last_owners
        self.waiters = LockWaiters(settings.entries_max)
        self._due = DueLocks()

    def __len__(self) -> int:
        return len(self._locks)

    def restore(self, kept: Iterable[StoredLock], boot: int, now_ms: int) -> None:
        """Locks of the last run: each has its lease once more. New epochs are above all of `boot`."""
        self.epochs.go_above_boot(boot)
        for lock in kept:
            # It may have been renewed for longer than was kept.
            lease_ms = max(lock.lease_ms, self.settings.lease_ms)
            restored = FencedLock(lock._replace(lease_ms=lease_ms), now_ms)
            self._locks.put(restored)
            if restored.fenced:
                self._watch(restored)

    def begin_grace(self, ends_ms: int) -> None:
        """The table of the last run is lost: until `ends_ms` a queue goes only to who presents an epoch of it."""
        self._grace_ends_ms = ends_ms

    @property
    def lease_ms(self) -> int:
        return self.settings.lease_ms

    @property
    def last_epoch(self) -> int:
        return self.epochs.last

    @property
    def head(self) -> tuple[int, bool]:
        """The boot of its epochs, and whether the grace period was not over when `due` was called last."""
        return self.epochs.boot, self._grace_ends_ms is not None

    def in_grace(self, now_ms: int) -> bool:
        return self._grace_ends_ms is not None and now_ms < self._grace_ends_ms

    # Requests ------------------------------------------------------------------------------------------------

    def try_lock_batch(
        self,
        consumer_group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        epochs: Iterable[int] | None,
        connection: Peer,
        now_ms: int,
    ) -> list[LockAnswer]:
        """Claim or renew. Returns one answer for each queue, in order.

        Args:
            epochs: One for each queue, 0 to claim it; None: an unmodified client, which renews by its client id.
            connection: Its end begins the lock delay. When it is refused, `waiters` has it once the queue is free.
        """
        asker = _Asker(consumer_group, client_id, epochs is not None, connection)
        return [
            self._renew_or_reclaim(asker, queue, epoch, now_ms) if epoch else self._claim(asker, queue, now_ms)
            for queue, epoch in zip(queues, itertools.repeat(0) if epochs is None else epochs, strict=False)
        ]

    def renew_all(self, asked: LockBatchBody, connection: Peer, now_ms: int) -> bool:
        """Renew all queues of a request, if the client has each under its epoch, faster; else change nothing."""
        locks = self._locks.held(asked, now_ms)
        if locks is not None:
            self._locks.renew(locks, connection, now_ms, self.settings.lease_ms)
        return locks is not None

    def _claim(self, asker: _Asker, queue: MessageQueue, now_ms: int) -> LockAnswer:
        group, key = asker.consumer_group, (queue.topic, queue.queue_id)
        lock = self._settled(group, key, now_ms)
        if lock is None:
            # The table was lost, so any queue may have an owner whose lease still runs. New claims wait until it is
            # over.
            if self._grace_ends_ms is not None and self.in_grace(now_ms):
                self.waiters.add(group, queue, asker.connection, fenced=asker.fenced)
                return LockAnswer(queue, LockOutcome.REFUSED, wait_ms=self._grace_ends_ms - now_ms)
            if not self._has_capacity(group, now_ms):
                return LockAnswer(queue, LockOutcome.TABLE_FULL)
            return self._grant(asker, queue, LockOutcome.GRANTED, now_ms)
        same = lock.client_id == asker.client_id
        if lock.state is LockState.ENDED:
            return self._grant(asker, queue, LockOutcome.REACQUIRED if same else LockOutcome.TAKEN_OVER, now_ms, lock)
        # An unmodified client renews with the same request that claims. A client of ours renews under its epoch: its
        # claim of a queue that it has waits as any other's.
        if same and not lock.fenced and not asker.fenced:
            if lock.state is not LockState.RELEASING:
                return self._renew(lock, asker, queue, now_ms)
            self._move(lock, LockEvent.GRANT, now_ms)
            return self._grant(asker, queue, LockOutcome.GRANTED, now_ms)
        self.waiters.add(group, queue, asker.connection, fenced=asker.fenced)
        self._watch(lock)
        age_ms, wait_ms = now_ms - lock.renewed_ms, lock.ends_ms - now_ms
        return LockAnswer(queue, LockOutcome.REFUSED, lock.client_id, age_ms, wait_ms)

    def _renew_or_reclaim(self, asker: _Asker, queue: MessageQueue, epoch: int, now_ms: int) -> LockAnswer:
        group, key = asker.consumer_group, (queue.topic, queue.queue_id)
        lock = self._settled(group, key, now_ms)
        if lock is not None and lock.epoch == epoch and lock.client_id == asker.client_id and lock.is_live(now_ms):
            return self._renew(lock, asker, queue, now_ms)
        # In the grace period an epoch of the last run is the proof of ownership. New epochs must then be above it.
        may_reclaim = lock is None and self.in_grace(now_ms) and self._has_capacity(group, now_ms)
        if may_reclaim and self.epochs.go_above(epoch, now_ms):
            return self._grant(asker, queue, LockOutcome.REACQUIRED, now_ms, epoch=epoch)
        fence = self.check(group, *key, asker.client_id, epoch, now_ms, needs_lease=True)
        owner = lock.client_id if lock is not None and lock.is_live(now_ms) else None
        return LockAnswer(queue, LockOutcome.REFUSED, fence=fence, other=owner)

    def _grant(
        self,
        asker: _Asker,
        queue: MessageQueue,
        outcome: LockOutcome,
        now_ms: int,
        last: FencedLock | None = None,
        epoch: int = 0,
    ) -> LockAnswer:
        """Begin a period of ownership. `epoch`: of a period that is reclaimed. `last`: the lock that has ended."""
        (group, client_id, fenced, connection), lease_ms = asker, self.settings.lease_ms
        begun = StoredLock(group, queue, client_id, fenced, epoch or self.epochs.next(), lease_ms, now_ms)
        lock = FencedLock(begun, now_ms)
        old, age_ms = (last.client_id, now_ms - last.renewed_ms) if last is not None else (None, 0)
        # First the old lock goes out of the index, then the new one comes in: both have the same key.
        if last is not None:
            self._remove(last)
        self._locks.put(lock)
        self._locks.connect(lock, connection)
        self.waiters.drop(group, lock.key, connection)
        if fenced:
            # When its lease ends, its client may be silent: `is_silent` is asked then.
            self._watch(lock)
        cause = ChangeCause.RECLAIMED if epoch else ChangeCause.TAKEN_OVER if last is not None else ChangeCause.GRANTED
        self._changed(lock, old, client_id, cause, now_ms)
        return LockAnswer(queue, outcome, old, age_ms, grant=LockGrant(lock.epoch, lease_ms))

    def _renew(self, lock: FencedLock, asker: _Asker, queue: MessageQueue, now_ms: int) -> LockAnswer:
        lease_ms, age_ms = self.settings.lease_ms, now_ms - lock.renewed_ms
        if lock.state is not LockState.HELD:
            self._move(lock, LockEvent.RENEW, now_ms)
        self._locks.renew([lock], asker.connection, now_ms, lease_ms)
        return LockAnswer(queue, LockOutcome.RENEWED, age_ms=age_ms, grant=LockGrant(lock.epoch, lease_ms))

    def unlock_batch(
        self,
        consumer_group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        epochs: Iterable[int] | None,
        now_ms: int,
    ) -> list[LockAnswer]:
        """Release the queues that the client owns under these epochs. Returns REFUSED for each of the others.

        An unmodified client's queue is free at its next commit (`committed`), when it leaves, or after 1 s.
        """
        refused = []
        for queue, epoch in zip(queues, itertools.repeat(None) if epochs is None else epochs, strict=False):
            lock = self._settled(consumer_group, (queue.topic, queue.queue_id), now_ms)
            fence = self._check(lock, client_id, epoch, now_ms)
            if lock is None or fence is not FenceAnswer.OK:
                owner = lock.client_id if lock is not None else None
                refused.append(LockAnswer(queue, LockOutcome.REFUSED, fence=fence, other=owner))
            elif epoch is not None:
                self._move(lock, LockEvent.UNLOCK, now_ms)
            elif self._move(lock, LockEvent.LEGACY_UNLOCK, now_ms) and lock.state is LockState.RELEASING:
                # Until then its last commit may come. The next owner would begin before it.
                lock.ends_ms = min(lock.ends_ms, now_ms + _LEGACY_UNLOCK_MS)
                self._watch(lock)
        return refused

    def begin_epoch(
        self,
        consumer_group: str,
        queue: tuple[str, int],
        client_id: str,
        epoch: int,
        connection: Peer,
        now_ms: int,
    ) -> LockGrant | FenceAnswer:
        """Renew the lock of the owner under a new epoch, for a reset of its own (RESET_OWN_OFFSET)."""
        fence = self.check(consumer_group, *queue, client_id, epoch, now_ms, needs_lease=True)
        lock = self.entry(consumer_group, *queue)
        if lock is None or fence is not FenceAnswer.OK:
            return fence
        # The lock goes on without a gap. Only the epoch changes, so that what is on its way under the old one is
        # refused.
        lock.epoch, lock.acquired_ms = self.epochs.next(), now_ms
        grant = self._renew(lock, _Asker(consumer_group, client_id, True, connection), lock.queue, now_ms).grant
        self._changed(lock, client_id, client_id, ChangeCause.RESET, now_ms)
        assert grant is not None
        return grant

    def withdraw(self, consumer_group: str, queue: MessageQueue, epoch: int, now_ms: int) -> None:
        """A period that was just granted could not be kept on the disk, and its grant is not answered."""
        lock = self.entry(consumer_group, queue.topic, queue.queue_id)
        if lock is not None and lock.epoch == epoch:
            self._move(lock, LockEvent.WITHDRAW, now_ms)

    # Checks --------------------------------------------------------------------------------------------------

    def check(
        self,
        consumer_group: str,
        topic: str,
        queue_id: int,
        client_id: str,
        epoch: int,
        now_ms: int,
        *,
        needs_lease: bool = False,
    ) -> FenceAnswer:
        """Check a request under an epoch: OK while no other client and no later epoch has had the queue.

        `needs_lease`: the lease must not have ended either (a pull); a commit is also taken later.
        """
        lock = self.entry(consumer_group, topic, queue_id)
        answer = self._check(lock, client_id, epoch, now_ms, needs_lease=needs_lease)
        if answer is not FenceAnswer.OK:
            self.refusals[answer] += 1
        return answer

    def _check(
        self, lock: FencedLock | None, client_id: str, epoch: int | None, now_ms: int, *, needs_lease: bool = False
    ) -> FenceAnswer:
        """`epoch` None: the client is an unmodified one."""
        # The group never locked this queue, or its lock was removed: who says that it owns the queue does not.
        if lock is None:
            return FenceAnswer.NOT_HELD
        if lock.client_id == client_id and (lock.epoch == epoch if epoch is not None else not lock.fenced):
            return FenceAnswer.OK if not needs_lease or lock.is_live(now_ms) else FenceAnswer.NOT_HELD
        if lock.client_id == client_id and epoch is not None and epoch < lock.epoch:
            return FenceAnswer.STALE
        return FenceAnswer.FENCED

    def is_silent(self, lock: FencedLock, now_ms: int) -> bool:
        """Whether a client of ours, the owner of `lock`, has no lock of this group any more whose lease lasts."""
        return lock.fenced and not self._locks.any_live(lock.connection, lock.consumer_group, now_ms)

    def entry(self, consumer_group: str, topic: str, queue_id: int) -> FencedLock | None:
        """The lock of a queue, also one that has ended."""
        return self.find((consumer_group, topic, queue_id))

    def is_owned(self, consumer_group: str, topic: str, queue_id: int, now_ms: int) -> bool:
        """Whether a client owns the queue, or the queue rests before it goes to another."""
        lock = self._settled(consumer_group, (topic, queue_id), now_ms)
        return lock is not None and lock.state is not LockState.ENDED

    # Ends of periods -----------------------------------------------------------------------------------------

    def committed(self, consumer_group: str, topic: str, queue_id: int, now_ms: int) -> None:
        """An unmodified owner's commit was stored: a queue that it has unlocked is free now."""
        lock = self.entry(consumer_group, topic, queue_id)
        if lock is not None:
            self._move(lock, LockEvent.COMMIT, now_ms)

    def connection_ended(self, connection: Peer, by_peer: bool, now_ms: int, at_most: int) -> tuple[int, bool]:
        """The lock delay begins for queues renewed over this connection; not when the broker decided on its end.

        Returns:
            How many of `at_most` queues rest now, and whether it has more queues.
        """
        self.waiters.forget(connection)
        locks, delayed_count = self._locks.of_connection(connection), 0
        for lock in locks[:at_most]:
            self._locks.connect(lock, None)
            self._end_if_over(lock, now_ms)
            if by_peer and self._move(lock, LockEvent.PEER_ENDED, now_ms) and lock.state is LockState.DELAYED:
                lock.ends_after_delay(now_ms, self.settings)
                delayed_count += not self._end_if_over(lock, now_ms)
                self._watch(lock)
        return delayed_count, len(locks) > at_most

    def client_left(self, consumer_group: str, client_id: str, connection: Peer, now_ms: int) -> None:
        """UNREGISTER_CLIENT over the connection of the last renewals: the client's queues are free at once."""
        for lock in self._locks.of_connection(connection):
            if lock.consumer_group == consumer_group and lock.client_id == client_id:
                self._end_if_over(lock, now_ms)
                self._move(lock, LockEvent.LEAVE, now_ms)

    @property
    def next_due_ms(self) -> int | None:
        """When `due` has something to do."""
        first_ms = self._due.next_due_ms
        if self._grace_ends_ms is None:
            return first_ms
        return self._grace_ends_ms if first_ms is None else min(first_ms, self._grace_ends_ms)

    def due(self, now_ms: int) -> None:
        """End what has ended by now: lock delays, and leases of our clients or for which clients wait. Some at once."""
        if self._grace_ends_ms is not None and now_ms >= self._grace_ends_ms:
            self._grace_ends_ms = None
            self.waiters.wake_all()
        for lock in self._due.take_some(now_ms):
            self._end_if_over(lock, now_ms)
            if lock.fenced or lock.is_draining or self.waiters.count(lock.consumer_group, lock.key):
                self._watch(lock)

    def _watch(self, lock: FencedLock) -> None:
        if lock.state is not LockState.ENDED and lock in self._locks:
            self._due.watch(lock)

    def _settled(self, consumer_group: str, key: QueueKey, now_ms: int) -> FencedLock | None:
        """The lock of a queue, ended if its time is over."""
        lock = self.find((consumer_group, *key))
        has_ended = lock is not None and self._end_if_over(lock, now_ms)
        return self.find((consumer_group, *key)) if has_ended else lock

    def _end_if_over(self, lock: FencedLock, now_ms: int) -> bool:
        return now_ms >= lock.ends_ms and self._move(lock, LockEvent.TIME, now_ms)

    def _move(self, lock: FencedLock, event: LockEvent, now_ms: int) -> bool:
        """Follow the table of transitions. Returns whether it has a row."""
        row = TRANSITIONS.get((lock.state, event))
        if row is None:
            return False
        lock.state = row.state
        if row.state is LockState.FREE or event is LockEvent.GRANT:  # a grant begins another period
            self._remove(lock)
            self.on_removed(lock)
        if row.state in (LockState.FREE, LockState.ENDED):
            self.waiters.wake(lock.consumer_group, lock.key)
        if row.cause is not None:
            self._changed(lock, lock.client_id, None, row.cause, now_ms)
        return True

    def _changed(self, lock: FencedLock, old: str | None, new: str | None, cause: ChangeCause, now_ms: int) -> None:
        self.changes[cause] += 1
        self.on_owner_changed(lock.change(old, new, cause, now_ms))

    def _remove(self, lock: FencedLock) -> None:
        self._locks.remove(lock)
        self._due.forget(lock)

    def _has_capacity(self, consumer_group: str, now_ms: int) -> bool:
        """Whether one more lock fits. In a full table the oldest lock is removed if it has ended."""
        entries_max, of_group_max = self.settings.entries_max, self.settings.entries_per_group_max
        if entries_max and len(self._locks) >= entries_max and not self._expire_before(now_ms, now_ms, 1):
            return False
        return not of_group_max or self._locks.count_of(consumer_group) < of_group_max

    def expire(self, now_ms: int, count_max: int) -> int:
        """Remove locks without a renewal for `KEPT_LIVES` leases, at most `count_max`. Returns how many."""
        return self._expire_before(now_ms - KEPT_LIVES * self.settings.lease_ms, now_ms, count_max)

    def _expire_before(self, renewed_before_ms: int, now_ms: int, count_max: int) -> int:
        for count in range(count_max):
            oldest = self._locks.oldest()
            if oldest is None or oldest.renewed_ms >= renewed_before_ms or oldest.is_live(now_ms):
                return count
            self._end_if_over(oldest, now_ms)
            if oldest in self._locks:
                self._remove(oldest)
                self.on_removed(oldest)
        return count_max

    def rows(self, now_ms: int, consumer_group: str | None = None) -> Iterator[LockTableRow]:
        """All locks, or those of one group, sorted by group and queue; also ended ones."""
        locks, count = self._locks.sorted(consumer_group), self.waiters.count
        return (lock.row(now_ms, count(lock.consumer_group, lock.key)) for lock in locks)
