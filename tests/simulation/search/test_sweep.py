"""The sweep of random worlds: equal seeds make equal worlds, a sweep can be resumed, and says what was too rare."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lockstep.simulation.commands.app import app
from lockstep.simulation.lab.experiment import LockMode, SeedResult
from lockstep.simulation.lab.runner import run_seed
from lockstep.simulation.search.summary import Summary
from lockstep.simulation.search.sweep import StateFile, sweep
from lockstep.simulation.worlds.experiment import WORLDS
from lockstep.simulation.worlds.plan import MORE_FAULTS, Fault, Store, draw_plan

ROOT = Path(__file__).parents[3]
HASHES = """
import sys
from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.runner import run_seed
from lockstep.simulation.worlds.experiment import WORLDS
for seed in range(int(sys.argv[1]), int(sys.argv[2])):
    for mode in sys.argv[3:]:
        outcome = run_seed(WORLDS, seed, LockMode(mode))
        bad = outcome.error or (mode == "fenced" and outcome.texts)
        print(seed, mode, outcome.trace_hash, "FAILED" if bad else "good", flush=True)
"""
MODES = ("faithful", "fenced")


def test_plans_differ_in_everything_that_is_drawn() -> None:
    """Within 200 seeds every fault, store and lease is met; an equal seed draws an equal plan."""
    plans = [draw_plan(seed, LockMode.FENCED) for seed in range(200)]
    assert {event.fault for plan in plans for event in plan.events} == {*Fault, *MORE_FAULTS}
    assert {plan.store for plan in plans} == set(Store)
    assert len({plan.lease_ms for plan in plans}) == 3
    assert plans == [draw_plan(seed, LockMode.FENCED) for seed in range(200)]


def _hashes(hash_seed: int, first: int, end: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", HASHES, str(first), str(end), *MODES],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
def test_a_sweep_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """What is in the state file is not run again, also when its last line is torn."""
    path = tmp_path / "state.jsonl"
    sweep(Summary("worlds"), range(1, 4), [LockMode.FAITHFUL], state=StateFile(path, "worlds"))
    head, *kept = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert [json.loads(line)["seed"] for line in kept] == [1, 2, 3]
    path.write_text(head + "".join(kept[:2]) + kept[2][:20], encoding="utf-8")
    new: list[int] = []
    state, summary = StateFile(path, "worlds"), Summary("worlds")
    sweep(summary, range(1, 5), [LockMode.FAITHFUL], state=state, on_progress=lambda count, _: new.append(count))
    assert new == [2], "the torn one and the one that is new"
    assert summary.seeds == {LockMode.FAITHFUL: 4}
    assert sorted(StateFile(path, "worlds").outcomes) == [(seed, LockMode.FAITHFUL) for seed in (1, 2, 3, 4)]
    assert StateFile(path, "worlds").outcomes[3, LockMode.FAITHFUL] == run_seed(WORLDS, 3, LockMode.FAITHFUL)


def test_violations_fail_fenced_mode_alone() -> None:
    """Faithful mode's violations are RocketMQ's, and counted; a world that did not end fails in both modes."""
    summary = Summary("worlds")
    summary.add(SeedResult(1, LockMode.FAITHFUL, "", wrong={"overlap": 2}))
    summary.add(SeedResult(1, LockMode.FENCED, ""))
    assert not summary.failing
    summary.add(SeedResult(2, LockMode.FENCED, "", wrong={"overlap": 1}))
    summary.add(SeedResult(2, LockMode.FAITHFUL, "", error="LimitError: ..."))
    assert [(outcome.seed, outcome.mode) for outcome in summary.failing] == [
        (2, LockMode.FAITHFUL),
        (2, LockMode.FENCED),
    ]
    assert summary.wrong[LockMode.FAITHFUL] == {"overlap": 1, "error": 1}, "of seeds, not of findings"


def test_what_never_happened_is_said() -> None:
    """A sweep in which there was no takeover proves nothing, and says so."""
    summary = Summary("worlds")
    for seed in range(100):
        summary.add(SeedResult(seed, LockMode.FAITHFUL, "", sometimes={"takeovers": 1} if seed < 4 else {}))
    assert (LockMode.FAITHFUL, "takeovers", 0.04) in summary.too_rare()
    summary.add(SeedResult(100, LockMode.FAITHFUL, "", sometimes={"takeovers": 9}))
    summary.add(SeedResult(101, LockMode.FAITHFUL, "", sometimes={"takeovers": 1}))
    assert "takeovers" not in [name for _, name, _ in summary.too_rare()]


@pytest.mark.long
def test_the_command_sweeps_and_replays(tmp_path: Path) -> None:
    """`lockstep-sim sweep` counts kinds and happenings; `replay` tells the story of one seed."""
    run = CliRunner().invoke
    path = str(tmp_path / "state")
    swept = run(app, ["sweep", "worlds", "--seeds", "2", "--jobs", "1", "--lock-mode", "faithful", "--state", path])
    assert swept.exit_code == 1, "two seeds meet few of the faults"
    assert "TOO RARE in faithful mode" in swept.output
    assert "few seeds do not meet all: use --seeds 100 or more" in swept.output
    assert "2 of 2 seeds in" in swept.output
    told = run(app, ["replay", "worlds", "--seed", "1", "--lock-mode", "faithful"])
    assert "seed 1 in faithful mode" in told.output
    assert "FAULT" in told.output
    assert "10.0.0." not in told.output, "hosts have names"
    assert "queue_acquired" in told.output


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_two_hundred_seeds() -> None:
    """Of both modes: each world reaches its end, fenced ones without a violation, equal in two processes."""
    with _hashes(1, 1, 201) as one, _hashes(2, 1, 201) as other:
        first, second = one.communicate()[0].splitlines(), other.communicate()[0].splitlines()
    assert len(first) == 200 * len(MODES)
    assert [line for line in first if "FAILED" in line] == []
    assert first == second


@pytest.mark.parametrize("line", ["[" * 200_000, '{"seed": "x", "mode": "fenced", "trace_hash": ""}'])
def test_a_damaged_line_of_a_state_is_run_again(tmp_path: Path, line: str) -> None:
    """Lists within lists, and a seed that is a text."""
    path = tmp_path / "toy.outcomes"
    path.write_text(f'{{"experiment": "takeover"}}\n{line}\n')
    assert not StateFile(path, "takeover").outcomes
