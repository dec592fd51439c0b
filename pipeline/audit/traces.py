"""Trace files as one DataFrame, their records on one time line, as `lockstep.order.merge_traces` does it.

Time of a record: its monotonic clock plus its host's difference between wall and monotonic clock, taken from the host's
first record; it never steps back within a file. Ties go by the file's place among the sorted names, then by the line.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from lockstep.pipeline.audit.schema import RECORD_COLUMNS

__all__ = ["before", "blocks", "broken_lines", "file_numbers", "line_numbers", "read_traces", "timed"]

_FILE = ("history", "file")
_LINE = ("line_block", "line_row")


def read_traces(spark: SparkSession, *paths: str) -> DataFrame:
    """JSON-lines files, folders or globs of them, as TRACE_COLUMNS. Raises AnalysisException for a missing path."""
    lines = (
        spark.read.schema(f"{RECORD_COLUMNS}, broken string")
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", "broken")
        .json(list(paths))
    )
    no_event = fn.when(fn.col("event").isNull(), fn.lit("a record without an event"))
    return lines.select(
        fn.lit("").alias("history"),
        fn.col("_metadata.file_path").alias("file"),
        fn.col("_metadata.file_block_start").alias("line_block"),
        fn.monotonically_increasing_id().alias("line_row"),
        *[column.split()[0] for column in RECORD_COLUMNS.split(",")],  # and no column that a folder is named for
        fn.coalesce("broken", no_event).alias("broken"),
    )


def blocks(lines: DataFrame) -> DataFrame:
    """A row a block of a file and host in it: what must be known of all files before their lines can be read.

    (history, file, line_block, host, first_row, last_row, clock, has_lanes, has_brokers). `clock`: of the first record
    with a monotonic time, its (line_row, clock_ns), what to add to it for the wall clock's. `has_lanes`: some do not
    keep queue order. `has_brokers`: some are of no client.
    """
    is_record = fn.col("broken").isNull()
    clock = fn.struct("line_row", (fn.col("wall_ms") * 1_000_000 - fn.col("mono_ns")).alias("clock_ns"))
    host = fn.when(is_record, fn.coalesce("host", fn.lit(""))).alias("host")
    return lines.groupBy(*_FILE, "line_block", host).agg(
        fn.min("line_row").alias("first_row"),
        fn.max("line_row").alias("last_row"),
        fn.min(fn.when(is_record & fn.col("mono_ns").isNotNull(), clock)).alias("clock"),
        fn.coalesce(fn.bool_or(fn.col("ordering") != "queue"), fn.lit(False)).alias("has_lanes"),
        fn.coalesce(fn.bool_or((fn.col("event") == "reset") & fn.col("client_id").isNull()), fn.lit(False)).alias(
            "has_brokers"
        ),
    )


def file_numbers(parts: DataFrame) -> DataFrame:
    """(history, file, source): files by number."""
    files = parts.select(*_FILE).distinct()
    return files.withColumn("source", fn.row_number().over(Window.partitionBy("history").orderBy("file")))


def line_numbers(parts: DataFrame, files: DataFrame) -> DataFrame:
    """(history, file, line_block, source, line_before, file_lines): a line's number is line_before and its row."""
    whole = parts.groupBy(*_FILE, "line_block").agg(
        fn.min("first_row").alias("first_row"), (fn.max("last_row") - fn.min("first_row") + 1).alias("rows")
    )
    by_block = Window.partitionBy(*_FILE).orderBy("line_block")
    earlier = fn.coalesce(fn.sum("rows").over(by_block.rowsBetween(Window.unboundedPreceding, -1)), fn.lit(0))
    return whole.join(files, list(_FILE)).select(
        *_FILE, "line_block", "source",
        (earlier - fn.col("first_row") + 1).alias("line_before"),
        fn.sum("rows").over(Window.partitionBy(*_FILE)).alias("file_lines"),
    )  # fmt: skip


def broken_lines(lines: DataFrame, numbers: DataFrame) -> DataFrame:
    """Lines that are no records. `torn`: the last of its file, as a killed writer leaves it."""
    broken = _numbered(lines.where(fn.col("broken").isNotNull()), numbers)
    torn = (fn.col("line") == fn.col("file_lines")).alias("torn")
    return broken.select("history", "file", "line", torn, fn.col("broken").alias("text"))


def timed(lines: DataFrame, parts: DataFrame, numbers: DataFrame) -> DataFrame:
    """The records among the lines with `time_ns`, `source`, the number of their file in its history, and `line`."""
    records = lines.where(fn.col("broken").isNull()).withColumn("host", fn.coalesce("host", fn.lit("")))
    by_line = Window.partitionBy("history", "source").orderBy("line")
    aligned = fn.when(fn.col("mono_ns").isNull(), fn.col("wall_ms") * 1_000_000).otherwise(
        fn.col("mono_ns") + fn.col("clock_ns")
    )
    return (
        _numbered(records, numbers)
        .join(fn.broadcast(_clocks(parts, numbers)), ["history", "host"], "left")
        .drop("file", "file_lines", "broken", "outcome", "reconsume_times")
        .withColumn("time_ns", fn.max(aligned).over(by_line.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
    )


def _numbered(lines: DataFrame, numbers: DataFrame) -> DataFrame:
    """With `line`, counted from 1 in each file."""
    placed = lines.join(fn.broadcast(numbers), [*_FILE, "line_block"])
    return placed.withColumn("line", fn.col("line_row") + fn.col("line_before")).drop(*_LINE, "line_before")


def _clocks(parts: DataFrame, numbers: DataFrame) -> DataFrame:
    """(history, host, clock_ns): what to add to a host's monotonic clock. Files' first records come first."""
    line = (fn.col("clock.line_row") + fn.col("line_before")).alias("line")
    firsts = parts.where("clock is not null").join(numbers, [*_FILE, "line_block"])
    by_file = firsts.groupBy(*_FILE, "host").agg(fn.min(fn.struct(line, "clock.clock_ns")).alias("first"))
    earliest = fn.struct(fn.col("first.line") != 1, "file", "first.line")
    return by_file.groupBy("history", "host").agg(fn.min_by("first.clock_ns", earliest).alias("clock_ns"))


def before(one: str, other: str, names: Sequence[str] = ("time_ns", "source", "line")) -> Column:
    """Whether the record of alias `one` stands before that of alias `other`."""
    struct = [fn.struct(*[fn.col(f"{alias}.{name}") for name in names]) for alias in (one, other)]
    return struct[0] < struct[1]
