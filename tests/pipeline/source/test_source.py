"""Batches of a topic: columns, ranges of offsets and times, slices, filters, what is lost."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lockstep.protocol.messages.message import decode_messages
from tests.pipeline.conftest import Brokers
from tests.pipeline.topics import BORN_MS, Topic, plain_record

COUNT = 1_200
BORN = datetime.fromtimestamp(BORN_MS / 1000, UTC).replace(tzinfo=None)


def load(spark: SparkSession, topic: Topic, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("lockstep").options(**topic.options, **options)
    return (reader.schema(schema) if schema else reader).load()


def offsets(frame: DataFrame) -> dict[int, list[int]]:
    """Offsets by queue, in the order in which they come."""
    result: dict[int, list[int]] = {}
    for row in frame.select("queueId", "offset").collect():
        result.setdefault(row.queueId, []).append(row.offset)
    return result


def of_queues(topic: Topic, *values: int) -> str:
    """JSON of a value for each queue."""
    return json.dumps({topic.name: {"broker-a": {str(i): value for i, value in enumerate(values)}}})


def stored_ms(topic: Topic, queue_id: int = 0) -> int:
    """When the last message of a queue was stored."""
    with topic.client() as client:
        queue = topic.queue(queue_id)
        end = client.max_offset(queue)
        return decode_messages(client.pull(queue, end - 1, 1).body)[0].store_timestamp


def error_of(frame: DataFrame) -> str:
    with pytest.raises(PySparkException) as caught:
        frame.collect()
    return str(caught.value)


def test_a_topic_is_read_whole_and_in_order(spark: SparkSession, topic: Topic) -> None:
    """Every message once, each queue in the order of its offsets, in one partition of Spark's."""
    topic.fill(COUNT, COUNT // 2)
    frame = load(spark, topic)
    assert offsets(frame) == {0: list(range(COUNT)), 1: list(range(COUNT // 2))}
    assert frame.rdd.getNumPartitions() == 2


def test_columns_hold_what_was_sent(spark: SparkSession, topic: Topic) -> None:
    """Names as in Spark's Kafka source, ours behind them, values of the message at that place."""
    topic.fill(3, 2)
    rows = {(row.queueId, row.offset): row.asDict() for row in load(spark, topic).collect()}
    row = rows[1, 1]
    stored = row.pop("storeTimestamp")
    assert row.pop("timestamp") == stored
    assert abs((datetime.now(UTC).replace(tzinfo=None) - stored).total_seconds()) < 600
    assert row == {
        "key": b"key-1", "value": b"1:1", "topic": topic.name, "partition": 1, "offset": 1, "timestampType": 1,
        "brokerName": "broker-a", "queueId": 1, "bornTimestamp": BORN, "tags": "B", "keys": "n1",
        "shardingKey": "key-1", "msgId": f"{1:04}{1:028}", "flag": 1, "reconsumeTimes": 0, "bodyError": None,
    }  # fmt: skip


def test_properties_come_when_they_are_asked_for(spark: SparkSession, topic: Topic) -> None:
    """includeProperties adds `headers`, every property of the message."""
    topic.fill(2)
    assert "headers" not in load(spark, topic).columns
    row = load(spark, topic, includeProperties="true").where("offset = 1").collect()[0]
    found = {header.key: bytes(header.value).decode() for header in row.headers}
    expected = {"TAGS": "B", "KEYS": "n1", "__SHARDINGKEY": "key-1", "UNIQ_KEY": f"{0:04}{1:028}"}
    assert found.items() >= expected.items()


def test_a_schema_names_the_columns_that_are_read(spark: SparkSession, topic: Topic) -> None:
    """Any of the columns in any order; one that there is not is refused with those that there are."""
    topic.fill(2)
    frame = load(spark, topic, "offset bigint, value binary")
    assert [tuple(row) for row in frame.orderBy("offset").collect()] == [(0, b"0:0"), (1, b"0:1")]
    text = error_of(load(spark, topic, "offset bigint, colour string"))
    assert "there is no column colour" in text
    assert "shardingKey" in text
    assert "column offset is of type bigint, not string" in error_of(load(spark, topic, "offset string"))


def test_offsets_bound_what_is_read(spark: SparkSession, topic: Topic) -> None:
    """startingOffsets and endingOffsets by queue, -2 for the earliest and -1 for the latest."""
    topic.fill(50, 60)
    frame = load(spark, topic, startingOffsets=of_queues(topic, 10, -2), endingOffsets=of_queues(topic, -1, 7))
    assert offsets(frame) == {0: list(range(10, 50)), 1: list(range(7))}
    assert offsets(load(spark, topic, startingOffsets=of_queues(topic, 50, 59))) == {1: [59]}
    beyond = load(spark, topic, startingOffsets=of_queues(topic, 51, 0))
    assert f"queue {topic.queue(0)}: it is to be read from 51 (startingOffsets), which lies behind its end, 50" in (
        error_of(beyond)
    )
    too_far = load(spark, topic, endingOffsets=of_queues(topic, 50, 62))
    assert f"queue {topic.queue(1)}: the messages 60 to 61 are lost: the broker has 0 to 59" in error_of(too_far)


def test_times_bound_what_is_read(spark: SparkSession, topic: Topic) -> None:
    """startingTimestamp is the first message stored then or later, endingTimestamp the first that is left out."""
    topic.fill(40, 3)
    later = max(stored_ms(topic, 0), stored_ms(topic, 1)) + 1
    count = 40
    while stored_ms(topic) < later:
        topic.fill(1, first=count)
        count += 1
    before, after = str(later), {"startingTimestamp": str(later), "startingOffsetsByTimestampStrategy": "latest"}
    early, late = offsets(load(spark, topic, endingTimestamp=before)), offsets(load(spark, topic, **after))
    assert late == {0: [count - 1]}
    assert early == {0: list(range(count - 1)), 1: [0, 1, 2]}
    text = error_of(load(spark, topic, startingTimestamp=str(later)))
    assert f"queue {topic.queue(1)} has no message of epoch ms {later} or later" in text


def test_several_topics_are_one_frame(spark: SparkSession, topic: Topic) -> None:
    """subscribe takes several, subscribePattern those whose whole names match, assign single queues."""
    other = Topic.create(topic.broker, f"{topic.name}-2", 1)
    topic.fill(3, 4)
    other.fill(5)
    names = {"subscribe": f"{topic.name}, {other.name}"}
    server = {"nameServer": topic.broker.name_server}
    assigned = {"assign": json.dumps({topic.name: [1], other.name: {"broker-a": [0]}})}
    found = {}
    for name, options in {
        "names": names,
        "pattern": {"subscribePattern": f"{topic.name}.*"},
        "assign": assigned,
    }.items():
        frame = spark.read.format("lockstep").options(**server, **options).load()
        found[name] = {
            (row.topic, row.queueId): row["count"] for row in frame.groupBy("topic", "queueId").count().collect()
        }
    everything = {(topic.name, 0): 3, (topic.name, 1): 4, (other.name, 0): 5}
    assert found["names"] == found["pattern"] == everything
    assert found["assign"] == {key: count for key, count in everything.items() if key != (topic.name, 0)}


def test_slices_cover_queues_without_overlap(spark: SparkSession, topic: Topic) -> None:
    """minPartitions cuts queues for batches that need no order; with `ordered` it is refused."""
    topic.fill(COUNT, 10)
    frame = load(spark, topic, minPartitions="7")
    assert frame.rdd.getNumPartitions() >= 7
    assert {queue: sorted(found) for queue, found in offsets(frame).items()} == {
        0: list(range(COUNT)),
        1: list(range(10)),
    }
    assert "minPartitions splits queues" in error_of(load(spark, topic, minPartitions="7", ordered="true"))


def test_tags_filter(spark: SparkSession, topic: Topic) -> None:
    """Only messages of the tags come, from a broker that filters by hash and a reader that looks at the text."""
    topic.fill(COUNT)
    assert offsets(load(spark, topic, tags="B")) == {0: list(range(1, COUNT, 2))}
    assert load(spark, topic, tags="A || C").count() == COUNT // 2
    assert load(spark, topic, tags="C").count() == 0


def test_filters_are_pushed_where_spark_allows_it(spark: SparkSession, topic: Topic) -> None:
    """With pushFilters and Spark's own setting, offsets and queues that a filter excludes are not pulled."""
    topic.fill(COUNT, COUNT)
    wanted = f"offset >= 1000 and offset < 1010 and queueId = 1 and topic = '{topic.name}' and length(value) > 0"
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, topic, pushFilters="true").where(wanted)
        assert offsets(frame) == {1: list(range(1000, 1010))}
        assert frame.rdd.getNumPartitions() == 1
        assert load(spark, topic, pushFilters="true").where("offset = 7 or offset = 9").count() == 4
        assert load(spark, topic, pushFilters="true").where("offset < 0").count() == 0
        assert load(spark, topic).where(wanted).count() == 10
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert load(spark, topic).where(wanted).count() == 10
    assert "spark.sql.python.filterPushdown.enabled" in error_of(load(spark, topic, pushFilters="true").where(wanted))


def test_an_empty_topic_has_no_rows(spark: SparkSession, topic: Topic) -> None:
    """And a schema all the same."""
    frame = load(spark, topic)
    assert frame.collect() == []
    assert frame.columns[:5] == ["key", "value", "topic", "partition", "offset"]


def test_messages_of_every_size_and_kind(spark: SparkSession, topic: Topic) -> None:
    """Empty properties, unequal bodies, one that fills a pull by itself, a name that is no ASCII."""

    def record(queue_id: int, number: int) -> Any:
        body = b"x" * (1 + number % 50) if number != 7 else b"y" * 600_000
        return plain_record(queue_id, number)._replace(body=body, properties="TAGS\x01\u00e9" if number == 9 else "")

    topic.fill(20, record=record)
    rows = load(spark, topic).orderBy("offset").collect()
    assert [len(row.value) for row in rows] == [600_000 if n == 7 else 1 + n % 50 for n in range(20)]
    assert [row.tags for row in rows if row.tags] == ["\u00e9"]
    assert [row.key for row in rows] == [None] * 20
    assert all(len(row.msgId) == 32 for row in rows)


def test_aged_messages_are_named(spark: SparkSession, brokers: Brokers) -> None:
    """failOnDataLoss: offsets that are gone are an error that says which; without it the rest is read."""
    broker = brokers.start("--memory-limit", "8MiB")
    topic = Topic.create(broker, "aged", 1)
    topic.fill(3_000, record=lambda queue_id, n: plain_record(queue_id, n)._replace(body=b"x" * 6_000))
    with topic.client() as client:
        first, end = client.min_offset(topic.queue(0)), client.max_offset(topic.queue(0))
    assert 0 < first < end == 3_000
    starting = {"startingOffsets": json.dumps({"aged": {"broker-a": {"0": 5}}})}
    text = error_of(load(spark, topic, **starting))
    assert f"queue aged@broker-a:0: the messages 5 to {first - 1} are lost" in text
    assert "failOnDataLoss=false" in text
    assert offsets(load(spark, topic, failOnDataLoss="false", **starting)) == {0: list(range(first, end))}
