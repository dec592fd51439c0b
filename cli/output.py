"""What commands print: errors and notes on stderr, tables and JSON on stdout, progress of long work."""

import asyncio
import io
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, cast

from lockstep.remoting.host.runtime import Runtime
from lockstep.remoting.host.writable import why_unwritable
from lockstep.remoting.logs import printable
from lockstep.remoting.texts import counted, date_time, json_line, seconds

__all__ = [
    "CliError",
    "OutputFormat",
    "StderrLog",
    "UsageError",
    "check_writable",
    "clock",
    "counted",
    "date_time",
    "json_line",
    "note",
    "print_rows",
    "progress",
    "seconds",
    "unbuffered",
    "write_out",
]

_PROGRESS_AFTER_S, _PROGRESS_EVERY_S = 2.0, 2.0


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"


class CliError(Exception):
    """Ends the command with one line on stderr."""

    exit_code = 1


class UsageError(CliError):
    """The command was called wrongly; the text says what is allowed."""

    exit_code = 2


def check_writable(option: str, path: str | Path | None) -> None:
    """Find out before the work whether its file can be written; its folders will be made.

    Args:
        option: What names the file, as `--trace`.
        path: The file; None: the option was not given.

    Raises:
        UsageError: It cannot.
    """
    if path is not None and (why := why_unwritable(path, makes_folders=True)):
        raise UsageError(f"{option}: cannot write {path}: {why}")


def note(text: str) -> None:
    """One line on stderr. Without a reader it is lost, and nothing else changes (`open_reports`)."""
    sys.stderr.write(f"lockstep: {printable(' '.join(text.split()))}\n")


def write_out(data: bytes) -> None:
    """Write to stdout past its buffer: after a broken pipe nothing is left that fails again at exit.

    Raises BrokenPipeError when the reader has closed stdout, CliError for other errors, as of a full disk.
    """
    view = memoryview(data)
    raw = unbuffered(sys.stdout.buffer)
    try:
        while view:
            view = view[raw.write(view) or 0 :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CliError(f"cannot write: {error}") from None


def unbuffered(stream: BinaryIO) -> io.RawIOBase:
    """The raw file below a standard stream's buffer; with PYTHONUNBUFFERED the stream is raw already."""
    return cast("io.RawIOBase", getattr(stream, "raw", stream))


def print_rows(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], output: OutputFormat) -> None:
    """Print `columns` of the rows as an aligned table, never cut; with JSON an array of all rows, one a line."""
    if output is OutputFormat.JSON:
        body = ",\n".join([" " + json_line(row) for row in rows])
        write_out(f"[\n{body}\n]\n".encode() if rows else b"[]\n")
        return
    lines = [[column.upper().replace("_", " ") for column in columns]]
    lines += [[_cell(row[column]) for column in columns] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    numbers = [bool(rows) and all(_is_number(row[column]) for row in rows) for column in columns]
    text = "".join([_aligned(cells, widths, numbers) + "\n" for cells in lines])
    write_out(text.encode("utf-8", "replace"))


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}"
    return printable(", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value))


def _aligned(cells: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    padded = [
        cell.rjust(width) if number else cell.ljust(width)
        for cell, width, number in zip(cells, widths, numbers, strict=True)
    ]
    return "  ".join(padded).rstrip()


def clock(now_ms: int) -> str:
    """The local time of day."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().strftime("%H:%M:%S")


class StderrLog:
    """A client's log for a person: warnings, and with `verbose` also the changes of its queues."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose

    def debug(self, event: str, **fields: Any) -> None:
        pass

    def info(self, event: str, **fields: Any) -> None:
        if self._verbose:
            self.warning(event, **fields)

    def warning(self, event: str, **fields: Any) -> None:
        error = fields.pop("exc_info", None)
        note(event + "".join([f" {name}={value}" for name, value in fields.items()]))
        if isinstance(error, BaseException):
            lines = "".join(traceback.format_exception(error)).splitlines()
            sys.stderr.write("".join([f"{printable(line)}\n" for line in lines]))

    error = warning


@asynccontextmanager
async def progress(runtime: Runtime, count: Callable[[], int], what: str) -> AsyncIterator[None]:
    """During the `with` block, print `count()` and its rate on stderr, after the first two seconds.

    The rate is that since the line before: one since the start would not show that nothing moves any more.

    On a terminal the figures stay on one line.
    """
    began_ns = runtime.monotonic_ns()
    on_terminal = sys.stderr.isatty()
    shown = False

    async def show() -> None:
        nonlocal shown
        before, before_ns = 0, began_ns
        await asyncio.sleep(_PROGRESS_AFTER_S)
        while True:
            now, now_ns = count(), runtime.monotonic_ns()
            rate = (now - before) / ((now_ns - before_ns) / 1e9)
            before, before_ns = now, now_ns
            text = f"lockstep: {now:,} {what}, {rate:,.0f}/s"
            sys.stderr.write(f"\r\x1b[2K{text}" if on_terminal else text + "\n")
            sys.stderr.flush()
            shown = on_terminal
            await asyncio.sleep(_PROGRESS_EVERY_S)

    task = runtime.create_task(show(), name="progress")
    try:
        yield
    finally:
        task.cancel()
        if shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
