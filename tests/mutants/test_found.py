"""The worlds that found a protection missing find it again, and are silent with it."""

from typing import Final

import pytest

from lockstep.simulation.lab.experiment import LOCKING, LockMode
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.runner import run_seed
from lockstep.simulation.worlds.fifo.fifo_world import FIFO_WORLDS
from lockstep.simulation.worlds.focused import FOCUSED
from lockstep.simulation.worlds.producing.producers_world import PRODUCERS_WORLDS
from tests.mutants.found import Found, kept_cases, read_found
from tests.mutants.worlds import find_again, is_decisive
from tests.simulation.worlds.kept import Case, kept_plans, run_case

BY_ONE_WORLD: Final = {name: found for name, found in read_found().items() if found.seed}
BY_FOCUSED: Final = sorted({found.case for found in BY_ONE_WORLD.values() if found.experiment != "worlds"})


@pytest.mark.rotating
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", BY_ONE_WORLD)
def test_a_world_finds_it_again(name: str) -> None:
    """The plan that is kept, without the protection."""
    found, known = find_again(name), BY_ONE_WORLD[name].kinds
    assert is_decisive(found), f"found {found.kinds}, and found.json has {known}"


@pytest.mark.rotating
@pytest.mark.parametrize("case", BY_FOCUSED, ids=str)
def test_with_all_protections_the_same_world_is_silent(case: Case) -> None:
    """Else it has proved nothing."""
    outcome = run_case(case)
    assert not find_experiment(case.experiment).fails(outcome), outcome.texts


def test_the_worlds_of_this_table_are_kept() -> None:
    """Their plans, so that no new draw makes other worlds of them; and no others. `python -m tests.mutants.anew`."""
    assert set(kept_plans()) == kept_cases()


@pytest.mark.rotating
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", LOCKING)
@pytest.mark.parametrize("experiment", [one.name for one in (*FOCUSED, PRODUCERS_WORLDS, FIFO_WORLDS)])
def test_focused_worlds_keep_order(experiment: str, mode: LockMode) -> None:
    """Each experiment, with seeds that found nothing."""
    world = find_experiment(experiment)
    outcomes = [run_seed(world, seed, mode) for seed in range(1001, 1005)]
    assert [outcome.texts or outcome.error for outcome in outcomes if world.fails(outcome)] == []


def test_what_is_found_has_a_kind() -> None:
    """A row without one would say nothing."""
    assert [name for name, found in read_found().items() if found.is_found and not found.kinds] == []
    assert Found._fields[:3] == ("experiment", "mode", "seed")
