"""Why a broker with fenced locks refuses a request, and how often it did."""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from lockstep.protocol.codes import ResponseCode

__all__ = ["Act", "Denial", "Denials", "Reason"]


class Act(StrEnum):
    """What a client asked for."""

    PULL = "pull"
    COMMIT = "commit"
    SEND_BACK = "send_back"
    DEAD_LETTER = "dead_letter"
    RESET = "reset"


class Reason(StrEnum):
    """The first three answer a request with an epoch; the others have no code of their own."""

    FENCED = "fenced"  # another client has the queue, or had it since
    NOT_HELD = "not_held"  # no client has it
    STALE = "stale"  # the same client has a newer epoch
    OTHER_OWNER = "other_owner"  # no epoch, and the lock names a client that does not speak over this connection
    BACKWARDS = "backwards"  # the commit is lower than the stored offset
    BEYOND_END = "beyond_end"  # the queue has no message below the offset: the broker lost its newest ones
    RESET = "reset"  # an administrator has set the offset, and the owner has not taken it yet


class Denial(NamedTuple):
    """`code` and `remark` of the reply, where the request wants one."""

    reason: Reason
    code: ResponseCode
    remark: str


class Denials:
    """Counts requests: `refused`, and `served` those of unmodified clients that `fence_legacy=warn` let pass."""

    def __init__(self) -> None:
        self.refused: Counter[tuple[Act, Reason]] = Counter()
        self.served: Counter[tuple[Act, Reason]] = Counter()

    def rows(self) -> Mapping[str, int]:
        """ "refused.pull.fenced" -> count, without zeros, sorted."""
        kinds = {"refused": self.refused, "served": self.served}
        return {
            f"{kind}.{act}.{reason}": count
            for kind, counts in kinds.items()
            for (act, reason), count in sorted(counts.items())
        }
