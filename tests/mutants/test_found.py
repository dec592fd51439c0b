"""The worlds that found a protection missing find it again, and are silent with it."""

import subprocess
import sys
from typing import Final

import pytest

from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.runner import run_seed
from lockstep.simulation.worlds.focused import FOCUSED
from lockstep.simulation.worlds.producing.producers_world import PRODUCERS_WORLDS
from tests.mutants.found import Found, read_found
from tests.mutants.protections import ROOT

BY_ONE_WORLD: Final = {name: found for name, found in read_found().items() if found.seed}
BY_FOCUSED: Final = sorted({found[:3] for found in BY_ONE_WORLD.values() if found.experiment != "worlds"})


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", BY_ONE_WORLD)
def test_a_world_finds_it_again(name: str) -> None:
    """The seed of found.json, in a process without the protection."""
    command = [sys.executable, "-m", "tests.mutants.worlds", "--replay", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("experiment", "mode", "seed"), BY_FOCUSED)
def test_with_all_protections_the_same_world_is_silent(experiment: str, mode: str, seed: int) -> None:
    """Else it has proved nothing."""
    world = find_experiment(experiment)
    outcome = run_seed(world, seed, LockMode(mode))
    assert not world.fails(outcome), outcome.texts


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", LockMode)
@pytest.mark.parametrize("experiment", [one.name for one in (*FOCUSED, PRODUCERS_WORLDS)])
def test_focused_worlds_keep_order(experiment: str, mode: LockMode) -> None:
    """Each experiment, with seeds that found nothing."""
    world = find_experiment(experiment)
    outcomes = [run_seed(world, seed, mode) for seed in range(1001, 1005)]
    assert [outcome.texts or outcome.error for outcome in outcomes if world.fails(outcome)] == []


def test_what_is_found_has_a_kind() -> None:
    """A row without one would say nothing."""
    assert [name for name, found in read_found().items() if found.is_found and not found.kinds] == []
    assert Found._fields[:3] == ("experiment", "mode", "seed")
