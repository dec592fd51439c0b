"""Stories with a name: they run with every seed, are found by name, and equal plans make equal runs."""

from dataclasses import replace
from typing import Final

import pytest

from lockstep.simulation.lab.experiment import LOCKING, LockMode
from lockstep.simulation.lab.registry import UnknownExperimentError, find_experiment
from lockstep.simulation.lab.runner import run_plan, run_seed
from lockstep.simulation.stories.broken import anything
from lockstep.simulation.stories.takeover import takeover


def test_a_story_is_found_by_its_name() -> None:
    """And an error names the nearest, and what lists all."""
    assert find_experiment("takeover") is takeover
    assert find_experiment("anything") is anything
    with pytest.raises(
        UnknownExperimentError, match=r"'takeove'; did you mean takeover\? `lockstep-sim list` lists all$"
    ):
        find_experiment("takeove")


@pytest.mark.parametrize("mode", LockMode)
def test_equal_plans_make_equal_runs(mode: LockMode) -> None:
    """Of each lock mode."""
    for seed in range(1, 3):
        first, second = run_seed(takeover, seed, mode), run_seed(takeover, seed, mode)
        assert first == second
        assert not takeover.fails(first)


def test_a_plan_gets_smaller() -> None:
    """Every smaller plan runs, and has less of one thing."""
    plan = takeover.draw(3, LockMode.FENCED)
    smaller = list(plan.smaller())
    assert smaller[0].events == ()
    assert {len(one.events) for one in smaller} == {0, 2, 3}
    assert any(one.queues < plan.queues for one in smaller)
    assert any(one.rate < plan.rate for one in smaller)
    assert plan not in smaller
    assert run_plan(takeover, replace(smaller[0], life_ms=20_000)).error is None


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", LOCKING)
def test_many_seeds_of_a_takeover(mode: LockMode) -> None:
    """None fails, and takeovers happen."""
    outcomes = [run_seed(takeover, seed, mode) for seed in range(1, 101)]
    assert [outcome for outcome in outcomes if takeover.fails(outcome)] == []
    assert sum("takeovers" in outcome.sometimes for outcome in outcomes) > 50


NAMES: Final = ("zombie", "deploy", "broker-crash", "bad-network", "bad-machines", "anything")


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_every_story_keeps_order_with_fenced_locks(name: str) -> None:
    """Of ten seeds each; RocketMQ's locks let two owners work at once in `zombie`."""
    story = find_experiment(name)
    outcomes = [run_seed(story, seed, LockMode.FENCED) for seed in range(1, 11)]
    assert [outcome for outcome in outcomes if story.fails(outcome)] == []
    if name == "zombie":
        assert "overlap" in run_seed(story, 1, LockMode.FAITHFUL).wrong
