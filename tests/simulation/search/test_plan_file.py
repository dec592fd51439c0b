"""Plan files that are damaged, edited by hand or of another version: one sentence says what is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.registry import find_experiment
from lockstep.simulation.search.plan_file import PlanFileError, read_plan, write_plan

NAMES = ("takeover", "worlds", "worlds/producers", "museum/grant-not-noticed")


def written(folder: Path, name: str = "takeover") -> tuple[Path, Any]:
    path, plan = folder / "a.plan", find_experiment(name).draw(3, LockMode.FENCED)
    write_plan(path, name, plan, "stuck")
    return path, plan


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_that_was_written_is_read(tmp_path: Path, name: str) -> None:
    """Of each kind of experiment."""
    path, plan = written(tmp_path, name)
    assert read_plan(path).plan == plan


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 200_000, bytes(range(256)), bytes(1000)])
def test_what_is_no_json_is_refused(tmp_path: Path, content: bytes) -> None:
    """Empty, cut off, deep and binary files."""
    path = tmp_path / "a.plan"
    path.write_bytes(content)
    with pytest.raises(PlanFileError, match="it is no JSON"):
        read_plan(path)


def _plan(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda saved: saved["plan"].update(values)


def _head(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda saved: saved.update(values)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_head(experiment=3), "'experiment' is 3"),
        (_head(seed="x"), "'seed' is \"x\""),
        (_head(lock_mode="other"), "'lock_mode' is \"other\", not one of faithful, fenced"),
        (lambda saved: saved.pop("kind"), "it has no 'kind'"),
        (_plan(newer=1), "a plan of takeover has no field 'newer': another version may have written it"),
        (_plan(queues="abc"), 'plan.queues is "abc", not a whole number'),
        (_plan(queues=1.5), "plan.queues is 1.5, not a whole number"),
        (_plan(consumers=10**12), "plan.consumers is 1000000000000, not 0 to 1000"),
        (_plan(broker=3), "plan.broker is 3, not an object"),
        (_plan(store="tape"), 'plan.store is "tape", not one of memory, async, sync'),
        (_plan(events=None), "plan.events is null, not a list"),
        (_plan(events=[[1, "kill", "c1"]]), "plan.events[0] has 3 values, not 6"),
        (_plan(events=[[1, "nofault", "c1", 0, "", 0]]), "there is no fault 'nofault'"),
        (_plan(events=[[1, "kill", "c9", 0, "", 0]]), "the fault kill: no host is named 'c9'"),
        (_plan(events=[[-1, "kill", "c1", 0, "", 0]]), "the fault kill has a time below 0"),
    ],
)
def test_the_part_that_is_wrong_is_named(tmp_path: Path, change: Callable[[dict[str, Any]], None], told: str) -> None:
    """And not the exception of Python that it would cause."""
    path, _ = written(tmp_path)
    saved = json.loads(path.read_text())
    change(saved)
    path.write_text(json.dumps(saved))
    with pytest.raises(PlanFileError) as refused:
        read_plan(path)
    assert told in str(refused.value)
