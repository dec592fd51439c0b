"""Comparisons: which ways there are, what each costs, and how that is told."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lockstep.simulation.commands.app import app
from lockstep.simulation.lab.setup import LockMode
from lockstep.simulation.search.compare import Comparison, Trial
from lockstep.simulation.search.compare_texts import comparison_csv, comparison_lines, comparison_page
from lockstep.simulation.search.ways import WAYS_MAX, Base, Way, read_ways, story_of

SMALL = ("--consumers", "2", "--queues", "2", "--rate", "1", "--kill", "c1@20s", "--for", "100s")


def called(*words: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    result = CliRunner().invoke(app, ("compare", *words))
    return result.exit_code, result.stdout, result.stderr


def test_all_combinations_are_ways() -> None:
    ways = read_ways(["lock_mode=faithful,fenced", "lock_interval_ms=20000,5000"])
    assert [tuple(value for _, value in way.values) for way in ways] == [
        ("faithful", "20000"), ("faithful", "5000"), ("fenced", "20000"), ("fenced", "5000")
    ]  # fmt: skip
    assert read_ways([]) == [Way(())]


def test_a_way_is_set_where_its_name_is() -> None:
    """A lock mode, the setup, and settings of consumers and of brokers, under RocketMQ's names too."""
    of_consumer = "rocketmq.client.rebalance.lockInterval=5000"
    texts = ["lock_mode=fenced", "consumers=5", "rate=0.5", "work=2s", "for=30s"]
    texts += [of_consumer, "broker.lock_max_live_time_ms=30000"]
    (way,) = read_ways(texts)
    experiment, mode = story_of(Base("takeover"), way)
    plan = experiment.draw(1, mode)
    assert (mode, plan.consumers, plan.rate, plan.work_ms, plan.life_ms) == (LockMode.FENCED, 5, 0.5, 2000, 30_000)
    assert plan.consumer == {"lock_interval_ms": 5000}
    assert plan.broker == {"lock_max_live_time_ms": 30_000}


def test_what_the_ways_change_is_not_common_to_them() -> None:
    """The head of a table names no value that no run has."""
    ways = read_ways(["consumers=5,10", "for=5m"])
    base = Base("takeover", setup={"consumers": 12, "life": "3m", "queues": 8})
    assert Comparison(base, ways).common == {"queues": "8", "for": "5m"}


@pytest.mark.parametrize(
    ("texts", "wrong"),
    [
        (["lock_mode"], "write NAME=VALUE,VALUE"),
        (["consumers=1,,2"], "write NAME=VALUE,VALUE"),
        (["consumers=1,1"], "a value is there twice"),
        (["consumers=1", "consumers=2"], "consumers is there twice"),
        (["consumers=two"], "write a whole number"),
        (["consumers=0"], "write a whole number from 1 on"),
        (["rate=-1"], "write a number from 0 on"),
        (["rate=nan"], "write a number from 0 on"),
        (["retry_sends=yes"], "write true or false"),
        (["lock_mode=both"], "lock mode 'both' is not allowed; use faithful, fenced or fifo"),
        (["lock_max_live_time_ms=1000"], "write consumer.lock_max_live_time_ms or broker.lock_max_live_time_ms"),
        (["lock_intervall_ms=1000"], "no story has it"),
        (["lock_interval_ms=soon"], "lock_interval_ms"),
        (["consumers=" + ",".join(map(str, range(1, WAYS_MAX + 2)))], f"more than {WAYS_MAX} combinations"),
    ],
)
def test_a_wrong_way_is_told_before_anything_runs(texts: Sequence[str], wrong: str) -> None:
    status, output, error = called("takeover", *(word for text in texts for word in ("--with", text)))
    assert (status, output) == (2, "")
    assert wrong in error
    assert "Traceback" not in error


@pytest.mark.long
def test_a_killed_owner_costs_less_with_fences(tmp_path: Path) -> None:
    """RocketMQ's lock of a dead owner lives for a minute. The text, the JSON and the page say the same."""
    page = tmp_path / "page.html"
    words = (*SMALL, "--with", "lock_mode=faithful,fenced", "--seeds", "2", "--jobs", "1")
    status, output, _ = called("takeover", *words, "-o", "json", "--page", str(page))
    row = json.loads(output)
    faithful, fenced = row["ways"]
    assert status == 0
    assert (faithful["with"], fenced["with"]) == ({"lock_mode": "faithful"}, {"lock_mode": "fenced"})
    assert [one["seed"] for one in faithful["seeds"]] == [1, 2]
    longest = [way["figures"]["still_longest_ms"]["max"] for way in (faithful, fenced)]
    assert longest[0] > 30_000
    assert longest[1] < 5_000
    text = page.read_text(encoding="utf-8")
    assert f"{longest[0] / 1000:.1f} s" in text
    assert "lock_mode=fenced" in text
    assert "<script src" not in text


def test_what_a_table_says() -> None:
    """The median, and in brackets p99; ways are told apart by what differs."""
    ways = read_ways(["lock_mode=faithful,fenced", "consumers=5"])
    trials = [Trial(0, seed, {"late": float(seed)}) for seed in range(1, 101)] + [Trial(1, 1, {}, "LimitError: long")]
    comparison = Comparison(Base("deploy"), ways, trials)
    lines = list(comparison_lines(comparison))
    assert lines[0] == "deploy with consumers=5: 2 ways, 100 seeds each"
    assert lines[2:4] == ["  A  lock_mode=faithful", "  B  lock_mode=fenced"]
    assert lines[6].split() == ["late", "50", "(99)", "-"]
    assert "ERROR lock_mode=fenced, seed 1: LimitError: long" in lines
    rows = list(csv.DictReader(comparison_csv(comparison).splitlines()))
    assert rows[0] == {"lock_mode": "faithful", "consumers": "5", "seed": "1", "late": "1.0", "error": ""}
    assert (rows[-1]["late"], rows[-1]["error"]) == ("", "LimitError: long")


def test_a_page_escapes_what_people_named() -> None:
    comparison = Comparison(Base("<b>.py:shop"), [Way(())], [Trial(0, 1, {"late": 1.0}, "")])
    assert "<b>" not in comparison_page(comparison)
