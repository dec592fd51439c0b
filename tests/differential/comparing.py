"""Two answers field by field."""

from typing import Any, Final, NamedTuple

from tests.differential.case import Case
from tests.differential.masks import masked, only_common
from tests.differential.reading import EXCEPTION, Facts, flatten

__all__ = ["ABSENT", "Difference", "Outcome", "compare"]

ABSENT: Final = "<absent>"


class Difference(NamedTuple):
    path: str
    apache: Any
    lockstep: Any

    def __str__(self) -> str:
        return f"{self.path}: Apache {self.apache!r}, Lockstep {self.lockstep!r}"


class Outcome(NamedTuple):
    case: Case
    apache: Facts
    lockstep: Facts
    differences: tuple[Difference, ...]

    @property
    def agrees(self) -> bool:
        return not self.differences

    @property
    def paths(self) -> list[str]:
        """What both answers have, and were compared by."""
        ours = dict(flatten(self.lockstep))
        return [path for path, value in flatten(self.apache) if value is not None and path in ours]


def compare(case: Case, apache: Facts, lockstep: Facts) -> Outcome:
    theirs, ours = dict(flatten(apache)), dict(flatten(lockstep))
    differences = []
    for path in dict.fromkeys((*theirs, *ours)):
        if (path not in theirs or path not in ours) and only_common(case.code, path):
            continue
        left = masked(case.code, path, theirs.get(path, ABSENT))
        right = masked(case.code, path, ours.get(path, ABSENT))
        if left == EXCEPTION and right != ABSENT:
            continue  # a text of Java's exceptions need not be ours
        if left != right:
            differences.append(Difference(path, left, right))
    return Outcome(case, apache, lockstep, tuple(differences))
