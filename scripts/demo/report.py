"""The end of the demo: judges the traces of all processes by the project's definition of order."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lockstep.order import Confidence, Handover, OrderReport, check_files
from lockstep.order.page import write_page
from lockstep.order.page.timeline import Timeline
from scripts.demo.consumer import TOPIC

__all__ = ["Outcome", "check", "compare", "print_report"]


class Outcome(NamedTuple):
    """Facts for the report that are not in the traces: the producer's figures, and the names of consumers."""

    read: Mapping[str, Any]  # what the producer read: see producer.summary
    misplaced: int  # events stored out of their aircraft's order
    names: Mapping[int, str]
    seconds: float
    moved_s: Sequence[float] = ()  # of each queue of the killed consumer: seconds until another one owned it


def check(traces: list[Path], console: Console, page: Path | None = None) -> OrderReport:
    """Read all traces as one history, and write the report as a page. Raises OSError."""
    timeline = Timeline() if page is not None else None
    with console.status("checking the traces") as status:
        report = check_files(
            traces,
            on_progress=lambda number: status.update(f"checking the traces: {number:,} records"),
            timeline=timeline,
        )
    if page is not None and timeline is not None:
        write_page(page, "The flights, checked", [timeline.run("", report, [str(path) for path in traces])])
        console.print(f"the report: {page}", highlight=False, soft_wrap=True)
    return report


def faults(report: OrderReport, outcome: Outcome) -> list[str]:
    """Why the demo failed; empty if it did not."""
    events = outcome.read["events"]
    keys = outcome.read["aircraft"] + outcome.read["flights_without_aircraft"]
    conditions = {
        f"{report.lost:,} events were lost": report.lost,
        "order was violated": report.violation_counts,
        "the traces do not prove order": report.undecided_counts or report.broken_lines,
        f"{outcome.misplaced:,} events were stored out of their aircraft's order": outcome.misplaced,
        f"{report.sent:,} events were sent instead of {events:,}": report.sent != events,
        f"{report.handled:,} events were handled instead of {events:,}": report.handled != events,
        f"the events of {report.keys:,} keys were checked instead of {keys:,}": report.keys != keys,
        # A consumer that is killed before it reads the answer of a pop leaves no record of what it had.
        "no queue changed hands": not flight_handovers(report) and not outcome.moved_s,
    }
    return [sentence for sentence, fault in conditions.items() if fault]


def print_report(report: OrderReport, outcome: Outcome, console: Console) -> bool:
    """Print the report. Returns whether all was in order and nothing was lost."""
    for name, text in rows(report, outcome):
        console.print(f"  [bold]{name:<18}[/bold] {text}", highlight=False, soft_wrap=True)
    for word, one in report.examples():
        colour = "yellow" if one.confidence is Confidence.UNDECIDED else "red"
        text = escape(f"{one.sentence} ({word}, {one.confidence})")
        console.print(f"  [{colour}]{one.kind}[/{colour}]: {text}", highlight=False, soft_wrap=True)
    found = faults(report, outcome)
    for sentence in found:
        console.print(f"[bold red]failed:[/bold red] {sentence}", highlight=False)
    if not found:
        console.print("[bold green]every aircraft's story was handled in order, and nothing was lost[/bold green]")
    return not found


def rows(report: OrderReport, outcome: Outcome) -> Iterator[tuple[str, str]]:
    """The lines of the report as (name, text)."""
    without = outcome.read["flights_without_aircraft"]
    duplicates = sum(report.duplicates.values())
    causes = ", ".join(f"{cause} {count:,}" for cause, count in sorted(report.duplicates.items()))
    violations = ", ".join(f"{kind} {count:,}" for kind, count in sorted(report.violation_counts.items()))
    yield "flights", outcome.read["counts"]
    yield "events sent", f"{report.sent:,}"
    yield "events handled", f"{report.handled:,}"
    yield "duplicates", f"{duplicates:,}" + (f" ({causes})" if causes else "")
    yield "lost", f"{report.lost:,}"
    yield (
        "aircraft checked",
        f"{outcome.read['aircraft']:,}"
        + (f", and {without:,} flight numbers that never got an aircraft" if without else ""),
    )
    yield "violations", violations or "0"
    undecided = ", ".join(f"{kind} {count:,}" for kind, count in sorted(report.undecided_counts.items()))
    if undecided:
        yield "undecided", undecided
    handovers = flight_handovers(report)
    yield "handovers", f"{len(handovers):,}"
    if handovers:
        longest = max(handovers, key=lambda handover: handover.duration_ms)
        who = [name_of(client_id, outcome.names) for client_id in (longest.from_client_id, longest.to_client_id)]
        where = f"queue {longest.queue.queue_id} from {who[0]} to {who[1]}"
        yield "longest handover", f"{longest.duration_ms / 1000:.1f} s ({where})"
    yield "took", f"{outcome.seconds:.1f} s"


def compare(runs: Mapping[str, tuple[OrderReport, Outcome]], console: Console) -> None:
    """Print a table with a column for each mode."""
    table = Table(title="the same flights, with a consumer killed", title_justify="left", show_edge=False)
    table.add_column("")
    columns = [dict(_compared(*run)) for run in runs.values()]
    for mode in runs:
        table.add_column(mode, justify="right")
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    console.print(table)


def _compared(report: OrderReport, outcome: Outcome) -> Iterator[tuple[str, str]]:
    moved = outcome.moved_s
    yield "queues of the killed consumer", str(len(moved))
    yield "they moved after", f"{min(moved):.1f} to {max(moved):.1f} s" if moved else "-"
    seconds = [handover.duration_ms / 1000 for handover in flight_handovers(report)]
    yield "longest handover", f"{max((*seconds, *moved), default=0.0):.1f} s"
    yield "duplicates", f"{sum(report.duplicates.values()):,}"
    yield "violations", f"{sum(report.violation_counts.values()):,}"
    yield "lost", f"{report.lost:,}"


def flight_handovers(report: OrderReport) -> list[Handover]:
    """Handovers of the flights' queues, without the queue of the group's empty retry topic."""
    return [handover for handover in report.handovers if handover.queue.topic == TOPIC]


def name_of(client_id: str, names: Mapping[int, str]) -> str:
    """A consumer's name, or its client id."""
    for pid, name in names.items():
        if f"@{pid}#" in client_id:
            return name
    return client_id
