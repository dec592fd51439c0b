"""The first pass over the traces: the facts of each history, from surveys of all files that executors make."""

import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from lockstep.order.judge.survey import Facts, TraceSurvey, gather
from lockstep.order.traces.clocks import Causes, Stretches, cause_edges, number_clocks
from lockstep.order.traces.reader import Record, TraceLines
from lockstep.pipeline.audit.traces import Trace, traces_of
from lockstep.pipeline.spark.arrow import map_in_arrow
from lockstep.protocol.model import MessageQueue

__all__ = ["LINE", "TIME", "History", "queue_number", "stable_number", "survey_traces"]

LINE: Final = "#"
"""The field that executors add to a record: the number of its trace and its line, as one number."""
TIME: Final = "@"
"""The field that executors add: the time of the record on the common axis, in nanoseconds."""

_CAUSES_MAX: Final = 50_000  # commits of one file that go to the driver; more are joined by Spark
_SURVEYS = "history string, file string, survey binary"
_CAUSE_ROWS = "history string, place long, source int, stretch int, is_read boolean, time_ns long"
_EDGE_ROWS = "history string, one int, other int, least long"


@dataclass(slots=True)
class History:
    """One history: its number, the names of its files by source, and its facts."""

    name: str
    number: int
    files: list[str]
    facts: Facts

    def source_of(self) -> dict[str, int]:
        """The sources by the names of the files."""
        return {file: source for source, file in enumerate(self.files)}

    def place_of(self, record: Record) -> tuple[int, int]:
        """The source and the line of a record that executors have read."""
        return record[LINE] >> 40, record[LINE] & (1 << 40) - 1


def survey_traces(lines: DataFrame, clock_skew_ms: int) -> dict[str, History]:
    """The histories by their names. `lines` has TRACE_COLUMNS."""
    found: defaultdict[str, list[tuple[str, TraceSurvey, bool]]] = defaultdict(list)
    for row in map_in_arrow(lines, _surveys, _SURVEYS).collect():
        survey, is_whole = pickle.loads(row.survey)
        found[row.history].append((row.file, survey, is_whole))
    histories = {}
    for number, name in enumerate(sorted(found)):
        traces = sorted(found[name], key=lambda one: one[0])
        traces.sort(key=lambda one: one[1].first_wall_ms or 0)
        surveys = [survey for _, survey, _ in traces]
        edges = None
        if not all(is_whole for _, _, is_whole in traces):
            edges = _joined_edges(lines, name, [file for file, _, _ in traces], surveys)
        facts = gather(surveys, clock_skew_ms, edges)
        for member in facts.members.all():
            _place(member.first, member.source, member.first_ns + facts.clocks.axis_ns[member.clock])
        histories[name] = History(name, number, [file for file, _, _ in traces], facts)
    return histories


def _place(record: Any, source: int, time_ns: int) -> None:
    """Add what executors add to the records that they judge."""
    record[LINE] |= source << 40
    record[TIME] = time_ns


def _surveys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for trace in traces_of(batches):
        payload = pickle.dumps(_survey(trace))
        yield pa.RecordBatch.from_pydict({"history": [trace.history], "file": [trace.file], "survey": [payload]})


def _survey(trace: Trace) -> tuple[TraceSurvey, bool]:
    """The survey, and whether it has all causes."""
    reader, survey, is_whole = TraceLines(trace.file), TraceSurvey(), True
    for record in reader.read(trace.lines, survey.needs):
        survey.note({**record, LINE: reader.number})
        if len(survey.causes) > _CAUSES_MAX:
            survey.causes, is_whole = Causes(), False
    survey.forget()
    return survey, is_whole


def _joined_edges(
    lines: DataFrame, history: str, files: list[str], surveys: list[TraceSurvey]
) -> dict[tuple[int, int], int]:  # fmt: skip
    """`cause_edges` of traces with many commits: Spark groups what was written and read by its place."""
    clocks, of_stretch = number_clocks([survey.stretches for survey in surveys])
    if len(clocks) < 2:
        return {}
    sources = {file: source for source, file in enumerate(files)}

    causes = (
        map_in_arrow(lines, partial(_cause_rows, history, sources), _CAUSE_ROWS)
        .repartition("place")
        .sortWithinPartitions("place")
    )
    found: dict[tuple[int, int], int] = {}
    for row in map_in_arrow(causes, partial(_edges, of_stretch), _EDGE_ROWS).collect():
        found[row.one, row.other] = max(row.least, found.get((row.one, row.other), row.least))
    return found


def _cause_rows(
    history: str, sources: dict[str, int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    for trace in traces_of(batches):
        if trace.history != history:
            continue
        causes, stretches, source = Causes(), Stretches(), sources[trace.file]
        for record in TraceLines(trace.file).read(trace.lines):
            mono = record.get("mono_ns")
            causes.note(record, stretches.of(record), record["wall_ms"] * 1_000_000 if mono is None else mono)
            if len(causes) >= _CAUSES_MAX:
                yield _as_rows(history, source, causes)
                causes = Causes()
        yield _as_rows(history, source, causes)


def _as_rows(history: str, source: int, causes: Causes) -> pa.RecordBatch:
    rows = [
        {"history": history, "place": stable_number(repr(place)), "source": source, "stretch": stretch,
         "is_read": is_read, "time_ns": time_ns}
        for is_read, times in ((False, causes.written), (True, causes.read))
        for (place, stretch), time_ns in times.items()
    ]  # fmt: skip
    schema = pa.schema([
        ("history", pa.string()), ("place", pa.int64()), ("source", pa.int32()), ("stretch", pa.int32()),
        ("is_read", pa.bool_()), ("time_ns", pa.int64()),
    ])  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema)


def _edges(of_stretch: list[list[int]], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The edges of all places; rows are sorted by place."""
    found: dict[tuple[int, int], int] = {}
    traces: list[Causes] = [Causes() for _ in of_stretch]
    last, used, history = None, set[int](), ""

    def close() -> None:
        for pair, least in cause_edges(traces, of_stretch).items():
            found[pair] = max(least, found.get(pair, least))
        for source in used:
            traces[source] = Causes()
        used.clear()

    for batch in batches:
        for row in batch.to_pylist():
            history, place = row["history"], row["place"]
            if place != last:
                close()
                last = place
            used.add(row["source"])
            causes, name = traces[row["source"]], ((place,), row["stretch"])
            if row["is_read"]:
                causes.read[name] = min(row["time_ns"], causes.read.get(name, row["time_ns"]))
            else:
                causes.written[name] = min(row["time_ns"], causes.written.get(name, row["time_ns"]))
    close()
    rows = [{"history": history, "one": one, "other": other, "least": least} for (one, other), least in found.items()]
    schema = pa.schema([("history", pa.string()), ("one", pa.int32()), ("other", pa.int32()), ("least", pa.int64())])
    yield pa.RecordBatch.from_pylist(rows, schema)


def stable_number(text: str) -> int:
    """A number of 64 bits that is the same in all processes."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little", signed=True)


def queue_number(history: str, queue: MessageQueue) -> int:
    """A number for a queue; 0 is no queue."""
    return stable_number(f"{history}\0{queue}") or 1
