"""Random worlds in fenced mode: no violation; and the seeds by which a sweep found protections that were taken out."""

from typing import Final

import pytest

from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.runner import run_seed
from lockstep.simulation.worlds.experiment import WORLDS

EACH: Final = 10
# Seeds that failed once, some by a mistake of the observer. `python -m tests.mutants.worlds NAME` finds the first one
# that fails without a protection.
FOUND_BY: Final = (1, 3, 5, 22, 25, 28, 32, 33, 37, 39, 80, 82, 116, 147, 454)
OF_20000: Final = (4431, 8760, 8825, 12207, 15287, 15875, 18482)  # that a sweep of 20,000 reported


def fails(seed: int) -> str:
    """What went wrong in the world of a seed; empty: nothing."""
    outcome = run_seed(WORLDS, seed, LockMode.FENCED)
    return outcome.error or "\n".join(outcome.texts)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(101, 201, EACH))
def test_fenced_worlds_keep_order(first: int) -> None:
    """Whatever happens to members, broker and connections: nothing stale is accepted, nothing is lost."""
    assert {seed: text for seed in range(first, first + EACH) if (text := fails(seed))} == {}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", FOUND_BY + OF_20000)
def test_seeds_that_find_a_missing_protection(seed: int) -> None:
    """With all protections they keep order too."""
    assert fails(seed) == ""
