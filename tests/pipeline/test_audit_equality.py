"""The auditor on Spark and the judge in memory give one verdict on the kinds that both know, on the same histories."""

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from lockstep.order import check_traces
from lockstep.pipeline.audit import RECORD_COLUMNS, TRACE_COLUMNS, Audit, transform
from tests.order import test_lanes, test_legal, test_violations
from tests.pipeline.audit_histories import (
    COUNTS,
    History,
    bent_histories,
    is_doubted_rewind,
    legal_histories,
    lines_of,
    on_one_clock,
    small_plans,
    told_histories,
    verdict,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD_NAMES = [column.split()[0] for column in RECORD_COLUMNS.split(",")]


def traces_frame(spark: "SparkSession", histories: list[History]) -> "DataFrame":
    """All histories as one DataFrame, told apart by their names."""
    rows = [
        (history.name, f"{source:03}", 0, line, *[record.get(name) for name in RECORD_NAMES], None)
        for history in histories
        for source, trace in enumerate(history.traces)
        for line, record in enumerate(trace, 1)
    ]
    return spark.createDataFrame(rows, TRACE_COLUMNS)


def verdicts(audit: Audit) -> dict[str, dict[str, Any]]:
    """The auditor's, by history."""
    found: dict[str, dict[str, Any]] = {}
    kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in audit["violations"].groupBy("history", "kind").count().collect():
        kinds[row.history][row.kind] = row["count"]
    causes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in audit["duplicates"].collect():
        causes[row.history][row.cause] += row.messages
    moved: defaultdict[str, list[tuple[str, str, float]]] = defaultdict(list)
    for row in audit["handovers"].collect():
        moved[row.history].append((row.from_client_id, row.to_client_id, round(row.duration_ms, 6)))
    for row in audit["summary"].collect():
        found[row.history] = {
            "violations": kinds[row.history],
            "duplicates": causes[row.history],
            "handovers": sorted(moved[row.history]),
            "counts": {name: row[name] for name in COUNTS},
            "in_order": row.in_order,
        }
    return found


def assert_equal(spark: "SparkSession", histories: list[History]) -> None:
    """Compare all, and show the first history on which they differ."""
    with small_plans(spark), transform(traces_frame(spark, histories), clock_tolerance_ms=None) as audit:
        ours = verdicts(audit)
    reports = {h.name: check_traces(on_one_clock(h.traces)) for h in histories}
    differ = [
        h for h in histories
        if ours.get(h.name) != verdict(reports[h.name]) and not is_doubted_rewind(ours[h.name], reports[h.name])
    ]  # fmt: skip
    if differ:
        first = min(differ, key=lambda history: sum(map(len, history.traces)))
        pytest.fail(
            f"{len(differ)} of {len(histories)} differ; {first.name}\n"
            f"{ours.get(first.name)}\n{verdict(reports[first.name])}\n{lines_of(first)}"
        )


def test_the_stories_of_the_checker(spark: "SparkSession") -> None:
    """Every history that the checker's own tests tell has the same verdict here."""
    histories = told_histories(test_lanes, test_legal, test_violations)
    assert len(histories) > 40
    assert_equal(spark, histories)


def test_random_histories_legal_and_bent(spark: "SparkSession") -> None:
    """Legal histories, and the same with some wrongs in them, have the same verdict here."""
    legal = legal_histories(40)
    bent = [history for seed in range(4) for history in bent_histories(legal, seed)]
    unique = [History(f"{place}: {history.name}", history.traces) for place, history in enumerate([*legal, *bent])]
    assert_equal(spark, unique)
