"""Traces as files: JSON lines read back, a torn last line allowed, and many files merged into one history.

Every record carries the epoch milliseconds of its writer (`wall_ms`), the nanoseconds of a monotonic clock (`mono_ns`)
and the name of the machine that clock belongs to (`host`). Files of one host merge by the monotonic clock, which no
clock adjustment can bend. Different hosts are laid side by side by the wall clock of each host's first record.
"""

import heapq
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Record", "TimedRecord", "TraceError", "TraceFile", "merge_traces"]

Record = Mapping[str, Any]


class TimedRecord(NamedTuple):
    """A record at its place in the merged history; `source` is the trace's number, and breaks ties."""

    time_ns: int
    source: int
    record: Record


class TraceError(ValueError):
    """A line that is no record, somewhere else than at the end of a file."""

    def __init__(self, path: Path, line: int) -> None:
        super().__init__(f"{path}:{line}: not a trace record")
        self.path = path
        self.line = line


class TraceFile:
    """The records of one file, streamed. After a full pass `torn_lines` says how many a killed writer tore (0 or 1)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn_lines = 0

    def __iter__(self) -> Iterator[Record]:
        """Yield every record. Raises TraceError for a broken line that others follow, OSError for a missing file."""
        self.torn_lines = 0
        broken_at = 0
        loads = json.loads
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if broken_at:
                    raise TraceError(self.path, broken_at)
                try:
                    record = loads(line)
                except ValueError:
                    broken_at = number
                    continue
                if not isinstance(record, dict) or "event" not in record:
                    raise TraceError(self.path, number)
                yield record
        self.torn_lines = 1 if broken_at else 0


def merge_traces(traces: Sequence[Iterable[Record]]) -> Iterator[TimedRecord]:
    """All records of all traces in time order. Order within a trace is always kept; ties go by the trace's number."""
    heads: list[tuple[Record, Iterator[Record]]] = []
    for trace in traces:
        records = iter(trace)
        first = next(records, None)
        if first is not None:
            heads.append((first, records))
    clock_offsets: dict[str, int] = {}
    for first, _ in heads:
        if "mono_ns" in first:
            clock_offsets.setdefault(first.get("host", ""), first["wall_ms"] * 1_000_000 - first["mono_ns"])
    return heapq.merge(
        *(_timed(source, first, records, clock_offsets) for source, (first, records) in enumerate(heads))
    )


def _timed(source: int, first: Record, rest: Iterator[Record], clock_offsets: dict[str, int]) -> Iterator[TimedRecord]:
    """One trace with times that never step back; a record without a monotonic clock stands at its wall time."""
    latest = -1

    def time_of(record: Record) -> int:
        if "mono_ns" not in record:
            return int(record["wall_ms"]) * 1_000_000
        host = record.get("host", "")
        if host not in clock_offsets:
            clock_offsets[host] = record["wall_ms"] * 1_000_000 - record["mono_ns"]
        return int(record["mono_ns"]) + clock_offsets[host]

    latest = time_of(first)
    yield TimedRecord(latest, source, first)
    for record in rest:
        time_ns = time_of(record)
        if time_ns > latest:
            latest = time_ns
        yield TimedRecord(latest, source, record)
