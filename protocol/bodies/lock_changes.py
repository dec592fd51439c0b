"""LIST_LOCK_CHANGES (30005), a Lockstep extension: how the owners of queues changed."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from lockstep.protocol.bodies.broker import queue_from_wire, queue_to_wire
from lockstep.protocol.bodies.codec import as_int, as_list, as_object, as_table, take
from lockstep.protocol.epochs import EpochValue, parse_epoch
from lockstep.protocol.errors import BodyError
from lockstep.protocol.model import MessageQueue

__all__ = ["LockChange", "LockChangesBody"]


class LockChange(NamedTuple):
    """One change of the owner of a queue.

    Args:
        number: Of the broker's changes since its start, from 0.
        at_ms: Epoch ms of the broker's clock.
        old, new: Client ids; None: no owner. Of a refusal: the owner, and the client that was refused.
        epoch: Of the period that began or ended; None without fenced locks, and for a refusal.
        cause: "granted", "granted again" (to its last owner), "taken over", "reclaimed", "reset", "unlocked", "left",
            "connection lost", "lease ended", "withdrawn", or "refused".
        rest_ms: Of a grant: since the last sign of the last owner (an unlock, a renewal, the end of its connection).
    """

    number: int
    at_ms: int
    consumer_group: str
    queue: MessageQueue
    old: str | None
    new: str | None
    epoch: int | None
    cause: str
    rest_ms: int = 0

    @property
    def is_refusal(self) -> bool:
        return self.cause == "refused"

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "atMs": self.at_ms,
            "cause": self.cause,
            "consumerGroup": self.consumer_group,
            "messageQueue": queue_to_wire(self.queue),
            "number": self.number,
            "restMs": self.rest_ms,
        }
        if self.old is not None:
            wire["old"] = self.old
        if self.new is not None:
            wire["new"] = self.new
        if self.epoch is not None:
            wire["epoch"] = EpochValue(self.epoch)
        return wire

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a lock change")
        try:
            epoch = None if wire.get("epoch") is None else parse_epoch(wire["epoch"])
        except ValueError as error:
            raise BodyError(str(error)) from None
        return cls(
            take(wire, "number", int),
            take(wire, "atMs", int),
            take(wire, "consumerGroup", str),
            queue_from_wire(wire.get("messageQueue")),
            take(wire, "old", str, None),
            take(wire, "new", str, None),
            epoch,
            take(wire, "cause", str),
            take(wire, "restMs", int, 0),
        )


class LockChangesBody(NamedTuple):
    """Reply to LIST_LOCK_CHANGES.

    Args:
        started_ms: Epoch ms of the broker's start; with another one, cursors begin anew.
        now_ms: Of the broker's clock.
        first: The number of the oldest change that the broker keeps.
        next_cursor: For the next request.
        changes: Oldest first.
        refused_count: Queues in lock requests that were refused since the start.
        fenced_counts: Requests that fenced locks refused since the start, by "pull.fenced" and the like; None without
            fenced locks.
    """

    started_ms: int
    now_ms: int
    first: int
    next_cursor: int
    changes: tuple[LockChange, ...]
    refused_count: int | None = None
    fenced_counts: Mapping[str, int] | None = None

    def to_wire(self) -> dict[str, Any]:
        counts = {"refusedCount": self.refused_count, "fencedCounts": self.fenced_counts}
        return {name: value for name, value in counts.items() if value is not None} | {
            "changes": [change.to_wire() for change in self.changes],
            "first": self.first,
            "nextCursor": self.next_cursor,
            "nowMs": self.now_ms,
            "startedMs": self.started_ms,
        }

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "lock changes")
        started_ms, now_ms = take(wire, "startedMs", int), take(wire, "nowMs", int)
        first, cursor = take(wire, "first", int), take(wire, "nextCursor", int)
        changes = tuple(map(LockChange.from_wire, as_list(wire.get("changes"), "changes")))
        refused, fenced = take(wire, "refusedCount", int, None), wire.get("fencedCounts")
        if fenced is not None:
            fenced = {name: as_int(count, "a count") for name, count in as_table(fenced, "fencedCounts").items()}
        return cls(started_ms, now_ms, first, cursor, changes, refused, fenced)
