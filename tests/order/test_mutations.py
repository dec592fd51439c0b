"""Good histories raise no alarm, and one wrong in a recorded run is found and named."""

import copy
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from lockstep.order import OrderReport, check_traces
from tests.order.content_mutations import MUTATIONS
from tests.order.key_histories import key_histories
from tests.order.legal_histories import histories
from tests.order.mutation_table import recorded, rows
from tests.order.stories import Story

Traces = list[list[dict[str, Any]]]


def share(found: int, places: int) -> float:
    return found / places if places else 0


@pytest.mark.long
def test_the_mutations_are_found_and_named() -> None:
    """Of at least 60 operators at some places each: 99 % found as violations, 95 % under a name of theirs."""
    assert len(MUTATIONS) >= 60
    found = rows(5)
    assert [row.name for row in found if not row.places] == []
    places = sum(row.places for row in found)
    assert share(sum(row.found for row in found), places) >= 0.99
    assert share(sum(row.named for row in found), places) >= 0.95


def test_a_mutation_of_each_kind_is_found() -> None:
    """One place of each operator."""
    found = rows(1)
    places = sum(row.places for row in found)
    assert share(sum(row.found for row in found), places) >= 0.99
    assert share(sum(row.named for row in found), places) >= 0.95


def test_the_recorded_run_is_in_order() -> None:
    """A killed consumer, and others that join: nothing is found in it as it was."""
    report = check_traces(recorded())
    assert report.in_order, "\n".join(report.lines())


# Good ones -----------------------------------------------------------------------------------------------------


def moved(record: dict[str, Any], wall_ms: int, mono_ns: int, **fields: Any) -> dict[str, Any]:
    """On another clock."""
    found = {**record, **fields, "wall_ms": record["wall_ms"] + wall_ms, "mono_ns": record["mono_ns"] + mono_ns}
    if "begin_mono_ns" in found:
        found["begin_mono_ns"] += mono_ns
    return found


def with_skew(traces: Traces, rng: random.Random) -> Traces:
    """Every trace on a machine of its own, up to half a second off."""
    found = []
    for number, trace in enumerate(traces):
        ms, boot_ns = rng.randint(-250, 250), rng.randrange(10**12, 10**15)
        names = {"machine": f"m{number}", "boot": f"b{number}", "host": "127.0.0.1"}
        found.append([moved(record, ms, boot_ns, **names) for record in trace])
    return found


def with_one_address(traces: Traces, rng: random.Random) -> Traces:
    """The same in records of version 1: only `host`, and that is equal."""
    skewed = with_skew(traces, rng)
    return [[{k: v for k, v in one.items() if k not in ("machine", "boot", "v")} for one in trace] for trace in skewed]


def with_rotation(traces: Traces, rng: random.Random) -> Traces:
    """Every trace in two files."""
    cuts = [rng.randint(0, len(trace)) for trace in traces]
    parts = [part for trace, cut in zip(traces, cuts, strict=True) for part in (trace[cut:], trace[:cut])]
    return [part for part in parts if part]


def as_it_is(traces: Traces, rng: random.Random) -> Traces:
    return traces


WAYS = (as_it_is, with_skew, with_one_address, with_rotation)


def good(count: int, strategy: Any) -> list[Traces]:
    """So many histories of a generator, the same ones in each run."""
    found: list[Traces] = []

    @settings(
        max_examples=count, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck), deadline=None,
    )  # fmt: skip
    @given(strategy)
    def collect(story: Story) -> None:
        found.append(copy.deepcopy(list(story.traces.values())))

    collect()
    return found


def alarms(count: int) -> tuple[int, int, list[OrderReport]]:
    """How many histories there were, how many were undecided, and the reports with violations."""
    rng = random.Random(1)
    histories_found = [*good(count, histories()), *good(count, key_histories())]
    reports = [check_traces(way(traces, rng)) for traces in histories_found for way in WAYS]
    wrong = [report for report in reports if report.violation_counts or report.lost]
    return len(reports), sum(bool(report.undecided_counts) for report in reports), wrong


@pytest.mark.parametrize("count", [6, pytest.param(45, marks=pytest.mark.long)])
def test_good_histories_raise_no_alarm(count: int) -> None:
    """Kills, handovers, suspensions, on skewed machines, under one address, in rotated files: no violation in any."""
    _, _, wrong = alarms(count)
    assert [line for report in wrong for line in report.lines()] == []
