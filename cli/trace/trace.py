"""`lockstep trace check` and `show`: the judge of order, and stories, for files."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import typer

from lockstep.cli.output import CliError, OutputFormat, UsageError, check_writable, date_time, json_line, write_out
from lockstep.order import OrderReport, Verdict, Violation, check_files
from lockstep.order.page import JudgedRun, write_page
from lockstep.order.page.timeline import Timeline
from lockstep.order.story import StoryOf, story
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.logs import printable

__all__ = ["check", "queue_of", "show"]

_STATUS: Final = {Verdict.IN_ORDER: 0, Verdict.NOT_IN_ORDER: 3, Verdict.UNDECIDED: 4}
_SAID_EVERY: Final = 200_000


def check(files: Sequence[str], clock_skew_ms: int, output: OutputFormat, page: Path | None = None) -> None:
    """Print the report, and write it as a page. Raises typer.Exit with the verdict's status, CliError."""
    check_writable("--report", page)
    on_terminal = sys.stderr.isatty()

    def tell(records: int) -> None:
        if on_terminal and records and records % _SAID_EVERY == 0:
            sys.stderr.write(f"\r\x1b[2Klockstep: {records:,} records")
            sys.stderr.flush()

    timeline = Timeline() if page is not None else None
    try:
        report = check_files(files, wall_skew_ms=clock_skew_ms, on_progress=tell, timeline=timeline)
    except OSError as error:
        raise _unreadable(error) from None
    finally:
        if on_terminal:
            sys.stderr.write("\r\x1b[2K")
    if page is not None and timeline is not None:
        _write(page, timeline.run("", report, files))
    if output is OutputFormat.JSON:
        text = json_line(_as_json(report, files)) + "\n"
    else:
        text = "".join([printable(line) + "\n" for line in report.lines(files)])
    write_out(text.encode("utf-8", "replace"))
    raise typer.Exit(_STATUS[report.verdict])


def _write(page: Path, run: JudgedRun) -> None:
    try:
        write_page(page, "The order of messages", [run])
    except OSError as error:
        raise CliError(f"cannot write {page}: {error.strerror or error}") from None


def _as_json(report: OrderReport, files: Sequence[str]) -> dict[str, Any]:
    """The report as one JSON object."""
    return {
        "verdict": report.verdict,
        "because": report.reason(),
        "sent": report.sent,
        "handled": report.handled,
        "attempts": report.attempts,
        "lost": report.lost,
        "duplicates": report.duplicates,
        "violations": report.violation_counts,
        "undecided": report.undecided_counts,
        "findings": [{"of_its_kind": word, **_finding(found, files)} for word, found in report.examples()],
        "torn_lines": report.torn_lines,
        "broken_lines": report.broken_lines,
        "broken": [line._asdict() for line in report.broken],
        "clocks": report.clocks,
        "not_seen": report.unseen,
    }


def _finding(found: Violation, files: Sequence[str]) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "confidence": found.confidence,
        "sentence": found.sentence,
        "evidence": found.evidence,
        "story": found.story_command(files),
    }


def queue_of(text: str) -> MessageQueue:
    """`TOPIC/BROKER/N`. Raises UsageError."""
    topic, _, rest = text.partition("/")
    broker, _, number = rest.rpartition("/")
    if not (topic and broker and number.isascii() and number.isdigit() and len(number) < 10):
        raise UsageError(f"--queue {text!r}: write TOPIC/BROKER/N, such as orders/broker-a/3")
    return MessageQueue(topic, broker, int(number))


def show(files: Sequence[str], wanted: StoryOf, clock_skew_ms: int, output: OutputFormat) -> None:
    """Print the records in time, one a line. Raises CliError."""
    try:
        for moment in story(files, wanted, clock_skew_ms):
            if output is OutputFormat.JSON:
                line = json_line(moment.as_json())
            else:
                when = _when(moment.time_ns)
                line = printable(f"{when}  {moment.place()}  {moment.owner()}: {moment.text()}")
            write_out((line + "\n").encode("utf-8", "replace"))
    except OSError as error:
        raise _unreadable(error) from None


def _when(time_ns: int) -> str:
    try:
        return f"{date_time(time_ns // 1_000_000)} {time_ns // 1000 % 1000:03} us"
    except (OverflowError, ValueError, OSError):
        return f"{time_ns / 1e9:.6f} s"  # of a clock that is far from any date


def _unreadable(error: OSError) -> CliError | BrokenPipeError:
    if isinstance(error, BrokenPipeError):
        return error
    return CliError(f"cannot read {error.filename}: {error.strerror or error}")
