"""The order in which a partition's rows are sent: `ordered` for a DataFrame, `in_order` for a micro-batch."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lockstep.pipeline.errors import ColumnError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from lockstep.pipeline.sink.columns import SinkColumns

__all__ = ["in_order", "ordered"]

_BATCH_ROWS = 10_000


def ordered(df: "DataFrame", key: str, order_by: str | Sequence[str], partitions: int | None = None) -> "DataFrame":
    """Bring the rows of each `key` into one partition, sorted by `order_by`: the sink sends each key in that order.

    Rows with equal key and order are sorted by a hash of all columns: a task that runs again sends the same rows in the
    same order. `partitions` defaults to spark.sql.shuffle.partitions.

    Spark cannot sort a stream: there this only brings keys together, and the sink's option orderBy sorts each
    micro-batch. Raises ColumnError for a column that does not exist.
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
    """Spark hashes all types but maps and variants; those are hashed as JSON."""
    from pyspark.sql import functions as F  # noqa: N812

    text = kind.simpleString()
    return F.to_json(F.struct(F.col(name))) if "map<" in text or "variant" in text else F.col(name)


def in_order(batches: "Iterator[pa.RecordBatch]", columns: "SinkColumns") -> "Iterator[pa.RecordBatch]":
    """Rows of a micro-batch's partition by option orderBy, which Spark itself does not apply to streams.

    All rows are sorted in memory. Rows with equal orderBy columns are sorted by their other columns: a batch that
    runs again sends its rows in the same order. Nulls come last, and the sink refuses them.
    """
    import pyarrow as pa

    found = list(batches)
    if not found:
        return
    table = pa.Table.from_batches(found)
    first = [position for _, position in columns.order_by]
    others = [n for n, kind in enumerate(table.schema.types) if n not in first and not pa.types.is_nested(kind)]
    names = [str(position) for position in range(table.num_columns)]  # two columns of a DataFrame may share a name
    keys = [(names[position], "ascending") for position in (*first, *others)]
    yield from table.rename_columns(names).sort_by(keys).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
