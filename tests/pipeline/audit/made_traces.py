"""Traces and topics of any size, made by Spark from numbers alone: the same in each run, in order, with takeovers.

Consumers share the queues. Every `takeover_every` messages of a queue its owner dies without a word, and after the gap
the next one begins at the last commit, which lies `repeated` messages back. So such a history has repeats, all of them
a takeover's, handovers, and no violation.
"""

from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

__all__ = ["Shape", "topic_rows", "trace_lines", "write_traces"]

_EPOCH_MS = 1_750_000_000_000
_STEP_NS = 1_000_000  # a message a queue each millisecond


class Shape(NamedTuple):
    """How large it is; `keys` are of each queue. takeover_every is a multiple of commit_every, and repeated is less."""

    messages: int
    queues: int = 16
    consumers: int = 8
    hosts: int = 2
    keys: int = 1000
    takeover_every: int = 50_000
    commit_every: int = 1_000
    repeated: int = 200
    gap_ms: int = 2_000
    seed: int = 1


def topic_rows(spark: SparkSession, shape: Shape) -> DataFrame:
    """What the topic holds, in the columns of the source that the audit reads, and the keys."""
    handled_ms = _EPOCH_MS + _end_ns(shape, fn.col("offset"), _period(shape)) / 1_000_000
    waited_ms = 1 + fn.pmod(fn.xxhash64(fn.lit(shape.seed), "queue_id", "offset"), fn.lit(50))
    return _messages(spark, shape).select(
        fn.lit("orders").alias("topic"), fn.lit("broker-a").alias("brokerName"), fn.col("queue_id").alias("queueId"),
        "offset", fn.timestamp_millis((handled_ms - waited_ms).cast("long")).alias("storeTimestamp"),
        _key(shape).alias("shardingKey"),
    )  # fmt: skip


def trace_lines(spark: SparkSession, shape: Shape) -> DataFrame:
    """(process, at_ns, place, value): each consumer's records as JSON, to be laid in the order of at_ns and place."""
    messages = _messages(spark, shape)
    first = _period(shape)
    ends = (first + 1) * shape.takeover_every
    again = fn.when(fn.col("offset") >= ends - shape.repeated, fn.array(first, first + 1)).otherwise(fn.array(first))
    handled = messages.select("queue_id", "offset", fn.explode(again).alias("period"))
    calls = handled.select(
        "*", fn.lit("handled").alias("event"), _end_ns(shape, fn.col("offset"), fn.col("period")).alias("at_ns")
    )
    due = (fn.col("offset") + 1) % shape.commit_every == 0
    last = fn.col("offset") + 1 == (fn.col("period") + 1) * shape.takeover_every - shape.repeated
    dying = fn.col("offset") >= (fn.col("period") + 1) * shape.takeover_every - shape.repeated
    commits = calls.where((due & ~dying) | last).withColumns({
        "event": fn.lit("committed"), "at_ns": fn.col("at_ns") + 1, "offset": fn.col("offset") + 1,
    })  # fmt: skip
    births = handled.where(fn.col("offset") == _start(shape, fn.col("period"))).select(
        "*", fn.explode(fn.array(fn.lit("acquired"), fn.lit("positioned"))).alias("event"),
        (_end_ns(shape, fn.col("offset"), fn.col("period")) - _STEP_NS).alias("at_ns"),
    )  # fmt: skip
    events = calls.unionByName(commits).unionByName(births)
    process = fn.pmod(fn.col("queue_id") + fn.col("period"), fn.lit(shape.consumers)).cast("int")
    order = fn.when(fn.col("event") == "acquired", 0).when(fn.col("event") == "positioned", 1).otherwise(2)
    return events.withColumns({"process": process, "place": order})


def write_traces(spark: SparkSession, shape: Shape, path: str) -> None:
    """A folder with a file of JSON lines for each consumer (`process=0/...`)."""
    lines = trace_lines(spark, shape).repartition(shape.consumers, "process")
    lines = lines.sortWithinPartitions("process", "at_ns", "place", "queue_id")
    record = fn.to_json(_record(shape)).alias("value")
    lines.select("process", record).write.mode("overwrite").partitionBy("process").text(path)


def _messages(spark: SparkSession, shape: Shape) -> DataFrame:
    ids = spark.range(shape.messages)
    return ids.select(
        (fn.col("id") % shape.queues).cast("int").alias("queue_id"),
        fn.floor(fn.col("id") / shape.queues).cast("long").alias("offset"),
    )


def _period(shape: Shape) -> Column:
    return fn.floor(fn.col("offset") / shape.takeover_every).cast("long")


def _start(shape: Shape, period: Column) -> Column:
    return fn.when(period == 0, 0).otherwise(period * shape.takeover_every - shape.repeated)


def _end_ns(shape: Shape, offset: Column, period: Column) -> Column:
    """When the call ended: a step a message of the queue, repeats included, and a gap a takeover."""
    steps = offset + 1 + period * shape.repeated
    return (steps * _STEP_NS + period * (shape.gap_ms * 1_000_000)).cast("long")


def _key(shape: Shape) -> Column:
    number = fn.pmod(fn.xxhash64(fn.lit(shape.seed), "offset", "queue_id"), fn.lit(shape.keys))
    return fn.format_string("key-%d-%d", "queue_id", number)


def _record(shape: Shape) -> Column:
    """The columns of `trace_lines` as the record that a client writes. Each host's monotonic clock has its own zero."""
    is_call = fn.col("event") == "handled"
    host = fn.col("process") % shape.hosts
    zero_ns = (host + 1).cast("long") * 1_000_000_000_000
    took_ns = 100_000 + fn.pmod(fn.xxhash64(fn.lit(shape.seed), "offset", "queue_id", "period"), fn.lit(800_000))

    def of_call(name: str, value: Column) -> Column:
        return fn.when(is_call, value).alias(name)

    return fn.struct(
        "event",
        (_EPOCH_MS + fn.floor(fn.col("at_ns") / 1_000_000)).cast("long").alias("wall_ms"),
        (zero_ns + fn.col("at_ns")).alias("mono_ns"),
        fn.format_string("host-%d", host).alias("host"),
        fn.format_string("host-%d@%d#%d", host, "process", "period").alias("client_id"),
        fn.lit("workers").alias("group"),
        fn.lit("orders").alias("topic"),
        fn.lit("broker-a").alias("broker"),
        "queue_id",
        (fn.col("period") + 1).cast("int").alias("period"),
        fn.when(fn.col("event") != "acquired", fn.col("offset")).alias("offset"),
        of_call("status", fn.lit("SUCCESS")),
        of_call("begin_wall_ms", (_EPOCH_MS + fn.floor((fn.col("at_ns") - took_ns) / 1_000_000)).cast("long")),
        of_call("begin_mono_ns", zero_ns + fn.col("at_ns") - took_ns),
        of_call("key", _key(shape)),
        of_call("msg_id", fn.format_string("%016X%08X", "offset", "queue_id")),
        of_call("reconsume_times", fn.lit(0)),
    )
