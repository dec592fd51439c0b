"""The report: one HTML file that needs nothing else, in which every finding stands, and overlaps are red."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from lockstep.pipeline.audit import TABLES
from lockstep.pipeline.report import Findings, Spoilt, collect, page, read_tables, write_page, write_tables
from lockstep.pipeline.report.plots import handover_plot, lag_plot, owners_plot, rate_plot, red_spans
from tests.pipeline.report_findings import BEGIN_MS, CLIENTS, QUEUE, clean, owned, spoilt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLOTS = (rate_plot, lag_plot, owners_plot, handover_plot)
SVG = "{http://www.w3.org/2000/svg}"


def test_the_page_needs_no_network(tmp_path: Path) -> None:
    """It loads nothing: no script, no style sheet, no picture from elsewhere."""
    path = tmp_path / "there" / "report.html"
    write_page(path, "An audit", [clean(), spoilt()])
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"<script|<link|<img|@import|(?:src|href)=\"(?!#)", text)
    assert text.count("<svg") == 8


def test_a_clean_run_is_called_in_order() -> None:
    """The verdict, the numbers, and the one duplicates' cause; no word of violations' evidence."""
    text = page("An audit", [clean()])
    assert "Every message of every key was handled in order" in text
    assert "1,240" in text
    assert "takeover" in text
    assert "<h2>Evidence</h2>" not in text


def test_every_violation_stands_there_with_its_evidence() -> None:
    """Kind, rule, queue, offsets and the places of the records, with what they say kept from being markup."""
    text = page("An audit", [spoilt()])
    for word in ("nonmonotonic-poll", "overlap", "lost-write", "flights:6", "consumer-A.jsonl:17", "17, 18", "N14228"):
        assert word in text
    assert "offset 17 &lt;was&gt; handled" in text
    assert "Order was violated 4 times; 1 message was lost." in " ".join(text.split())


def test_what_was_spoilt_and_missed_is_said() -> None:
    """Found means all that was expected and nothing else."""
    rows = [Spoilt("a swap", ("x",), ("x",)), Spoilt("a drop", ("y",), ("x", "y")), Spoilt("nothing", (), ())]
    assert [row.is_found for row in rows] == [True, False, True]
    text = page("An audit", [clean()], rows)
    assert (text.count(">found<"), text.count(">missed<")) == (2, 1)


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.__name__)
def test_plots_are_drawings_in_the_colours_of_the_page(plot: Callable[[Findings], str]) -> None:
    """Well-formed SVG; no stand-in for a colour is left, so it follows the theme."""
    svg = plot(spoilt())
    assert ET.fromstring(svg).tag == f"{SVG}svg"
    assert "var(--series-" in svg
    assert not re.search(r"#01(?:01|02)0\d", svg)


@pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.__name__)
def test_what_did_not_happen_is_not_drawn(plot: Callable[[Findings], str]) -> None:
    """An audit of nothing has no plots, and the page is made all the same."""
    nothing = Findings("", dict.fromkeys(clean().summary, 0) | {"in_order": True})
    assert plot(nothing) == ""
    assert "<svg" not in page("An audit", [nothing])


def test_only_overlaps_are_red() -> None:
    """Two periods that met are red where both were at work; a takeover, and a lost lock that hurt nobody, are not."""
    overlap = [owned(4, CLIENTS[0], 1, 0, 26_000, overlaps=1), owned(4, CLIENTS[1], 1, 22_000, 40_000, overlaps=1)]
    harmless = [owned(4, CLIENTS[0], 1, 0, 26_000), owned(4, CLIENTS[1], 1, 22_000, 40_000)]
    assert red_spans(overlap) == [(BEGIN_MS + 22_000, BEGIN_MS + 26_000)]
    assert red_spans(harmless) == []
    assert "var(--bad)" in owners_plot(spoilt())
    assert "var(--bad)" not in owners_plot(clean())


def test_findings_come_from_the_tables_of_an_audit(spark: "SparkSession", tmp_path: Path) -> None:
    """Written as Parquet and read again: a history each, all it has and nothing of another's."""
    tables = {name: spark.createDataFrame([], columns) for name, columns in TABLES.items()}
    rows = {
        "summary": [{**clean().summary, "history": name, "in_order": name == "one"} for name in ("two", "one")],
        "owners": [{**owned(1, "c@1#1", 1, 0, 5_000), "history": "one"}],
        "rates": [{**QUEUE, "history": "two", "second_ms": BEGIN_MS, "attempts": 7, "repeats": 2}],
        "duplicates": [{**QUEUE, "queue_id": q, "history": "one", "cause": "takeover", "messages": 3} for q in (0, 1)],
    }
    for name, made in rows.items():
        columns = tables[name].columns
        values = [[row.get(column) for column in columns] for row in made]
        tables[name] = spark.createDataFrame(values, TABLES[name])
    heard: list[str] = []
    write_tables(tables, str(tmp_path), heard.append)
    one, two = collect(read_tables(spark, str(tmp_path)))
    assert heard == list(TABLES)
    assert (one.history, one.summary["in_order"], two.history, two.summary["in_order"]) == ("one", True, "two", False)
    assert one.duplicates == [{"cause": "takeover", "messages": 6}]
    assert [bar["client_id"] for bar in one.owners] == ["c@1#1"]
    assert (one.rates, two.rates) == ([], [{"second_ms": BEGIN_MS, "attempts": 7, "repeats": 2}])
