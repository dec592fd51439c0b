"""`-o json` of the commands of `lockstep-sim`: nothing but JSON objects on stdout, one a line."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from lockstep.simulation.commands.app import app
from lockstep.simulation.lab.faults.by_name import FAULTS
from lockstep.simulation.museum.registry import EXHIBITS
from lockstep.simulation.search.plan_file import read_plan, write_plan
from tests.simulation.search.test_explain import stop_inside_a_call

SMALL = ("--consumers", "2", "--queues", "2", "--rate", "1", "--for", "1m")
OF_A_SEED = {"experiment", "seed", "lock_mode", "good", "violations", "happened", "error", "trace_hash"}
OF_A_RUN = OF_A_SEED | {"plan", "elapsed_ms", "findings", "verdict", "sent", "handled", "attempts", "lost",
                        "duplicates", "handovers", "longest_handover_ms"}  # fmt: skip


def rows(*words: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit status, and the objects on stdout."""
    result = CliRunner().invoke(app, [*words, "-o", "json"])
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def test_a_run_is_one_object() -> None:
    """With its plan, what was found, and what the judge counted."""
    status, (row,) = rows("run", "takeover", *SMALL, "--kill", "c1@20s", "--lock-mode", "fenced")
    assert (status, set(row)) == (0, OF_A_RUN)
    assert (row["experiment"], row["seed"], row["lock_mode"], row["good"]) == ("takeover", 1, "fenced", True)
    assert (row["violations"], row["findings"], row["error"], row["verdict"]) == ({}, [], None, "in order")
    assert row["sent"] == row["handled"] > 0
    (fault,) = row["plan"]["faults"]
    assert (fault["fault"], fault["target"], fault["at_ms"]) == ("kill", "c1", 20_000)


def test_a_trace_is_told_beside_the_object(tmp_path: Path) -> None:
    """On stderr."""
    words = ["run", "takeover", "--for", "5s", "--rate", "1", "--kill", "c1@2s", "--trace", str(tmp_path / "t")]
    result = CliRunner().invoke(app, [*words, "-o", "json"])
    assert json.loads(result.stdout)["experiment"] == "takeover"
    assert "records: lockstep trace check" in result.stderr


def test_a_replay_has_the_shape_of_a_run() -> None:
    """One object for each lock mode."""
    status, (faithful, fenced) = rows("replay", "zombie", "--seed", "1", "--lock-mode", "both")
    assert status == 1
    assert set(faithful) == set(fenced) == OF_A_RUN
    assert (faithful["lock_mode"], fenced["lock_mode"]) == ("faithful", "fenced")
    assert faithful["good"] is False
    assert {one["kind"] for one in faithful["findings"]} == set(faithful["violations"])


def test_a_sweep_is_one_object(tmp_path: Path) -> None:
    """Counts by lock mode, what was too rare, and the seeds that failed in the shape of all seeds."""
    state = tmp_path / "state"
    words = ("sweep", "worlds", "--seeds", "2", "--jobs", "1", "--lock-mode", "fenced", "--state", str(state))
    status, (row,) = rows(*words)
    assert status == 1
    assert (row["experiment"], row["good"], row["complete"], row["seeds"]) == ("worlds", False, True, {"fenced": 2})
    assert (row["violations"], row["failing"]) == ({"fenced": {}}, [])
    assert {"lock_mode", "what", "share"} == set(row["too_rare"][0])
    kept = state.read_text(encoding="utf-8").splitlines()
    failed = json.loads(kept[-1]) | {"wrong": {"overlap": 1}}
    state.write_text("\n".join([*kept[:-1], json.dumps(failed)]) + "\n", encoding="utf-8")
    _, (row,) = rows(*words)
    (seed,) = row["failing"]
    assert (set(seed), seed["violations"], seed["good"]) == (OF_A_SEED, {"overlap": 1}, False)


def test_a_shrunk_plan_and_an_explanation_are_objects(tmp_path: Path) -> None:
    """The plan before and after, and why it happens."""
    first, small = tmp_path / "first", tmp_path / "small"
    write_plan(first, "worlds", stop_inside_a_call(), "overlap")
    status, (row,) = rows("shrink", "--plan", str(first), "--runs", "4", "--to", str(small))
    assert status == 0
    assert (row["violation"]["kind"], row["runs"], row["complete"]) == ("overlap", 4, False)
    assert (row["experiment"], row["file"]) == ("worlds", str(small))
    assert len(row["plan"]["faults"]) == len(read_plan(small).plan.events) <= len(row["before"]["faults"])
    status, (why,) = rows("explain", "--plan", str(small))
    assert status == 0
    assert why["violation"] | {"at_ms": 0, "text": ""} == row["violation"] | {"at_ms": 0, "text": ""}
    assert why["faults"] >= len(why["needed"]) > 0


def test_the_list_is_one_object() -> None:
    """Names and sentences of stories and faults."""
    status, (row,) = rows("list")
    assert status == 0
    assert {"takeover", "worlds/links"} < {one["name"] for one in row["stories"]}
    assert [one["name"] for one in row["faults"]] == list(FAULTS)


def test_the_museum_has_objects() -> None:
    """One with all exhibits, and one for a visit, with its two runs."""
    status, (row,) = rows("museum")
    assert status == 0
    assert [one["exhibit"] for one in row["exhibits"]] == list(EXHIBITS)
    status, (visit,) = rows("museum", "count-leak")
    assert (status, visit["replays"]) == (0, True)
    assert visit["kind"] in visit["run"]["violations"]
    assert (set(visit["run"]), visit["mended"]["good"]) == (OF_A_RUN, True)


def test_another_form_is_refused() -> None:
    """In words; a plan's file is --to."""
    result = CliRunner().invoke(app, ["shrink", "zombie", "--seed", "1", "-o", "my.plan"])
    assert result.exit_code == 2
    assert "'my.plan' is not one of 'text', 'json'" in " ".join(result.output.replace("│", "").split())
