"""The fenced lock of one queue as a state machine: states, events, and one table of transitions.

docs/fencing.md shows these tables; a test compares them.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from lockstep.broker.ownership.changes import ChangeCause

__all__ = ["TRANSITIONS", "LockEvent", "LockState", "Transition"]


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
