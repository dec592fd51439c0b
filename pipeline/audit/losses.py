"""Rule (d): what was sent, or lies below a commit, and was never handled.

A set of offsets is kept as words, (h, word, bits): 64 offsets a row, so that ten million messages in order are 160,000
rows, made where the messages are read. What is in none of some sets is found as gaps between their pieces.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from lockstep.order import Kind
from lockstep.pipeline.audit.rules import RECORD
from lockstep.pipeline.audit.work import Work

__all__ = ["loss_findings", "losses", "words"]

_END = (1 << 63) - 1


def words(offsets: DataFrame, *keys: str) -> DataFrame:
    """(keys, word, bits) of a DataFrame with the keys and `offset`."""
    word = fn.shiftright("offset", 6).alias("word")
    bit = fn.expr("shiftleft(1L, cast(offset & 63 as int))")
    return offsets.groupBy(*keys, word).agg(fn.bit_or(bit).alias("bits"))


def _pieces(some: DataFrame) -> DataFrame:
    """(h, low, high): words as ranges of offsets, high excluded; a full word is one."""
    start = fn.col("word") * 64
    bit = fn.explode(fn.sequence(fn.lit(0), fn.lit(63))).alias("bit")
    full = some.where("bits = -1").select("h", start.alias("low"), (start + 64).alias("high"))
    parts = some.where("bits <> -1").select("h", "word", "bits", bit)
    is_set = fn.expr("shiftright(bits, bit) & 1") == 1
    single = parts.where(is_set).select(
        "h", (start + fn.col("bit")).alias("low"), (start + fn.col("bit") + 1).alias("high")
    )
    return full.unionByName(single)


def _gaps(covers: list[DataFrame], bounds: DataFrame) -> DataFrame:
    """(h, low, high): the ranges from 0 on that none of the pieces covers, for each h of `bounds`."""
    ends = bounds.select("h", fn.lit(0).cast("long").alias("low"), fn.lit(0).cast("long").alias("high")).unionByName(
        bounds.select("h", fn.lit(_END).alias("low"), fn.lit(_END).alias("high"))
    )
    covered = reduce(DataFrame.unionByName, [ends, *covers])
    earlier = Window.partitionBy("h").orderBy("low", "high").rowsBetween(Window.unboundedPreceding, -1)
    marked = covered.withColumn("end", fn.max("high").over(earlier))
    return marked.where("low > end").select("h", fn.col("end").alias("low"), fn.col("low").alias("high"))


def _measure(covers: list[DataFrame], name: str) -> DataFrame:
    """(h, name): how many offsets the pieces cover together."""
    earlier = Window.partitionBy("h").orderBy("low", "high").rowsBetween(Window.unboundedPreceding, -1)
    ends = reduce(DataFrame.unionByName, covers).withColumn("end", fn.coalesce(fn.max("high").over(earlier), fn.lit(0)))
    new = fn.greatest(fn.col("high") - fn.greatest("low", "end"), fn.lit(0))
    return ends.groupBy("h").agg(fn.sum(new).alias(name))


def losses(
    facts: DataFrame, sent: DataFrame, known: DataFrame, begins: DataFrame, work: Work
) -> tuple[DataFrame, DataFrame]:
    """What became of the messages: counts by h, and the unhandled ranges as (h, low, high, below, ...).

    `sent`: (h, word, bits) of the messages known to exist. `known`: (h, aged, is_emptied) of the histories whose topic
    has a known content; below `aged` its messages have left the broker, and count as having existed.
    """
    bounds = work.small(_bounds(facts, known, begins))
    done = facts.where("event in ('dead_lettered', 'sent_back') or status not in ('S', 'L')").select("h", "offset")
    handled = work.small(_pieces(words(done, "h")))
    skipped = _skipped(facts)
    unseen = fn.least("committed", fn.when(fn.col("is_known"), fn.col("aged")).otherwise(fn.col("committed")))
    presumed = bounds.where("not is_known or aged is not null").select(
        "h", fn.col("start").alias("low"), unseen.alias("high")
    )
    exists = [_pieces(sent), presumed.where("low < high")]
    is_open = _gaps([handled, skipped, _gaps(exists, bounds)], bounds).join(bounds, "h")
    ranges = work.small(is_open.select(*[name for name in is_open.columns if name not in ("low", "high")], *_split()))
    passed = [*exists, skipped.join(bounds.where("not is_known").select("h"), "h", "left_semi")]
    counts = [
        sent.groupBy("h").agg(fn.sum(fn.bit_count("bits")).alias("sent")),
        _measure([handled], "handled"),
        _measure([handled, *passed], "handled_or_passed"),
        ranges.groupBy("h").agg(*[fn.sum(name).alias(name) for name in ("early", "below", "rest")]),
    ]
    table = reduce(lambda one, other: one.join(other, "h", "left"), counts, bounds).na.fill(0)
    unhandled = fn.col("handled_or_passed") - fn.col("handled")
    rest = fn.col("rest")
    emptied = fn.when(fn.col("is_emptied"), rest).otherwise(0)
    table = table.select(
        "h", "sent", "handled",
        fn.col("early").alias("before_start"),
        (fn.col("below") + rest - emptied).alias("lost"),
        emptied.alias("emptied"),
        (unhandled - fn.col("early") - fn.col("below") - rest).alias("skipped"),
    )  # fmt: skip
    return table, ranges


def loss_findings(ranges: DataFrame) -> DataFrame:
    """Rule (d): ranges below the highest commit, with that commit as their proof."""
    lost = ranges.where("below > 0").select("h", "record", "low", (fn.col("low") + fn.col("below") - 1).alias("high"))
    return lost.select(
        "h", fn.lit(Kind.LOST_WRITE.value).alias("kind"), fn.lit(None).cast("string").alias("key"),
        fn.col("record").cast(RECORD).alias("one"), fn.lit(None).cast(RECORD).alias("other"), "low", "high",
    )  # fmt: skip


def _split() -> list[Column]:
    """A range as what lies before the group's start, below its highest commit, and above; `below` begins at low."""
    start = fn.coalesce("start", fn.lit(0))
    low = fn.greatest("low", start)
    split = fn.greatest(low, fn.coalesce(fn.when(fn.col("start").isNotNull(), fn.col("committed")), fn.lit(0)))
    return [
        low.alias("low"),
        fn.greatest(fn.least("high", start) - fn.col("low"), fn.lit(0)).alias("early"),
        fn.greatest(fn.least("high", split) - low, fn.lit(0)).alias("below"),
        fn.greatest(fn.col("high") - split, fn.lit(0)).alias("rest"),
    ]


def _bounds(facts: DataFrame, known: DataFrame, begins: DataFrame) -> DataFrame:
    """(h, start, committed, record, is_known, aged, is_emptied): the lowest first position and the highest commit."""
    evidence = fn.struct("offset", "p", "wall_ms", "source", "line")
    earliest = fn.struct("offset", -fn.col("time_ns"), -fn.col("line"))
    commits = facts.where("event = 'committed'").groupBy("h").agg(fn.max_by(evidence, earliest).alias("record"))
    starts = begins.groupBy("h").agg(fn.min("offset").alias("start"))
    all_of_them = facts.select("h").union(known.select("h")).distinct()
    return (
        all_of_them.join(starts, "h", "left")
        .join(commits, "h", "left")
        .join(known.withColumn("is_known", fn.lit(True)), "h", "left")
        .withColumns({
            "committed": fn.col("record.offset"),
            "is_known": fn.coalesce("is_known", fn.lit(False)),
            "is_emptied": fn.coalesce("is_emptied", fn.lit(False)),
        })
    )  # fmt: skip


def _skipped(facts: DataFrame) -> DataFrame:
    """(h, low, high): what resets passed over."""
    passed = fn.coalesce("mark.offset", fn.greatest("start_before", fn.lit(0)))
    resets = facts.where("event = 'reset'").select("h", passed.alias("low"), fn.col("offset").alias("high"))
    return resets.where("low < high")
