"""`lockstep-pipeline lag`: prints one look, writes a stream into a folder, or prints a stream."""

from typing import TYPE_CHECKING, Final

from lockstep.cli.output import OutputFormat, json_line, print_rows, write_out
from lockstep.pipeline.cli.errors import note
from lockstep.pipeline.cli.options import LagOptions
from lockstep.pipeline.jobs.lag import Watched, lag_once, lag_stream, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["run_lag"]

_SHOWN: Final = ("topic", "broker", "queue_id", "min_offset", "max_offset", "consumer_offset", "lag", "error")
_CHECKPOINT: Final = "_checkpoint"


def run_lag(spark: "SparkSession", watched: Watched, options: LagOptions) -> None:
    """Run until --for is over, or a signal. Raises Spark's errors."""
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
        life_s = None if options.life_ms is None else max(round(options.life_ms / 1000), 1)  # Spark takes whole ones
        query.awaitTermination(life_s)
    finally:
        query.stop()


def _printed(lag: "DataFrame", every_ms: int, output: OutputFormat) -> "StreamingQuery":
    writer = lag.writeStream.foreachBatch(lambda looked, _: _print(looked, output))
    return writer.trigger(processingTime=f"{every_ms} milliseconds").start()


def _print(looked: "DataFrame", output: OutputFormat) -> None:
    """Print one look as a table, or its rows as JSON, one a line."""
    rows = [row.asDict() for row in looked.collect()]
    if output is OutputFormat.JSON:
        write_out("".join(f"{json_line(row)}\n" for row in rows).encode())
        return
    failed = any(row["error"] for row in rows)
    print_rows([name for name in _SHOWN if name != "error" or failed], rows, output)
