"""`df.write.format("lockstep")`: what arrives, and what is refused."""

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from lockstep.client.blocking import Addresses
from lockstep.pipeline.sink.ordering import ordered
from lockstep.protocol.codes import Permission, RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import CreateTopicRequestHeader
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.selector import queue_of_hash
from tests.pipeline.sent import row_of, sent, task_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.integration.harness.processes import Broker
    from tests.pipeline.conftest import Brokers

BOUND_S = 120


@pytest.fixture
def name_server(broker: "Broker") -> str:
    return broker.name_server


def write(df: "DataFrame", name_server: str, topic: str | None, **options: Any) -> None:
    writer = df.write.format("lockstep").mode("append").option("nameServer", name_server)
    if topic is not None:
        writer = writer.option("topic", topic)
    writer.options(**options).save()


def refused(df: "DataFrame", name_server: str, topic: str | None, **options: Any) -> str:
    """What a user is told; in bounded time."""
    from pyspark.errors import PySparkException

    began_s = time.monotonic()
    with pytest.raises(PySparkException) as caught:
        write(df, name_server, topic, **options)
    assert time.monotonic() - began_s < BOUND_S
    return str(caught.value)


def test_rows_arrive_in_order_in_the_queue_of_their_key(spark: "SparkSession", name_server: str) -> None:
    """Each key is in the queue that Java's selector picks, its rows rise there, and every row is there once."""
    rows = spark.range(3000).selectExpr("concat('key-', id % 17) key", "cast(id as string) value", "id seq")
    write(ordered(rows.orderBy("value"), "key", "seq"), name_server, "in-order", orderBy="seq", sendBatchSize=100)
    queues = [MessageQueue("in-order", "broker-a", n) for n in range(4)]
    last: dict[str, int] = {}
    for queue_id, messages in sent(name_server, "in-order").items():
        for message in messages:
            key = message.sharding_key
            assert key is not None
            assert message.keys == key
            assert queue_of_hash(queues, key).queue_id == queue_id
            assert int(message.body) > last.get(key, -1)
            last[key] = int(message.body)
    assert sum(map(len, sent(name_server, "in-order").values())) == 3000
    assert len(last) == 17


def test_marks_name_the_row(spark: "SparkSession", name_server: str) -> None:
    """Marks name one query, batch 0, and each row of each partition once; no UNIQ_KEY comes twice."""
    rows = spark.range(2500).selectExpr("cast(id as string) key", "cast(id as string) value")
    write(rows.repartition(3, "key"), name_server, "marks")
    messages = [message for queue in sent(name_server, "marks").values() for message in queue]
    marks = {(task_of(message), row_of(message)) for message in messages}
    partitions: dict[int, list[int]] = {}
    for (_, _, partition), row in sorted(marks):
        partitions.setdefault(partition, []).append(row)
    assert len(messages) == len(marks) == len({message.msg_id for message in messages}) == 2500
    assert len({query for (query, _, _), _ in marks}) == 1
    assert {batch for (_, batch, _), _ in marks} == {0}
    assert all(numbers == list(range(len(numbers))) for numbers in partitions.values())


def test_every_column_arrives(spark: "SparkSession", name_server: str) -> None:
    """tags, keys, an own sharding key and headers are properties; topic is a column where no option names one."""
    rows = spark.sql(
        "select 'every-1' topic, 'a body' body, cast('k 1' as binary) key, 'TagA' tags, 'shard' shardingKey,"
        " array(struct('colour' as key, cast('rot' as binary) as value),"
        "       struct('UNIQ_KEY' as key, cast('of another' as binary) as value)) headers"
        " union all select 'every-2', 'b', null, null, null, null"
    )
    write(rows, name_server, None)
    (first,) = [message for queue in sent(name_server, "every-1").values() for message in queue]
    (second,) = [message for queue in sent(name_server, "every-2").values() for message in queue]
    assert (first.body, first.keys, first.tags, first.sharding_key) == (b"a body", "k 1", "TagA", "shard")
    assert first.properties["colour"] == "rot"
    assert first.msg_id != "of another"
    assert (second.body, second.keys, second.tags, second.sharding_key) == (b"b", None, None, None)


def test_the_option_topic_wins_over_the_column(spark: "SparkSession", name_server: str) -> None:
    """As in Spark's Kafka sink."""
    write(spark.sql("select 'column' topic, 'x' value"), name_server, "option")
    assert sum(map(len, sent(name_server, "option").values())) == 1


def test_rows_without_a_key_take_turns(spark: "SparkSession", name_server: str) -> None:
    """All queues get some of what has no key, and nothing is checked of its order."""
    rows = spark.range(0, 1000, numPartitions=2).selectExpr("cast(id as string) value", "-id seq")
    write(rows, name_server, "no-keys", sendBatchSize=50, orderBy="seq")
    counts = [len(messages) for messages in sent(name_server, "no-keys").values()]
    assert (sum(counts), min(counts) > 0) == (1000, True)


def test_a_key_in_two_partitions_is_an_error(spark: "SparkSession", name_server: str) -> None:
    """The write fails at its end, names the key and its partitions; with checkKeys=false it is allowed."""
    rows = spark.range(0, 10, numPartitions=2).selectExpr("'same' key", "cast(id as string) value")
    text = refused(rows, name_server, "two-partitions")
    assert "OrderError: key 'same' in partitions 0, 1" in text
    assert "ordered(df, key, order_by)" in text
    write(rows, name_server, "two-partitions", checkKeys="false")


def test_disorder_inside_a_partition_is_an_error(spark: "SparkSession", name_server: str) -> None:
    """The first row that goes back in orderBy is named, and it is not sent."""
    rows = spark.range(0, 300, numPartitions=1).selectExpr(
        "concat('k', id % 3) key", "cast(id as string) value", "if(id = 200, -1, id) seq"
    )
    text = refused(rows, name_server, "disorder", orderBy="seq")
    assert "OrderError: partition 0: row 200: key 'k2' goes back in seq, from 197 to -1" in text
    bodies = [int(message.body) for messages in sent(name_server, "disorder").values() for message in messages]
    assert 200 not in bodies


def test_order_is_of_each_key(spark: "SparkSession", name_server: str) -> None:
    """Keys that are each in order may be interleaved in any way; equal values are in order."""
    rows = spark.sql(
        "select * from values ('a', '1', 5), ('b', '2', 1), ('a', '3', 5), ('b', '4', 2) t(key, value, seq)"
    )
    write(rows.coalesce(1), name_server, "each-key", orderBy="seq")
    assert sum(map(len, sent(name_server, "each-key").values())) == 4


@pytest.mark.parametrize(
    ("query", "options", "words"),
    [
        ("select 'k' key", {}, "a message needs one column value"),
        ("select cast(null as string) value", {}, "row 0: value is null"),
        ("select 'x' value, '' key", {}, "row 0: key is empty"),
        ("select 'x' value, 'a\x01b' key", {}, "row 0: KEYS must not hold 0x01"),
        ("select 'x' value, array(struct('DELAY' as key, cast('3' as binary) as value)) headers", {}, "'DELAY'"),
        ("select 'x' value", {"colour": "red"}, "unknown option colour; allowed for write"),
        ("select 'x' value", {"topic": "a b"}, "may hold only the characters"),
        ("select 'x' value", {"topic": "SCHEDULE_TOPIC_XXXX"}, "is reserved by RocketMQ"),
        ("select repeat('x', 5000000) value", {}, "the body has 5000000 bytes; at most 4194304 are allowed"),
    ],
)
def test_bad_input_is_named(
    spark: "SparkSession", name_server: str, query: str, options: dict[str, str], words: str
) -> None:
    """What cannot be sent ends the write with the column, row or option, and what may be."""
    given = {"topic": "bad-input", **options}
    assert words in refused(spark.sql(query), name_server, given.pop("topic"), **given)


def test_a_topic_cannot_be_overwritten(spark: "SparkSession", name_server: str) -> None:
    """mode("overwrite") is refused before anything is sent."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="cannot be overwritten"):
        spark.sql("select 'x' value").write.format("lockstep").mode("overwrite").option(
            "nameServer", name_server
        ).option("topic", "t").save()


def make_read_only(name_server: str, topic: str) -> None:
    with Addresses((name_server,)).open() as client:
        header = CreateTopicRequestHeader(topic, "TBW102", 1, 1, int(Permission.READ))
        command = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        assert client.finish(client.start(MessageQueue(topic, "broker-a", 0), command)).code == 0


def test_a_topic_that_may_not_be_written_to(spark: "SparkSession", brokers: "Brokers") -> None:
    """A read-only topic, and one that is not there at a broker that makes none: each is said."""
    name_server = brokers.start("--no-auto-create-topics", "--topic", "read-only:1").name_server
    rows = spark.sql("select 'x' value")
    assert "topic 'nowhere' does not exist" in refused(rows, name_server, "nowhere")
    assert "TopicError" in refused(rows.selectExpr("value", "'nowhere' topic"), name_server, None)
    make_read_only(name_server, "read-only")
    assert "'read-only' may not be written to" in refused(rows, name_server, "read-only")


def test_nobody_there(spark: "SparkSession") -> None:
    """A name server that is down ends the write in bounded time, with its address, on the driver and in a task."""
    rows = spark.sql("select 'x' value, 't' topic")
    options = {"sendRetries": 1, "retryIntervalMs": 10, "sendTimeoutMs": 500}
    for topic in ("t", None):
        assert "no name server answers (cannot connect to 127.0.0.1:1:" in refused(
            rows, "127.0.0.1:1", topic, **options
        )


def test_an_ordered_batch_is_sorted_in_every_partition(spark: "SparkSession") -> None:
    """`ordered` leaves each key in one partition, there in order; ties are in one order whatever came first."""
    from pyspark.sql import functions as F  # noqa: N812

    rows = spark.range(2000).selectExpr("id % 50 key", "id % 7 at", "id", "map('n', id) extra")

    def seen(df: "DataFrame") -> list[tuple[int, ...]]:
        found = ordered(df, "key", "at", 3).select(F.spark_partition_id(), "key", "at", "id").collect()
        return [tuple(row) for row in found]

    first = seen(rows.repartition(5))
    assert first == seen(rows.orderBy(F.desc("id")).repartition(2))
    assert len({(row[0], row[1]) for row in first}) == 50
    assert all(one[2] <= two[2] for one, two in pairwise(first) if one[0] == two[0])
