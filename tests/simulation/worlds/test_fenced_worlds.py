"""Random worlds in fenced mode: no violation; and the seeds by which a sweep found protections that were taken out."""

import json
from pathlib import Path
from typing import Final

import pytest

from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.runner import run_seed
from lockstep.simulation.worlds.experiment import WORLDS

EACH: Final = 10
# By protection, a seed that fails without it; `python -m tests.mutants.anew held` finds them.
HOLDING: Final[dict[str, int]] = json.loads(Path(__file__).with_name("seeds.json").read_text(encoding="utf-8"))
FAILED_ONCE: Final = (32, 80, 82, 116, 147, 454, 4431, 7314, 8760, 8825, 12207, 15287, 15875, 18482)  # of 20,000


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
@pytest.mark.parametrize("seed", sorted({*HOLDING.values(), *FAILED_ONCE}))
def test_seeds_that_find_a_missing_protection(seed: int) -> None:
    """With all protections they keep order too."""
    assert fails(seed) == ""
