"""Who owns which queue: group -> MessageQueue -> LockEntry, RocketMQ's table to the millisecond (wire.md 7.2).

The table does not ask whether a topic, queue or consumer exists, is kept in memory alone, and is not touched by
disconnects. Pulls and commits are never checked against it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from lockstep.protocol.bodies import LockTableRow
from lockstep.protocol.model import MessageQueue

__all__ = ["LockAnswer", "LockEntry", "LockOutcome", "RebalanceLockManager"]


class LockOutcome(Enum):
    GRANTED = "granted"
    RENEWED = "renewed"
    TAKEN_OVER = "expired and taken over"
    REFUSED = "refused"

    @property
    def owned(self) -> bool:
        return self is not LockOutcome.REFUSED


@dataclass(slots=True)
class LockEntry:
    """`acquired_ms`: since when this client has held the queue without a gap."""

    client_id: str
    last_update_ms: int
    acquired_ms: int


class LockAnswer(NamedTuple):
    """`other`: who held the queue before (TAKEN_OVER) or holds it now (REFUSED), and how long ago it renewed."""

    queue: MessageQueue
    outcome: LockOutcome
    other: str | None = None
    age_ms: int = 0


class RebalanceLockManager:
    def __init__(self, max_live_time_ms: int) -> None:
        self.max_live_time_ms = max_live_time_ms
        self._table: dict[str, dict[MessageQueue, LockEntry]] = {}

    def try_lock_batch(
        self, consumer_group: str, client_id: str, queues: Iterable[MessageQueue], now_ms: int
    ) -> list[LockAnswer]:
        """One answer for each queue, in order. An entry is lost once its age is above the life, not at it."""
        entries = self._table.setdefault(consumer_group, {})
        return [self._try_lock(entries, client_id, queue, now_ms) for queue in queues]

    def _try_lock(
        self, entries: dict[MessageQueue, LockEntry], client_id: str, queue: MessageQueue, now_ms: int
    ) -> LockAnswer:
        entry = entries.get(queue)
        if entry is None:
            entries[queue] = LockEntry(client_id, now_ms, now_ms)
            return LockAnswer(queue, LockOutcome.GRANTED)
        age_ms = now_ms - entry.last_update_ms
        expired = age_ms > self.max_live_time_ms
        if entry.client_id == client_id and not expired:
            entry.last_update_ms = now_ms
            return LockAnswer(queue, LockOutcome.RENEWED, age_ms=age_ms)
        if expired:
            entries[queue] = LockEntry(client_id, now_ms, now_ms)
            return LockAnswer(queue, LockOutcome.TAKEN_OVER, entry.client_id, age_ms)
        return LockAnswer(queue, LockOutcome.REFUSED, entry.client_id, age_ms)

    def unlock_batch(self, consumer_group: str, client_id: str, queues: Iterable[MessageQueue]) -> list[LockAnswer]:
        """Release what the caller owns. The answers name the queues it does not own: REFUSED, with their owner."""
        entries = self._table.get(consumer_group, {})
        refused = []
        for queue in queues:
            entry = entries.get(queue)
            if entry is None or entry.client_id != client_id:
                refused.append(LockAnswer(queue, LockOutcome.REFUSED, entry.client_id if entry else None))
            else:
                del entries[queue]
        if not entries:
            self._table.pop(consumer_group, None)
        return refused

    def list(self, now_ms: int, consumer_group: str | None = None) -> tuple[LockTableRow, ...]:
        """The table, or one group's part of it, in the order of groups and queues; expired entries too."""
        return tuple(self._rows(now_ms, consumer_group))

    def _rows(self, now_ms: int, consumer_group: str | None) -> Iterator[LockTableRow]:
        groups = sorted(self._table) if consumer_group is None else [consumer_group]
        for group in groups:
            for queue, entry in sorted(self._table.get(group, {}).items(), key=lambda item: item[0]):
                age_ms = now_ms - entry.last_update_ms
                remaining_ms = self.max_live_time_ms - age_ms
                yield LockTableRow(group, queue, entry.client_id, age_ms, remaining_ms, now_ms - entry.acquired_ms)
