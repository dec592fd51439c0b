"""Streams of a topic: what a micro-batch holds, new queues, and what ends a query."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from lockstep.pipeline.options import Use, parse_options
from lockstep.pipeline.schema import source_schema
from lockstep.pipeline.source.planning import QueueSlice
from lockstep.pipeline.source.stream import LockstepStreamReader
from tests.pipeline.topics import Topic

Row = tuple[int, int]


class Streams:
    """Runs a topic's stream until it has nothing more to read, again and again on one checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self.batches: list[list[Row]] = []

    def run(self, topic: Topic, **options: str) -> list[list[Row]]:
        """Rows (queue id, offset) of each micro-batch, sorted."""
        self.batches = []
        given = {"startingOffsets": "earliest", **topic.options, **options}
        frame = self._spark.readStream.format("lockstep").options(**given).load()
        checkpoint = str(self._folder / "checkpoint")
        writer = frame.writeStream.foreachBatch(self._keep).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination(600)
        finally:
            query.stop()
        return self.batches

    def error(self, topic: Topic, **options: str) -> str:
        with pytest.raises(StreamingQueryException) as caught:
            self.run(topic, **options)
        return str(caught.value)

    def _keep(self, batch: Any, _number: int) -> None:
        self.batches.append(sorted((row.queueId, row.offset) for row in batch.select("queueId", "offset").collect()))


@pytest.fixture
def streams(spark: SparkSession, tmp_path: Path) -> Iterator[Streams]:
    yield Streams(spark, tmp_path)
    for query in spark.streams.active:
        query.stop()


def rows(*counts: int, first: int = 0) -> list[Row]:
    return [(queue_id, offset) for queue_id, count in enumerate(counts) for offset in range(first, first + count)]


def flat(batches: list[list[Row]]) -> list[Row]:
    return sorted(row for batch in batches for row in batch)


def test_a_restarted_stream_goes_on_where_it_was(streams: Streams, topic: Topic) -> None:
    """Offsets are in the checkpoint: what was read is not read again, what came meanwhile is, new queues from 0."""
    topic.fill(30, 20)
    assert flat(streams.run(topic)) == rows(30, 20)
    assert streams.run(topic) == []
    topic.resize(3)
    topic.fill(5, 0, 7, first=30)
    assert flat(streams.run(topic)) == [*((0, n) for n in range(30, 35)), *((2, n) for n in range(7))]


def test_micro_batches_have_their_size(streams: Streams, topic: Topic) -> None:
    """maxOffsetsPerTrigger is never passed, and shared among the queues by what waits in each."""
    topic.fill(90, 30)
    batches = streams.run(topic, maxOffsetsPerTrigger="50")
    assert [len(batch) for batch in batches] == [50, 50, 20]
    assert flat(batches) == rows(90, 30)
    assert 10 <= sum(queue_id == 1 for queue_id, _ in batches[0]) <= 14


def test_a_topic_that_is_gone_ends_the_query(streams: Streams, topic: Topic) -> None:
    """And the text names it."""
    topic.fill(3, 3)
    streams.run(topic)
    topic.delete()
    text = streams.error(topic, **{"fetchOffset.numRetries": "0"})
    assert f"no topic '{topic.name}'" in text


def test_a_queue_that_is_gone_ends_the_query(streams: Streams, topic: Topic) -> None:
    """Unless failOnDataLoss=false, which goes on with the others."""
    topic.fill(3, 3)
    streams.run(topic)
    topic.resize(1)
    assert f"queues that were read are gone: {topic.queue(1)}" in streams.error(topic)
    topic.fill(2, first=3)
    assert flat(streams.run(topic, failOnDataLoss="false")) == [(0, 3), (0, 4)]


def test_a_topic_made_anew_is_told(streams: Streams, topic: Topic) -> None:
    """Its offsets begin again, below those in the checkpoint: that is an error that says so."""
    topic.fill(9, 9)
    streams.run(topic)
    topic.delete()
    topic.resize(2)
    topic.fill(1)
    text = streams.error(topic)
    assert f"queue {topic.queue(0)}: the messages 1 to 8 are lost" in text
    assert "failOnDataLoss=false" in text


def test_a_micro_batch_may_split_its_queues(topic: Topic) -> None:
    """minPartitions and maxRecordsPerPartition, with every offset once; what was read is told beside the latest."""
    given = {"startingOffsets": f'{{"{topic.name}":{{"0":0,"1":-2}}}}', **topic.options}
    topic.fill(9, 3)
    for options, count in (({"minPartitions": "4"}, 4), ({"maxRecordsPerPartition": "2"}, 7)):
        reader = LockstepStreamReader(parse_options({**given, **options}, Use.READ_STREAM), source_schema())
        start, end = reader.initialOffset(), reader.reportLatestOffset()
        slices = [one for one in reader.partitions(start, end) if isinstance(one, QueueSlice)]
        reader.stop()
        assert len(slices) == count
        assert end == {topic.name: {"broker-a": {"0": 9, "1": 3}}}
        places = [(one.queue.queue_id, offset) for one in slices for offset in range(one.start, one.end)]
        assert sorted(places) == rows(9, 3)


def test_few_messages_wait_for_more(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    """minOffsetsPerTrigger: fewer make no micro-batch, until maxTriggerDelay has passed."""

    def reader(**options: str) -> LockstepStreamReader:
        given = {"startingOffsets": "earliest", **topic.options, **options}
        return LockstepStreamReader(parse_options(given, Use.READ_STREAM), source_schema())

    waits = reader(minOffsetsPerTrigger="5", maxTriggerDelay="1h", maxOffsetsPerTrigger="6")
    start = waits.initialOffset()
    topic.fill(4)
    assert waits.latestOffset(start, waits.getDefaultReadLimit()) == start
    hurries = reader(minOffsetsPerTrigger="5", maxTriggerDelay="0s")
    hurries_end = hurries.latestOffset(start, hurries.getDefaultReadLimit())
    assert hurries_end == {topic.name: {"broker-a": {"0": 4, "1": 0}}}
    topic.fill(0, 4)
    end = waits.latestOffset(start, waits.getDefaultReadLimit())
    assert sum(end[topic.name]["broker-a"].values()) == 6
    for used in (waits, hurries):
        used.stop()
