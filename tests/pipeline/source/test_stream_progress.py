"""The figures of a stream: offsets, lag and times of each micro-batch, and the log of them."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from lockstep.pipeline.spark.streams import StreamLog, stream_progress
from lockstep.protocol.model import MessageQueue
from tests.pipeline.topics import Topic


class Events:
    """A log that keeps its INFO events."""

    def __init__(self) -> None:
        self.found: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.found.append((event, fields))

    debug = warning = error = info


def progress(*offsets: tuple[Any, Any]) -> StreamingQueryProgress:
    """The progress of a query with sources that have these (endOffset, latestOffset)."""
    sources = [
        {"description": "d", "startOffset": None, "endOffset": end, "latestOffset": latest, "numInputRows": 5,
         "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 2.0}
        for end, latest in offsets
    ]  # fmt: skip
    ids = {"id": str(uuid.UUID(int=1)), "runId": str(uuid.UUID(int=2)), "name": None}
    times = {"timestamp": "t", "batchId": 7, "batchDuration": 30, "durationMs": {"triggerExecution": 30}}
    rest = {"eventTime": {}, "stateOperators": [], "numInputRows": 5, "inputRowsPerSecond": 1.0}
    sink = {"description": "s", "numOutputRows": 5}
    given = {**ids, **times, **rest, "processedRowsPerSecond": 2.0, "sources": sources, "sink": sink}
    return StreamingQueryProgress.fromJson(json.loads(json.dumps(given)))


@pytest.mark.usefixtures("topic")
def test_a_stream_shows_its_lag(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    """A limit leaves messages waiting: each micro-batch has fewer of them, the last one none; the log says the same."""
    topic.fill(30, 10)
    log = Events()
    listener = StreamLog(log)
    spark.streams.addListener(listener)
    try:
        frame = spark.readStream.format("lockstep").options(**topic.options, startingOffsets="earliest")
        rows = frame.option("maxOffsetsPerTrigger", "16").option("columns", "offset").load()
        writer = rows.writeStream.format("noop").queryName("board").option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(600)
        batches = [found for one in query.recentProgress if (found := stream_progress(one)).rows]
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    assert [(one.rows, one.lag) for one in batches] == [(16, 24), (16, 8), (8, 0)]
    last = batches[-1]
    assert last.topics == (topic.name,)
    assert [(one.queue, one.consumed, one.latest) for one in last.queues] == [
        (topic.queue(0), 30, 30),
        (topic.queue(1), 10, 10),
    ]
    assert last.batch_ms >= last.times_ms["addBatch"] > 0
    assert last.rows_per_s > 0
    logged = [fields for event, fields in log.found if event == "stream_batch" and fields["rows"]]
    assert [(one["query"], one["topics"], one["rows"], one["lag"]) for one in logged] == [
        ("board", topic.name, 16, 24),
        ("board", topic.name, 16, 8),
        ("board", topic.name, 8, 0),
    ]


def test_other_sources_have_no_queues() -> None:
    """Of a join with Kafka only our offsets count, and a source that has read nothing has none."""
    ours = {"orders": {"broker-a": {"0": 3}}}
    kafka = {"clicks": {"0": 9}}
    rate = 12
    found = stream_progress(
        progress((ours, {"orders": {"broker-a": {"0": 8}}}), (kafka, kafka), (rate, rate), (None,) * 2)
    )
    assert found.query == str(uuid.UUID(int=1))
    assert [tuple(one) for one in found.queues] == [(MessageQueue("orders", "broker-a", 0), 3, 8)]
    assert found.lag == 5


def test_a_query_without_topics_is_not_logged() -> None:
    """The listener sees all queries of a session."""
    log = Events()

    class Event:
        progress = progress((None, None))

    StreamLog(log).onQueryProgress(Event())  # type: ignore[arg-type]
    assert not log.found
