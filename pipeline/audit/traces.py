"""Trace files as lines of a DataFrame. One task reads a whole file, so that it reads its lines in order."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, groupby
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from lockstep.pipeline.audit.schema import TRACE_COLUMNS
from lockstep.pipeline.spark.session import SMALL_BYTES

__all__ = ["Sized", "Trace", "read_traces", "sized", "traces_of"]

_WHOLE: Final = str(1 << 44)  # no file is larger, so no file is divided
_READ_BYTES: Final = 16 << 20  # at least, for a task that reads
_JUDGED_BYTES: Final = 64 << 20  # for a task that judges
_MESSAGE_BYTES: Final = 500  # of records, for each message
_SETTINGS: Final = {
    "spark.sql.files.maxPartitionBytes": _WHOLE,
    "spark.sql.files.openCostInBytes": _WHOLE,
    "spark.sql.adaptive.enabled": "false",
}
_TINY: Final = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Compiling the plans of a tiny trace takes longer than running them."""


class Trace(NamedTuple):
    """The lines of one file."""

    history: str
    file: str
    lines: Iterator[bytes]


class Sized(NamedTuple):
    """Lines of traces, how many tasks judge them, and how many messages there are about."""

    lines: DataFrame
    tasks: int
    messages: int


def read_traces(spark: SparkSession, *paths: str) -> DataFrame:
    """JSON-lines files, folders or globs of them, as TRACE_COLUMNS. Raises AnalysisException for a missing path."""
    lines = spark.read.option("lineSep", "\n").option("recursiveFileLookup", True).text(list(paths))
    return lines.select(
        fn.lit("").alias("history"),
        fn.col("_metadata.file_path").alias("file"),
        fn.col("value").cast("binary").alias("line"),
    )


@contextmanager
def sized(traces: DataFrame) -> Iterator[Sized]:
    """Set the session up for jobs that read these traces; the settings of before come back."""
    spark = traces.sparkSession
    before = {name: spark.conf.get(name) or "" for name in (*_SETTINGS, *_TINY, "spark.sql.shuffle.partitions")}
    # Spark's estimate is the size of the files. No public method returns it.
    size = int(traces._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())  # noqa: SLF001
    is_tiny, is_known = size < SMALL_BYTES, size < 1 << 60
    tasks = 1 if is_tiny else max(2 * spark.sparkContext.defaultParallelism, size // _JUDGED_BYTES if is_known else 0)
    for name, value in {**_SETTINGS, **(_TINY if is_tiny else {}), "spark.sql.shuffle.partitions": str(tasks)}.items():
        spark.conf.set(name, value)
    try:
        lines = traces.select(*_names())
        if is_known:
            lines = lines.coalesce(max(1, size // _READ_BYTES))
        yield Sized(lines, tasks, size // _MESSAGE_BYTES if is_known else 0)
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _names() -> list[str]:
    return [column.split()[0] for column in TRACE_COLUMNS.split(",")]


def traces_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Trace]:
    """The files in batches of TRACE_COLUMNS. Read the lines of each before the next one."""
    for (history, file), parts in groupby(_parts(batches), key=lambda part: part[:2]):
        yield Trace(history, file, chain.from_iterable(lines for _, _, lines in parts))


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, str, list[bytes]]]:
    for batch in batches:
        history, file, line = (batch.column(name) for name in ("history", "file", "line"))
        ends = {end for column in (history, file) for end in pc.run_end_encode(column).run_ends.to_pylist()}
        start = 0
        for end in sorted(ends):
            yield history[start].as_py(), file[start].as_py(), line.slice(start, end - start).to_pylist()
            start = end
