"""Lock rows and changes of owners as brokers send them, for tests of the console."""

from lockstep.protocol.bodies.lock_changes import LockChange
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.model import MessageQueue

__all__ = ["GROUP", "NOW_MS", "change", "queue_at", "row"]

GROUP = "billing"
NOW_MS = 1_700_000_000_000


def queue_at(number: int, topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic, "broker-a", number)


def change(
    at_ms: int,
    old: str | None,
    new: str | None,
    cause: str,
    *,
    queue: MessageQueue | None = None,
    group: str = GROUP,
    epoch: int | None = None,
    rest_ms: int = 0,
) -> LockChange:
    return LockChange(0, at_ms, group, queue or queue_at(0), old, new, epoch, cause, rest_ms)


def row(
    owner: str,
    *,
    queue: MessageQueue | None = None,
    age_ms: int = 0,
    life_ms: int = 60_000,
    held_ms: int = 0,
    epoch: int | None = None,
    draining: bool | None = None,
    group: str = GROUP,
) -> LockTableRow:
    return LockTableRow(group, queue or queue_at(0), owner, age_ms, life_ms - age_ms, held_ms, epoch, draining)
