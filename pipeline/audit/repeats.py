"""Rule (b): every repeat has a cause, or it is a violation.

A handled row is *late* when its offset is not above all that were attempted before it in its history: a repeat, or a
first handling out of order. All that is asked here is asked of the late rows, which are few where all is well.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from lockstep.order import Cause, Kind
from lockstep.pipeline.audit.histories import ORDER
from lockstep.pipeline.audit.traces import before
from lockstep.pipeline.audit.work import Work

__all__ = ["late_rows", "repeats"]

_LONG_RANGE: Final = 1 << 22  # offsets; a hole wider than that is looked up by its queue, a smaller one by its words
_ROW: Final = ("h", *ORDER)


def late_rows(facts: DataFrame) -> DataFrame:
    """The late rows, with `is_repeat`: an earlier row of the history has the same offset."""
    handled = facts.where("event = 'handled'")
    late = handled.where("offset <= max_before")
    offsets = late.select("h", "offset").distinct()
    found = (
        handled.where("max_before is null or offset > max_before")
        .join(offsets, ["h", "offset"], "left_semi")
        .select("h", "offset", fn.lit(True).alias("in_order"))
    )
    first = fn.row_number().over(Window.partitionBy("h", "offset").orderBy(*ORDER)) == 1
    late = late.withColumn("is_first", first).join(found, ["h", "offset"], "left")
    return late.withColumn("is_repeat", fn.coalesce("in_order", ~fn.col("is_first"))).drop("in_order", "is_first")


def repeats(late: DataFrame, facts: DataFrame, begins: DataFrame, work: Work) -> DataFrame:
    """The repeats in queue order, with `kind` (null for a right one), `cause`, and what proves it."""
    periods = begins.select(
        "h", "p", "pos", "floor", "floor_record", "known_before", fn.col("cause").alias("period_cause")
    )
    rows = work.small(late.where("is_repeat and ordering = 'Q'").join(periods, ["h", "p", "pos"]))
    rows = _may_rewind(rows, facts).join(_touched(rows, facts), list(_ROW), "left")
    rows = rows.withColumn("rule", _rule()).withColumns({"until": _until(), "again": _again()})
    earlier = Window.partitionBy("h", "p").orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, -1)
    so_far = Window.partitionBy("h", "p").orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = rows.withColumns({
        "until_before": fn.coalesce(fn.last("until", ignorenulls=True).over(earlier), fn.lit(0)),
        "rewinds": fn.count("until").over(so_far),
    })  # fmt: skip
    rows = work.small(rows)
    stale = _stale(rows)
    rows = rows.join(stale, list(_ROW), "left").withColumn("is_stale", fn.coalesce("is_stale", fn.lit(False)))
    kind = fn.when(fn.col("is_stale"), Kind.STALE_REPEAT.value).when(
        fn.col("rule") != Cause.SUSPEND.value, fn.col("rule")
    )
    rows = rows.withColumns({
        "kind": kind,
        "until": fn.when(fn.col("is_stale"), fn.col("max_before") + 1).otherwise(fn.col("until")),
        "again": fn.when(fn.col("is_stale"), Cause.UNEXPLAINED.value).otherwise(fn.col("again")),
    })  # fmt: skip
    return rows.withColumn(
        "cause", _cause(fn.last(fn.when(fn.col("until").isNotNull(), fn.struct("until", "again")), True).over(so_far))
    )


def _rule() -> Column:
    """What a repeat is, but for a stale one: a kind of violation, `suspend`, or null."""
    offset, expected = fn.col("offset"), fn.col("expected")
    rewound = fn.col("may_rewind_to").isNotNull() & (fn.col("may_rewind_to") >= 0) & (fn.col("may_rewind_to") <= offset)
    return (
        fn.when((fn.col("handled_before") == 0) & (offset < fn.col("floor")), Kind.REWIND_BELOW_COMMIT.value)
        .when((offset < expected) & rewound, Cause.SUSPEND.value)
        .when(offset < expected, Kind.UNEXPLAINED_REPEAT.value)
        .when((offset > expected) & fn.col("touched"), Kind.POLL_SKIP.value)
    )


def _until() -> Column:
    """Where a rewind inside a period ends: below that offset repeats have its cause."""
    rule = fn.col("rule")
    return fn.when(rule == Kind.REWIND_BELOW_COMMIT.value, fn.col("known_before")).when(
        rule.isin(Kind.UNEXPLAINED_REPEAT.value, Cause.SUSPEND.value), fn.col("expected")
    )


def _again() -> Column:
    suspended = fn.col("rule") == Cause.SUSPEND.value
    return fn.when(suspended, Cause.SUSPEND.value).otherwise(Cause.UNEXPLAINED.value)


def _cause(last: Column) -> Column:
    skipped = fn.col("kind") == Kind.POLL_SKIP.value
    within = fn.col("offset") < last["until"]
    return fn.when(skipped, Cause.UNEXPLAINED.value).when(within, last["again"]).otherwise(fn.col("period_cause"))


def _may_rewind(rows: DataFrame, facts: DataFrame) -> DataFrame:
    """`may_rewind_to` of repeats after a failed attempt: its call's first message, or a rollback's last commit."""
    commits = facts.where("event = 'committed'")
    since = commits.groupBy("h", "p", "handled_before").agg(fn.max("offset").alias("committed_since"))
    back = rows.where("prev_status = 'R' and offset < expected").select(
        "h", "p", *ORDER, fn.col("assigns_before").alias("part")
    )
    assigned = fn.when(
        fn.col("event") == "handled", fn.when(fn.col("status") == "C", fn.col("offset") + 1).otherwise(fn.col("offset"))
    )
    values = (
        facts.where("event = 'committed' or is_assign")
        .join(back.select("h", "p").distinct(), ["h", "p"], "left_semi")
        .select(
            "h", "p", *ORDER,
            (fn.col("assigns_before") + fn.col("is_assign").cast("int")).alias("part"),
            fn.coalesce(assigned, "offset").alias("value"),
        )
    )  # fmt: skip
    earlier = Window.partitionBy("h", "p", "part").orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, -1)
    uncommitted = (
        values.withColumn("asked", fn.lit(False))
        .unionByName(back.withColumns({"value": fn.lit(None).cast("long"), "asked": fn.lit(True)}))
        .withColumn("uncommitted_from", fn.max("value").over(earlier))
        .where("asked")
        .select("h", *ORDER, "uncommitted_from")
    )
    suspended = fn.when(fn.col("prev_status") == "S", fn.greatest("call_first", "committed_since"))
    return (
        rows.join(since, ["h", "p", "handled_before"], "left")
        .join(uncommitted, list(_ROW), "left")
        .withColumn("may_rewind_to", fn.coalesce(suspended, "uncommitted_from"))
        .drop("uncommitted_from", "committed_since")
    )


def _touched(rows: DataFrame, facts: DataFrame) -> DataFrame:
    """(h, the row, touched): repeats that left out offsets of which some had been attempted before."""
    jumps = rows.where("offset > expected").select("h", *ORDER, "expected", "offset")
    handled = facts.where("event = 'handled'").select("h", *ORDER, fn.col("offset").alias("at"))
    is_short = fn.col("offset") - fn.col("expected") <= _LONG_RANGE
    word = fn.explode(fn.sequence(fn.shiftright("expected", 6), fn.shiftright(fn.col("offset") - 1, 6))).alias("word")
    by_word = jumps.where(is_short).select("*", word).alias("jump")
    by_queue = jumps.where(~is_short).alias("jump")
    words = handled.withColumn("word", fn.shiftright("at", 6)).alias("row")
    inside = (fn.col("at") >= fn.col("expected")) & (fn.col("at") < fn.col("offset")) & before("row", "jump")
    same_word = (fn.col("row.h") == fn.col("jump.h")) & (fn.col("row.word") == fn.col("jump.word"))
    found = [
        by_word.join(words, same_word & inside, "left_semi").drop("word"),
        by_queue.join(handled.alias("row"), (fn.col("row.h") == fn.col("jump.h")) & inside, "left_semi"),
    ]
    return found[0].unionByName(found[1]).select(*_ROW).distinct().withColumn("touched", fn.lit(True))


def _stale(rows: DataFrame) -> DataFrame:
    """(h, the row, is_stale): repeats of a period that a newer one had replaced, beyond what its own rewind explains.

    One covers all up to the highest offset attempted by then, so the next begins at or above it: a fold, in the order
    of time, over the few rows that may be one.
    """
    candidates = rows.where("rule is null and p <> newest and offset >= known_before and offset >= until_before")
    row = fn.struct(*ORDER, "offset", (fn.col("max_before") + 1).alias("end"))
    ordered = fn.array_sort(fn.collect_list(row)).alias("rows")
    start = fn.expr("named_struct('until', 0L, 'found', filter(rows, r -> false))")
    folded = fn.aggregate(
        "rows",
        start,
        lambda state, one: fn.when(
            one["offset"] >= state["until"],
            fn.struct(one["end"].alias("until"), fn.concat(state["found"], fn.array(one)).alias("found")),
        ).otherwise(state),
        lambda state: state["found"],
    )
    found = candidates.groupBy("h", "p", "rewinds").agg(ordered).select("h", fn.explode(folded).alias("row"))
    return found.select("h", *[fn.col(f"row.{name}").alias(name) for name in ORDER], fn.lit(True).alias("is_stale"))
