"""What the tables of locks report when the owner of a queue changes."""

from typing import NamedTuple

from lockstep.broker.fence.states import ChangeCause
from lockstep.protocol.model import MessageQueue

__all__ = ["OwnerChange"]


class OwnerChange(NamedTuple):
    """Another period of ownership began, or one ended.

    Args:
        old, new: Client ids; None: no owner. Both may be the same client.
        epoch: Of the period that begins, or of the one that ended; 0 without fenced locks.
        seen_ms: When the last sign of `old` arrived; 0: now.
    """

    consumer_group: str
    queue: MessageQueue
    old: str | None
    new: str | None
    epoch: int
    cause: ChangeCause
    now_ms: int
    seen_ms: int = 0
