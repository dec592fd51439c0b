"""The verdict of `make pipeline`: a run that was right passes, and each thing that may be wrong fails it by name."""

import asyncio
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from rich.console import Console

from lockstep.order import Kind
from lockstep.order.page import CorruptedTraces
from lockstep.pipeline.report import judged_run
from scripts.demo.scenario import Plan
from scripts.pipeline.judge import Expected, Verdict, faults, print_verdict
from scripts.pipeline.scenario import PipelineScenario
from tests.pipeline.audit.report_findings import clean

EXPECTED = Expected(1200, 77, 1200)
FOUND = [CorruptedTraces("swap: two", ("nonmonotonic-poll",), ["nonmonotonic-poll"])]


def verdict(misplaced: int = 0, corrupted: list[CorruptedTraces] | None = None, **summary: Any) -> Verdict:
    """Of a run that was right but for what is given."""
    order = replace(judged_run(clean()).report, **summary)
    return Verdict(order, misplaced, FOUND if corrupted is None else corrupted, Path("report.html"))


def test_a_right_run_has_no_fault() -> None:
    """And is said to be in order."""
    shown = StringIO()
    assert print_verdict(verdict(), EXPECTED, 12.0, Console(file=shown, width=200))
    assert faults(verdict(), EXPECTED) == []
    assert "every aircraft's story was handled in order" in shown.getvalue()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"lost": 3}, "3 events were lost"),
    ({"violation_counts": {Kind.OVERLAP: 1}}, "order was violated"),
    ({"undecided_counts": {Kind.OVERLAP: 1}}, "the traces do not prove order"),
    ({"misplaced": 2}, "2 events were stored out of their aircraft's order"),
    ({"sent": 1199}, "1,199 events are in the topic instead of 1,200"),
    ({"handled": 1198}, "1,198 events were handled instead of 1,200"),
    ({"keys": 76}, "the events of 76 keys were checked instead of 77"),
    ({"broken_lines": 1}, "1 lines of the traces are no records"),
    ({"handovers": ()}, "no queue changed hands"),
    ({"corrupted": []}, "nothing was corrupted"),
    ({"corrupted": [*FOUND, CorruptedTraces("drop", ("lost-write",), [])]}, "corrupted traces passed: drop"),
    (
        {"corrupted": [CorruptedTraces("tear", ("a torn line",), ["a torn line", "overlap"])]},
        "corrupted traces passed: tear",
    ),
]


@pytest.mark.parametrize(("what", "said"), WRONG, ids=[said for _, said in WRONG])
def test_each_fault_is_named(what: dict[str, Any], said: str) -> None:
    """Alone, and the run has failed."""
    shown = StringIO()
    assert faults(verdict(**what), EXPECTED) == [said]
    assert not print_verdict(verdict(**what), EXPECTED, 12.0, Console(file=shown, width=200))
    assert f"failed: {said}" in shown.getvalue()


def test_what_the_sink_counted_counts() -> None:
    """Fewer sent than there were events fails the run."""
    assert faults(verdict(), EXPECTED._replace(sent=1199)) == ["1,199 events were sent instead of 1,200"]


async def test_spark_has_ten_minutes_to_send(tmp_path: Path) -> None:
    """Before and after, a minute in which nothing moves ends the run."""
    plan, none = Plan(tmp_path, tmp_path, None, 0.0, None), cast("Any", None)
    scenario = PipelineScenario(plan, Console(file=StringIO()), 0.0, none, none, 5)
    assert scenario._stall_timeout_s() == 60
    scenario._sending = asyncio.create_task(asyncio.sleep(0, 5))
    assert scenario._stall_timeout_s() == 600
    await scenario._sending
    assert scenario._stall_timeout_s() == 60
