"""The counts: duplicates by cause, and the row that sums a history up."""

from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from lockstep.order import Cause

__all__ = ["Parts", "duplicates", "summary"]

_QUEUE = ("history", "group", "topic", "broker", "queue_id")


class Parts(NamedTuple):
    """What the tables are made from; see tables.py."""

    facts: DataFrame
    late: DataFrame
    repeats: DataFrame
    losses: DataFrame
    findings: DataFrame
    handovers: DataFrame
    queues: DataFrame
    broken: DataFrame
    files: DataFrame
    sent: DataFrame


def duplicates(parts: Parts) -> DataFrame:
    """Repeats by cause and queue; messages of one id at two offsets by group and topic."""
    again = parts.repeats.groupBy("h", "cause").agg(fn.count(fn.lit(1)).alias("messages"))
    by_queue = again.join(fn.broadcast(parts.queues), "h").groupBy(*_QUEUE, "cause")
    return by_queue.agg(fn.sum("messages").alias("messages")).unionByName(_sent_twice(parts))


def _sent_twice(parts: Parts) -> DataFrame:
    handled = parts.facts.where("event = 'handled' and msg is not null")
    in_order = handled.where("max_before is null or offset > max_before").select("h", "msg")
    firsts = in_order.unionByName(parts.late.where("not is_repeat and msg is not null").select("h", "msg"))
    topics = parts.queues.select("h", fn.xxhash64("history", "group", "topic").alias("of"))
    ids = firsts.join(fn.broadcast(topics), "h").groupBy("of", "msg").agg(fn.count(fn.lit(1)).alias("offsets"))
    more = ids.where("offsets > 1").groupBy("of").agg(fn.sum(fn.col("offsets") - 1).alias("messages"))
    names = parts.queues.select(fn.xxhash64("history", "group", "topic").alias("of"), "history", "group", "topic")
    nobody = {"broker": fn.lit(None).cast("string"), "queue_id": fn.lit(None).cast("int")}
    return (
        more.join(fn.broadcast(names.distinct()), "of")
        .withColumns({**nobody, "cause": fn.lit(Cause.PRODUCER_RETRY.value)})
        .select(*_QUEUE, "cause", "messages")
    )


def summary(parts: Parts, causes: DataFrame) -> DataFrame:
    """One row a history: nothing violated and nothing lost is `in_order`."""
    queues = fn.broadcast(parts.queues)
    calls = parts.facts.where("event = 'handled'")
    kept = fn.when(fn.col("ordering") != "N", fn.col("key")).alias("key")  # where a key is in order
    counted = calls.groupBy("h", kept).agg(fn.count(fn.lit(1)).alias("attempts")).join(queues, "h")
    by_key = counted.groupBy(*_QUEUE, "key").agg(fn.sum("attempts").alias("attempts"))
    by_queue = by_key.groupBy(*_QUEUE).agg(fn.sum("attempts").alias("attempts"), fn.count("key").alias("keys"))
    weighed = parts.losses.join(queues, "h").groupBy("history")
    tables = [
        parts.sent.groupBy("history").agg(fn.sum(fn.bit_count("bits")).alias("sent")),
        weighed.agg(*[_sum(name) for name in ("handled", "lost", "before_start", "skipped", "emptied")]),
        by_queue.groupBy("history").agg(_sum("attempts"), _sum("keys"), fn.count(fn.lit(1)).alias("queues")),
        _count(parts.facts.where("event = 'dead_lettered'").join(queues, "h"), "dead_lettered"),
        causes.groupBy("history").agg(fn.sum("messages").alias("duplicates")),
        _count(parts.handovers.join(queues, "h"), "handovers"),
        _count(parts.findings.join(queues, "h"), "violations"),
        parts.broken.groupBy("history").agg(
            fn.sum(fn.col("torn").cast("long")).alias("torn_lines"),
            fn.sum((~fn.col("torn")).cast("long")).alias("broken_lines"),
        ),
    ]
    histories = parts.files.select("history").union(parts.queues.select("history")).distinct()
    whole = reduce(lambda one, other: one.join(other, "history", "left"), tables, histories).na.fill(0)
    return whole.withColumn("in_order", (fn.col("violations") == 0) & (fn.col("lost") == 0))


def _sum(name: str) -> Column:
    return fn.sum(name).alias(name)


def _count(rows: DataFrame, name: str) -> DataFrame:
    return rows.groupBy("history").agg(fn.count(fn.lit(1)).alias(name))
