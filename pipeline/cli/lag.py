"""How `lockstep-pipeline lag` runs: one look, a stream into a folder, or a stream that is printed look by look."""

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from lockstep.cli.output import OutputFormat, json_line, print_rows, write_out
from lockstep.pipeline.cli.errors import note
from lockstep.pipeline.jobs.lag import Watched, lag_once, lag_stream, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["LagRequest", "run_lag"]

_SHOWN: Final = ("topic", "broker", "queue_id", "min_offset", "max_offset", "consumer_offset", "lag", "error")
_CHECKPOINT: Final = "_checkpoint"


class LagRequest(NamedTuple):
    """`seconds` None: until it is ended from outside."""

    watched: Watched
    every_ms: int
    seconds: float | None
    once: bool
    folder: Path | None
    kind: str


def run_lag(spark: "SparkSession", asked: LagRequest, output: OutputFormat) -> None:
    """Until its time is over. Raises Spark's errors."""
    if asked.once:
        _print(lag_once(spark, asked.watched), output)
        return
    lag = lag_stream(spark, asked.watched)
    query = _printed(lag, asked, output) if asked.folder is None else _written(lag, asked)
    try:
        query.awaitTermination() if asked.seconds is None else query.awaitTermination(round(asked.seconds))
    finally:
        query.stop()


def _written(lag: "DataFrame", asked: LagRequest) -> "StreamingQuery":
    folder = str(asked.folder)
    note(f"the lag of group {asked.watched.group} is written to {folder} each {asked.every_ms / 1000:g} s")
    return start(lag, every_ms=asked.every_ms, folder=folder, checkpoint=f"{folder}/{_CHECKPOINT}", kind=asked.kind)


def _printed(lag: "DataFrame", asked: LagRequest, output: OutputFormat) -> "StreamingQuery":
    writer = lag.writeStream.foreachBatch(lambda looked, _: _print(looked, output))
    return writer.trigger(processingTime=f"{asked.every_ms} milliseconds").start()


def _print(looked: "DataFrame", output: OutputFormat) -> None:
    """A table of one look, or its rows as JSON, one a line."""
    rows = [row.asDict() for row in looked.collect()]
    if output is OutputFormat.JSON:
        write_out("".join(f"{json_line(row)}\n" for row in rows).encode())
        return
    failed = any(row["error"] for row in rows)
    print_rows([name for name in _SHOWN if name != "error" or failed], rows, output)
