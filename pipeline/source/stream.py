"""`readStream`: plans how far each micro-batch reads. Only Spark's checkpoint has the offsets."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from lockstep.client.blocking import BlockingClient
from lockstep.pipeline.errors import DataLossError, PipelineError, TopicError, errors_in_one_line
from lockstep.pipeline.offsets import Offsets, OffsetSpec, from_checkpoint, share, to_checkpoint
from lockstep.pipeline.options import Options
from lockstep.pipeline.source.fetch import SliceReader
from lockstep.pipeline.source.planning import (
    QueueSlice,
    addresses_of,
    check_start,
    lost_text,
    queues_of,
    resolve,
    split_slices,
    starting_spec,
)
from lockstep.protocol.model import MessageQueue

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LockstepStreamReader", "RefusedStream"]

_log = logging.getLogger("lockstep.pipeline")


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream that cannot be: its first call raises `why`.

    Spark 4.3 hides an error that `streamReader` raises behind an UnboundLocalError of its own.
    """

    def __init__(self, why: PipelineError) -> None:
        self._why = why

    @errors_in_one_line()
    def _raise(self, *_: object) -> NoReturn:
        raise self._why

    _refuse: Any = _raise  # each method has another type
    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815
    getDefaultReadLimit = reportLatestOffset = prepareForTriggerAvailableNow = _refuse  # noqa: N815


class LockstepStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A Spark partition for each queue and micro-batch; minPartitions and maxRecordsPerPartition split queues.

    Queues that appear later are read from their first message. Deleted offsets end the query with DataLossError, a
    missing queue with TopicError, unless failOnDataLoss=false; a missing topic always ends it.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._reader = SliceReader(options, schema)
        self._client: BlockingClient | None = None
        self._target: Offsets | None = None  # for Trigger.AvailableNow
        self._last_batch = time.monotonic()  # for minOffsetsPerTrigger

    def __getstate__(self) -> dict[str, Any]:
        """An executor only needs `read`."""
        return {**self.__dict__, "_client": None}

    # Planning -------------------------------------------------------------------------------------------------

    @errors_in_one_line()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        spec, name = starting_spec(self._options, OffsetSpec("latest"))
        client = self._connected()
        queues = queues_of(client, self._options)
        return to_checkpoint(resolve(client, queues, spec, name, self._options.starting_strategy))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """maxOffsetsPerTrigger, else minOffsetsPerTrigger; with both, `latestOffset` applies the second."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    @errors_in_one_line()
    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raises TopicError, DataLossError, RemotingError."""
        begin = from_checkpoint(start)
        ends = self._ends(begin)
        if self._target is not None:
            target = {**begin, **self._target}
            ends = {queue: min(end, target[queue]) for queue, end in ends.items() if queue in target}
        grown = {queue: begin.get(queue, 0) for queue in ends}
        if not isinstance(limit, ReadAllAvailable):
            if self._target is None and not self._enough(sum(ends[queue] - grown[queue] for queue in ends)):
                return dict(start)
            if isinstance(limit, ReadMaxRows):
                ends = share(grown, ends, limit.max_rows)
        if ends != begin:
            self._last_batch = time.monotonic()
        return to_checkpoint(ends)

    def _enough(self, count: int) -> bool:
        """Whether minOffsetsPerTrigger messages are there, or fewer have waited for maxTriggerDelay."""
        waited_ms = (time.monotonic() - self._last_batch) * 1000
        return count >= (self._options.min_offsets or 0) or waited_ms >= self._options.max_trigger_delay_ms

    @errors_in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._ends({})

    @errors_in_one_line()
    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        client = self._connected()
        return to_checkpoint({queue: client.max_offset(queue) for queue in queues_of(client, self._options)})

    def _ends(self, begin: Offsets) -> Offsets:
        """The current end of each queue. Raises as latestOffset."""
        client = self._connected()
        queues = self._queues(client, begin)
        ends = {queue: client.max_offset(queue) for queue in queues}
        for queue, end in ends.items():
            if end < begin.get(queue, 0):
                self._lost(lost_text(queue, end, begin[queue], f"they were read, but the broker ends at {end}"))
        return ends

    def _queues(self, client: BlockingClient, begin: Offsets) -> list[MessageQueue]:
        """The queues. A restarted broker misses in routes for a moment.

        Ask several times before a queue counts as gone.
        """
        for attempt in range(self._options.retries + 1):
            if attempt:
                time.sleep(self._options.retry_interval_ms / 1000)
            queues = queues_of(client, self._options)
            gone = sorted(begin.keys() - set(queues))
            if not gone:
                return queues
        text = f"queues that were read are gone: {', '.join(map(str, gone))}; failOnDataLoss=false goes on without them"
        if self._options.fail_on_data_loss:
            raise TopicError(text)
        _log.warning("%s", text)
        return queues

    def _lost(self, text: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(text)
        _log.warning("%s", text)

    def _connected(self) -> BlockingClient:
        if self._client is None:
            self._client = addresses_of(self._options).open()
        return self._client

    # Reading --------------------------------------------------------------------------------------------

    @errors_in_one_line()
    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """The slices. A queue that is not in `start` is new: all of it is read. Raises DataLossError, RemotingError."""
        begin, client = from_checkpoint(start), self._connected()
        ranges = []
        for queue, until in sorted(from_checkpoint(end).items()):
            first = begin.get(queue, 0)
            if first < until:
                first = check_start(client, queue, first, until, fail=self._options.fail_on_data_loss)
            if first < until:
                ranges.append((queue, first, until))
        parts = split_slices(ranges, self._options.min_partitions, self._options.max_records)
        return [QueueSlice(*part) for part in parts]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """On an executor. Raises DataLossError, RemotingError."""
        assert isinstance(partition, QueueSlice)
        return self._reader.read(partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing to do: the checkpoint has the offsets, and no consumer group is used."""

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
