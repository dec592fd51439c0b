"""Compares two reads of the lock table, names the changes, and says how long a lock lasts."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from lockstep.cli.output import seconds
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.model import MessageQueue

__all__ = ["Change", "ChangeKind", "LockKey", "changes", "left_text"]

LockKey = tuple[str, MessageQueue]


class ChangeKind(StrEnum):
    HELD = "held"  # already held when the watch began
    ACQUIRED = "acquired"
    RENEWED = "renewed"
    MOVED = "moved"
    DRAINING = "draining"  # its end has begun
    EXPIRED = "expired"
    RELEASED = "released"


class Change(NamedTuple):
    kind: ChangeKind
    row: LockTableRow  # as last seen, for RELEASED
    previous_owner: str | None = None


def changes(
    before: Mapping[LockKey, LockTableRow] | None, rows: Iterable[LockTableRow], *, renewals: bool
) -> list[Change]:
    """The changes between two reads of the lock table; `before` is None at the first read."""
    now = {(row.consumer_group, row.queue): row for row in rows}
    if before is None:
        return [Change(ChangeKind.HELD if row.remaining_ms >= 0 else ChangeKind.EXPIRED, row) for row in now.values()]
    found = [Change(ChangeKind.RELEASED, row) for key, row in before.items() if key not in now]
    for key, row in now.items():
        kind = _kind(before.get(key), row)
        if kind is not None and (renewals or kind is not ChangeKind.RENEWED):
            previous = before[key].client_id if kind is ChangeKind.MOVED else None
            found.append(Change(kind, row, previous))
    return sorted(found, key=lambda change: (change.row.consumer_group, change.row.queue))


def _kind(old: LockTableRow | None, new: LockTableRow) -> ChangeKind | None:
    if old is None:
        return ChangeKind.ACQUIRED
    if new.client_id != old.client_id:
        return ChangeKind.MOVED
    if new.remaining_ms < 0:
        return None if old.remaining_ms < 0 else ChangeKind.EXPIRED
    if new.held_ms < old.held_ms or new.epoch != old.epoch:
        return ChangeKind.ACQUIRED
    if new.draining and not old.draining:
        return ChangeKind.DRAINING
    return ChangeKind.RENEWED if new.age_ms < old.age_ms else None


def left_text(row: LockTableRow) -> str:
    """How long its client owns the queue yet, unless it renews the lock."""
    if row.remaining_ms < 0:
        return f"expired {seconds(-row.remaining_ms)} ago"
    return f"{seconds(row.remaining_ms)}, draining" if row.draining else seconds(row.remaining_ms)
