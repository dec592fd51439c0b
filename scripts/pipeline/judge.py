"""The end of `make pipeline`: Spark audits traces and topic, and corrupted copies of the traces; tables and report."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lockstep.order import Confidence, OrderReport
from lockstep.order.page import CorruptedTraces, write_page
from lockstep.pipeline.audit import read_traces, transform
from lockstep.pipeline.audit.corruptions import CORRUPTIONS, corrupt_files
from lockstep.pipeline.report import collect, judged_run, read_tables, write_tables
from lockstep.pipeline.spark.progress import JobProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Expected", "Ran", "Verdict", "faults", "judge", "misplaced", "print_verdict"]

TORN_LINE: Final = "a torn line"
CORRUPTED: Final = "corrupted"
THE_RUN: Final = ""  # its history


class Expected(NamedTuple):
    """What the run must have done."""

    events: int
    keys: int
    sent: int  # by the sink's own count


class Ran(NamedTuple):
    """The results of the run: traces, and folders of Parquet with the topic's content and the group's lag."""

    traces: list[Path]
    content: Path
    lag: Path


class Verdict(NamedTuple):
    """The result. `misplaced`: events stored out of their aircraft's order, which traces do not show."""

    order: OrderReport
    misplaced: int
    corrupted: list[CorruptedTraces]
    report: Path


def misplaced(content: DataFrame) -> int:
    """Number of events whose number in their aircraft's sequence is not their place among its stored messages."""
    from pyspark.sql import Window

    number = fn.get_json_object(fn.col("value").cast("string"), "$.number").cast("int")
    place = fn.row_number().over(Window.partitionBy("shardingKey").orderBy("queueId", "offset"))
    return content.select(number.alias("number"), place.alias("place")).where("number != place").count()


def judge(spark: "SparkSession", ran: Ran, folder: Path, console: Console) -> Verdict:
    """Audit the run and its corrupted copies together, a history each; report. Raises Spark's errors, OSError."""
    with JobProgress(spark, "the topic's order", console) as progress:
        topic = spark.read.parquet(str(ran.content))
        wrong = misplaced(topic)
        progress.show("the traces are corrupted")
        done = corrupt(ran.traces, folder)
        progress.show("the audit of the run and of its corrupted copies")
        tables = audited(spark, histories(spark, ran.traces, folder), topic, folder / "tables", progress)
        progress.show("the report")
        mine = {name: table.where(fn.col("history") == THE_RUN) for name, table in tables.items()}
        (findings,) = collect(mine, spark.read.parquet(str(ran.lag)))
        corrupted = corrupted_rows(tables, done)
        report = folder / "report.html"
        run = judged_run(findings, [str(path) for path in ran.traces])
        write_page(report, "The flights, audited", [run], corrupted)
    return Verdict(run.report, wrong, corrupted, report)


def corrupt(traces: list[Path], folder: Path) -> dict[str, str]:
    """Copy the traces once for each corruption, into folders with its name. Returns what was changed, by name."""
    whole = folder / CORRUPTED / "whole"
    whole.mkdir(parents=True)
    for path in traces:
        text = path.read_bytes()
        (whole / path.name).write_bytes(text[: text.rfind(b"\n") + 1])  # the line that the killed consumer tore
    return {name: corrupt_files(whole, folder / CORRUPTED / name, name) for name in CORRUPTIONS}


def histories(spark: "SparkSession", traces: list[Path], folder: Path) -> DataFrame:
    """The traces of the run, and each corrupted copy as a history with the name of its corruption."""
    copies = [folder / CORRUPTED / name for name in CORRUPTIONS]
    named = f"/{CORRUPTED}/({'|'.join(CORRUPTIONS)})/[^/]+$"
    rows = read_traces(spark, *map(str, traces), *map(str, copies))
    return rows.withColumn("history", fn.regexp_extract("file", named, 1))  # "" where the file is none of these


def audited(
    spark: "SparkSession", traces: DataFrame, topic: DataFrame, folder: Path, progress: JobProgress
) -> dict[str, DataFrame]:
    """The audit's tables, kept in a folder as Parquet. Each history is compared with the same topic."""
    names = fn.array(*map(fn.lit, (THE_RUN, *CORRUPTIONS)))
    with transform(traces, topic.withColumn("history", fn.explode(names))) as made:
        write_tables(made, str(folder), lambda name: progress.show(f"the audit's table {name}"))
    return read_tables(spark, str(folder))


def corrupted_rows(tables: Mapping[str, DataFrame], done: Mapping[str, str]) -> list[CorruptedTraces]:
    """What the audit found in each corrupted copy."""
    kinds = tables["violations"].select("history", "kind")
    torn = tables["summary"].where("torn_lines > 0").select("history", fn.lit(TORN_LINE))
    found = sorted((row[0], row[1]) for row in kinds.union(torn).distinct().collect())
    return [
        CorruptedTraces(
            f"{name}: {done[name]}", (corruption.kind or TORN_LINE,), [kind for of, kind in found if of == name]
        )
        for name, corruption in CORRUPTIONS.items()
    ]


def faults(verdict: Verdict, expected: Expected) -> list[str]:
    """Why the run failed; empty if it did not."""
    order = verdict.order
    missed = [row.name for row in verdict.corrupted if not row.is_found]
    conditions: dict[str, Any] = {
        f"{order.lost:,} events were lost": order.lost,
        "order was violated": order.violation_counts,
        "the traces do not prove order": order.undecided_counts,
        f"{verdict.misplaced:,} events were stored out of their aircraft's order": verdict.misplaced,
        f"{expected.sent:,} events were sent instead of {expected.events:,}": expected.sent != expected.events,
        f"{order.sent:,} events are in the topic instead of {expected.events:,}": order.sent != expected.events,
        f"{order.handled:,} events were handled instead of {expected.events:,}": order.handled != expected.events,
        f"the events of {order.keys:,} keys were checked instead of {expected.keys:,}": order.keys != expected.keys,
        f"{order.broken_lines:,} lines of the traces are no records": order.broken_lines,
        "no queue changed hands": not order.handovers,
        f"corrupted traces passed: {', '.join(missed)}": missed,
        "nothing was corrupted": not verdict.corrupted,
    }  # fmt: skip
    return [sentence for sentence, fault in conditions.items() if fault]


def print_verdict(verdict: Verdict, expected: Expected, took_s: float, console: Console) -> bool:
    """Print the verdict. Returns whether all was in order, nothing was lost, and every corruption was found."""
    for name, text in (*verdict.order.rows(), ("took", f"{took_s:.1f} s")):
        console.print(f"  [bold]{name:<18}[/bold] {escape(text)}", highlight=False, soft_wrap=True)
    for word, one in verdict.order.examples():
        colour = "yellow" if one.confidence is Confidence.UNDECIDED else "red"
        text = escape(f"{one.sentence} ({word}, {one.confidence})")
        console.print(f"  [{colour}]{one.kind}[/{colour}]: {text}", highlight=False, soft_wrap=True)
    if verdict.corrupted:
        console.print(corrupted_table(verdict.corrupted))
    found = faults(verdict, expected)
    for sentence in found:
        console.print(f"[bold red]failed:[/bold red] {sentence}", highlight=False)
    if not found:
        console.print("[bold green]every aircraft's story was handled in order, nothing was lost, "
                      "and all that was corrupted on purpose was found[/bold green]", soft_wrap=True)  # fmt: skip
    console.print(f"the report: {verdict.report}", highlight=False, soft_wrap=True)
    return not found


def corrupted_table(corrupted: list[CorruptedTraces]) -> Table:
    """What was changed in the traces, and what the audit found."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("corrupted on purpose", "must be found", "was found", ""):
        table.add_column(name)
    for row in corrupted:
        verdict = "[green]found[/green]" if row.is_found else "[bold red]missed[/bold red]"
        expected, found = (", ".join(kinds) or "nothing" for kinds in (row.expected, row.found))
        table.add_row(row.name.partition(":")[0], expected, found, verdict)
    return table
