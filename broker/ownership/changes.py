"""What both ways of ownership report: the owner of a queue changed, and why."""

from enum import Enum
from typing import NamedTuple

from lockstep.protocol.model import MessageQueue

__all__ = ["ChangeCause", "OwnerChange"]


class ChangeCause(Enum):
    """Why the owner of a queue changed."""

    GRANTED = "granted"  # it had no owner
    TAKEN_OVER = "taken over"  # the period of its last owner had ended
    RECLAIMED = "reclaimed"  # in the grace period of a broker that had lost its table
    RESET = "reset"  # the owner moved its offset and got a new epoch
    UNLOCKED = "unlocked"
    LEFT = "left"  # UNREGISTER_CLIENT
    CONNECTION_LOST = "connection lost"  # and the lock delay is over
    LEASE_ENDED = "lease ended"
    WITHDRAWN = "withdrawn"  # the grant could not be kept


class OwnerChange(NamedTuple):
    """What the tables of locks report: another period of ownership began, or one ended.

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
