"""Queue locks: consumer group -> MessageQueue -> LockEntry, with RocketMQ's rules to the millisecond (wire.md 7.2).

The table is in memory only. It does not check whether a topic, queue or consumer exists, and a disconnect does not
change it. Pulls and commits do not check locks.

RocketMQ keeps an entry forever. Here the number of entries is limited, and an entry without a renewal for
`KEPT_LIVES` lock lives is removed; its lock has expired long before.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from lockstep.broker.ownership.answers import LockAnswer, LockOutcome
from lockstep.broker.ownership.changes import ChangeCause, OwnerChange
from lockstep.broker.ownership.port import KEPT_LIVES
from lockstep.protocol.bodies.locks import LockBatchBody, LockTableRow
from lockstep.protocol.model import MessageQueue

__all__ = ["LockEntry", "RebalanceLockManager"]


@dataclass(slots=True, eq=False)
class LockEntry:
    """`acquired_ms`: epoch ms since when this client holds the lock without a gap."""

    client_id: str
    last_update_ms: int
    acquired_ms: int


class RebalanceLockManager:
    """The table of locks. `entries_max` and `entries_per_group_max` limit it; 0: no limit.

    `on_owner_changed` is called at each change of an owner. A lock that expires has its owner until another takes over.
    """

    def __init__(self, max_live_time_ms: int, entries_max: int = 0, entries_per_group_max: int = 0) -> None:
        self.max_live_time_ms = max_live_time_ms
        self.on_owner_changed: Callable[[OwnerChange], None] = lambda _: None
        self._entries_max = entries_max
        self._entries_per_group_max = entries_per_group_max
        self._table: dict[str, dict[MessageQueue, LockEntry]] = {}
        # Group and queue of each entry, by its last renewal, oldest first. An entry is hashed faster than its names.
        self._by_age: OrderedDict[LockEntry, tuple[str, MessageQueue]] = OrderedDict()

    def __len__(self) -> int:
        """The number of entries of all groups, also expired ones."""
        return len(self._by_age)

    def try_lock_batch(
        self, consumer_group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int
    ) -> list[LockAnswer]:
        """Lock queues. Returns one answer for each, in order. A lock expires when its age exceeds the life."""
        entries = self._table.get(consumer_group, {})
        return [self._try_lock(entries, consumer_group, client_id, queue, now_ms) for queue in queues]

    def renew_all(self, asked: LockBatchBody, now_ms: int) -> bool:
        """Renew all queues of a request, if the client has the lock of each, faster; else change nothing."""
        group, client_id, queues, _ = asked
        entries, alive_since_ms, held = self._table.get(group, {}), now_ms - self.max_live_time_ms, []
        for queue in queues:
            entry = entries.get(queue)
            if entry is None or entry.client_id != client_id or entry.last_update_ms < alive_since_ms:
                return False
            held.append(entry)
        to_youngest = self._by_age.move_to_end
        for entry in held:
            entry.last_update_ms = now_ms
            to_youngest(entry)
        return True

    def _try_lock(
        self,
        entries: dict[MessageQueue, LockEntry],
        consumer_group: str,
        client_id: str,
        queue: MessageQueue,
        now_ms: int,
    ) -> LockAnswer:
        # The four cases of RocketMQ's table (wire.md 7.2). First case: nobody has the queue.
        entry = entries.get(queue)
        if entry is None:
            if not self._has_capacity(entries, now_ms):
                return LockAnswer(queue, LockOutcome.TABLE_FULL)
            self._put(entries, consumer_group, queue, LockEntry(client_id, now_ms, now_ms))
            self.on_owner_changed(OwnerChange(consumer_group, queue, None, client_id, 0, ChangeCause.GRANTED, now_ms))
            return LockAnswer(queue, LockOutcome.GRANTED)
        age_ms = now_ms - entry.last_update_ms
        # More than the life: at exactly its age the lock still holds (wire.md 7.2).
        expired = age_ms > self.max_live_time_ms
        # Second case: the owner renews.
        if entry.client_id == client_id and not expired:
            entry.last_update_ms = now_ms
            self._by_age.move_to_end(entry)
            return LockAnswer(queue, LockOutcome.RENEWED, age_ms=age_ms)
        # Third case: the lock has run out. Its old owner gets it again as anybody else does, as a new period.
        if expired:
            outcome = LockOutcome.REACQUIRED if entry.client_id == client_id else LockOutcome.TAKEN_OVER
            self._put(entries, consumer_group, queue, LockEntry(client_id, now_ms, now_ms))
            old, seen_ms, cause = entry.client_id, entry.last_update_ms, ChangeCause.TAKEN_OVER
            self.on_owner_changed(OwnerChange(consumer_group, queue, old, client_id, 0, cause, now_ms, seen_ms))
            return LockAnswer(queue, outcome, old, age_ms)
        # Fourth case: another client has the queue.
        return LockAnswer(queue, LockOutcome.REFUSED, entry.client_id, age_ms)

    def _put(
        self, entries: dict[MessageQueue, LockEntry], consumer_group: str, queue: MessageQueue, entry: LockEntry
    ) -> None:
        # A new group, or one whose last entry was evicted.
        self._table[consumer_group] = entries
        if queue in entries:
            del self._by_age[entries[queue]]
        entries[queue] = entry
        self._by_age[entry] = (consumer_group, queue)

    def _has_capacity(self, entries: dict[MessageQueue, LockEntry], now_ms: int) -> bool:
        """Whether one more entry fits. In a full table the oldest entry is removed if it has expired."""
        # Only an expired lock may go for a new one. A live one would leave its queue with two owners.
        if self._entries_max and len(self._by_age) >= self._entries_max:
            self._expire_before(now_ms - self.max_live_time_ms, 1)
            if len(self._by_age) >= self._entries_max:
                return False
        return not self._entries_per_group_max or len(entries) < self._entries_per_group_max

    def expire(self, now_ms: int, count_max: int) -> int:
        """Remove entries without a renewal for `KEPT_LIVES` lives, at most `count_max`. Returns how many."""
        return self._expire_before(now_ms - KEPT_LIVES * self.max_live_time_ms, count_max)

    def _expire_before(self, updated_before_ms: int, count_max: int) -> int:
        for count in range(count_max):
            oldest = next(iter(self._by_age.items()), None)
            if oldest is None or oldest[0].last_update_ms >= updated_before_ms:
                return count
            self._remove(*oldest[1])
        return count_max

    def _remove(self, consumer_group: str, queue: MessageQueue) -> None:
        entries = self._table[consumer_group]
        del self._by_age[entries.pop(queue)]
        if not entries:
            del self._table[consumer_group]

    def unlock_batch(
        self, consumer_group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int
    ) -> list[LockAnswer]:
        """Release the queues that the client owns. Returns REFUSED, with the owner, for each of the others."""
        entries = self._table.get(consumer_group, {})
        refused = []
        for queue in queues:
            entry = entries.get(queue)
            if entry is None or entry.client_id != client_id:
                # Only the owner frees a queue. RocketMQ ignores any other request too (wire.md 7.2).
                refused.append(LockAnswer(queue, LockOutcome.REFUSED, entry.client_id if entry else None))
            else:
                self._remove(consumer_group, queue)
                self.on_owner_changed(
                    OwnerChange(consumer_group, queue, client_id, None, 0, ChangeCause.UNLOCKED, now_ms)
                )
        return refused

    def groups(self) -> tuple[str, ...]:
        """Consumer groups with entries."""
        return tuple(self._table)

    def held_topics(self, consumer_group: str, now_ms: int) -> Iterator[str]:
        """The topic of each queue of this moment that a client of the group owns, one by one."""
        alive_since_ms = now_ms - self.max_live_time_ms
        entries = tuple(self._table.get(consumer_group, {}).items())
        return (queue.topic for queue, entry in entries if entry.last_update_ms >= alive_since_ms)

    def rows(self, now_ms: int, consumer_group: str | None = None) -> Iterator[LockTableRow]:
        """All entries, or those of one group, sorted by group and queue; also expired ones."""
        groups = sorted(self._table) if consumer_group is None else [consumer_group]
        for group in groups:
            for queue, entry in sorted(self._table.get(group, {}).items(), key=lambda item: item[0]):
                age_ms = now_ms - entry.last_update_ms
                remaining_ms = self.max_live_time_ms - age_ms
                yield LockTableRow(group, queue, entry.client_id, age_ms, remaining_ms, now_ms - entry.acquired_ms)
