"""What the table of fenced locks answers."""

from enum import Enum
from typing import NamedTuple

from lockstep.broker.state.locks import LockOutcome
from lockstep.protocol.bodies.locks import LockGrant
from lockstep.protocol.model import MessageQueue

__all__ = ["FenceAnswer", "FencedAnswer"]


class FenceAnswer(Enum):
    """The answer to a request under an epoch; the names are those of the response codes."""

    OK = "ok"
    FENCED = "fenced"  # another client has the queue, or had it since
    NOT_HELD = "not held"  # no client has it
    STALE = "stale"  # the same client has a newer epoch of it


class FencedAnswer(NamedTuple):
    """The result for one queue of a lock or unlock request.

    Args:
        grant: Epoch and lease, when the client owns the queue now.
        fence: FENCED, NOT_HELD or STALE, when a request under an epoch was refused.
        other: The owner, or the last one when it was taken over.
        age_ms: Since the last renewal.
        wait_ms: Until the time of the owner ends, when a claim was refused.
    """

    queue: MessageQueue
    outcome: LockOutcome
    grant: LockGrant | None = None
    fence: FenceAnswer = FenceAnswer.OK
    other: str | None = None
    age_ms: int = 0
    wait_ms: int = 0
