"""`-o json` of the commands of `lockstep-sim`: nothing but JSON objects on stdout, one a line."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lockstep.simulation.articles.registry import SECTIONS
from lockstep.simulation.commands.app import app
from lockstep.simulation.lab.faults.table import FAULTS
from lockstep.simulation.museum.registry import EXHIBITS
from lockstep.simulation.search.plan_file import read_plan, write_plan
from tests.simulation.search.test_explain import stop_inside_a_call

SMALL = ("--consumers", "2", "--queues", "2", "--rate", "1", "--for", "1m")
OF_A_SEED = {"experiment", "seed", "lock_mode", "good", "violations", "happened", "error", "trace_hash"}
OF_A_RUN = OF_A_SEED | {"plan", "elapsed_ms", "findings", "verdict", "sent", "handled", "attempts", "lost",
                        "duplicates", "handovers", "longest_handover_ms", "costs", "sends_made_again",
                        "sends_given_up"}  # fmt: skip


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


@pytest.mark.long
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


def test_the_articles_have_objects() -> None:
    """One with all sections, and one for a section: its story as lines, what it shows, and what the judge says."""
    status, (row,) = rows("article")
    assert status == 0
    assert [one["section"] for one in row["sections"]] == [one.id for one in SECTIONS]
    assert {True, False} == {one["has_story"] for one in row["sections"]}
    status, (told,) = rows("article", "1/2.2.2")
    assert (status, told["section"], told["article"], told["has_story"]) == (0, "1/2.2.2", 1, True)
    assert {"at_ms", "host", "focus", "text"} == set(told["lines"][0])
    text = CliRunner().invoke(app, ["article", "1/2.2.2"]).stdout
    shown = (told["title"], told["summary"], told["story"], f"Shown: {told['point']}", f"Judge: {told['judged']}.")
    assert [part for part in shown if part not in text] == []
    assert all(line["text"] in text for line in told["lines"][:2])
    without = next(one["section"] for one in row["sections"] if not one["has_story"])
    _, (told,) = rows("article", without)
    assert (told["lines"], told["point"], told["judged"], told["trace_hash"]) == ([], None, None, None)


def test_a_timeline_is_one_object(tmp_path: Path) -> None:
    """The runs with their steps and violations, and the page that was written."""
    page = tmp_path / "t.html"
    status, (row,) = rows("timeline", "zombie", "--seed", "1", "--to", str(page))
    assert (status, row["experiment"], row["seed"], row["file"]) == (0, "zombie", 1, str(page))
    assert row["bytes"] == page.stat().st_size
    faithful, fenced = row["runs"]
    assert (faithful["run"], fenced["run"], fenced["violations"]) == ("faithful", "fenced", [])
    steps = {step["step"]: step for step in faithful["steps"]}
    assert {"step", "at_ms", "end_ms", "kind", "who", "queues", "text", "why"} == set(steps[1])
    assert faithful["violations"]
    assert all(number in steps for wrong in faithful["violations"] for number in wrong["steps"])
    assert rows("timeline", "zombie", "--seed", "1") == (0, [row | {"file": None, "bytes": None}])


def test_a_timeline_has_one_file(tmp_path: Path) -> None:
    """-o names it or --to does; `-o text` is what is printed without it."""
    words = ["timeline", "zombie", "--seed", "1", "--lock-mode", "fenced"]
    both = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "a"), "--to", str(tmp_path / "b")])
    assert both.exit_code == 2
    assert "-o and --to both name a file" in " ".join(both.output.split())
    assert list(tmp_path.iterdir()) == []
    assert CliRunner().invoke(app, [*words, "-o", "text"]).output == CliRunner().invoke(app, words).output


def test_another_form_is_refused() -> None:
    """In words; a plan's file is --to."""
    result = CliRunner().invoke(app, ["shrink", "zombie", "--seed", "1", "-o", "my.plan"])
    assert result.exit_code == 2
    assert "'my.plan' is not one of 'text', 'json'" in " ".join(result.output.replace("│", "").split())
