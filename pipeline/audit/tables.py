"""The audit as a whole: traces, and what topics hold, to the tables of schema.py."""

import pickle
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from lockstep.order import OrderReport
from lockstep.order.judge.joined import BROKEN_KEPT, Counts, joined_report
from lockstep.order.judge.queue_judge import QueueResult
from lockstep.order.traces.clocks import WALL_SKEW_MS
from lockstep.order.traces.reader import BrokenLine
from lockstep.pipeline.audit.content import read_contents
from lockstep.pipeline.audit.crossing import Crossing, cross
from lockstep.pipeline.audit.judging import JUDGED, Contents, Tally, finished, judged
from lockstep.pipeline.audit.placing import PLACED, FileCounts, placed
from lockstep.pipeline.audit.rows import Judged, Row, rows_of
from lockstep.pipeline.audit.schema import TABLES
from lockstep.pipeline.audit.survey import History, survey_traces
from lockstep.pipeline.audit.traces import Sized, sized
from lockstep.pipeline.spark.arrow import map_in_arrow

__all__ = ["Audit", "transform"]

_LAG_MESSAGES: Final = 500_000  # the lag of more than that is taken of every n-th offset
_ON_EXECUTORS: Final = ("owners", "latency", "rates")  # tables whose rows come from the judges


class Audit(Mapping[str, DataFrame]):
    """The tables by their names, until `close`. `reports` has each history as `lockstep trace check` reports it.

    With `is_small` the rows of all tables are on the driver.
    """

    def __init__(
        self, spark: SparkSession, histories: Mapping[str, Judged], rows: DataFrame, *, is_small: bool
    ) -> None:  # fmt: skip
        self.reports = {name: one.report for name, one in histories.items()}
        self.is_small = is_small
        self._rows = rows
        self._tables = {name: _of_executors(rows, name) for name in _ON_EXECUTORS}
        made: defaultdict[str, list[Row]] = defaultdict(list)
        for one in histories.values():
            for name, more in rows_of(one).items():
                made[name] += more
        for name in TABLES.keys() - self._tables.keys():
            self._tables[name] = _of_driver(spark, made[name], TABLES[name])

    def __getitem__(self, name: str) -> DataFrame:
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(TABLES)

    def __len__(self) -> int:
        return len(TABLES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was kept on executors; some tables cannot be read any more."""
        self._rows.unpersist()


def _of_executors(rows: DataFrame, name: str) -> DataFrame:
    """A table from rows of JSON. Of `rates` each queue has a part."""
    table = rows.where(fn.col("what") == name).select(fn.from_json("text", TABLES[name]).alias("row")).select("row.*")
    if name == "rates":
        sums = [fn.sum(column).alias(column) for column in ("attempts", "repeats")]
        return table.groupBy("history", "group", "topic", "second_ms").agg(*sums)
    return table


def _of_driver(spark: SparkSession, rows: list[Row], columns: str) -> DataFrame:
    schema: Any = StructType.fromDDL(columns)
    try:
        return spark.createDataFrame(pa.Table.from_pylist(rows, to_arrow_schema(schema)), schema)
    except UnicodeEncodeError:  # half a surrogate pair: JSON allows it in a string, Arrow does not
        names = schema.fieldNames()
        return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], schema)


def transform(traces: DataFrame, topic: DataFrame | None = None, *, clock_skew_ms: int = WALL_SKEW_MS) -> Audit:
    """Judge traces, each history as `lockstep trace check` judges its files.

    Args:
        traces: TRACE_COLUMNS, as `read_traces` gives.
        topic: What the topics hold, with the source's columns topic, brokerName, queueId, offset, storeTimestamp.
            Messages in it that no consumer handled are lost, and how long each waited is measured from it. None:
            producers' `sent` records say what there was, if there are any.
        clock_skew_ms: The largest assumed difference of two machines' wall clocks; causes may prove another.
    """
    with sized(traces) as measured:
        every = max(1, measured.messages // _LAG_MESSAGES)
        contents = read_contents(topic, every) if topic is not None else {}
        histories = survey_traces(measured.lines, clock_skew_ms)
        for name, history in histories.items():
            history.facts.sent_topics |= {queue.topic for queue in contents.get(name, {})}
        rows, spark = _judged_rows(measured, histories, contents, every), traces.sparkSession
        is_small = measured.tasks == 1  # most queries of rows on the driver start no task
        rows = spark.createDataFrame(rows.toArrow()) if is_small else rows.persist(StorageLevel.DISK_ONLY)
        return Audit(spark, _joined(measured.lines, rows, histories, contents), rows, is_small=is_small)


def _judged_rows(
    measured: Sized, histories: Mapping[str, History], contents: Mapping[str, Contents], every: int
) -> DataFrame:
    """JUDGED rows: records go to their queue's task, which sorts them by time on disk and judges them as a stream."""
    records = map_in_arrow(measured.lines, partial(placed, histories), PLACED)
    queues = records.repartition(measured.tasks, "q").sortWithinPartitions("q", "time_ns", "source", "number")
    return map_in_arrow(queues, partial(judged, histories, contents, every), JUDGED)


def _joined(
    lines: DataFrame, rows: DataFrame, histories: Mapping[str, History], contents: Mapping[str, Contents]
) -> dict[str, Judged]:
    results: defaultdict[str, list[QueueResult]] = defaultdict(list)
    files: defaultdict[str, list[FileCounts]] = defaultdict(list)
    tallies: defaultdict[str, list[Tally]] = defaultdict(list)
    names = {history.number: name for name, history in histories.items()}
    for row in rows.where("payload is not null").select("what", "history", "payload").collect():
        made_by_judges = pickle.loads(row.payload)
        of_what: Mapping[str, Any] = {"queue": results, "file": files, "tally": tallies}
        of_what[row.what][names[row.history]].append(made_by_judges)
    for name, history in histories.items():
        known = {one.queue for one in results[name]}
        held = {queue: content for queue, content in contents.get(name, {}).items() if queue not in known}
        results[name] += [finished(queue, history, offsets) for queue, (offsets, _) in held.items()]
        results[name].sort(key=lambda one: one.queue)
        files[name].sort(key=lambda one: history.files.index(one.file))
    crossings = cross(lines, rows, histories, results)
    return {
        name: Judged(history, _report(history, results[name], crossings[name], files[name], tallies[name]),
                     results[name], crossings[name], files[name])
        for name, history in histories.items()
    }  # fmt: skip


def _report(
    history: History, results: list[QueueResult], crossing: Crossing, files: list[FileCounts], tallies: list[Tally]
) -> OrderReport:  # fmt: skip
    events, failures = Counter[str](), Counter[str]()
    for tally in tallies:
        events += tally.events
        failures += tally.send_failures
    broken = [BrokenLine(file.file, number, why) for file in files for number, why, _ in file.broken if why is not None]
    counts = Counts(
        events,
        failures,
        sum(tally.copies.count for tally in tallies),
        frozenset[tuple[str, int, int]]().union(*(tally.copies.one_process for tally in tallies)),
        sum(file.torn_lines for file in files),
        sum(file.broken_lines for file in files),
        tuple(broken[:BROKEN_KEPT]),
    )
    across = (crossing.across.findings, crossing.explained, crossing.unseen)
    return joined_report(history.facts, results, across, counts)
