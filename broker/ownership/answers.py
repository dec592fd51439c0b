"""What lock and unlock requests get, in both ways of ownership."""

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from lockstep.protocol.bodies.locks import LockGrant
from lockstep.protocol.model import MessageQueue

__all__ = ["FenceAnswer", "LockAnswer", "LockOutcome", "Locked"]


class LockOutcome(Enum):
    GRANTED = "granted"
    RENEWED = "renewed"
    TAKEN_OVER = "expired and taken over"
    REACQUIRED = "expired and granted to its owner again"
    REFUSED = "refused"
    TABLE_FULL = "table full"  # the queue has no owner

    @property
    def owned(self) -> bool:
        return self not in _NOT_OWNED


_NOT_OWNED: Final = (LockOutcome.REFUSED, LockOutcome.TABLE_FULL)


class FenceAnswer(Enum):
    """The answer to a request under an epoch; the names are those of the response codes."""

    OK = "ok"
    FENCED = "fenced"  # another client has the queue, or had it since
    NOT_HELD = "not held"  # no client has it
    STALE = "stale"  # the same client has a newer epoch of it


class LockAnswer(NamedTuple):
    """The result for one queue of a lock or unlock request.

    Args:
        other: The previous owner (TAKEN_OVER, REACQUIRED) or the current one (REFUSED).
        age_ms: Since its last renewal.
        wait_ms: Until the time of the owner ends, when a claim was refused and that is known; else 0.
        grant: Epoch and lease, when the client owns the queue now and the broker gives epochs.
        fence: FENCED, NOT_HELD or STALE, when a request under an epoch was refused.
    """

    queue: MessageQueue
    outcome: LockOutcome
    other: str | None = None
    age_ms: int = 0
    wait_ms: int = 0
    grant: LockGrant | None = None
    fence: FenceAnswer = FenceAnswer.OK


class Locked(NamedTuple):
    """The result of a lock request.

    Args:
        queues: Those that the client owns now.
        answers: One for each queue of the request; none when all were renewed and nobody wants to know each.
        epochs: Of each of `queues`; None for a client that sends no epochs, and from a broker that gives none.
        lease_ms: Of these epochs.
    """

    queues: Sequence[MessageQueue]
    answers: Sequence[LockAnswer] = ()
    epochs: Sequence[int] | None = None
    lease_ms: int = 0

    @property
    def begun(self) -> list[tuple[MessageQueue, int]]:
        """The periods that began, each with its epoch."""
        return [
            (answer.queue, answer.grant.epoch)
            for answer in self.answers
            if answer.grant is not None and answer.outcome is not LockOutcome.RENEWED
        ]
