"""The fenced way of ownership: each period has an epoch, and requests are checked (docs/fencing.md)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from lockstep.broker.config import BrokerConfig
from lockstep.broker.ownership.answers import LockAnswer, Locked, LockOutcome
from lockstep.broker.ownership.changes import ChangeCause, OwnerChange
from lockstep.broker.ownership.claim import Claim, Claiming
from lockstep.broker.ownership.denial import Act, Denial
from lockstep.broker.ownership.fenced.checks import FenceChecks
from lockstep.broker.ownership.fenced.locks import FencedLock, FencedLocks, FenceSettings
from lockstep.broker.ownership.fenced.notices import LockNotices
from lockstep.broker.ownership.port import EXPIRED_AT_ONCE_MAX, Around, Owners, Ownership
from lockstep.broker.peer import Peer
from lockstep.broker.sliced_work import Steps
from lockstep.protocol.bodies.locks import LockBatchBody, LockGrant
from lockstep.protocol.model import MessageQueue

__all__ = ["FencedOwnership"]

# A connection that ends ends so many of its locks at once, the others in steps. Each takes some 16 us.
_ENDED_AT_ONCE_MAX: Final = 200


class FencedOwnership(Ownership):
    """`table` has the locks, `checks` decide on requests, `notices` go to clients that wait for a queue."""

    table: FencedLocks

    def __init__(self, config: BrokerConfig, started_ms: int, around: Around) -> None:
        super().__init__(config, started_ms)
        # These requests cost more than RocketMQ's, so they may have a lower limit; of two that are equal the first is
        # named.
        limits = ("lock_queues_per_request_max", "fenced_queues_per_request_max")
        self.queues_max = min(((getattr(config, name), name) for name in limits), key=lambda limit: limit[0])
        settings = FenceSettings(
            config.lock_max_live_time_ms,
            config.lock_delay_ms,
            config.lock_delay_legacy_ms,
            config.lock_entries_max,
            config.lock_entries_per_group_max,
        )
        self.table = FencedLocks(settings, started_ms)
        self.kept_table, self.timed = self.table, (self.table,)
        self.checks = FenceChecks(self.table, around, config.fence_legacy, self.denials)
        self._notices = LockNotices(self.table, around)
        self._around = around
        self._looked: set[tuple[Peer, str, str]] = set()  # at `_looked_ms`, for silent clients
        self._looked_ms = 0
        self.table.on_owner_changed = self.owner_changed
        self.table.on_removed = self._removed

    def use(self, config: BrokerConfig) -> None:
        self.checks.legacy = config.fence_legacy

    # Locks ---------------------------------------------------------------------------------------------------

    def lock(self, asked: LockBatchBody, connection: Peer, now_ms: int, *, each: bool = False) -> Locked:
        group, client_id, queues, epochs = asked
        # First the client of this connection, then its locks: the end of the connection begins their lock delay.
        self.bind(connection, client_id, (group,), now_ms)
        if epochs is not None and not each and self.table.renew_all(asked, connection, now_ms):
            self.counts.outcomes[LockOutcome.RENEWED] += len(queues)
            self._changed()
            return Locked(queues, (), epochs, self.table.lease_ms)
        answers = self.table.try_lock_batch(group, client_id, queues, epochs, connection, now_ms)
        self._record(asked, answers, now_ms)
        self._changed(asked, answers)
        owned = [answer.queue for answer in answers if answer.grant is not None]
        # An unmodified client reads only the queues that it got. It learns of no wait and no epoch (wire.md 7.1).
        if epochs is None:
            return Locked(owned, answers)
        given = [answer.grant.epoch for answer in answers if answer.grant is not None]
        return Locked(owned, answers, given, self.table.lease_ms)

    def unlock(self, asked: LockBatchBody, connection: Peer, now_ms: int) -> Sequence[LockAnswer]:
        """Only those under the epochs of the request."""
        group, client_id, queues, epochs = asked
        self.bind(connection, client_id, (group,), now_ms)
        refused = self.table.unlock_batch(group, client_id, queues, epochs, now_ms)
        self._changed()
        return refused

    # Checks --------------------------------------------------------------------------------------------------

    def deny(self, connection: Peer, claim: Claiming, act: Act, now_ms: int) -> Denial | None:
        return self.checks.deny(connection, claim, act, now_ms)

    def deny_commit(
        self, connection: Peer, claim: Claiming, offset: int, stored: int, now_ms: int, alone: bool
    ) -> Denial | None:
        return self.checks.deny_commit(connection, claim, offset, stored, now_ms, alone)

    def committed(self, claim: Claiming, now_ms: int, alone: bool) -> None:
        # Most commits come under an epoch, and end nothing.
        if claim.lock_epoch is None or self.checks.resets:
            self.checks.committed(claim, now_ms, alone)
            self._changed()

    def deny_reset(self, connection: Peer, claim: Claiming, now_ms: int) -> Denial | None:
        return self.checks.deny(connection, claim, Act.RESET, now_ms)

    def deny_reset_to(self, connection: Peer, claim: Claiming, offset: int, stored: int, now_ms: int) -> Denial | None:
        return self.checks.deny_reset_to(connection, claim, offset, stored, now_ms)

    def begin_epoch(self, connection: Peer, claim: Claiming, now_ms: int) -> LockGrant | Denial:
        grant = self.checks.begin_epoch(connection, claim, now_ms)
        self._changed()
        return grant

    def claim_to_hold(self, claim: Claiming) -> Claim | None:
        return Claim(claim.consumer_group, claim.topic, claim.queue_id, claim.lock_epoch, claim.lock_client_id)

    def deny_held(self, connection: Peer, claim: Claim, now_ms: int) -> Denial | None:
        return self.checks.deny_held(connection, claim, now_ms)

    def is_owned(self, consumer_group: str, topic: str, queue_id: int, now_ms: int) -> bool:
        return self.table.is_owned(consumer_group, topic, queue_id, now_ms)

    def owners(self, consumer_group: str) -> Owners:
        return Owners(self.table.changes.total(), self.table.last_owners(consumer_group))

    # Resets by an administrator --------------------------------------------------------------------------------

    def are_guarded(self, consumer_group: str, topic: str, queue_ids: Iterable[int], now_ms: int) -> bool:
        return self.checks.are_locked(consumer_group, topic, queue_ids, now_ms)

    def reset(self, consumer_group: str, topic: str, offsets: Mapping[int, int], now_ms: int) -> bool:
        self.checks.reset(consumer_group, topic, offsets, now_ms)
        return True

    # Changes of owners ---------------------------------------------------------------------------------------

    def owner_changed(self, change: OwnerChange) -> None:
        """Another period of ownership began, or one ended."""
        group, queue = change.consumer_group, change.queue
        if change.new is not None and self.checks.resets and not self._goes_on(change):
            # The new period begins at the stored offset. So its owner has taken the reset.
            self.checks.resets.end((group, queue.topic, queue.queue_id))
        self.journal.owner_changed(change)
        lock = self.table.find((group, queue.topic, queue.queue_id))
        if self.persistence is not None and change.new is not None and lock is not None:
            self.persistence.began(lock.kept())
        self._notices.owner_changed(change)
        self.on_pullers_changed(group, (queue.topic, queue.queue_id), change.now_ms)
        if change.cause is ChangeCause.LEASE_ENDED and change.old is not None:
            self._look_for_silence(group, change.old, queue, change.now_ms)

    def _removed(self, lock: FencedLock) -> None:
        if self.persistence is not None:
            self.persistence.freed((lock.consumer_group, *lock.key))

    def _goes_on(self, change: OwnerChange) -> bool:
        """Whether the new owner commits as before: it reclaimed its queue, or does not know that its lock had ended."""
        if change.cause is ChangeCause.RECLAIMED:
            return True
        lock = self.table.entry(change.consumer_group, change.queue.topic, change.queue.queue_id)
        return change.old == change.new and lock is not None and not lock.fenced

    def _look_for_silence(self, group: str, client_id: str, queue: MessageQueue, now_ms: int) -> None:
        """Each look reads all locks of a connection, whose leases end together: one look for all of them."""
        lock = self.table.entry(group, queue.topic, queue.queue_id)
        # Without a connection since a restart, the owner is no member of the group by it.
        if lock is None or lock.connection is None:
            return
        if now_ms != self._looked_ms:
            self._looked_ms = now_ms
            self._looked.clear()
        client = (lock.connection, group, client_id)
        if client not in self._looked:
            self._looked.add(client)
            if self.table.is_silent(lock, now_ms):
                self._around.on_silent(group, client_id, now_ms)

    # Clients and connections -----------------------------------------------------------------------------------

    def bind(self, connection: Peer, client_id: str, consumer_groups: Iterable[str], now_ms: int) -> None:
        is_new = False
        for group in consumer_groups:
            is_new |= self.checks.clients.bind(connection, group, client_id)
        if is_new:
            self.on_bound(connection, now_ms)

    def client_left(self, consumer_group: str, client_id: str, connection: Peer, now_ms: int) -> None:
        self.table.client_left(consumer_group, client_id, connection, now_ms)
        self._changed()

    def on_closed(self, connection: Peer) -> None:
        self.checks.clients.on_closed(connection)

    def connection_ended(self, connection: Peer, now_ms: int) -> None:
        """Lock delays begin if the peer ended the connection. Some thousands of locks end in steps, all as of now."""
        if self._end_some(connection, now_ms):
            self._around.work.start(("locks of", connection), self._end_rest(connection, now_ms))

    def _end_rest(self, connection: Peer, now_ms: int) -> Steps:
        while self._end_some(connection, now_ms):
            yield None

    def _end_some(self, connection: Peer, now_ms: int) -> bool:
        """Returns whether the connection has more locks."""
        by_peer = connection.ended_by_peer
        delayed_count, has_more = self.table.connection_ended(connection, by_peer, now_ms, _ENDED_AT_ONCE_MAX)
        self._changed()
        if delayed_count:
            self._around.log.info("locks_delayed", peer=connection.address, count=delayed_count)
        return has_more

    # Time ------------------------------------------------------------------------------------------------------

    def end_due(self, now_ms: int) -> None:
        """A lock delay is over, or a lease for which clients wait."""
        self.table.due(now_ms)
        self._changed()
        self._notices.check()

    def expire(self, now_ms: int) -> None:
        self.table.expire(now_ms, EXPIRED_AT_ONCE_MAX)
        self._changed()
        self.checks.resets.expire(now_ms)
        if self.persistence is not None:
            self.persistence.tick()

    # Disk ------------------------------------------------------------------------------------------------------

    def when_durable(
        self, consumer_group: str, begun: Sequence[tuple[MessageQueue, int]], now_ms: int, then: Callable[[str], None]
    ) -> None:
        if self.persistence is None:
            then("")
        else:
            self.persistence.when_durable(partial(self._written, consumer_group, begun, now_ms, then))

    def _written(
        self,
        consumer_group: str,
        begun: Sequence[tuple[MessageQueue, int]],
        now_ms: int,
        then: Callable[[str], None],
        reason: str,
    ) -> None:
        if reason:
            for queue, epoch in begun:
                self.table.withdraw(consumer_group, queue, epoch, now_ms)
            self._changed()
        then(reason)

    # Facts for administrators ----------------------------------------------------------------------------------

    def denial_counts(self) -> Mapping[str, int] | None:
        return {f"{act}.{reason}": count for (act, reason), count in sorted(self.denials.refused.items())}

    def runtime_rows(self) -> Mapping[str, str]:
        changes = self.table.changes
        return {
            **{f"fence.{kind}": str(count) for kind, count in self.denials.rows().items()},
            **{f"locks.{cause.name.lower()}": str(changes[cause]) for cause in ChangeCause if changes[cause]},
        }
