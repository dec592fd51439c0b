"""The report of an audit: its tables become the run of a page, with the same report as `lockstep trace check` has."""

import json
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lockstep.order import Confidence, Kind, Verdict, check_files
from lockstep.order.page import page, write_page
from lockstep.pipeline.audit import TABLES
from lockstep.pipeline.report import AuditFindings, collect, judged_run, read_tables, write_tables
from tests.pipeline.audit.report_findings import BEGIN_MS, QUEUE, clean, corrupted, owned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_clean_run_is_in_order(tmp_path: Path) -> None:
    """The verdict, the numbers, the duplicates' cause, plots, percentiles; no word of evidence."""
    path = tmp_path / "there" / "report.html"
    write_page(path, "An audit", [judged_run(clean())])
    text = path.read_text(encoding="utf-8")
    for word in ("<b>in order</b>", "1,200", "takeover", "How long listeners took", "Waiting", "Handovers"):
        assert word in text
    assert "<h2>Evidence</h2>" not in text


def test_every_kind_has_its_evidence() -> None:
    """Counts and reason come from all findings; sentence, command and mark from those with evidence."""
    run = judged_run(corrupted(), ["a.jsonl"])
    assert run.report.verdict is Verdict.NOT_IN_ORDER
    assert run.report.reason() == "4 violations and 1 message lost."
    assert run.report.violation_counts[Kind.OVERLAP] == 2
    text = unescape(page("An audit", [run]))
    for word, found in run.report.examples():
        assert found.sentence in text
        assert word in text
    assert "offset 17 <was> handled" in text
    assert "lockstep trace show a.jsonl --queue flights/b/6 --group board --around 17" in text
    assert len([one for one in run.found if one.span_ns is not None]) == 4


def finding(records: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A row of the table `undecided` with its records."""
    row: dict[str, Any] = {
        **QUEUE, "queue_id": 0, "kind": "overlap", "rule": "c", "key": None, "offsets": [1, 2], "processes": [],
        "times_ms": [record["wall_ms"] for record in records], "places": [], "evidence": "two at once",
        "confidence": "undecided", "size": 1.5, "begin_ms": None, "end_ms": None, "word": "the only one",
        "records": [json.dumps(record) for record in records],
        "story": "lockstep trace show FILE... --queue flights/b/0 --group board --around 7",
    }  # fmt: skip
    return row | more


def test_undecided_findings_clocks_and_limits_are_taken_over() -> None:
    """An overlap of 1.5 ms that rests on a clock keeps its length, its bounds and the offset of its story."""
    findings = clean()
    place = {"topic": "flights", "broker": "b", "queue_id": 0, "group": "board", "event": "handled"}
    records = [
        {**place, "offset": 1, "wall_ms": BEGIN_MS + 10, "mono_ns": 10_500_000, "begin_mono_ns": 4_000_000},
        {**place, "offset": 2, "wall_ms": BEGIN_MS + 12, "mono_ns": 12_000_000, "begin_mono_ns": 9_000_000},
    ]
    findings.undecided = [finding(records)]
    findings.kinds = [{"kind": "overlap", "rule": "c", "undecided": True, "findings": 3}]
    findings.unseen, findings.clocks = ["no producer trace"], ["the wall clock of m is ahead"]
    run = judged_run(findings)
    (one,) = run.found
    assert run.report.verdict is Verdict.UNDECIDED
    assert run.report.undecided_counts == {Kind.OVERLAP: 3}
    assert (one.violation.confidence, one.violation.around) == (Confidence.UNDECIDED, 7)
    assert one.span_ns is not None
    assert one.span_ns[1] - one.span_ns[0] == 1_500_000
    text = page("An audit", [run])
    for word in ("<b>undecided</b>", "no producer trace", "the wall clock of m is ahead", "for 1.5 ms"):
        assert word in text


def test_nothing_is_no_pass() -> None:
    """An audit of nothing has no plots, and the page is made all the same."""
    run = judged_run(AuditFindings("", dict.fromkeys(clean().summary, 0)))
    assert run.report.verdict is Verdict.UNDECIDED
    assert "<svg" not in page("An audit", [run])


def test_what_the_audit_counts_the_report_prints() -> None:
    """The lines of the report are those of `lockstep trace check` for the same counts."""
    lines = judged_run(clean()).report.lines()
    assert [line.split()[0] for line in lines[:4]] == ["verdict", "because", "sent", "handled"]
    assert check_files([]).lines()[0].split()[1] == "undecided"


@pytest.mark.parametrize("many", [False, True])
def test_findings_come_from_the_tables_of_an_audit(spark: "SparkSession", tmp_path: Path, *, many: bool) -> None:
    """Written as Parquet and read again: a history each, all it has and nothing of another's, some of each kind."""
    tables = {name: spark.createDataFrame([], columns) for name, columns in TABLES.items()}
    swaps = [
        finding([], history="one", kind="nonmonotonic-poll", rule="a", word=None, times_ms=[BEGIN_MS + number])
        for number in range(400 if many else 3)
    ]
    rows: dict[str, list[dict[str, Any]]] = {
        "summary": [{**clean().summary, "history": name, "in_order": name == "one"} for name in ("two", "one")],
        "owners": [{**owned(1, "c@1#1", 1, 0, 5_000), "history": "one"}],
        "rates": [{**QUEUE, "history": "two", "second_ms": BEGIN_MS, "attempts": 7, "repeats": 2}],
        "duplicates": [{**QUEUE, "queue_id": q, "history": "one", "cause": "takeover", "messages": 3} for q in (0, 1)],
        "violations": [*swaps, finding([], history="one", confidence="certain", times_ms=[BEGIN_MS])],
        "unseen": [{"history": "one", "sentence": "no producer trace"}],
    }
    for name, made in rows.items():
        columns = tables[name].columns
        values = [[row.get(column) for column in columns] for row in made]
        tables[name] = spark.createDataFrame(values, TABLES[name])
    heard: list[str] = []
    write_tables(tables, str(tmp_path), heard.append)
    one, two = collect(read_tables(spark, str(tmp_path)))
    assert heard == list(TABLES)
    assert (one.history, two.history, one.unseen, two.unseen) == ("one", "two", ["no producer trace"], [])
    assert one.duplicates == [{"cause": "takeover", "messages": 6}]
    assert [bar["client_id"] for bar in one.owners] == ["c@1#1"]
    assert (one.rates, two.rates) == ([], [{"second_ms": BEGIN_MS, "attempts": 7, "repeats": 2}])
    counts = {row["kind"]: row["findings"] for row in one.kinds}
    assert counts == {"nonmonotonic-poll": len(swaps), "overlap": 1}
    shown = [row["kind"] for row in one.violations]
    assert (shown.count("overlap"), shown.count("nonmonotonic-poll")) == (1, min(len(swaps), 102))
