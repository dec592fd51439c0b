"""The auditor on Spark and `lockstep trace check` say the same of the same histories, in every part of the report."""

import dataclasses
import json
import random
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lockstep.order import Confidence, OrderReport, Violation, check_traces
from lockstep.pipeline.audit import transform
from lockstep.pipeline.audit.survey import LINE, TIME
from tests.order import test_contents, test_legal, test_owners, test_scopes, test_violations
from tests.order.content_mutations import MUTATIONS
from tests.order.corrupted_histories import CORRUPTED
from tests.order.good_histories import GOOD
from tests.order.mutation_table import RUNS
from tests.order.scripts import traces_of
from tests.order.ways import ONE_CLOCK, SEVERAL_CLOCKS, Way
from tests.pipeline.audit.audit_histories import History, bent_histories, legal_histories, lines_of, told_histories

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def traces_frame(spark: "SparkSession", histories: Iterable[History]) -> "DataFrame":
    """All histories as one DataFrame, told apart by their names."""
    rows = [
        (history.name, f"{source:03}", json.dumps(record, ensure_ascii=False).encode())
        for history in histories
        for source, trace in enumerate(history.traces)
        for record in trace
    ]
    columns = dict(zip(("history", "file", "line"), map(list, zip(*rows, strict=True)), strict=True))
    return spark.createDataFrame(pa.table(columns))


def said(report: OrderReport) -> dict[str, Any]:
    """All that a report says, to compare it."""
    fields = {field.name: getattr(report, field.name) for field in dataclasses.fields(report)}
    fields["violations"] = [_as_written(found) for found in report.violations]
    fields["undecided"] = [_as_written(found) for found in report.undecided]
    fields["duplicates"] = {cause: count for cause, count in report.duplicates.items() if count}
    fields["broken"] = [(line.number, line.why) for line in report.broken]
    return fields | {"verdict": report.verdict}


def _as_written(found: Violation) -> tuple[Any, ...]:
    evidence = [{name: value for name, value in one.items() if name not in (LINE, TIME)} for one in found.evidence]
    return found.kind, found.sentence, found.confidence, found.size, found.around, evidence


def assert_equal(spark: "SparkSession", histories: Iterable[History]) -> dict[str, OrderReport]:
    """Compare all, and show the shortest history on which they differ. Returns the reports."""
    known = [history for history in histories if any(history.traces)]
    with transform(traces_frame(spark, known)) as audit:
        ours = audit.reports
    expected = {history.name: check_traces([trace for trace in history.traces if trace]) for history in known}
    differ = [history for history in known if said(ours[history.name]) != said(expected[history.name])]
    if differ:
        first = min(differ, key=lambda history: sum(map(len, history.traces)))
        one, other = said(ours[first.name]), said(expected[first.name])
        parts = [f"{name}: {one[name]}\n  not {other[name]}" for name in one if one[name] != other[name]]
        pytest.fail(f"{len(differ)} of {len(known)} differ; {first.name}\n" + "\n".join(parts) + f"\n{lines_of(first)}")
    return expected


def unique(histories: Iterable[History]) -> list[History]:
    """The histories with a number before each name."""
    return [History(f"{place}: {history.name}", history.traces) for place, history in enumerate(histories)]


def test_the_stories_of_the_judge(spark: "SparkSession") -> None:
    """Every history that the judge's own tests tell has the same report here."""
    modules = (test_contents, test_scopes, test_legal, test_owners, test_violations)
    found = unique(told_histories(*modules))
    assert len(found) > 60
    assert_equal(spark, found)


def test_random_histories_legal_and_bent(spark: "SparkSession") -> None:
    """200 random histories, legal and with some wrongs in them, have the same report here."""
    legal = legal_histories(40)
    assert_equal(spark, unique([*legal, *(history for seed in range(4) for history in bent_histories(legal, seed))]))


def written(scripts: Mapping[str, str], ways: Iterable[Way], every: int) -> list[History]:
    """Every n-th of the histories that are written by hand, in several kinds of traces."""
    chosen = [(name, script, way) for name, script in scripts.items() for way in ways][::every]
    return unique(
        History(f"{name}, {way.__name__}", way(list(traces_of(script).values()), random.Random(name)))
        for name, script, way in chosen
    )


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
def test_good_histories_that_are_written_by_hand(spark: "SparkSession", every: int) -> None:
    """Skewed machines, one address, rotated files: the bounds of clocks and what they leave open are the same."""
    reports = assert_equal(spark, written(GOOD, (*ONE_CLOCK, *SEVERAL_CLOCKS), every))
    doubts = [found for report in reports.values() for found in report.undecided]
    assert {found.confidence for found in doubts} == {Confidence.UNDECIDED}


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.long)])
def test_corrupted_histories_that_are_written_by_hand(spark: "SparkSession", every: int) -> None:
    """Each wrong that docs/order.md and docs/judge.md name, in several kinds of traces."""
    scripts = {name: script for name, (_, script) in CORRUPTED.items()}
    reports = assert_equal(spark, written(scripts, (*ONE_CLOCK, *SEVERAL_CLOCKS), every))
    assert len({kind for report in reports.values() for kind in report.violation_counts}) > 16


def test_every_mutation_of_a_recorded_run(spark: "SparkSession") -> None:
    """A real run with one wrong of each sort in it; together they show nearly all kinds."""
    found = [History("as it was", RUNS["demo"](0))]
    for name, mutation in MUTATIONS.items():
        traces = RUNS["demo"](0)
        if mutation.change(traces, random.Random(name)):
            found.append(History(name, traces))
    reports = assert_equal(spark, unique(found))
    assert len({kind for report in reports.values() for kind in report.violation_counts}) > 16
