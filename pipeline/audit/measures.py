"""What is no rule: how long calls and messages took, how many a second, and who owned a queue from when to when."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

__all__ = ["latency", "owners", "rates"]

_QUEUE = ("history", "group", "topic", "broker", "queue_id")
_LAG_MESSAGES = 500_000  # the lag of more than that is taken of every n-th offset, which costs no sort of all of them


def latency(facts: DataFrame, stored: DataFrame, messages: int, queues: DataFrame) -> DataFrame:
    """Percentiles. `stored`: (history, topic, broker, queue_id, offset, stored_ms) of `messages` messages."""
    names = queues.select("h", fn.xxhash64(*_QUEUE).alias("q"), *_QUEUE)
    places = names.drop("h").distinct()
    handled = facts.where("event = 'handled'").join(fn.broadcast(names.select("h", "q")), "h")
    took = fn.col("mono_ns") - fn.col("begin_mono_ns")
    table = _percentiles(handled.where(took.isNotNull()).select("q", (took / 1e6).alias("ms")), "handling", places)
    every = max(1, -(-messages // _LAG_MESSAGES))
    sampled = fn.col("offset") % every == 0
    ends = handled.where(sampled & fn.col("wall_ms").isNotNull())
    ends = ends.groupBy("q", "offset").agg(fn.min("wall_ms").alias("handled_ms"))
    place = [name for name in _QUEUE if name != "group"]
    begins = stored.where(sampled).join(fn.broadcast(places), place).select("q", "offset", "stored_ms")
    waited = (fn.col("handled_ms") - fn.col("stored_ms")).cast("double").alias("ms")
    lags = ends.join(begins, ["q", "offset"]).select("q", waited)
    return table.unionByName(_percentiles(lags, "lag", places))


def _percentiles(values: DataFrame, measure: str, places: DataFrame) -> DataFrame:
    parts: Column = fn.percentile_approx("ms", [0.5, 0.9, 0.99], 1000)
    table = values.groupBy("q").agg(
        fn.count(fn.lit(1)).alias("messages"), parts.alias("parts"), fn.max("ms").alias("max_ms")
    )
    names = ("p50_ms", "p90_ms", "p99_ms")
    return table.join(fn.broadcast(places), "q").select(
        *_QUEUE, fn.lit(measure).alias("measure"), "messages",
        *[fn.col("parts")[place].alias(name) for place, name in enumerate(names)], "max_ms",
    )  # fmt: skip


def rates(facts: DataFrame, late: DataFrame, queues: DataFrame) -> DataFrame:
    """Attempts and repeats in each second of the wall clock, by group and topic."""
    second = (fn.floor(fn.col("wall_ms") / 1000) * 1000).cast("long").alias("second_ms")
    attempts = facts.where("event = 'handled'").groupBy("h", second).agg(fn.count(fn.lit(1)).alias("attempts"))
    again = late.where("is_repeat").groupBy("h", second).agg(fn.count(fn.lit(1)).alias("repeats"))
    by_queue = attempts.join(again, ["h", "second_ms"], "left").na.fill(0).join(fn.broadcast(queues), "h")
    return by_queue.groupBy("history", "group", "topic", "second_ms").agg(
        fn.sum("attempts").alias("attempts"), fn.sum("repeats").alias("repeats")
    )


def owners(facts: DataFrame, findings: DataFrame, queues: DataFrame, periods: DataFrame) -> DataFrame:
    """A row an ownership period, from its first record to its last, with the overlaps that its calls were part of."""
    offset = fn.when(fn.col("event") == "handled", fn.col("offset"))
    bars = facts.where("p is not null").groupBy("h", "p").agg(
        fn.min("wall_ms").alias("from_ms"), fn.max("wall_ms").alias("to_ms"), fn.min(offset).alias("first_offset"),
        fn.max(offset).alias("last_offset"), fn.count(offset).alias("attempts"),
    )  # fmt: skip
    overlaps = findings.where("kind = 'overlap'").select("h", fn.explode(fn.array("one.p", "other.p")).alias("p"))
    counted = overlaps.groupBy("h", "p").agg(fn.count(fn.lit(1)).alias("overlaps"))
    return (
        bars.join(counted, ["h", "p"], "left")
        .na.fill(0, ["overlaps"])
        .join(fn.broadcast(queues), "h")
        .join(fn.broadcast(periods), "p")
        .select(
            *_QUEUE, "client_id", "period", "from_ms", "to_ms", "first_offset", "last_offset", "attempts", "overlaps"
        )
    )
