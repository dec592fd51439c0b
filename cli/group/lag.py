"""How far a group is behind in each queue, and how fast that changes: from two looks at its offsets."""

from collections.abc import Sequence
from typing import NamedTuple

from lockstep.protocol.model import MessageQueue

__all__ = ["GroupLook", "QueueLook", "QueueRate", "left_s", "rates", "total"]


class QueueLook(NamedTuple):
    """A queue of a group.

    Args:
        owner: None: unknown, or none.
        committed: None: no offset is stored.
        end: The offset that the next message will get.
        consumed_ms: When the last message below `committed` was stored, epoch ms; 0: unknown.
    """

    owner: str | None
    committed: int | None
    end: int
    consumed_ms: int = 0

    @property
    def lag(self) -> int | None:
        return None if self.committed is None else max(self.end - self.committed, 0)


class GroupLook(NamedTuple):
    """Args:
    at_ns: Of a monotonic clock.
    """

    at_ns: int
    members: int
    queues: dict[MessageQueue, QueueLook]


class QueueRate(NamedTuple):
    """Messages a second since the last look; None at the first."""

    consumed: float | None = None
    stored: float | None = None


def rates(before: GroupLook | None, now: GroupLook) -> dict[MessageQueue, QueueRate]:
    """Rates of each queue. An offset that went back counts as a negative rate: the group was reset."""
    if before is None or now.at_ns <= before.at_ns:
        return dict.fromkeys(now.queues, QueueRate())
    passed_s = (now.at_ns - before.at_ns) / 1e9
    found = {}
    for queue, look in now.queues.items():
        old = before.queues.get(queue)
        if old is None:
            found[queue] = QueueRate()
            continue
        known = look.committed is not None and old.committed is not None
        consumed = ((look.committed or 0) - (old.committed or 0)) / passed_s if known else None
        found[queue] = QueueRate(consumed, (look.end - old.end) / passed_s)
    return found


def total(of_queues: Sequence[QueueRate]) -> QueueRate:
    """The sum; None where no queue has a rate."""
    consumed = [rate.consumed for rate in of_queues if rate.consumed is not None]
    stored = [rate.stored for rate in of_queues if rate.stored is not None]
    return QueueRate(sum(consumed) if consumed else None, sum(stored) if stored else None)


def left_s(lag: int, rate: QueueRate) -> float | None:
    """Seconds until the lag is 0 at this rate; None when it does not shrink."""
    if rate.consumed is None or rate.stored is None or rate.consumed <= rate.stored:
        return None
    return lag / (rate.consumed - rate.stored)
