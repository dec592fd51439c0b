"""The judge while a run is played: a violation at its moment, once, with its records."""

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from lockstep.simulation.lab.experiment import LockMode, PlayedWorld
from lockstep.simulation.lab.runner import run_plan
from lockstep.simulation.museum.registry import EXHIBITS
from lockstep.simulation.play.engine import Engine
from lockstep.simulation.play.scene import Json
from lockstep.simulation.play.verdict import Judged, Verdict
from lockstep.simulation.stories.takeover import zombie
from lockstep.simulation.worlds.fifo.fifo_world import FIFO_WORLDS

STEP_MS = 5000
GOES_ON_MS = 170_000  # the stopped member of the story


def judged(
    experiment: Any, plan: Any, clock_s: Any = lambda: 0.0, judged_as: Any = None
) -> tuple[list[tuple[int, Judged]], str]:
    """What each reading found, with its time, and the hash of the run."""
    verdicts, found = list[Verdict](), list[tuple[int, Judged]]()

    def built(played: PlayedWorld) -> None:
        verdicts.append(Verdict(played.cluster, judged_as or plan, clock_s))

    with Engine(experiment, plan, on_built=built) as engine:
        while engine.result is None:
            engine.advance_to(engine.now_ms + STEP_MS)
            found.append((engine.now_ms, verdicts[0].read(over=engine.result is not None)))
        return found, engine.hash


def wrongs_of(found: list[tuple[int, Judged]]) -> list[Json]:
    return [one for _, reading in found for one in reading.wrongs]


@pytest.mark.long
def test_zombie() -> None:
    """A stopped owner goes on with its call when another one has its queue."""
    plan = zombie.draw(1, LockMode.FAITHFUL)
    found, trace_hash = judged(zombie, plan)
    at_ms, reading = next(one for one in found if one[1].wrongs)
    first = reading.wrongs[0]
    assert at_ms == first["at_ms"] == GOES_ON_MS
    assert [one["kind"] for one in reading.wrongs] == ["stale-repeat", "overlap"]
    assert first["rule"] == "docs/order.md#1-the-definition"
    assert first["rule_text"].startswith("(b) ")
    assert first["queue"] == "broker/0"
    assert [one["host"] for one in first["records"]] == ["c2", "c1"]
    assert [one["host"] for one in reading.wrongs[1]["records"]] == ["c2", "c1"]
    assert all(" has handled offset " in one["text"] for one in first["records"])
    assert "10.0." not in first["text"]
    assert reading.marks[0] == {"kind": "wrong", **{name: first[name] for name in ("at_ms", "text", "said")}}
    every = [(one["kind"], one["at_ms"], one["text"]) for one in wrongs_of(found)]
    assert len(set(every)) == len(every)
    run = run_plan(zombie, plan)
    assert trace_hash == run.trace_hash
    assert run.played is not None
    assert {one["kind"] for one in wrongs_of(found)} == {str(one.kind) for one in run.played.findings.wrong}


@pytest.mark.long
def test_fenced_zombie() -> None:
    """With a fence the call of the old owner has no effect. What a fence keeps out is told of a strict plan alone."""
    plan, without = zombie.draw(1, LockMode.FENCED), zombie.draw(1, LockMode.FAITHFUL)
    found, _ = judged(zombie, plan)
    assert not wrongs_of(found)
    assert found[-1][1].judged_ms > GOES_ON_MS
    live = [judged(zombie, without, judged_as=replace(plan, strict=strict))[0][:-1] for strict in (False, True)]
    assert not wrongs_of(live[0])
    assert {one["kind"] for one in wrongs_of(live[1])} == {"stale-repeat", "overlap"}


def test_share_of_the_time() -> None:
    """A judgement that takes a second is followed by three without one, but for the end of a fault and the run's."""
    seconds = count()  # each look at the clock is a second later
    found, _ = judged(zombie, zombie.draw(1, LockMode.FENCED), lambda: float(next(seconds)))
    until = [reading.judged_ms for _, reading in found]
    asked = [place for place, judged_ms in enumerate(until) if place == 0 or judged_ms > until[place - 1]]
    assert asked[-1] == len(found) - 1
    assert GOES_ON_MS in until  # the stall ends
    # From one judgement to the next: one look at its begin, one at its end, and three seconds.
    assert len(asked) == pytest.approx(len(found) / 3, rel=0.2)


@pytest.mark.parametrize("key", ["commit-before-call", "busy-queue"])
def test_exhibit(key: str) -> None:
    """The violation of an exhibit is told, whether the judge of order finds it or the exhibit itself at the end."""
    exhibit = EXHIBITS[key]
    assert exhibit.found is not None
    found, _ = judged(exhibit, exhibit.found.plan)
    assert exhibit.kind in {one["kind"] for one in wrongs_of(found)}


def test_fifo() -> None:
    """What a broker of RocketMQ's does wrong with deliveries is told while it happens."""
    plan = FIFO_WORLDS.draw(1, LockMode.FAITHFUL)
    found, _ = judged(FIFO_WORLDS, plan)
    live = [(at_ms, one) for at_ms, reading in found[:-1] for one in reading.wrongs]
    assert live
    assert all(one["queue"].startswith("broker/") and one["at_ms"] <= at_ms for at_ms, one in live)
