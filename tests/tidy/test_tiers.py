"""The tiers of tests: quick and rest are everything, and each thing is in quick once."""

import re
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.mutants.__main__ import PASSED, pytest_run
from tests.tidy.source import sources
from tests.tiers import COLLECTED, Tier, select


def items(*names: str, markers: dict[str, set[str]] | None = None, drawn: frozenset[str] = frozenset()) -> Any:
    def item(name: str) -> Any:
        given = (markers or {}).get(name, set())
        test = SimpleNamespace(is_hypothesis_test=name in drawn)
        return SimpleNamespace(nodeid=name, obj=test, get_closest_marker=lambda mark: mark if mark in given else None)

    return cast("list[pytest.Item]", [item(name) for name in names])


def names(tests: list[pytest.Item]) -> list[str]:
    return [test.nodeid for test in tests]


LOOPS = [f"t.py::test_{number}[{loop}]" for number in range(40) for loop in ("asyncio", "uvloop")]


def test_a_variant_each_by_turns() -> None:
    """Of each test one loop, of all tests both."""
    chosen = names(select(items(*LOOPS), Tier.QUICK)[0])
    assert len(chosen) == len({name.partition("[")[0] for name in chosen}) == 40
    assert {name.partition("[")[2] for name in chosen} == {"asyncio]", "uvloop]"}


def test_other_parameters_stay() -> None:
    """Only loops and encodings are taken by turns."""
    given = ["t.py::test[1-JSON]", "t.py::test[1-MSGPACK]", "t.py::test[2-JSON]", "t.py::test[2-MSGPACK]"]
    assert sorted(name.partition("[")[2][0] for name in names(select(items(*given), Tier.QUICK)[0])) == ["1", "2"]


def test_quick_and_rest_are_everything() -> None:
    """Nothing is left out of both, and only what draws examples runs in both."""
    given = items(*LOOPS, "t.py::test_drawn", drawn=frozenset({"t.py::test_drawn"}))
    quick, rest = (names(select(given, tier)[0]) for tier in (Tier.QUICK, Tier.REST))
    assert sorted([*quick, *rest]) == sorted([*LOOPS, "t.py::test_drawn", "t.py::test_drawn"])
    assert select(given, Tier.ALL) == (given, [])


@pytest.mark.parametrize("marker", ["spark", "determinism", "realtime", "long"])
def test_what_takes_long_is_left_out(marker: str) -> None:
    """Unless it is a smoke test."""
    given = items("t.py::test_a", "t.py::test_b", markers={"t.py::test_a": {marker}, "t.py::test_b": {marker, "smoke"}})
    assert names(select(given, Tier.QUICK)[0]) == ["t.py::test_b"]


def test_each_collected_test_is_in_one_tier(request: pytest.FixtureRequest) -> None:
    """All tests that this run collected are in quick or in the rest; only those that draw examples are in both."""
    collected = request.config.stash[COLLECTED]
    quick, rest = (set(names(select(collected, tier)[0])) for tier in (Tier.QUICK, Tier.REST))
    drawn = {item.nodeid for item in collected if getattr(getattr(item, "obj", None), "is_hypothesis_test", False)}
    assert quick | rest == set(names(collected))
    assert quick & rest <= drawn
    assert len(collected) == len(set(names(collected)))


def test_each_collected_scenario_is_in_quick_once(request: pytest.FixtureRequest) -> None:
    """Under one of the two encodings."""
    collected = request.config.stash[COLLECTED]
    assert scenario_runs(select(collected, Tier.QUICK)[0]) == dict.fromkeys(scenario_runs(collected), 1)
    assert set(scenario_runs(collected).values()) <= {2}


def scenario_runs(tests: list[pytest.Item]) -> Counter[str]:
    """How often each scenario runs."""
    return Counter(
        test.nodeid.partition("[")[0]
        for test in tests
        if test.nodeid.startswith("tests/scenarios/")
        and isinstance(test, pytest.Function)
        and hasattr(test, "callspec")
        and set(test.callspec.params) == {"serialize_type"}
    )


def test_spark_is_in_quick() -> None:
    """A test that writes a topic and reads it through Spark is marked as a smoke test."""
    marked = [source.path.as_posix() for source in sources() if "@pytest.mark.smoke\n" in source.text]
    assert any(path.startswith("tests/pipeline/") for path in marked)


def test_nothing_begins_after_the_time_of_until() -> None:
    """A run that is out of time ends well, and its summary says how many tests did not begin."""
    status, output = pytest_run(["tests/protocol/test_frame.py"], "--until=1")
    assert status == PASSED
    assert "not begun: the time of --until is over" in output
    assert re.search(r"^\d+ skipped in", output, re.MULTILINE)
