"""Plan files that are damaged, edited by hand or of another version: one sentence says what is wrong."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.simulation.lab.experiment import LOCKING, LockMode
from lockstep.simulation.lab.registry import experiment_names, find_experiment
from lockstep.simulation.museum.registry import EXHIBITS
from lockstep.simulation.search.plan_file import PlanFileError, read_plan, write_plan
from lockstep.simulation.search.plan_limits import check_plan

NAMES = ("takeover", "worlds", "worlds/producers", "worlds/fifo", "museum/grant-not-noticed")


def written(folder: Path, name: str = "takeover") -> tuple[Path, Any]:
    path, plan = folder / "a.plan", find_experiment(name).draw(3, LockMode.FENCED)
    write_plan(path, name, plan, "stuck")
    return path, plan


@pytest.mark.parametrize("name", NAMES)
def test_a_plan_that_was_written_is_read(tmp_path: Path, name: str) -> None:
    """Of each kind of experiment."""
    path, plan = written(tmp_path, name)
    assert read_plan(path).plan == plan


def test_a_field_that_came_later_has_its_default(tmp_path: Path) -> None:
    """A plan of an earlier version stays what it was, whatever its seed draws for the new field."""
    path, plan = written(tmp_path, "worlds")
    assert plan.together, "another seed, please: this one draws the default"
    saved = json.loads(path.read_text(encoding="utf-8"))
    del saved["plan"]["together"]
    path.write_text(json.dumps(saved), encoding="utf-8")
    assert read_plan(path).plan == replace(plan, together=False)


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
        (_plan(events=[[-1, "kill", "c1", 0, "", 0]]), "plan.events[0], the fault kill: at_ms is -1, not 0 to "),
        (_plan(events=[[1, "stall", "c1", -1, "", 0]]), "the fault stall: duration_ms is -1, not 0 to "),
        (_plan(events=[[1, "drift", "c1", 0, "", 9]]), "the fault drift: it needs a duration (an example: c1@30s+60s"),
        (_plan(events=[[1, "kill", "", 0, "", 0]]), "the fault kill: target is empty; it is a host, one of broker, "),
        (_plan(events=[[1, "cut", "c1", 0, "c1", 0]]), "target and other are both 'c1'; a link has two hosts"),
        (_plan(events=[[1, "cut", "c1", 0, "", 0]]), "the fault cut: it is a fault of a link of two hosts"),
        (_plan(events=[[1, "kill", "c1", 0, "c2", 0]]), "the fault kill: it is a fault of a host"),
        (_plan(events=[[1, "broker kill", "c1", 0, "", 0]]), "there is no fault 'broker kill'; `lockstep-sim list`"),
        (_plan(events=[[1, "slow-cpu", "c1", 9, "", 0]]), "the fault slow-cpu: it needs =AMOUNT"),
        (_plan(events=[[1, "slow-cpu", "c1", 9, "", -5]]), "the fault slow-cpu: "),
        (
            _plan(events=[[180_001, "kill", "c1", 0, "", 0]]),
            "at_ms is 180001, after the end of the run: life_ms is 180000",
        ),
        (_plan(life_ms=0), "plan.life_ms is 0, not 1 to "),
        (_plan(life_ms=10**30), "plan.life_ms is 1000000000000000000000000000000, not 1 to "),
        (_plan(work_ms=-1), "plan.work_ms is -1, not 0 to "),
        (_plan(queues=0), "plan.queues is 0, not 1 to 10000"),
        (_plan(brokers=0), "plan.brokers is 0, not 1 to 1000"),
        (_plan(keys=0), "plan.keys is 0, not 1 to "),
        (_plan(rate=float("nan")), "plan.rate is nan, not 0 to 1000000"),
        (_plan(rate=float("inf")), "plan.rate is inf, not 0 to 1000000"),
        (_plan(consumer={"": 1}), "plan.consumer: no setting is named ''; docs/settings.md lists all"),
        (_plan(broker={"flush_sink": 1}), "plan.broker: no setting is named 'flush_sink'; did you mean flush_sync"),
        (_plan(seed=4), "plan.seed is 4, and 'seed' is 3: they are equal in a plan"),
        (_plan(lock_mode="faithful"), "plan.lock_mode is faithful, and 'lock_mode' is fenced: they are equal"),
    ],
)
def test_the_part_that_is_wrong_is_named(tmp_path: Path, change: Callable[[dict[str, Any]], None], told: str) -> None:
    """And not the exception of Python that it would cause."""
    assert told in refusal(tmp_path, change)


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("worlds", _plan(lease_ms=0), "plan.lease_ms is 0, not 3000 to "),
        ("worlds", _plan(first_members=4), "plan.first_members is 4, not 0 to 3"),
        ("worlds", _plan(threads=0), "plan.threads is 0, not 1 to 1000"),
        ("worlds", _plan(batch_size=0), "plan.batch_size is 0, not 1 to 1024"),
        ("worlds", _plan(long_works=101), "plan.long_works is 101, not 0 to 100"),
        ("worlds", _plan(latency_us_max=10**9), "plan.latency_us_max is 1000000000, not 0 to 125000"),
        ("worlds", _plan(plain=[True]), "plan.plain has 1 values, not 3"),
        ("worlds", _plan(brokers=[]), "plan.brokers is empty, not 'broker'"),
        ("worlds", _plan(brokers=["broker", "broker"]), "plan.brokers is 'broker', 'broker', not 'broker', 'broker2'"),
        ("worlds", _plan(sends=[[-1, 1]]), "plan.sends[0], its time in ms, is -1, not 0 to "),
        ("worlds", _plan(sends=[[1, 1], [1, 0]]), "plan.sends[1], its number of messages, is 0, not 1 to "),
        (
            "worlds",
            _plan(events=[[1, "join", "c4", 0, "", 0]]),
            "no host is named 'c4'; there are broker, producer, c1",
        ),
        ("worlds/producers", _plan(settings=[{}]), "plan.settings has 1 values, not 2"),
        ("worlds/producers", _plan(settings=[{}, {"x": 1}]), "plan.settings[1]: no setting is named 'x'"),
        ("worlds/producers", _plan(bursts=[[1, "p3", 1]]), "plan.bursts[0].producer is 'p3'; there are p1, p2"),
        ("worlds/producers", _plan(bursts=[[1, "p1", 0]]), "plan.bursts[0], its number of messages, is 0, not 1 to "),
        ("museum/grant-not-noticed", _plan(lock_ms=1), "plan.lock_ms is 1, not 3000 to "),
        ("museum/grant-not-noticed", _plan(failing=-1), "plan.failing is -1, not 0 to 100"),
    ],
)
def test_a_value_that_no_seed_draws_is_refused(
    tmp_path: Path, name: str, change: Callable[[dict[str, Any]], None], told: str
) -> None:
    """Of the other kinds of plans."""
    assert told in refusal(tmp_path, change, name)


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """JSON would take the last of them without a word."""
    path, _ = written(tmp_path)
    path.write_text(path.read_text().replace('"queues":', '"queues": 3, "queues":'))
    with pytest.raises(PlanFileError, match=r"a\.plan is no plan .*: 'queues' is there twice"):
        read_plan(path)


@pytest.mark.parametrize("name", [*experiment_names(), *(f"museum/{key}" for key in EXHIBITS)])
def test_what_a_seed_draws_is_allowed(name: str) -> None:
    """Of each experiment, the simpler plans that `shrink` tries, and the smallest plans of the museum."""
    experiment: Any = find_experiment(name)
    found = getattr(experiment, "found", None)
    for plan in [experiment.draw(seed, mode) for seed in range(1, 13) for mode in LOCKING] + [found and found.plan]:
        if plan is not None:
            check_plan(plan)
            for simpler in plan.smaller():
                check_plan(simpler)


def refusal(folder: Path, change: Callable[[dict[str, Any]], None], name: str = "takeover") -> str:
    path, _ = written(folder, name)
    saved = json.loads(path.read_text())
    change(saved)
    path.write_text(json.dumps(saved))
    with pytest.raises(PlanFileError) as refused:
        read_plan(path)
    assert str(path) in str(refused.value)
    return str(refused.value)
