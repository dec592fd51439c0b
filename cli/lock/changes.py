"""What changed in the locks: from the brokers' journals of owners, and from two reads of the lock table."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from lockstep.cli.output import seconds
from lockstep.protocol.bodies.lock_changes import LockChange
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.model import MessageQueue

__all__ = ["Change", "ChangeKind", "LockKey", "journal_changes", "left_text", "table_changes"]

LockKey = tuple[str, MessageQueue]


class ChangeKind(StrEnum):
    HELD = "held"  # already held when the watch began
    ACQUIRED = "acquired"
    RENEWED = "renewed"
    MOVED = "moved"
    DRAINING = "draining"  # its end has begun
    EXPIRED = "expired"
    RELEASED = "released"
    RESET = "reset"  # its owner moved its offset, and has another epoch
    REFUSED = "refused"


_KINDS: Final[Mapping[str, ChangeKind]] = {
    "granted": ChangeKind.ACQUIRED,
    "granted again": ChangeKind.ACQUIRED,
    "reclaimed": ChangeKind.ACQUIRED,
    "taken over": ChangeKind.MOVED,
    "unlocked": ChangeKind.RELEASED,
    "left": ChangeKind.RELEASED,
    "withdrawn": ChangeKind.RELEASED,
    "connection lost": ChangeKind.EXPIRED,
    "lease ended": ChangeKind.EXPIRED,
    "reset": ChangeKind.RESET,
    "refused": ChangeKind.REFUSED,
}


class Change(NamedTuple):
    """
    Args:
        row: As last seen; made of the journal's record if the queue has another owner by now.
        at_ms: Epoch ms of the broker; None: this moment.
        cause, rest_ms: As in the journal.
    """

    kind: ChangeKind
    row: LockTableRow
    previous_owner: str | None = None
    at_ms: int | None = None
    cause: str | None = None
    rest_ms: int = 0


def table_changes(
    before: Mapping[LockKey, LockTableRow] | None, rows: Iterable[LockTableRow], *, renewals: bool
) -> list[Change]:
    """What only the lock table shows: what is held at first, renewals, and the ends of locks that expire silently.

    Args:
        before: The read before; None at the first one.
    """
    if before is None:
        first = [Change(ChangeKind.HELD if row.is_held else ChangeKind.EXPIRED, row) for row in rows]
        return sorted(first, key=lambda change: (change.row.consumer_group, change.row.queue))
    found = []
    for row in rows:
        old = before.get((row.consumer_group, row.queue))
        kind = _kind(old, row) if old is not None else None
        if kind is not None and (renewals or kind is not ChangeKind.RENEWED):
            found.append(Change(kind, row))
    return sorted(found, key=lambda change: (change.row.consumer_group, change.row.queue))


def _kind(old: LockTableRow, new: LockTableRow) -> ChangeKind | None:
    if new.client_id != old.client_id or new.held_ms < old.held_ms or new.epoch != old.epoch:
        return None  # the journal has it
    if new.remaining_ms < 0:  # the journal has the end of a lease too
        return None if old.remaining_ms < 0 or new.epoch is not None else ChangeKind.EXPIRED
    if new.draining and not old.draining:
        return ChangeKind.DRAINING
    return ChangeKind.RENEWED if new.age_ms < old.age_ms else None


def journal_changes(
    changes: Iterable[LockChange], rows: Mapping[LockKey, LockTableRow], *, refusals: bool
) -> list[Change]:
    """Changes of owners, in the order in which they happened.

    Args:
        rows: The lock table after them.
    """
    found = []
    for change in changes:
        kind = _KINDS.get(change.cause, ChangeKind.ACQUIRED if change.new is not None else ChangeKind.RELEASED)
        if kind is ChangeKind.REFUSED and not refusals:
            continue
        client_id = change.new or change.old or ""
        row = rows.get((change.consumer_group, change.queue))
        if row is None or row.client_id != client_id or row.epoch != change.epoch:
            row = LockTableRow(change.consumer_group, change.queue, client_id, 0, 0, 0, change.epoch)
        previous = change.old if change.new is not None and change.old != change.new else None
        found.append(Change(kind, row, previous, change.at_ms, change.cause, change.rest_ms))
    return found


def left_text(row: LockTableRow) -> str:
    """How long its client owns the queue yet, unless it renews the lock."""
    if row.remaining_ms < 0:
        return f"expired {seconds(-row.remaining_ms)} ago"
    return f"{seconds(row.remaining_ms)}, draining" if row.draining else seconds(row.remaining_ms)
