"""Rule (b) for consumers that keep order by key, or none: what an ownership period may repeat of each *lane*.

A lane is what must stay in order among itself: the messages of a key, or without any order a message alone. A failed
attempt opens the way back for its lane and does not hold up the others.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from lockstep.order import Cause, Kind
from lockstep.pipeline.audit.histories import ORDER

__all__ = ["lane_repeats"]

_ROW: Final = ("h", *ORDER)
_LANE: Final = ("h", "p", "ordering", "name", "no_name")


def lane_repeats(late: DataFrame, facts: DataFrame, begins: DataFrame) -> DataFrame:
    """As `repeats` gives them, those of calls that promise less than queue order."""
    rows = _in_lanes(late.where("is_repeat and ordering <> 'Q'"))
    periods = begins.select(
        "h", "p", "pos", "floor", "floor_record", "known_before", fn.col("cause").alias("period_cause")
    )
    rows = rows.join(periods, ["h", "p", "pos"]).join(_before(rows, facts), list(_ROW), "left")
    offset = fn.col("offset")
    came_before = offset < fn.col("lane_end")  # in this period: a failed call comes again as a whole
    second = came_before & ((fn.col("lane_rewind") <= offset) | (fn.col("lane_next") <= offset))
    rewound = fn.coalesce(second, fn.lit(False))
    went_back = fn.coalesce(offset < fn.col("lane_next"), fn.lit(False))
    kind = (
        fn.when(rewound, fn.lit(None))
        .when(offset < fn.col("floor"), Kind.REWIND_BELOW_COMMIT.value)
        .when(went_back | (offset >= fn.col("known_before")), Kind.UNEXPLAINED_REPEAT.value)
    )
    rows = rows.withColumns({"kind": kind, "expected": fn.coalesce("lane_next", offset + 1)})
    cause = fn.when(rewound, Cause.SUSPEND.value).when(fn.col("kind").isNotNull(), Cause.UNEXPLAINED.value)
    return rows.withColumn("cause", fn.coalesce(cause, "period_cause"))


def _in_lanes(rows: DataFrame) -> DataFrame:
    name = fn.when(fn.col("ordering") == "K", fn.col("key")).otherwise(fn.col("offset").cast("string"))
    return rows.withColumns({"name": fn.coalesce(name, fn.lit("")), "no_name": name.isNull()})


def _before(rows: DataFrame, facts: DataFrame) -> DataFrame:
    """(h, the row, lane_next, lane_end, lane_rewind): where its lane stands, one past the highest that was handled of
    it in the period, and how far back a failed attempt lets it go."""
    calls = _in_lanes(facts.where("event = 'handled' and ordering <> 'Q'"))
    mine = calls.join(rows.select(*_LANE).distinct(), list(_LANE), "left_semi")
    in_order = Window.partitionBy(*_LANE).orderBy(*ORDER)
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    new = ~fn.coalesce(fn.col("begin_mono_ns") == fn.lag("begin_mono_ns").over(in_order), fn.lit(False))
    stands = mine.withColumn("is_new", new).withColumns({
        "before": fn.lag(fn.struct("offset", "status")).over(in_order),
        "end": fn.max("offset").over(earlier) + 1,
        "call": fn.last(fn.when(fn.col("is_new"), fn.col("offset")), ignorenulls=True).over(earlier),
    })  # fmt: skip
    failed = fn.col("before.status").isin("S", "L")
    is_over = (fn.col("ordering") == "N") & ~failed  # it is done, and no other message waits for it
    return stands.join(rows.select(*_ROW), list(_ROW), "left_semi").select(
        *_ROW,
        fn.when(~is_over, fn.col("before.offset") + 1).alias("lane_next"),
        fn.col("end").alias("lane_end"),
        fn.when(failed, fn.col("call")).alias("lane_rewind"),
    )
