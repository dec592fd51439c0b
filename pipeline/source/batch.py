"""Reads a topic as a batch."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lockstep.pipeline.errors import errors_in_one_line
from lockstep.pipeline.options import Options
from lockstep.pipeline.source.fetch import SliceReader
from lockstep.pipeline.source.planning import QueueSlice, batch_slices

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LockstepReader"]


class LockstepReader(DataSourceReader):
    """A Spark partition for each queue, in the order of offsets; with minPartitions for each slice of a queue."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._reader = SliceReader(options, schema)

    @errors_in_one_line()
    def partitions(self) -> Sequence[InputPartition]:
        """On the driver. Raises OptionError, TopicError, DataLossError, RemotingError."""
        return batch_slices(self._options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """On an executor. Raises DataLossError, RemotingError."""
        if not isinstance(partition, QueueSlice):  # Spark's placeholder when there are no partitions
            return iter(())
        return self._reader.read(partition)
