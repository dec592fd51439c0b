"""`lockstep-pipeline audit`: reads traces and topics, judges them, writes the tables and a report."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lockstep.cli.output import OutputFormat, print_rows
from lockstep.pipeline.audit import read_traces, transform
from lockstep.pipeline.cli.errors import note
from lockstep.pipeline.cli.options import AuditOptions
from lockstep.pipeline.report import Findings, collect, read_tables, write_page, write_tables
from lockstep.pipeline.spark.progress import JobProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_topic", "run_audit"]

_TOPIC_COLUMNS: Final = "topic string, brokerName string, queueId int, offset long, storeTimestamp timestamp"
_SHOWN: Final = (
    "sent", "handled", "duplicates", "lost", "violations", "handovers", "keys", "queues", "torn_lines", "in_order",
)  # fmt: skip


def run_audit(spark: "SparkSession", options: AuditOptions) -> bool:
    """Run the audit. Returns whether all was in order. Raises Spark's errors, PipelineError."""
    with _folder(options.to) as folder, JobProgress(spark, "audit: reading the traces") as progress:
        content = None
        if options.name_server and options.topic:
            content = read_topic(spark, options.name_server, options.topic)
        traces = read_traces(spark, *options.traces)
        with transform(
            traces, content, clock_tolerance_ms=options.clock_tolerance_ms, work_folder=options.work_folder
        ) as tables:
            write_tables(tables, folder, lambda name: progress.show(f"audit: the table {name}"))
        progress.show("audit: the report")
        lag = spark.read.parquet(options.lag) if options.lag else None
        histories = collect(read_tables(spark, folder), lag)
        if options.report is not None:
            write_page(options.report, options.title, histories)
    _print(histories, options.output)
    if options.report is not None:
        note(f"the report is {options.report}")
    return all(findings.summary["in_order"] for findings in histories)


def read_topic(spark: "SparkSession", name_server: str, topics: list[str]) -> "DataFrame":
    """The columns of the topics that the audit needs."""
    reader = spark.read.format("lockstep").schema(_TOPIC_COLUMNS).option("nameServer", name_server)
    return reader.option("subscribe", ",".join(topics)).load()


@contextmanager
def _folder(wanted: Path | None) -> Iterator[str]:
    """The folder for the tables: the one that was asked for, or a temporary one."""
    if wanted is not None:
        yield str(wanted.absolute())
        return
    with tempfile.TemporaryDirectory(prefix="lockstep-audit-") as folder:
        yield folder


def _print(histories: list[Findings], output: OutputFormat) -> None:
    """Print the totals. With a table, stderr has a line for each kind of violation, with its first evidence."""
    rows = [findings.summary | {"kinds": _kinds(findings)} for findings in histories]
    if output is OutputFormat.JSON:
        print_rows(tuple(rows[0]) if rows else (), rows, output)
        return
    print_rows(_SHOWN if len(rows) < 2 else ("history", *_SHOWN), rows, output)
    for findings in histories:
        for kind, times in _kinds(findings).items():
            first = next((row["evidence"] for row in findings.violations if row["kind"] == kind), "")
            note(f"{kind}, {times:,} in all, the first: {first}")


def _kinds(findings: Findings) -> dict[str, int]:
    return {row["kind"]: row["violations"] for row in findings.violation_counts}
