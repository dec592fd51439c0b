"""A micro-batch's partition in the order of option orderBy, which Spark itself does not give to streams."""

from collections.abc import Iterator

import pyarrow as pa

from lockstep.pipeline.sink.columns import SinkColumns

__all__ = ["in_order"]

_BATCH_ROWS = 10_000


def in_order(batches: Iterator[pa.RecordBatch], columns: SinkColumns) -> Iterator[pa.RecordBatch]:
    """All rows, sorted in memory; those that are equal in orderBy by their other columns, whatever came first.

    So a batch that is run again sends its rows in the same order. Nulls come last, and the sink refuses them.
    """
    found = list(batches)
    if not found:
        return
    table = pa.Table.from_batches(found)
    first = [position for _, position in columns.order_by]
    others = [n for n, kind in enumerate(table.schema.types) if n not in first and not pa.types.is_nested(kind)]
    names = [str(position) for position in range(table.num_columns)]  # two columns of a DataFrame may share a name
    keys = [(names[position], "ascending") for position in (*first, *others)]
    yield from table.rename_columns(names).sort_by(keys).combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
