"""Good histories raise no alarm, and one wrong in a run of each kind is found and named."""

import json

import pytest

from lockstep.order import check_traces
from tests.order.content_mutations import MUTATIONS
from tests.order.good_table import judged
from tests.order.mutation_table import RUNS, Row, recorded, rows, share


def check(found: list[Row]) -> None:
    """At least 99 % are found as violations and 95 % under a name of theirs; none of them nowhere."""
    for run_name in found[0].cells:
        share_found, share_named = share(found, run_name)
        assert share_found >= 0.99, run_name
        assert share_named >= 0.95, run_name


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_mutations_are_found_and_named() -> None:
    """At least 60 operators at some places of each kind of run; what clocks leave open is counted apart."""
    assert len(MUTATIONS) >= 60
    found = rows(5)
    assert [row.name for row in found if not any(cell.places for cell in row.cells.values())] == []
    check(found)


def test_a_mutation_of_each_kind_is_found() -> None:
    """One place of each operator in a simulated run."""
    check(rows(1, ("simulator",)))


@pytest.mark.parametrize("name", ["demo", "interop"])
def test_the_recorded_runs_are_in_order(name: str) -> None:
    """Killed consumers, and others that join: nothing is found in them as they were."""
    report = check_traces(json.loads(recorded(name)))
    assert report.in_order, "\n".join(report.lines())


def test_every_kind_of_run_is_there() -> None:
    """A demo, one with Java's consumers, simulated ones, and runs on several machines."""
    assert list(RUNS) == ["demo", "with Java", "simulator", "several machines"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("generated", "runs"), [(3, 4), pytest.param(45, 60, marks=pytest.mark.long)])
def test_good_histories_raise_no_alarm(generated: int, runs: int) -> None:
    """Kills, reboots, partitions, resets, crashed brokers, torn lines, on one clock and on several: no violation."""
    for good in judged(generated, runs):
        assert [line for report in good.alarms for line in report.lines()] == [], good.name
