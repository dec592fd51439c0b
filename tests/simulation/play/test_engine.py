"""A run in steps is the run as a whole, and a touch is a line of its plan."""

import random
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise, repeat
from typing import Any

import pytest

from lockstep.simulation.articles.experiment import SectionExperiment
from lockstep.simulation.lab.experiment import LOCKING, Experiment, LockMode
from lockstep.simulation.lab.faults.text import FaultError, fault_text, read_fault
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.lab.runner import run_plan
from lockstep.simulation.play.engine import Engine
from lockstep.simulation.stories.quiet import quiet

_HALF_MINUTE = 30_000


def takeover(*faults: str, life_ms: int = 90_000) -> tuple[Experiment[Any], Any]:
    """A small cluster with these faults alone."""
    plan = replace(quiet.draw(1, LockMode.FAITHFUL), queues=2, rate=1, life_ms=life_ms)
    return quiet, replace(plan, events=tuple(map(read_fault, faults)))


@pytest.mark.parametrize("name", ["takeover", "museum/evicted-member", "worlds"])
def test_a_run_in_any_steps_is_the_run_as_a_whole(name: str) -> None:
    """Steps to random moments, single events and pauses between turns leave the hash of `run_plan`."""
    experiment = find_experiment(name)
    plan = experiment.draw(7, LockMode.FAITHFUL)
    whole = run_plan(experiment, plan)
    rng = random.Random(name)
    with Engine(experiment, plan) as engine:
        while engine.result is None and engine.now_ms < whole.elapsed_ms // 2:
            for _ in range(3):
                engine.one_event()
            turns = chain(repeat(False, rng.randrange(1, 500)), repeat(True))
            engine.advance_to(engine.now_ms + rng.randrange(1, 9000), partial(next, turns))
            engine.advance_to(engine.now_ms + rng.randrange(1, 3000))
        run = engine.finish()
    assert (run.trace_hash, run.elapsed_ms, run.steps) == (whole.trace_hash, whole.elapsed_ms, whole.steps)
    assert (run.error, run.played is None) == (None, False)


def test_a_touch_is_the_same_line_of_the_plan() -> None:
    """A run touched by hand has the hash of the plan that has these faults from its start on."""
    experiment, plan = takeover()
    with Engine(experiment, plan) as engine:
        for ms, line in ((12_345, "kill c1"), (31_000, "stall c2+5s"), (31_000, "cut c2-broker")):
            engine.advance_to(ms)
            engine.touch(engine.read_touch(line))
        touched = engine.finish()
    lines = ["kill c1@12s346ms", "stall c2@31s1ms+5s", "cut c2-broker@31s2ms"]
    assert list(map(fault_text, touched.plan.events)) == lines
    assert touched.error is None
    assert touched.trace_hash == run_plan(*takeover(*lines)).trace_hash
    assert touched.trace_hash != run_plan(experiment, plan).trace_hash


def test_a_touch_while_the_hosts_start_waits_for_them() -> None:
    """A fault of the first millisecond begins when all hosts have started, by hand and from the plan."""
    experiment, plan = takeover()
    with Engine(experiment, plan) as engine:
        engine.advance_to(0)
        engine.touch(engine.read_touch("kill c1"))
        touched = engine.finish()
    assert touched.played is not None
    assert touched.played.findings.bands[0].at_ms > 1
    assert touched.trace_hash == run_plan(*takeover("kill c1@1ms")).trace_hash


def test_back_and_forward_again() -> None:
    """A run of the same plan has the same hash at each moment."""
    experiment, plan = takeover("kill c1@20s")
    moments = range(0, 90_000, 7_000)
    seen = list[list[str]]()
    for _ in range(2):
        with Engine(experiment, plan) as engine:
            hashes = []
            for ms in moments:
                engine.advance_to(ms)
                hashes.append(engine.hash)
        seen.append(hashes)
    assert seen[0] == seen[1]
    assert all(before != after for before, after in pairwise(seen[0]))


def test_a_touch_needs_a_host_and_a_moment_of_the_life() -> None:
    """What no plan could have is refused with a sentence, and the run goes on."""
    experiment, plan = takeover(life_ms=20_000)
    with Engine(experiment, plan) as engine:
        engine.advance_to(10_000)
        with pytest.raises(FaultError, match="no host is named 'c9'"):
            engine.read_touch("kill c9")
        with pytest.raises(FaultError, match="start c1: c1 is not down, so nothing would happen"):
            engine.read_touch("start c1")
        engine.advance_to(25_000)
        with pytest.raises(FaultError, match="after the life of the run"):
            engine.touch(engine.read_touch("kill c1"))
        assert engine.finish().error is None


def test_a_world_is_watched_only() -> None:
    """A world draws its faults from the seed, and takes no touch."""
    experiment = find_experiment("worlds")
    with Engine(experiment, experiment.draw(1, LockMode.FENCED)) as engine:
        engine.advance_to(_HALF_MINUTE)
        assert not engine.can_touch
        with pytest.raises(FaultError, match="watched"):
            engine.read_touch("kill c1")


@pytest.mark.parametrize("mode", LOCKING)
def test_a_section_of_an_article_is_touched(mode: LockMode) -> None:
    """Its story goes on to its end with a touch, and the plan with the touch makes the same run."""
    experiment = find_experiment("article/1/2.2.1")
    assert isinstance(experiment, SectionExperiment)
    plan = experiment.draw(1, mode)
    with Engine(experiment, plan) as engine:
        engine.advance_to(5_000)
        engine.touch(engine.read_touch("slow A-broker+2s=50ms"))
        touched = engine.finish()
    assert touched.error is None
    assert touched.trace_hash == run_plan(experiment, touched.plan).trace_hash
    assert touched.trace_hash != run_plan(experiment, plan).trace_hash
