"""The fenced lock of one queue as a state machine: states, events, and one table of transitions.

docs/fencing.md shows these tables; a test compares them.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from lockstep.protocol.model import MessageQueue

__all__ = ["TRANSITIONS", "ChangeCause", "LockEvent", "LockState", "OwnerChange", "Transition"]


class LockState(Enum):
    FREE = "no client owns the queue, and no epoch of it is known"
    HELD = "a client owns the queue until its lease ends"
    DELAYED = "the connection of the last renewal is gone: the client owns the queue until the lock delay ends"
    RELEASING = "an unmodified client unlocked the queue, and its last commit may still come"
    ENDED = "no client owns the queue; commits of the last period are still taken"


class LockEvent(Enum):
    GRANT = "a claim is granted"
    RENEW = "the owner renews its lock"
    PEER_ENDED = "the peer ended the connection of the last renewal"
    TIME = "the time of the state is over"
    UNLOCK = "one of our clients unlocks the queue, under its epoch"
    LEGACY_UNLOCK = "an unmodified client unlocks the queue"
    COMMIT = "a commit of the unmodified owner was stored"
    LEAVE = "the owner sent UNREGISTER_CLIENT over the connection of the last renewal"
    WITHDRAW = "a grant could not be kept on the disk, and is not answered"


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


class Transition(NamedTuple):
    """The next state. `cause`: why the period of ownership ends, if it does."""

    state: LockState
    cause: ChangeCause | None = None


_S, _E, _C, _T = LockState, LockEvent, ChangeCause, Transition
# An event without a row changes nothing.
TRANSITIONS: Final[Mapping[tuple[LockState, LockEvent], Transition]] = {
    (_S.FREE, _E.GRANT): _T(_S.HELD),
    (_S.HELD, _E.RENEW): _T(_S.HELD),
    (_S.HELD, _E.PEER_ENDED): _T(_S.DELAYED),
    (_S.HELD, _E.TIME): _T(_S.ENDED, _C.LEASE_ENDED),
    (_S.HELD, _E.UNLOCK): _T(_S.FREE, _C.UNLOCKED),
    (_S.HELD, _E.LEGACY_UNLOCK): _T(_S.RELEASING),
    (_S.HELD, _E.LEAVE): _T(_S.FREE, _C.LEFT),
    (_S.HELD, _E.WITHDRAW): _T(_S.FREE, _C.WITHDRAWN),
    (_S.DELAYED, _E.RENEW): _T(_S.HELD),
    (_S.DELAYED, _E.TIME): _T(_S.ENDED, _C.CONNECTION_LOST),
    (_S.DELAYED, _E.UNLOCK): _T(_S.FREE, _C.UNLOCKED),
    (_S.DELAYED, _E.LEGACY_UNLOCK): _T(_S.RELEASING),
    (_S.DELAYED, _E.WITHDRAW): _T(_S.FREE, _C.WITHDRAWN),
    (_S.RELEASING, _E.GRANT): _T(_S.HELD, _C.UNLOCKED),  # the same client locks it again
    (_S.RELEASING, _E.PEER_ENDED): _T(_S.FREE, _C.UNLOCKED),
    (_S.RELEASING, _E.TIME): _T(_S.FREE, _C.UNLOCKED),
    (_S.RELEASING, _E.COMMIT): _T(_S.FREE, _C.UNLOCKED),
    (_S.RELEASING, _E.LEAVE): _T(_S.FREE, _C.LEFT),
    (_S.RELEASING, _E.WITHDRAW): _T(_S.FREE, _C.WITHDRAWN),
    (_S.ENDED, _E.GRANT): _T(_S.HELD),
    (_S.ENDED, _E.UNLOCK): _T(_S.FREE),
    (_S.ENDED, _E.LEGACY_UNLOCK): _T(_S.FREE),
    (_S.ENDED, _E.LEAVE): _T(_S.FREE),
    (_S.ENDED, _E.WITHDRAW): _T(_S.FREE),
}


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
