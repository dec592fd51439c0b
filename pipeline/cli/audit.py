"""`lockstep-pipeline audit`: reads traces and topics, judges them, writes the tables and a report."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lockstep.cli.output import OutputFormat, print_rows, write_out
from lockstep.order import Verdict
from lockstep.order.page import JudgedRun, write_page
from lockstep.pipeline.audit import read_traces, transform
from lockstep.pipeline.cli.errors import note
from lockstep.pipeline.cli.options import AuditOptions
from lockstep.pipeline.report import collect, judged_run, read_tables, write_tables
from lockstep.pipeline.spark.progress import JobProgress
from lockstep.remoting.logs import printable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["read_topic", "run_audit"]

_TOPIC_COLUMNS: Final = "topic string, brokerName string, queueId int, offset long, storeTimestamp timestamp"
_FILES_NAMED: Final = 20  # trace files at most that a command for a story names


def run_audit(spark: "SparkSession", options: AuditOptions) -> Verdict:
    """Run the audit. Returns the worst verdict of its histories. Raises Spark's errors, PipelineError."""
    with _folder(options.to) as folder, JobProgress(spark, "audit: reading the traces") as progress:
        content = None
        if options.name_server and options.topic:
            content = read_topic(spark, options.name_server, options.topic)
        traces = read_traces(spark, *options.traces)
        lag = spark.read.parquet(options.lag) if options.lag else None
        with transform(traces, content, clock_skew_ms=options.clock_skew_ms) as tables:
            if options.to is not None or not tables.is_small:
                write_tables(tables, folder, lambda name: progress.show(f"audit: the table {name}"))
            progress.show("audit: the report")
            histories = collect(tables if tables.is_small else read_tables(spark, folder), lag)
        files = _files(options.traces)
        runs = [judged_run(findings, files) for findings in histories]
        if options.report is not None:
            write_page(options.report, options.title, runs)
    if options.output is OutputFormat.JSON:
        rows = [
            findings.summary | {"verdict": run.report.verdict, "kinds": run.report.violation_counts}
            for findings, run in zip(histories, runs, strict=True)
        ]
        print_rows(tuple(rows[0]) if rows else (), rows, options.output)
    else:
        _print(runs, files)
    if not runs:
        note("no message was sent or handled in these traces: there is nothing to judge")
    if options.report is not None:
        note(f"the report is {options.report}")
    verdicts = {run.report.verdict for run in runs} or {Verdict.UNDECIDED}
    return next(one for one in (Verdict.NOT_IN_ORDER, Verdict.UNDECIDED, Verdict.IN_ORDER) if one in verdicts)


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


def _files(traces: Sequence[str]) -> list[str]:
    """The trace files for the commands that show a story, if they are on this machine and not too many."""
    found: list[str] = []
    for name in traces:
        path = Path(name)
        found += sorted(map(str, path.glob("*"))) if path.is_dir() else [name] if path.is_file() else ["FILE..."]
    return found if len(found) <= _FILES_NAMED and "FILE..." not in found else ["FILE..."]


def _print(runs: Sequence[JudgedRun], files: Sequence[str]) -> None:
    """Print each history as `lockstep trace check` does."""
    lines = [
        line for run in runs for line in ([f"history {run.name}"] if len(runs) > 1 else []) + run.report.lines(files)
    ]
    write_out("".join(printable(line) + "\n" for line in lines).encode("utf-8", "replace"))
