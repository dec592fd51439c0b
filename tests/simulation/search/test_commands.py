"""`lockstep-sim sweep`, `replay`, `shrink` and `explain` as they are called: files, exit statuses, interrupts."""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lockstep.simulation.commands.app import app, main
from lockstep.simulation.lab.experiment import LOCKING, LockMode, SeedResult
from lockstep.simulation.search.plan_file import write_plan
from lockstep.simulation.search.summary import Summary, report
from lockstep.simulation.search.violation import Trials
from tests.simulation.search.test_explain import stop_inside_a_call

RUN = "from lockstep.simulation.commands.app import main; main()"
DEADLINE_S = 120


def call(*words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", RUN, *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("sweep nothing", "no experiment is named 'nothing'"),
        ("sweep worlds --seeds 0", "--seeds"),
        ("sweep worlds --seeds ten", "--seeds"),
        ("sweep worlds --jobs -1", "--jobs"),
        ("sweep worlds --first-seed -1", "--first-seed"),
        ("sweep worlds --lock-mode strict", "use faithful, fenced or both"),
        ("sweep worlds --state missing/state", "missing/state"),
        ("sweep worlds --failing missing/f", "--failing: cannot write missing/f: No such file or directory"),
        ("shrink worlds --seed 1 --lock-mode fenced --to /", "--to: cannot write /: Is a directory"),
        ("replay worlds", "give NAME and --seed, or --plan FILE"),
        ("replay worlds --seed x", "--seed"),
        ("replay worlds --seed 1 --plan p", "--plan goes without"),
        ("replay --plan missing", "missing"),
        ("shrink worlds --seed 1 --lock-mode fenced", "seed 1 has no violation in fenced mode"),
        ("explain worlds --seed 1 --lock-mode fenced", "seed 1 has no violation in fenced mode"),
    ],
)
def test_a_wrong_call_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], words: str, told: str
) -> None:
    """On stderr, with what is wrong; the exit status is 2."""
    monkeypatch.setattr(sys, "argv", ["lockstep-sim", *words.split()])
    monkeypatch.setattr(sys, "stderr", sys.stderr)  # a program makes its own, and the next test has this one again
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capfd.readouterr()
    assert ended.value.code == 2
    assert told in err
    assert len(err.splitlines()) == 1
    assert out == ""


def test_a_state_of_another_experiment_is_refused(tmp_path: Path) -> None:
    """Seeds of two experiments would be taken for each other."""
    (tmp_path / "state").write_text('{"experiment": "takeover"}\n', encoding="utf-8")
    ended = CliRunner().invoke(app, ["sweep", "worlds", "--state", str(tmp_path / "state")])
    assert ended.exit_code == 2
    assert "has outcomes of 'takeover', not of 'worlds'" in " ".join(ended.output.replace("│", "").split())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_explain_that_is_cut_off_says_what_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The violation, and the faults with which it still happens; the exit status is 130."""
    plan = tmp_path / "plan"
    write_plan(plan, "worlds", stop_inside_a_call(), "overlap")
    answers = iter([object(), None])

    def find(*_: object) -> object:
        answer = next(answers, "cut off")
        if answer == "cut off":
            signal.raise_signal(number)
        return answer

    monkeypatch.setattr(Trials, "find", find)
    ended = CliRunner().invoke(app, ["explain", "--plan", str(plan)])
    assert ended.exit_code == 130
    assert "Cut off after" in ended.output
    # The last of three was taken out, and it happened all the same.
    assert [word in ended.output for word in ("3.000 s", "5.000 s", "30.000 s")] == [True, True, False]


@pytest.mark.long
@pytest.mark.long
def test_ctrl_c_leaves_what_there_is(tmp_path: Path) -> None:
    """The report has the seeds that were run, the status is 130, no worker is left, and the next call goes on."""
    words = ["sweep", "worlds", "--seeds", "500", "--jobs", "2", "--lock-mode", "faithful", "--state", "state"]
    with subprocess.Popen(
        [sys.executable, "-c", RUN, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        assert "of 500 seeds" in process.stderr.readline(), "progress is told once outcomes are written"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, err
    assert "of 500 seeds in" in out
    assert "The same command goes on" in err
    assert "Traceback" not in err
    state = tmp_path / "state"
    kept = len(state.read_text(encoding="utf-8").splitlines()) - 1
    again = call("sweep", "worlds", "--seeds", str(kept), "--jobs", "1", "--lock-mode", "faithful", "--state", "state",
                 folder=tmp_path)  # fmt: skip
    assert f"{kept} of {kept} seeds in" in again.stdout


@pytest.mark.long
def test_a_plan_is_shrunk_explained_and_replayed(tmp_path: Path) -> None:
    """The file that shrink writes is what the others read."""
    run, first, small = CliRunner().invoke, tmp_path / "first", tmp_path / "small"
    write_plan(first, "worlds", stop_inside_a_call(), "overlap")
    shrunk = run(app, ["shrink", "--plan", str(first), "--runs", "4", "--to", str(small)])
    assert shrunk.exit_code == 0, shrunk.output
    assert "overlap in faithful mode, with 2 faults" in shrunk.output
    assert "4 plans were tried" in shrunk.output
    told = run(app, ["replay", "--plan", str(small)])
    assert told.exit_code == 1, "it has a violation"
    assert "WRONG  overlap" in told.output
    story = run(app, ["explain", "--plan", str(small)]).output.partition("What happened\n")[2]
    assert story.splitlines()[0] in told.output, "it tells what explain tells"


def test_a_sweep_in_which_nothing_happened_says_so() -> None:
    """Without a fault and a takeover it has not shown anything."""
    summary = Summary("worlds")
    summary.add(SeedResult(1, LockMode.FENCED, ""))
    assert not summary.good
    assert any("NOTHING HAPPENED in fenced mode" in line for line in report(summary, [LockMode.FENCED]))


def test_failing_seeds_are_kept_in_a_file(tmp_path: Path) -> None:
    """Beside the state, with the lock mode and what went wrong."""
    state = tmp_path / "state"
    _write_state(state, 7)
    words = ["sweep", "worlds", "--seeds", "1", "--first-seed", "7", "--lock-mode", "fenced", "--state", str(state)]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 1
    assert (tmp_path / "state.failing").read_text(encoding="utf-8") == "7 fenced overlap\n"
    assert "FAILED: lockstep-sim replay worlds --seed 7 --lock-mode fenced" in ended.output


def test_a_sweep_without_failures_leaves_no_older_list(tmp_path: Path) -> None:
    """It would name seeds that do not fail any more. A file that was asked for is there, and empty."""
    state, older = tmp_path / "state", tmp_path / "state.failing"
    _write_state(state, 7, wrong={})
    older.write_text("7 fenced overlap\n", encoding="utf-8")
    words = ["sweep", "worlds", "--seeds", "1", "--first-seed", "7", "--lock-mode", "fenced", "--state", str(state)]
    ended = CliRunner().invoke(app, words)
    assert not older.exists()
    assert f"no seed failed: the older {older} is removed" in ended.output
    assert "is removed" not in CliRunner().invoke(app, words).output
    asked = tmp_path / "asked"
    asked.write_text("7 fenced overlap\n", encoding="utf-8")
    CliRunner().invoke(app, [*words, "--failing", str(asked)])
    assert asked.read_text(encoding="utf-8") == ""


def test_failing_seeds_are_sorted(tmp_path: Path) -> None:
    """Several processes end their seeds in any order; the report and the file have them in order of seed and mode."""
    summary = Summary("worlds")
    for seed, mode in ((11, LockMode.FENCED), (2, LockMode.FENCED), (11, LockMode.FAITHFUL), (3, LockMode.FENCED)):
        summary.add(SeedResult(seed, mode, "hash", error="LimitError"))
    cases = [(2, "fenced"), (3, "fenced"), (11, "faithful"), (11, "fenced")]
    assert [(outcome.seed, outcome.mode) for outcome in summary.failing] == cases
    failed = [line.split("--seed ")[1] for line in report(summary, list(LOCKING)) if line.startswith("FAILED")]
    assert failed == [f"{seed} --lock-mode {mode}  # LimitError" for seed, mode in cases]
    state = tmp_path / "state"
    _write_state(state, 9, 8)
    words = ["sweep", "worlds", "--seeds", "2", "--first-seed", "8", "--lock-mode", "fenced", "--state", str(state)]
    assert CliRunner().invoke(app, words).exit_code == 1
    assert (tmp_path / "state.failing").read_text(encoding="utf-8") == "8 fenced overlap\n9 fenced overlap\n"


def _write_state(path: Path, *seeds: int, wrong: Mapping[str, int] = {"overlap": 1}) -> None:
    """Outcomes of seeds that failed, or with nothing `wrong` did not."""
    outcomes = [SeedResult(seed, LockMode.FENCED, "hash", dict(wrong), sometimes={"takeovers": 1}) for seed in seeds]
    lines = [json.dumps({"experiment": "worlds"}), *(json.dumps(outcome.to_json()) for outcome in outcomes)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
