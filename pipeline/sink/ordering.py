"""`ordered`: every key in one partition, and its rows in order there. What the sink then checks and keeps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lockstep.pipeline.errors import ColumnError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = ["ordered"]


def ordered(df: "DataFrame", key: str, order_by: str | Sequence[str], partitions: int | None = None) -> "DataFrame":
    """Rows of one `key` in one partition, sorted by `order_by`, so that a sink sends each key in that order.

    Rows that are equal in both are sorted by a hash of all their columns: a task that is run again sends the same rows
    in the same order. `partitions` defaults to spark.sql.shuffle.partitions.

    Spark sorts no streams: there this brings keys together, and the sink's option orderBy sorts each micro-batch.
    Raises ColumnError for a column that is not there.
    """
    from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

    by = [order_by] if isinstance(order_by, str) else list(order_by)
    for name in (key, *by):
        if name not in df.columns:
            raise ColumnError(f"ordered: there is no column {name}; there are {', '.join(df.columns)}")
    together = df.repartition(key) if partitions is None else df.repartition(partitions, key)
    if df.isStreaming:
        return together
    tie = F.xxhash64(*[_hashable(field.name, field.dataType) for field in df.schema.fields])
    return together.sortWithinPartitions(*by, key, tie)


def _hashable(name: str, kind: "DataType") -> "Column":
    """Spark hashes everything but maps and variants; as JSON it takes those too."""
    from pyspark.sql import functions as F  # noqa: N812

    text = kind.simpleString()
    return F.to_json(F.struct(F.col(name))) if "map<" in text or "variant" in text else F.col(name)
