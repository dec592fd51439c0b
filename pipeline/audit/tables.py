"""The audit as a whole: traces, and what is in the topic, to the tables of schema.py."""

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from lockstep.pipeline.audit.content import Content, content, exists_of
from lockstep.pipeline.audit.evidence import violations
from lockstep.pipeline.audit.histories import facts, of_clients, period_names, queue_names, queue_records
from lockstep.pipeline.audit.lanes import lane_repeats
from lockstep.pipeline.audit.losses import loss_findings, losses
from lockstep.pipeline.audit.measures import latency, owners, rates
from lockstep.pipeline.audit.ownership import handovers, positions
from lockstep.pipeline.audit.repeats import late_rows, repeats
from lockstep.pipeline.audit.rules import commit_findings, key_findings, overlap_findings, repeat_findings
from lockstep.pipeline.audit.schema import TABLES
from lockstep.pipeline.audit.summary import Parts, duplicates, summary
from lockstep.pipeline.audit.traces import blocks, broken_lines, file_numbers, line_numbers, timed
from lockstep.pipeline.audit.work import Work

__all__ = ["DEFAULT_CLOCK_TOLERANCE_MS", "Audit", "transform"]

DEFAULT_CLOCK_TOLERANCE_MS = 1000


class Audit(Mapping[str, DataFrame]):
    """The tables by their names, until `close`: they are read from the work folder, which then is removed."""

    def __init__(self, work: Work) -> None:
        self._tables: dict[str, DataFrame] = {}
        self._work = work

    def __getitem__(self, name: str) -> DataFrame:
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove what was kept; the tables cannot be read any more."""
        self._work.remove()

    def add(self, name: str, rows: DataFrame) -> None:
        """A table, with the columns that schema.py says."""
        self._tables[name] = rows.to(rows.sparkSession.createDataFrame([], TABLES[name]).schema)


def transform(
    traces: DataFrame,
    topic: DataFrame | None = None,
    *,
    clock_tolerance_ms: int | None = DEFAULT_CLOCK_TOLERANCE_MS,
    work_folder: str = "",
) -> Audit:
    """Judge traces (TRACE_COLUMNS, as `read_traces` gives) by docs/order.md.

    `topic`: the topic's content with the source's columns topic, brokerName, queueId, offset, storeTimestamp; messages
    in it that nobody handled are lost, and how long each waited is measured from it. Without it, producers' `sent`
    records say what there was, if there are any. `clock_tolerance_ms`: how far the wall clocks of two hosts may be
    apart; calls on different hosts that overlap by more are a violation. None: hosts are not compared. `work_folder`:
    where all executors can write and read; a temporary one will do where they are this machine.
    """
    work = Work(traces.sparkSession, work_folder)
    audit = Audit(work)
    try:
        _judge(audit, work, traces, topic, clock_tolerance_ms)
    except BaseException:
        audit.close()
        raise
    return audit


def _judge(
    audit: Audit, work: Work, traces: DataFrame, topic: DataFrame | None, clock_tolerance_ms: int | None
) -> None:
    lines = work.large("lines", traces)
    spans = work.small(blocks(lines))
    files = work.small(file_numbers(spans))
    numbers = work.small(line_numbers(spans, files))
    events = work.large("events", timed(lines, spans, numbers))
    stock = content(events, topic, work)
    judged = events if spans.where("has_brokers").isEmpty() else of_clients(events)
    records = queue_records(judged, stock.restarts)
    rows = work.large("facts", facts(records))
    exists = exists_of(stock, work.small(queue_names(records)))
    queues = work.small(exists.queues)
    begins = work.small(positions(rows, queues, events, work))
    late = work.small(late_rows(rows))
    again = repeats(late, rows, begins, work)
    if not spans.where("has_lanes").isEmpty():
        again = again.unionByName(lane_repeats(late, rows, begins), allowMissingColumns=True)
    again = work.small(again)
    counts, ranges = losses(rows, work.small(exists.words), exists.known, begins, work)
    findings = key_findings(late, rows)
    for more in (
        repeat_findings(again),
        overlap_findings(rows, clock_tolerance_ms),
        commit_findings(rows),
        loss_findings(ranges),
    ):
        findings = findings.unionByName(more)
    moved = work.small(handovers(begins, rows))
    broken = work.small(broken_lines(lines, numbers))
    parts = Parts(rows, late, again, counts, work.small(findings), moved, queues, broken, files, stock.sent)
    _add_tables(audit, parts, work.small(period_names(records)), stock, work)


def _add_tables(audit: Audit, parts: Parts, periods: DataFrame, stock: Content, work: Work) -> None:
    causes = work.small(duplicates(parts))
    audit.add("violations", violations(parts.findings, parts.queues, periods, parts.files))
    audit.add("duplicates", causes)
    audit.add("handovers", _named_handovers(parts.handovers, parts.queues, periods))
    audit.add("owners", owners(parts.facts, parts.findings, parts.queues, periods))
    audit.add("latency", latency(parts.facts, stock.stored, stock.messages, parts.queues))
    audit.add("rates", rates(parts.facts, parts.late, parts.queues))
    audit.add("summary", summary(parts, causes))
    audit.add("broken_lines", parts.broken)
    spark = parts.broken.sparkSession
    for name in TABLES.keys() - audit.keys():
        audit.add(name, spark.createDataFrame([], TABLES[name]))


def _named_handovers(moved: DataFrame, queues: DataFrame, periods: DataFrame) -> DataFrame:
    for which in ("from", "to"):
        named = periods.select(fn.col("p").alias(f"{which}_p"), fn.col("client_id").alias(f"{which}_client_id"))
        moved = moved.join(fn.broadcast(named), f"{which}_p")
    return moved.join(fn.broadcast(queues), "h")
