"""Marks that the sink leaves in a message, and `drop_repeats`, which removes repeated sends by these marks.

SPARK_TASK is "query/batch/partition": the id of the streaming query or of the write; the micro-batch, 0 in a write; the
partition. SPARK_ROW is the row's number in that partition, from 0. A task or a batch that runs again sends the same
rows again in the same order: in each queue that is a contiguous rewind.
"""

from typing import TYPE_CHECKING, Final

from lockstep.pipeline.errors import ColumnError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["ROW_PROPERTY", "TASK_PROPERTY", "drop_repeats"]

TASK_PROPERTY: Final = "SPARK_TASK"
ROW_PROPERTY: Final = "SPARK_ROW"
_NEEDED: Final = ("headers", "key", "value", "topic", "brokerName", "queueId", "offset", "timestamp")
_MARK: Final = "__lockstep_mark"
_RANK: Final = "__lockstep_rank"


def drop_repeats(df: "DataFrame", within: str | None = None) -> "DataFrame":
    """Keep the first message of each row, by offset. Messages without marks are all kept.

    Two messages are one row when marks, keys and values are equal. If a task ran again with rows in another order,
    nothing is lost, but repeats may stay: send `ordered` rows.

    In a stream the marks seen so far are state: all of them, or with `within` ("1 hour") those of that much store time,
    and a later repeat stays. State needs one partition a queue, as the source reads streams. The result has no order:
    use `ordered` again.

    Args:
        df: Read with includeProperties.

    Raises:
        ColumnError: A needed column is missing.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

    missing = [name for name in _NEEDED if name not in df.columns]
    if missing:
        raise ColumnError(f"drop_repeats needs the column {missing[0]}: read with includeProperties=true, all columns")
    marked = df.withColumn(_MARK, _mark())
    if df.isStreaming:
        if within is None:
            return marked.dropDuplicates([_MARK]).drop(_MARK)
        return marked.withWatermark("timestamp", within).dropDuplicatesWithinWatermark([_MARK]).drop(_MARK)
    window = Window.partitionBy(_MARK).orderBy("timestamp", "brokerName", "queueId", "offset")
    ranked = marked.withColumn(_RANK, F.row_number().over(window))
    return ranked.where(F.col(_RANK) == 1).drop(_MARK, _RANK)


def _mark() -> "Column":
    """A text that is equal for repeats of one row; unique for a message without marks."""
    from pyspark.sql import functions as F  # noqa: N812

    task, row = _property(TASK_PROPERTY), _property(ROW_PROPERTY)
    digest = F.xxhash64("key", "value")
    mark = F.concat_ws("/", task, row, digest.cast("string"))
    place = F.concat_ws("/", F.lit("at"), "topic", "brokerName", F.col("queueId").cast("string"),
                        F.col("offset").cast("string"))  # fmt: skip
    return F.when(task.isNotNull() & row.isNotNull(), mark).otherwise(place)


def _property(name: str) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    found = F.filter("headers", lambda header: header["key"] == F.lit(name))
    return F.try_element_at(found, F.lit(1))["value"].cast("string")
