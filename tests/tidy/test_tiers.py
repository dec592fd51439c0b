"""The tiers of tests: quick and rest are everything, and what takes turns is met in every fifth run."""

import re
import zlib
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.mutants.__main__ import PASSED, pytest_run
from tests.tidy.source import sources
from tests.tiers import COLLECTED, LEFT_OUT, TURN_VARIABLE, TURNS, Tier, begin_turn, is_due, select, variants

NAMES = [f"t.py::test_{number}" for number in range(40)]
LOOPS = ["asyncio", "uvloop"]


def config(tier: Tier) -> Any:
    made = SimpleNamespace(getoption=lambda _name: tier.value, stash=pytest.Stash(), rootpath="/")
    begin_turn(cast("pytest.Config", made))
    return made


def item(name: str, *markers: str) -> Any:
    return SimpleNamespace(nodeid=name, get_closest_marker=lambda mark: mark if mark in markers else None)


def names(tests: list[pytest.Item]) -> list[str]:
    return [test.nodeid for test in tests]


def collected(tier: Tier, *markers: str) -> tuple[Counter[str], Any]:
    """What runs of tests that can run under two loops."""
    made = config(tier)
    found = [
        item(f"{name}[{loop}]", *markers) for name in NAMES for loop in variants(made, item(name, *markers), LOOPS)
    ]
    return Counter(names(select(made, found)[0])), made


def test_a_variant_each_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each test one loop, of all tests both; at night both of each."""
    monkeypatch.delenv(TURN_VARIABLE, raising=False)
    for tier in (Tier.QUICK, Tier.ALL):
        chosen, _ = collected(tier)
        assert [name.partition("[")[0] for name in chosen] == NAMES
        assert {name.partition("[")[2] for name in chosen} == {"asyncio]", "uvloop]"}
    assert collected(Tier.NIGHTLY)[0] == Counter(f"{name}[{loop}]" for name in NAMES for loop in LOOPS)


@pytest.mark.parametrize("markers", [(), ("long",)])
def test_five_runs_are_everything(markers: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variant runs in five turns of quick and rest, and what is left out is counted."""
    ran = Counter[str]()
    for turn in range(TURNS):
        monkeypatch.setenv(TURN_VARIABLE, str(turn))
        rest, made = collected(Tier.REST, *markers)
        ran += collected(Tier.QUICK, *markers)[0] + rest
        again = len(rest) - (len(NAMES) if markers else 0)
        assert made.stash[LEFT_OUT]["t.py"] == len(NAMES) - again
    assert sorted(ran) == sorted(f"{name}[{loop}]" for name in NAMES for loop in LOOPS)
    assert sorted(ran.values()) == [1] * len(NAMES) + [TURNS] * len(NAMES)


def test_what_rotates_runs_in_every_fifth_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """In rest, by its name and the number of the run."""
    found = [item(name, "rotating") for name in NAMES]
    ran = Counter[str]()
    for turn in range(7, 7 + TURNS):
        monkeypatch.setenv(TURN_VARIABLE, str(turn))
        made = config(Tier.REST)
        chosen, left = select(made, found)
        assert made.stash[LEFT_OUT] == {"t.py": len(left)}
        ran.update(names(chosen))
    assert ran == Counter(NAMES)
    assert is_due("x", {TURN_VARIABLE: str(zlib.crc32(b"x"))})
    assert not is_due("x", {TURN_VARIABLE: str(zlib.crc32(b"x") + 1)})
    assert is_due("x", {})


@pytest.mark.parametrize("marker", ["spark", "determinism", "realtime", "long", "rotating"])
def test_what_takes_long_is_left_out(marker: str) -> None:
    """Unless it is a smoke test."""
    found = [item("t.py::test_a", marker), item("t.py::test_b", marker, "smoke")]
    assert names(select(config(Tier.QUICK), found)[0]) == ["t.py::test_b"]


def test_each_collected_test_is_in_one_tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests that this run collected are in quick or in the rest, when none waits for its turn."""
    monkeypatch.setenv(TURN_VARIABLE, "0")  # whatever is left out is counted
    found = request.config.stash[COLLECTED]
    quick, rest = (select(config(tier), found) for tier in (Tier.QUICK, Tier.REST))
    left = config(Tier.REST)
    assert len(quick[0]) + len(select(left, found)[0]) + left.stash[LEFT_OUT].total() == len(found)
    assert not set(names(quick[0])) & set(names(rest[0]))
    assert len(found) == len(set(names(found)))


def test_spark_is_in_quick() -> None:
    """One test of Spark, and no more: a JVM is dear."""
    marked = [source for source in sources() if "@pytest.mark.smoke\n" in source.text]
    of_spark = {source.path.as_posix(): source.text.count("@pytest.mark.smoke\n") for source in marked}
    assert {path: n for path, n in of_spark.items() if path.startswith("tests/pipeline/")} == {
        "tests/pipeline/test_smoke.py": 1
    }


def test_nothing_begins_after_the_time_of_until() -> None:
    """A run that is out of time ends well, and its summary says how many tests did not begin."""
    status, output = pytest_run(["tests/protocol/test_frame.py"], "--until=1")
    assert status == PASSED
    assert "not begun: the time of --until is over" in output
    assert re.search(r"^\d+ skipped in", output, re.MULTILINE)
