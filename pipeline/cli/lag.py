"""`lockstep-pipeline lag`: prints one look, writes a stream into a folder, or prints a stream."""

import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from lockstep.cli.output import OutputFormat, json_line, print_rows, write_out
from lockstep.cli.stdout_reader import is_unread
from lockstep.pipeline.cli.errors import note
from lockstep.pipeline.cli.options import LagOptions
from lockstep.pipeline.jobs.lag import Watched, lag_once, lag_stream, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["run_lag", "wait"]

_SHOWN: Final = ("topic", "broker", "queue_id", "min_offset", "max_offset", "consumer_offset", "lag", "error")
_CHECKPOINT: Final = "_checkpoint"
_LOOK_EVERY_S: Final = 0.2  # whether stdout has a reader
_WAIT_S_MIN: Final = 0.001  # PySpark cuts a wait to whole milliseconds, and Spark refuses one of 0


def run_lag(spark: "SparkSession", watched: Watched, options: LagOptions) -> None:
    """Run until --for is over, or a signal.

    Raises:
        BrokenPipeError: Looks are printed, and the reader of stdout has closed it.
        PySparkException: Spark failed.
    """
    if options.once:
        _print(lag_once(spark, watched), options.output)
        return
    lag, every_ms = lag_stream(spark, watched), options.every_ms
    if options.to is None:
        query = _printed(lag, every_ms, options.output)
    else:
        folder = str(options.to)
        note(f"the lag of group {watched.group} is written to {folder} each {every_ms / 1000:g} s")
        checkpoint = f"{folder}/{_CHECKPOINT}"
        query = start(lag, every_ms=every_ms, folder=folder, checkpoint=checkpoint, kind=options.kind)
    try:
        wait(query, options.life_ms, printed=options.to is None)
    finally:
        query.stop()


def wait(query: "StreamingQuery", life_ms: int | None, *, printed: bool) -> None:
    """Wait until the query ends, or this time is over. Raises BrokenPipeError."""
    waiting: Any = query  # parts of a second are allowed, and not in its types
    ends_s = math.inf if life_ms is None else time.monotonic() + life_ms / 1000
    while (left_s := ends_s - time.monotonic()) > 0:
        if waiting.awaitTermination(max(_WAIT_S_MIN, min(_LOOK_EVERY_S, left_s))):
            return
        if printed and is_unread():
            raise BrokenPipeError


def _printed(lag: "DataFrame", every_ms: int, output: OutputFormat) -> "StreamingQuery":
    def show(looked: "DataFrame", _number: int) -> None:
        with suppress(BrokenPipeError):  # it would come back as an error of Spark; the wait for the query notices, too
            _print(looked, output)

    writer = lag.writeStream.foreachBatch(show)
    return writer.trigger(processingTime=f"{every_ms} milliseconds").start()


def _print(looked: "DataFrame", output: OutputFormat) -> None:
    """Print one look as a table, or its rows as JSON, one a line."""
    rows = [row.asDict() for row in looked.collect()]
    if output is OutputFormat.JSON:
        write_out("".join(f"{json_line(row)}\n" for row in rows).encode())
        return
    failed = any(row["error"] for row in rows)
    print_rows([name for name in _SHOWN if name != "error" or failed], rows, output)
