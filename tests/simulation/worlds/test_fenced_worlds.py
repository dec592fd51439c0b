"""Random worlds in fenced mode: no violation; and the worlds by which a sweep found protections that were taken out."""

from typing import Final

import pytest

from lockstep.simulation.lab.experiment import LockMode, SeedResult
from lockstep.simulation.lab.runner import run_seed
from lockstep.simulation.worlds.experiment import WORLDS
from tests.simulation.worlds.kept import FAILED_ONCE, Case, held_seeds, run_case

EACH: Final = 10
# `python -m tests.mutants.anew held` finds the worlds that fail without a protection.
KEPT: Final = sorted({*(Case("worlds", "fenced", seed) for seed in held_seeds().values()), *FAILED_ONCE})


def wrong(outcome: SeedResult) -> str:
    """What went wrong in a world; empty: nothing."""
    return outcome.error or "\n".join(outcome.texts)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(101, 201, EACH))
def test_fenced_worlds_keep_order(first: int) -> None:
    """Whatever happens to members, broker and connections: nothing stale is accepted, nothing is lost."""
    outcomes = [run_seed(WORLDS, seed, LockMode.FENCED) for seed in range(first, first + EACH)]
    assert {one.seed: text for one in outcomes if (text := wrong(one))} == {}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.rotating] if place % 5 else []) for place, case in enumerate(KEPT)],
    ids=str,
)
def test_seeds_that_find_a_missing_protection(case: Case) -> None:
    """With all protections, and the faults mended that some of them found, they keep order."""
    assert wrong(run_case(case)) == ""
