"""Which messages there were: what producers say they sent, and what the topic holds; and when stores were emptied."""

from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from lockstep.pipeline.audit.histories import ORDER, present_generation
from lockstep.pipeline.audit.losses import words
from lockstep.pipeline.audit.work import Work

__all__ = ["Content", "Exists", "content", "exists_of"]

_PLACE = ("history", "topic", "broker", "queue_id", "generation")


class Content(NamedTuple):
    """Before it is told apart by groups.

    restarts (history, marks) or None; sent (place, word, bits); aged (place, aged): the lowest offset that the topic
    still has; stored (history, topic, broker, queue_id, offset, stored_ms), of `messages` messages.
    """

    restarts: DataFrame | None
    sent: DataFrame
    aged: DataFrame
    stored: DataFrame
    messages: int


class Exists(NamedTuple):
    """By history of a queue: queues (h and its names), words (h, word, bits), known (h, aged, is_emptied)."""

    queues: DataFrame
    words: DataFrame
    known: DataFrame


def content(events: DataFrame, topic: DataFrame | None, work: Work) -> Content:
    """The messages known from either side. The topic is read once: it may grow meanwhile, and come from a broker."""
    mark = fn.struct("broker", fn.struct(*ORDER).alias("at"))
    restarts: DataFrame | None = (
        events.where("event = 'broker_restarted'").groupBy("history").agg(fn.collect_list(mark).alias("marks"))
    )
    if restarts is not None and restarts.isEmpty():
        restarts = None
    sent = events.where("event = 'sent'")
    produced = sent.withColumn("generation", fn.lit(0))
    if restarts is not None:
        produced = present_generation(sent, restarts).withColumnRenamed("present", "generation")
    produced = produced.select(*_PLACE, "offset", fn.col("wall_ms").alias("stored_ms"))
    if topic is None:
        aged = produced.limit(0).select(*_PLACE, fn.col("offset").alias("aged"))
        return Content(restarts, work.small(words(produced, *_PLACE)), aged, produced, produced.count())
    held = work.large("held", _held(topic, restarts))
    aged = held.groupBy(*_PLACE).agg(fn.min("offset").alias("aged"))
    sent = work.small(words(held.unionByName(produced), *_PLACE))
    return Content(restarts, sent, aged, held, held.count())


def _held(topic: DataFrame, restarts: DataFrame | None) -> DataFrame:
    """What is in the topic is in the last store of its broker."""
    history = fn.col("history") if "history" in topic.columns else fn.lit("")
    stored = fn.unix_millis("storeTimestamp") if "storeTimestamp" in topic.columns else fn.lit(None).cast("long")
    rows = topic.select(
        history.alias("history"), "topic", fn.col("brokerName").alias("broker"), fn.col("queueId").alias("queue_id"),
        "offset", stored.alias("stored_ms"),
    )  # fmt: skip
    if restarts is None:
        return rows.withColumn("generation", fn.lit(0))
    return _in_the_end(rows, restarts)


def _in_the_end(rows: DataFrame, restarts: DataFrame) -> DataFrame:
    """The rows with the number of the last store of their broker."""
    last = fn.lit((1 << 63) - 1)
    at_the_end = rows.withColumns(dict.fromkeys(ORDER, last))
    return present_generation(at_the_end, restarts).withColumnRenamed("present", "generation").drop(*ORDER)


def exists_of(stock: Content, queues: DataFrame) -> Exists:
    """The messages for each group that reads their topic; a topic that no group reads belongs to the group ""."""
    groups = queues.select("history", "topic", "group").distinct()
    read = stock.sent.join(fn.broadcast(groups), ["history", "topic"], "left")
    place = ("history", "group", "topic", "broker", "queue_id", "generation")
    owed = read.withColumn("group", fn.coalesce("group", fn.lit(""))).withColumn("h", fn.xxhash64(*place))
    names = queues.unionByName(owed.select("h", *place)).distinct()
    topics = stock.sent.select("history", "topic").distinct()
    ends = names.join(fn.broadcast(topics), ["history", "topic"], "left_semi").join(
        fn.broadcast(stock.aged), list(_PLACE), "left"
    )
    if stock.restarts is None:
        known = ends.withColumn("is_emptied", fn.lit(False))
    else:
        present = _in_the_end(ends.withColumnRenamed("generation", "own"), stock.restarts)
        known = present.withColumn("is_emptied", fn.col("own") < fn.col("generation"))
    return Exists(names, owed.select("h", "word", "bits"), known.select("h", "aged", "is_emptied"))
