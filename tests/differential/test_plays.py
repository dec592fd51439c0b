"""Cases are played anew where something differs without a reason: what is real differs each time."""

from collections.abc import Iterator
from typing import Final

from tests.differential.case import Case
from tests.differential.comparing import Outcome, compare
from tests.differential.run import first_explained

CASE: Final = Case(28, "usual", "valid")
SAME: Final = compare(CASE, {"answer": "reply"}, {"answer": "reply"})
OTHER: Final = compare(CASE, {"answer": "reply"}, {"answer": "silence"})


def played(outcomes: list[Outcome]) -> tuple[list[Outcome], int]:
    """What is told of plays with these outcomes, and how many there were."""
    begun = 0

    def plays() -> Iterator[list[Outcome]]:
        nonlocal begun
        for outcome in outcomes:
            begun += 1
            yield [SAME, outcome]

    return first_explained(plays()), begun


def test_what_differs_in_one_play_is_no_difference() -> None:
    """A play that agrees is the last."""
    assert played([SAME, OTHER]) == ([SAME, SAME], 1)
    assert played([OTHER, SAME, OTHER]) == ([SAME, SAME], 2)


def test_what_differs_in_each_play_is_told() -> None:
    """There are three."""
    assert played([OTHER] * 5) == ([SAME, OTHER], 3)
