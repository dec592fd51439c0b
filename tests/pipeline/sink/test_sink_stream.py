"""`df.writeStream.format("lockstep")`: micro-batches, and those that are run again."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lockstep.pipeline.sink.dedup import drop_repeats
from lockstep.pipeline.sink.ordering import ordered
from tests.pipeline.sent import contiguous_rewinds, row_of, sent, task_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.integration.harness.processes import Broker

END_S = 300
ROWS = 600


@pytest.fixture
def growing(spark: "SparkSession", tmp_path: Path) -> "Iterator[DataFrame]":
    """A stream of two files, one a micro-batch: key, value and seq, neither file in order."""
    folder = tmp_path / "input"
    folder.mkdir()
    for name, numbers in (("1", range(ROWS // 2)), ("2", range(ROWS // 2, ROWS))):
        rows = [{"key": f"k{n % 7}", "value": str(n), "seq": n} for n in reversed(numbers)]
        (folder / f"{name}.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    reader = spark.readStream.schema("key string, value string, seq long").option("maxFilesPerTrigger", 1)
    yield reader.json(str(folder))
    for query in spark.streams.active:
        query.stop()


def run(df: "DataFrame", name_server: str, topic: str, checkpoint: Path, **options: Any) -> "StreamingQuery":
    """All there is, to its end."""
    writer = df.writeStream.format("lockstep").option("checkpointLocation", str(checkpoint))
    writer = writer.option("nameServer", name_server).option("topic", topic).options(**options)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(END_S)
    return query


def test_micro_batches_arrive_in_order(growing: "DataFrame", broker: "Broker", tmp_path: Path) -> None:
    """orderBy sorts each micro-batch; marks name the query, its batches, and every row once."""
    query = run(ordered(growing, "key", "seq", 2), broker.name_server, "stream", tmp_path / "c", orderBy="seq")
    queues = sent(broker.name_server, "stream")
    messages = [message for queue in queues.values() for message in queue]
    assert sorted(int(message.body) for message in messages) == list(range(ROWS))
    for queue in queues.values():
        for key in {message.sharding_key for message in queue}:
            bodies = [int(message.body) for message in queue if message.sharding_key == key]
            assert all(one < two for one, two in pairwise(bodies))
    tasks = {task_of(message) for message in messages}
    assert {task[0] for task in tasks} == {query.id}
    assert {task[1] for task in tasks} == {0, 1}
    assert len({(task_of(message), row_of(message)) for message in messages}) == ROWS


def test_a_batch_that_is_run_again_is_a_rewind(
    spark: "SparkSession", growing: "DataFrame", broker: "Broker", tmp_path: Path
) -> None:
    """A batch whose commit was lost is sent again under its own number, in its own order; drop_repeats undoes it."""
    rows, checkpoint = ordered(growing, "key", "seq", 2), tmp_path / "c"
    run(rows, broker.name_server, "again", checkpoint, orderBy="seq")
    for committed in (checkpoint / "commits").glob("*1*"):
        committed.unlink()
    run(rows, broker.name_server, "again", checkpoint, orderBy="seq")
    for messages in sent(broker.name_server, "again").values():
        for task in {task_of(message) for message in messages}:
            numbers = [row_of(message) for message in messages if task_of(message) == task]
            assert contiguous_rewinds(numbers) == task[1], "only the last batch came again"
    reader = spark.read.format("lockstep").option("includeProperties", "true").option("topic", "again")
    read = reader.option("nameServer", broker.name_server).load()
    assert read.count() == ROWS * 3 // 2
    kept = drop_repeats(read).selectExpr("queueId", "offset", "int(cast(value as string)) value").collect()
    assert sorted(row["value"] for row in kept) == list(range(ROWS))
    in_order = sorted(kept, key=lambda row: (row["queueId"], row["offset"]))
    for key in range(7):
        values = [row["value"] for row in in_order if row["value"] % 7 == key]
        assert values == sorted(values), "what is kept came first"


@pytest.mark.parametrize("within", [None, "1 hour"])
def test_repeats_are_dropped_from_a_stream(
    spark: "SparkSession", growing: "DataFrame", broker: "Broker", tmp_path: Path, within: str | None
) -> None:
    """Over several micro-batches, with a bound of time and without; messages without marks all stay."""
    topic = f"dropped-{'within' if within else 'all'}"
    rows, checkpoint = ordered(growing, "key", "seq", 2), tmp_path / "c"
    run(rows, broker.name_server, topic, checkpoint, orderBy="seq")
    for committed in (checkpoint / "commits").glob("*1*"):
        committed.unlink()
    run(rows, broker.name_server, topic, checkpoint, orderBy="seq")
    reader = spark.readStream.format("lockstep").option("includeProperties", "true").option("topic", topic)
    reader = reader.option("nameServer", broker.name_server).option("startingOffsets", "earliest")
    read = reader.option("maxOffsetsPerTrigger", ROWS // 2).load()
    kept = drop_repeats(read, within).selectExpr("cast(value as string) value")
    name = topic.replace("-", "_")
    writer = kept.writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path / "d"))
    assert writer.trigger(availableNow=True).start().awaitTermination(END_S)
    assert sorted(int(row[0]) for row in spark.table(name).collect()) == list(range(ROWS))


def test_a_stream_ends_with_what_is_wrong(growing: "DataFrame", broker: "Broker", tmp_path: Path) -> None:
    """A key in two partitions ends the query when its batch is committed; a name server that is down in its tasks."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="OrderError: key 'k0' in partitions 0, 1"):
        run(growing.drop("seq").repartition(2), broker.name_server, "spread", tmp_path / "c1")
    quick = {"sendRetries": 0, "sendTimeoutMs": 500}
    with pytest.raises(PySparkException, match="no name server answers"):
        run(growing.drop("seq"), "127.0.0.1:1", "nobody", tmp_path / "c2", **quick)
    with pytest.raises(PySparkException, match="unknown option colour"):
        run(growing, broker.name_server, "t", tmp_path / "c3", colour="red")
