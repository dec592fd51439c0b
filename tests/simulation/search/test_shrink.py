"""Shrinking keeps the kind of violation and drops what it does not need; a shrunk plan survives its file."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.simulation.lab.experiment import LOCKING, FaultEvent, LockMode
from lockstep.simulation.lab.runner import run_plan
from lockstep.simulation.search.plan_file import PlanFileError, read_plan, write_plan
from lockstep.simulation.search.shrink import shrink
from lockstep.simulation.search.violation import Trials, violation_of
from lockstep.simulation.worlds.plan import draw_plan
from tests.simulation.search.toy import SILENT, Toy, ToyPlan

NOISE = tuple(FaultEvent(at_ms, "noise", "c2", 500) for at_ms in range(3_000, 30_000, 4_000))
STOP = FaultEvent(35_123, "stall", "c1", 93_456)


def test_what_is_not_needed_goes() -> None:
    """One stop of a minute is left of eight faults, at a round time, and a tenth less of it would be too short."""
    shrunk = shrink(Toy(), ToyPlan(events=(*NOISE, STOP)), SILENT)
    (event,) = shrunk.plan.events
    assert (event.fault, event.target) == ("stall", "c1")
    assert event.at_ms % 10_000 == 0
    assert 60_000 < event.duration_ms < 67_000
    assert shrunk.plan.members == 1
    assert shrunk.complete
    assert violation_of(run_plan(Toy(), shrunk.plan), SILENT) is not None


def test_shrinking_ends_at_its_limit() -> None:
    """With too few runs it says that simpler plans may be left, and what it has still shows the violation."""
    shrunk = shrink(Toy(), ToyPlan(events=(*NOISE, STOP)), SILENT, runs_max=3)
    assert (shrunk.runs, shrunk.complete) == (3, False)
    assert violation_of(run_plan(Toy(), shrunk.plan), SILENT) is not None


def test_two_faults_that_need_each_other_stay() -> None:
    """A stop and a sleep of the machine that begins before its end: neither is long enough alone."""
    stops = (FaultEvent(30_000, "stall", "c1", 40_000), FaultEvent(65_000, "sleep", "c1", 40_000))
    shrunk = shrink(Toy(), ToyPlan(events=(*NOISE, *stops)), SILENT)
    assert len(shrunk.plan.events) == 2


class Steps(ToyPlan):
    """Its simpler plans have fewer members; the last that is tried is the only one that still shows the violation."""

    def smaller(self) -> Iterator["Steps"]:
        return (replace(self, members=members) for members in range(self.members - 1, 0, -1))


def test_a_simpler_plan_with_fewer_candidates_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its candidates are looked at from their end on, and from their begin again."""
    monkeypatch.setattr(Trials, "find", lambda self, plan: plan.members == 1 or None)
    assert shrink(Toy(), Steps(members=5, events=()), SILENT).plan == Steps(members=1, events=())


@pytest.mark.parametrize("mode", LOCKING)
def test_a_plan_comes_back_from_its_file(tmp_path: Path, mode: LockMode) -> None:
    """Every field, whatever was drawn; also one that no seed draws."""
    for seed in range(20):
        plan = draw_plan(seed, mode)
        plan = replace(plan, events=plan.events[:1], first_members=1)
        write_plan(tmp_path / "plan", "worlds", plan, "overlap")
        assert read_plan(tmp_path / "plan")[2:] == (plan, "overlap")


def test_a_plan_from_a_file_makes_the_same_run(tmp_path: Path) -> None:
    """To the last line of the trace."""
    plan = replace(draw_plan(4, LockMode.FAITHFUL), life_ms=20_000)
    write_plan(tmp_path / "plan", "worlds", plan, "")
    saved = read_plan(tmp_path / "plan")
    assert run_plan(saved.experiment, saved.plan).trace_hash == run_plan(saved.experiment, plan).trace_hash


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"experiment": "worlds"}',
        '{"experiment": "nothing", "seed": 1, "lock_mode": "fenced", "kind": "", "plan": {}}',
        '{"experiment": "worlds", "seed": 1, "lock_mode": "fenced", "kind": "", "plan": {"store": "tape"}}',
        '{"experiment": "worlds", "seed": 1, "lock_mode": "fenced", "kind": "", "plan": {"events": [[1]]}}',
        '{"experiment": "worlds", "seed": 1, "lock_mode": "fenced", "kind": "", "plan": {"wheels": 4}}',
    ],
)
def test_a_file_that_is_no_plan_is_named(tmp_path: Path, text: str) -> None:
    """The error has the file's name and is one line."""
    (tmp_path / "plan").write_text(text, encoding="utf-8")
    with pytest.raises(PlanFileError, match=str(tmp_path / "plan")) as raised:
        read_plan(tmp_path / "plan")
    assert "\n" not in str(raised.value)
