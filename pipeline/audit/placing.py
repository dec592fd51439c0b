"""The second pass over the traces: each record to its queue, with its time on the common axis."""

import json
import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from lockstep.order.traces.format import QUEUE_EVENTS
from lockstep.order.traces.merge import timed
from lockstep.order.traces.reader import Record, TraceLines
from lockstep.pipeline.audit.survey import History, queue_number
from lockstep.pipeline.audit.traces import Trace, traces_of
from lockstep.protocol.model import MessageQueue

__all__ = ["PLACED", "FileCounts", "is_of_queue", "placed"]

PLACED: Final = "q long, history int, time_ns long, source int, number long, clock int, line binary"
"""A record: the number of its queue and its history, its time, trace, line number and clock, its JSON. Records of no
queue have one number. With q = 0 the line is a pickled `FileCounts`."""

_SCHEMA: Final = pa.schema([
    ("q", pa.int64()), ("history", pa.int32()), ("time_ns", pa.int64()), ("source", pa.int32()),
    ("number", pa.int64()), ("clock", pa.int32()), ("line", pa.binary()),
])  # fmt: skip
_ROWS: Final = 5_000
_TEXT_MAX: Final = 200
_BEGIN: Final = b'{"event":'
_NO_QUEUE: Final = ("", "", -1)
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(slots=True)
class FileCounts:
    """What is counted in one file. Of broken and torn lines it has the first: number, reason or None, text."""

    history: str
    file: str
    torn_lines: int = 0
    broken_lines: int = 0
    broken: list[tuple[int, str | None, str]] = field(default_factory=list)


def placed(histories: Mapping[str, History], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make PLACED rows of TRACE_COLUMNS."""
    for trace in traces_of(batches):
        history = histories[trace.history]
        yield from _placed(trace, history, history.source_of()[trace.file])


def _placed(trace: Trace, history: History, source: int) -> Iterator[pa.RecordBatch]:
    counts = FileCounts(trace.history, trace.file)
    reader = _Reader(trace.file)
    rows = _Rows(history.number, source)
    queues: dict[tuple[str, str, int], int] = {}
    for time_ns, _, clock, record in timed(source, reader.read(trace.lines), history.facts.clocks):
        name = _NO_QUEUE
        if is_of_queue(record):
            name = record["topic"], record["broker"], record["queue_id"]
        q = queues.get(name)
        if q is None:
            q = queues[name] = queue_number(history.name, MessageQueue(*name))
        rows.add(q, time_ns, reader.number, clock, _plain(record, reader.line))
        if len(rows) >= _ROWS:
            yield rows.take()
    counts.torn_lines, counts.broken_lines = reader.torn_lines, reader.broken_lines
    why = {line.number: line.why for line in reader.broken}
    counts.broken = sorted(
        (number, why.get(number), reader.texts.get(number, "")) for number in {*why, *reader.torn}
    )  # fmt: skip
    rows.add(0, 0, 0, 0, pickle.dumps(counts))
    yield rows.take()


def is_of_queue(record: Record) -> bool:
    """Whether the judge of a queue takes the record."""
    return record["event"] == "sent" or record["event"] in QUEUE_EVENTS


class _Reader(TraceLines):
    """Keeps the text of lines that are no records."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.texts: dict[int, str] = {}

    def refused(self, number: int, line: bytes) -> None:
        """Keep the text of a line that is no record."""
        if len(self.texts) < 2 * _TEXT_MAX:
            self.texts[number] = line[:_TEXT_MAX].decode("utf-8", "replace")


def _plain(record: Record, line: bytes) -> bytes:
    """The line, or the record if it is only part of the line."""
    if line.find(_BEGIN, 1) > 0 or b"null" in line:
        return _encode(record).encode("utf-8", "surrogatepass")
    return line


class _Rows:
    """Rows of PLACED."""

    def __init__(self, history: int, source: int) -> None:
        self._history, self._source = history, source
        self._columns: tuple[list[int], list[int], list[int], list[int], list[bytes]] = ([], [], [], [], [])

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, q: int, time_ns: int, number: int, clock: int, line: bytes) -> None:
        queues, times, numbers, clocks, lines = self._columns
        queues.append(q)
        times.append(time_ns)
        numbers.append(number)
        clocks.append(clock)
        lines.append(line)

    def take(self) -> pa.RecordBatch:
        """All rows; none are left."""
        queues, times, numbers, clocks, lines = self._columns
        count = len(queues)
        self._columns = ([], [], [], [], [])
        columns = (queues, [self._history] * count, times, [self._source] * count, numbers, clocks, lines)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
