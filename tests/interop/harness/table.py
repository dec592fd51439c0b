"""The table that `make interop` ends with: one row a scenario, filled by its test, judged by how that test ended.

Tests run in several processes; rows come to the one that prints them with the reports of their tests.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from rich.console import Console
from rich.markup import escape
from rich.table import Table

__all__ = ["Row", "RowMaker", "Rows", "judge", "print_table", "write_json"]

COLUMNS = ("client", "version", "direction", "scenario", "messages", "order kept", "duplicates", "result")
NUMBERS = ("messages", "duplicates")
_PROPERTY = "interop row"  # of a report
STYLES = {"passed": "green", "failed": "bold red", "skipped": "yellow"}


@dataclass
class Row:
    """A line of the table. `order_kept` is None where a scenario has no order to keep."""

    client: str
    version: str
    direction: str  # as "Java -> Lockstep"
    scenario: str
    messages: int | None = None
    order_kept: bool | None = None
    duplicates: int | None = None
    result: str = "failed"
    why: str = ""

    def cells(self) -> list[str]:
        order = {None: "-", True: "yes", False: "NO"}[self.order_kept]
        result = f"[{STYLES[self.result]}]{self.result}[/]" + (f" ({escape(self.why)})" if self.why else "")
        counts = ["-" if count is None else f"{count:,}" for count in (self.messages, self.duplicates)]
        return [self.client, self.version, self.direction, self.scenario, counts[0], order, counts[1], result]


class RowMaker:
    """The fixture `interop_row`: call it before the work with who and what; set the figures of the row as they come.

    row = interop_row("Java", "4.9.8", "Java -> Lockstep", "ordered producer")
    row.messages, row.order_kept, row.duplicates = 1_000, True, 0
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def __call__(self, client: str, version: str, direction: str, scenario: str) -> Row:
        row = Row(client, version, direction, scenario)
        self.rows.append(row)
        return row


class Rows:
    """A plugin that keeps the rows of all reports."""

    def __init__(self) -> None:
        self.all: list[Row] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.all += [Row(**told) for name, told in report.user_properties if name == _PROPERTY]  # type: ignore[arg-type]


def judge(item: pytest.Item, makers: RowMaker | None, report: pytest.TestReport) -> None:
    """Put a test's rows into its report; one row for a test that failed or was skipped before it made any."""
    rows = list(makers.rows) if makers else []
    if not rows and report.outcome == "passed":
        return
    why = "" if report.outcome == "passed" else reason(report)
    if not rows:
        scenario = item.name.removeprefix("test_").replace("_", " ")
        rows = [Row(Path(str(item.path)).stem.removeprefix("test_"), "", "", scenario)]
    for row in rows:
        row.result, row.why = report.outcome, why
    report.user_properties += [(_PROPERTY, asdict(row)) for row in rows]


def reason(report: pytest.TestReport) -> str:
    """One line of why it did not pass."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else report.longreprtext).strip().splitlines()
    return lines[0][:120] if lines else ""


def print_table(rows: list[Row]) -> None:
    """Print it as wide as it has to be."""
    table = Table(title="interop", title_justify="left", header_style="bold")
    for name in COLUMNS:
        table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=name in ("client", "version"))
    for row in sorted(rows, key=lambda row: (row.client, row.direction)):
        table.add_row(*row.cells())
    console = Console(width=None if Console().is_terminal else 180)
    console.print()
    console.print(table)


def write_json(rows: list[Row], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", encoding="utf-8")
