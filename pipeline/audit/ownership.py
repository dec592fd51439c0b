"""Where periods of ownership begin: what the broker had surely stored, who owned the queue before, for how long.

A commit is recorded before it is sent. Where no `stored` records say what arrived, it counts as stored once its writer
was seen alive GRACE_NS later, in whatever record of its traces. Who was seen when is asked for the few moments at
which a period begins: seconds are summed up for all clients, and looked into only where a question falls into one.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from lockstep.order import Cause
from lockstep.pipeline.audit.histories import ORDER
from lockstep.pipeline.audit.traces import before
from lockstep.pipeline.audit.work import Work

__all__ = ["GRACE_NS", "handovers", "positions"]

GRACE_NS: Final = 1_000_000_000
_SECOND_NS: Final = 1_000_000_000
_KEYS: Final = ("h", *ORDER)


def positions(facts: DataFrame, names: DataFrame, events: DataFrame, work: Work) -> DataFrame:
    """A row a beginning: h, p, c, pos, offset, when, floor, floor_record, known_before, cause, owner_seen_ns."""
    begins = work.small(_begins(facts, names))
    pending = work.small(_pending(begins, facts))
    owners = begins.where("owner is not null").select("history", *_KEYS, fn.col("owner.c").alias("writer"))
    questions = pending.select("history", *_KEYS, "writer").unionByName(owners).distinct()
    seen = work.small(_last_seen(work.small(questions), events))
    stored = (
        pending.join(seen, [*_KEYS, "writer"])
        .where(fn.col("seen_ns") >= fn.col("sent.time_ns") + GRACE_NS)
        .groupBy(*_KEYS)
        .agg(fn.max_by("record", "sent").alias("settled"))
    )
    owner_seen = seen.withColumnsRenamed({"writer": "owner_c", "seen_ns": "owner_seen_ns"})
    floor = fn.coalesce("settled", "known")
    return (
        begins.withColumn("owner_c", fn.col("owner.c"))
        .join(stored, list(_KEYS), "left")
        .join(owner_seen, [*_KEYS, "owner_c"], "left")
        .withColumns({"floor_record": floor, "floor": fn.coalesce(floor["offset"], fn.lit(-1))})
        .drop("settled", "known", "owner_c")
    )


def _begins(facts: DataFrame, names: DataFrame) -> DataFrame:
    cause = fn.when(fn.coalesce("after_reset", fn.lit(False)), Cause.RESET.value).otherwise(Cause.TAKEOVER.value)
    return (
        facts.where("is_position")
        .join(fn.broadcast(names.select("h", "history")), "h")
        .select(
            "history", *_KEYS, "p", "c", "pos", "offset", "wall_ms", "known", "known_count", "owner",
            (fn.coalesce("max_before", fn.lit(-1)) + 1).alias("known_before"), cause.alias("cause"),
        )
    )  # fmt: skip


def _pending(begins: DataFrame, facts: DataFrame) -> DataFrame:
    """(history, the beginning, writer, record, sent): commits since the broker's offset was last known."""
    commits = facts.where("event = 'committed' and not acknowledged").select(
        "h", "known_count", *ORDER, fn.col("c").alias("writer"),
        fn.struct("event", "offset", "p", "wall_ms", "source", "line").alias("record"),
    )  # fmt: skip
    same = (fn.col("at.h") == fn.col("commit.h")) & (fn.col("at.known_count") == fn.col("commit.known_count"))
    sent = fn.struct(*[fn.col(f"commit.{name}") for name in ORDER]).alias("sent")
    both = begins.alias("at").join(commits.alias("commit"), same & before("commit", "at"))
    return both.select("at.history", *[f"at.{name}" for name in _KEYS], "writer", "record", sent)


def _last_seen(questions: DataFrame, events: DataFrame) -> DataFrame:
    """(h, the moment, writer, seen_ns): the time of the writer's last record up to each moment, 0 if there is none."""
    second = fn.floor(fn.col("time_ns") / fn.lit(_SECOND_NS)).cast("long").alias("second")
    seen = events.where(fn.col("client_id").isNotNull()).select(
        "history", fn.xxhash64("client_id").alias("writer"), *ORDER, second
    )
    asked = questions.select("*", second)
    whole = seen.groupBy("history", "writer", "second").agg(fn.max("time_ns").alias("seen_ns"))
    moments = asked.select("history", "writer", "second").distinct()
    earlier = (
        whole.withColumn("asked", fn.lit(False))
        .unionByName(moments.withColumns({"seen_ns": fn.lit(None).cast("long"), "asked": fn.lit(True)}))
        .withColumn(
            "earlier_ns",
            fn.max("seen_ns").over(
                Window.partitionBy("history", "writer").orderBy("second").rangeBetween(Window.unboundedPreceding, -1)
            ),
        )
        .where("asked")
        .select("history", "writer", "second", "earlier_ns")
    )
    within = (
        seen.join(moments, ["history", "writer", "second"], "left_semi")
        .alias("seen")
        .join(asked.alias("asked"), ["history", "writer", "second"])
        .where(~before("asked", "seen"))
        .groupBy("h", *[fn.col(f"asked.{name}").alias(name) for name in ORDER], "writer")
        .agg(fn.max("seen.time_ns").alias("within_ns"))
    )
    return (
        asked.join(earlier, ["history", "writer", "second"], "left")
        .join(within, ["h", *ORDER, "writer"], "left")
        .select("h", *ORDER, "writer", fn.coalesce("within_ns", "earlier_ns", fn.lit(0)).alias("seen_ns"))
    )


def handovers(begins: DataFrame, facts: DataFrame) -> DataFrame:
    """(h, from_p, to_p, at_ms, duration_ms) of the queues that changed owner."""
    drops = (
        facts.where("event = 'dropped'").groupBy("h", "p").agg(fn.min(fn.struct(*ORDER)).alias("dropped")).alias("drop")
    )
    at = begins.where(fn.col("owner").isNotNull() & (fn.col("owner.c") != fn.col("c"))).alias("at")
    ended = (fn.col("at.h") == fn.col("drop.h")) & (fn.col("at.owner.p") == fn.col("drop.p"))
    is_over = ended & (fn.col("drop.dropped") < fn.struct(*[fn.col(f"at.{name}") for name in ORDER]))
    alive = fn.coalesce("drop.dropped.time_ns", "at.owner_seen_ns")
    return at.join(drops, is_over, "left").select(
        "at.h",
        fn.col("at.owner.p").alias("from_p"),
        fn.col("at.p").alias("to_p"),
        fn.col("at.wall_ms").alias("at_ms"),
        (fn.greatest(fn.col("at.time_ns") - alive, fn.lit(0)) / 1e6).alias("duration_ms"),
    )
