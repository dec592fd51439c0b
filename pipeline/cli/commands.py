"""The commands of `lockstep-pipeline`: their options, and which job each runs. Spark is imported only inside."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lockstep.cli.output import OutputFormat, print_rows
from lockstep.pipeline.cli.errors import UsageError
from lockstep.pipeline.cli.options import (
    Conf,
    DriverMemory,
    Master,
    NameServer,
    OptionalNameServer,
    Output,
    Session,
    Verbose,
    addresses,
    pairs,
)
from lockstep.pipeline.jobs.publish import EventColumns, InputFormat
from lockstep.protocol.names import check_group, check_topic

__all__ = ["LagFormat", "app", "audit", "lag", "publish"]

_NOT_IN_ORDER = 3

app = typer.Typer(
    name="lockstep-pipeline",
    help="Topics and Spark: publish a table, audit the order of what was consumed, watch a group's lag.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class LagFormat(StrEnum):
    PARQUET = "parquet"
    JSON = "json"


@app.command()
def publish(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files or folders, or globs of them.")],
    name_server: NameServer,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Where to send; it must be there.")],
    key: Annotated[str, typer.Option(metavar="COLUMN", help="Events of one key are sent and kept in order.")],
    order_by: Annotated[list[str], typer.Option(metavar="COLUMN", help="What orders them; may be repeated.")],
    value: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Into the message; may be repeated.", show_default="all others, as JSON"),
    ] = None,
    tags: Annotated[str | None, typer.Option(metavar="COLUMN", help="The message's tag.")] = None,
    kind: Annotated[InputFormat, typer.Option("--format", help="What the files are.")] = InputFormat.CSV,
    query: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A query in SQL that makes the columns, from the view `raw`.")
    ] = None,
    row_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="One more column: the row's place in the files, from 0.")
    ] = None,
    read_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of Spark's reader; may be repeated.")
    ] = None,
    write_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the sink; may be repeated.")
    ] = None,
    output: Output = OutputFormat.TABLE,
    master: Master = None,
    driver_memory: DriverMemory = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Send a raw table as keyed events, in order."""
    from lockstep.pipeline.jobs.publish import publish as send
    from lockstep.pipeline.jobs.publish import read_raw, transform
    from lockstep.pipeline.spark.progress import JobProgress

    check_topic(topic)
    sink = {"nameServer": name_server, **pairs(write_option, "--write-option")}
    reading = pairs(read_option, "--read-option")
    text = _text_of(query)
    columns = EventColumns(key, order_by, value or (), tags)
    with (
        Session("publish", master, driver_memory, conf, verbose).opened() as spark,
        JobProgress(spark, f"publish to {topic}"),
    ):
        raw = read_raw(spark, paths, kind, options=reading, row_column=row_column)
        events = send(transform(raw, columns, query=text), topic, sink)
    print_rows(("topic", "events"), [{"topic": topic, "events": events}], output)


def _text_of(query: Path | None) -> str | None:
    try:
        return None if query is None else query.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--query {query}: {error.strerror}") from None


@app.command()
def audit(
    traces: Annotated[list[str], typer.Argument(metavar="TRACE...", help="Trace files, folders or globs of them.")],
    name_server: OptionalNameServer = None,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", "-t", help="Read what the topic holds too; may be repeated.")
    ] = None,
    clock_tolerance_ms: Annotated[int, typer.Option(min=0, help="How far clocks of two hosts may be apart.")] = 1000,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write the tables there, as Parquet.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report there, as HTML.")] = None,
    lag: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="What the command lag has written, for the report.")
    ] = None,
    title: Annotated[str, typer.Option(help="Of the report.")] = "Audit of order",
    work_folder: Annotated[
        str, typer.Option(metavar="FOLDER", help="Keep what is half done there, where all executors write and read.")
    ] = "",
    output: Output = OutputFormat.TABLE,
    master: Master = None,
    driver_memory: DriverMemory = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Judge consumers' traces: was every message handled in order, and none lost?"""
    from lockstep.pipeline.cli.audit import AuditRequest, run_audit

    if topic and not name_server:
        raise UsageError("--topic needs --name-server, to read what the topic holds")
    asked = AuditRequest(
        traces, tuple(topic or ()), name_server, clock_tolerance_ms, to, report, lag, title, work_folder
    )
    with Session("audit", master, driver_memory, conf, verbose).opened() as spark:
        in_order = run_audit(spark, asked, output)
    if not in_order:
        raise typer.Exit(_NOT_IN_ORDER)


@app.command()
def lag(
    name_server: NameServer,
    group: Annotated[str, typer.Option("--group", "-g", help="The consumer group.")],
    topic: Annotated[list[str], typer.Option("--topic", "-t", help="What it consumes; may be repeated.")],
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Look so often.")] = 5.0,
    seconds: Annotated[
        float | None, typer.Option("--for", min=0.1, metavar="SECONDS", help="End after so long.", show_default="never")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Look once, and print that.")] = False,
    to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the looks there instead of printing them.")
    ] = None,
    kind: Annotated[LagFormat, typer.Option("--format", help="What is written with --to.")] = LagFormat.PARQUET,
    output: Output = OutputFormat.TABLE,
    master: Master = None,
    driver_memory: DriverMemory = None,
    conf: Conf = None,
    verbose: Verbose = False,
) -> None:
    """Watch how far a group is behind in each queue."""
    from lockstep.pipeline.cli.lag import LagRequest, run_lag
    from lockstep.pipeline.jobs.lag import Watched

    for name in topic:
        check_topic(name)
    check_group(group)
    watched = Watched(addresses(name_server), group, tuple(topic))
    asked = LagRequest(watched, round(every * 1000), seconds, once, to, kind.value)
    with Session("lag", master, driver_memory, conf, verbose).opened() as spark:
        run_lag(spark, asked, output)
