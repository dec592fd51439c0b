"""What topics hold: the offsets of each queue as runs, and when some of the messages were stored."""

import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from lockstep.order.offset_set import OffsetSet
from lockstep.pipeline.audit.judging import Contents
from lockstep.pipeline.spark.arrow import map_in_arrow
from lockstep.protocol.model import MessageQueue

__all__ = ["read_contents"]

_Queues = defaultdict[tuple[str, MessageQueue], tuple[OffsetSet, dict[int, int]]]


def read_contents(topic: DataFrame, every: int) -> dict[str, Contents]:
    """Read topics once: their content by history.

    Args:
        topic: Columns topic, brokerName, queueId, offset, and perhaps storeTimestamp and history.
        every: Store times are kept of every so many offsets.
    """
    history = fn.col("history") if "history" in topic.columns else fn.lit("")
    stored = fn.unix_millis("storeTimestamp") if "storeTimestamp" in topic.columns else fn.lit(None).cast("long")
    rows = topic.select(
        history.alias("history"), "topic", "brokerName", fn.col("queueId").cast("int").alias("queueId"), "offset",
        stored.alias("stored_ms"),
    )  # fmt: skip
    whole = _queues()
    for row in map_in_arrow(rows, partial(_runs, every), "queues binary").collect():
        for name, (offsets, times) in pickle.loads(row.queues).items():
            for start, end in offsets.runs():
                whole[name][0].add_range(start, end)
            whole[name][1].update(times)
    found: defaultdict[str, dict[MessageQueue, tuple[OffsetSet, dict[int, int]]]] = defaultdict(dict)
    for (of, queue), content in whole.items():
        found[of][queue] = content
    return dict(found)


def _queues() -> _Queues:
    return defaultdict(lambda: (OffsetSet(), {}))


def _runs(every: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    queues, last, now = _queues(), None, (OffsetSet(), dict[int, int]())
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        for history, topic, broker, queue_id, offset, stored_ms in zip(*columns, strict=True):
            name = history, topic, broker, queue_id
            if name != last:
                last, now = name, queues[history, MessageQueue(topic, broker, queue_id)]
            now[0].add(offset)
            if offset % every == 0 and stored_ms is not None:
                now[1][offset] = stored_ms
    yield pa.RecordBatch.from_pydict({"queues": [pickle.dumps(dict(queues))]})
