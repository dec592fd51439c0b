"""The options of `lockstep-pipeline`, each written once, and the session of Spark that they ask for."""

import glob
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from lockstep.cli.option_values import duration_option
from lockstep.cli.options import NameServer, OptionalNameServer, Output, pairs
from lockstep.cli.output import OutputFormat, UsageError, check_writable
from lockstep.order.traces.clocks import WALL_SKEW_MS
from lockstep.pipeline.cli.errors import JobFailed, is_of_spark, one_line
from lockstep.pipeline.jobs.publish import InputFormat
from lockstep.remoting.host.writable import why_no_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AuditOptions", "CompareOptions", "LagOptions", "OutputFiles", "PublishOptions", "SweepOptions"]


class OutputFiles(StrEnum):
    PARQUET = "parquet"
    JSON = "json"


@dataclass(frozen=True, kw_only=True)
class _SparkOptions:
    output: Output = OutputFormat.TABLE
    master: Annotated[
        str | None,
        Option(metavar="URL", help="Spark's master.", show_default="local[*]; under spark-submit what that says"),
    ] = None
    driver_memory: Annotated[
        str | None,
        Option(
            metavar="SIZE",
            help="Memory of Spark's driver, as 4g.",
            show_default="2g; under spark-submit what that says",
        ),
    ] = None
    conf: Annotated[
        list[str] | None, Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
    ] = None
    verbose: Annotated[bool, Option("--verbose", "-v", help="Let Spark's warnings through.")] = False

    def is_small(self) -> bool:
        """Whether the input is known to be small."""
        return False

    def check_folder(self, folder: Path | None) -> None:
        """Find out before Spark starts whether its tables can be written into the folder of --to.

        Only where that is known to be a folder of this machine, not of a file system that a cluster, Spark's settings
        or Hadoop's files name.

        Raises:
            UsageError: They cannot.
        """
        of_cluster = not (self.master or "local").startswith("local") or "PYSPARK_GATEWAY_PORT" in os.environ
        of_hadoop = "HADOOP_CONF_DIR" in os.environ or any("fs.defaultFS" in text for text in self.conf or ())
        if folder is None or of_cluster or of_hadoop or ":" in str(folder).partition("/")[0]:
            return
        if why := why_no_folder(folder):
            raise UsageError(f"--to: cannot write {folder}: {why}")

    @contextmanager
    def session(self, name: str) -> "Iterator[SparkSession]":
        """A session of Spark that ends with the `with` block.

        Raises:
            SparkMissing, JavaMissing: Spark cannot run here.
            UsageError: --conf is not NAME=VALUE.
            JobFailed: Spark failed, at the start or in the block.
        """
        from lockstep.pipeline.spark.session import end_session, spark_session

        spark = spark_session(
            f"lockstep-pipeline {name}",
            master=self.master,
            driver_memory=self.driver_memory,
            verbose=self.verbose,
            small=self.is_small(),
            settings=pairs(self.conf, "--conf"),
        )
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's handler asks the JVM in the middle of a call
        try:
            yield spark
        except Exception as error:
            if is_of_spark(error):  # before the session ends: the text comes from the JVM
                raise JobFailed(one_line(error)) from error
            raise
        finally:
            end_session(spark)


@dataclass(frozen=True, kw_only=True)
class PublishOptions(_SparkOptions):
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files or folders, or globs of them.")]
    name_server: NameServer
    topic: Annotated[str, Option("--topic", "-t", help="Where to send; it must be there.")]
    key: Annotated[str, Option(metavar="COLUMN", help="Events of one key are sent and kept in order.")]
    order_by: Annotated[list[str], Option(metavar="COLUMN", help="What orders them; may be repeated.")]
    value: Annotated[
        list[str] | None,
        Option(metavar="COLUMN", help="Into the message; may be repeated.", show_default="all others, as JSON"),
    ] = None
    tags: Annotated[str | None, Option(metavar="COLUMN", help="The message's tag.")] = None
    kind: Annotated[InputFormat, Option("--format", help="What the files are.")] = InputFormat.CSV
    query: Annotated[
        Path | None, Option(metavar="FILE", help="A query in SQL that makes the columns, from the view `raw`.")
    ] = None
    row_column: Annotated[
        str | None, Option(metavar="NAME", help="One more column: the row's place in the files, from 0.")
    ] = None
    read_option: Annotated[
        list[str] | None, Option(metavar="NAME=VALUE", help="An option of Spark's reader; may be repeated.")
    ] = None
    write_option: Annotated[
        list[str] | None, Option(metavar="NAME=VALUE", help="An option of the sink; may be repeated.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class AuditOptions(_SparkOptions):
    traces: Annotated[list[str], typer.Argument(metavar="TRACE...", help="Trace files, folders or globs of them.")]
    name_server: OptionalNameServer = None
    topic: Annotated[
        list[str] | None, Option("--topic", "-t", help="Read what the topic holds too; may be repeated.")
    ] = None
    clock_skew_ms: Annotated[
        int,
        duration_option(
            "--clock-skew", "How far wall clocks of machines may be apart.", bare="ms", shown=f"{WALL_SKEW_MS}ms"
        ),
    ] = WALL_SKEW_MS
    to: Annotated[Path | None, Option(metavar="FOLDER", help="Write the tables there, as Parquet.")] = None
    report: Annotated[Path | None, Option(metavar="FILE", help="Write a report there, as HTML.")] = None
    lag: Annotated[str | None, Option(metavar="FOLDER", help="What the command lag has written, for the report.")] = (
        None
    )
    title: Annotated[str, Option(help="Of the report.")] = "Audit of order"

    def __post_init__(self) -> None:
        if self.topic and not self.name_server:
            raise UsageError("--topic needs --name-server, to read what the topic holds")
        check_writable("--report", self.report)
        self.check_folder(self.to)

    def is_small(self) -> bool:
        """Whether the input is local files, and few bytes. The size of a topic is not known."""
        from lockstep.pipeline.spark.session import SMALL_BYTES

        found = [[Path(name) for name in glob.glob(trace)] for trace in self.traces]  # noqa: PTH207  (whole paths)
        files = [file for paths in found for path in paths for file in (path, *path.rglob("*")) if file.is_file()]
        return not self.topic and all(found) and sum(file.stat().st_size for file in files) < SMALL_BYTES


@dataclass(frozen=True, kw_only=True)
class LagOptions(_SparkOptions):
    name_server: NameServer
    group: Annotated[str, Option("--group", "-g", help="The consumer group.")]
    topic: Annotated[list[str], Option("--topic", "-t", help="What it consumes; may be repeated.")]
    every_ms: Annotated[int, duration_option("--every", "Look so often.", bare="s", least="100ms", shown="5s")] = 5000
    life_ms: Annotated[
        int | None, duration_option("--for", "End after so long.", bare="s", least="100ms", shown="never")
    ] = None
    once: Annotated[bool, Option("--once", help="Look once, and print that.")] = False
    to: Annotated[Path | None, Option(metavar="FOLDER", help="Write the looks there instead of printing them.")] = None
    kind: Annotated[OutputFiles, Option("--format", help="What is written with --to.")] = OutputFiles.PARQUET

    def __post_init__(self) -> None:
        self.check_folder(self.to)


@dataclass(frozen=True, kw_only=True)
class SweepOptions(_SparkOptions):
    name: Annotated[str, typer.Argument(metavar="NAME", help="An experiment: worlds, a story, or FILE.py:NAME.")]
    seeds: Annotated[int, Option(min=1, help="How many seeds.")] = 1000
    first_seed: Annotated[int, Option(min=0, help="The first of them.")] = 1
    lock_mode: Annotated[str, Option(help="faithful, fenced or both.")] = "both"
    to: Annotated[Path | None, Option(metavar="FOLDER", help="Write the outcomes there, a row a seed.")] = None
    kind: Annotated[OutputFiles, Option("--format", help="What is written with --to.")] = OutputFiles.PARQUET

    def __post_init__(self) -> None:
        if self.lock_mode not in ("faithful", "fenced", "both"):
            raise UsageError(f"--lock-mode {self.lock_mode!r} is not allowed; use faithful, fenced or both")
        self.check_folder(self.to)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(_SparkOptions):
    name: Annotated[str, typer.Argument(metavar="STORY", help="A story, or FILE.py:NAME.")]
    with_: Annotated[
        list[str] | None,
        Option("--with", metavar="NAME=VALUE,VALUE", help="As for lockstep-sim compare; one value is for all runs."),
    ] = None
    seeds: Annotated[int, Option(min=1, help="Of each way.")] = 100
    first_seed: Annotated[int, Option(min=0, help="The first of them.")] = 1
    page: Annotated[Path | None, Option(metavar="FILE", help="A page with plots.")] = None
    to: Annotated[Path | None, Option(metavar="FOLDER", help="Write the figures there, a row a run.")] = None
    kind: Annotated[OutputFiles, Option("--format", help="What is written with --to.")] = OutputFiles.PARQUET

    def __post_init__(self) -> None:
        self.check_folder(self.to)
        if self.page is not None:
            check_writable("--page", self.page)
