"""What two brokers showed of a case, side by side."""

from typing import NamedTuple

from tests.differential.comparing import Outcome, compare
from tests.differential.grpc.player import Seen
from tests.differential.grpc.steps import Case

__all__ = ["Played"]


class Played(NamedTuple):
    """What both showed. `late_s`: by how much this machine was late meanwhile, at most."""

    case: Case
    apache: Seen
    lockstep: Seen
    late_s: float

    @property
    def outcome(self) -> Outcome:
        return compare(self.case, {"step": self.apache.facts}, {"step": self.lockstep.facts})  # type: ignore[arg-type]

    def apart(self) -> list[tuple[float, float]]:
        """Times that differ by more than the case allows and what the machine itself was late."""
        return [
            (left, right)
            for left, right in zip(self.apache.times_s, self.lockstep.times_s, strict=False)
            if abs(left - right - self.case.earlier_s) > self.case.within_s + self.late_s
        ]

    @property
    def agrees(self) -> bool:
        return self.outcome.agrees and not self.apart()
