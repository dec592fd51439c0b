"""Faithful members that give a queue away, by their traces: what they had handled before is committed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from lockstep.client import MessageQueue
from lockstep.order import Record

__all__ = ["Undrained", "undrained"]

_SHUTDOWN: Final = "shutdown"


class Undrained(NamedTuple):
    """`dropped`: the record of the period's end."""

    queue: MessageQueue
    done: int
    committed: int
    dropped: Record


@dataclass
class _Period:
    done: int = 0  # the offset behind what was handled
    committed: int = 0
    dropped: Record | None = None
    # A call ended later, or the lock was lost, or not renewed while a shutdown waited for a call.
    in_doubt: bool = False


def undrained(records: Iterable[Record]) -> Iterator[Undrained]:
    """Periods of one member that ended without a commit of what was handled. A call that ends later commits nothing.

    A call that ends after its process leaves no record: there a period may look undrained that is not.
    """
    periods: dict[tuple[str, MessageQueue, int], _Period] = {}
    for one in records:
        if "period" not in one:
            continue
        queue = MessageQueue(one["topic"], one["broker"], one["queue_id"])
        period = periods.setdefault((one["client_id"], queue, one["period"]), _Period())
        match one["event"]:
            case "handled" if period.dropped is not None:
                period.in_doubt = True
            case "handled" if one["status"] == "SUCCESS":
                period.done = max(period.done, one["offset"] + 1)
            case "committed" | "reset":
                period.committed = max(period.committed, one["offset"])
            case "lock_lost":
                period.in_doubt = True
            case "dropped":
                period.dropped, period.in_doubt = one, period.in_doubt or one["why"] == _SHUTDOWN
    for (_, queue, _), period in periods.items():
        if period.dropped is not None and not period.in_doubt and period.committed < period.done:
            yield Undrained(queue, period.done, period.committed, period.dropped)
