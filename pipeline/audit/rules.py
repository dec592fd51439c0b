"""Rules (a), (c) and the commits of (d): from facts to *findings*.

A finding is (h, kind, key, one, other, low, high): `one` is the offending record and `other` the one it offends, each
of (offset, p, wall_ms, source, line); `low` and `high` are numbers that its sentence needs.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from lockstep.order import Kind
from lockstep.pipeline.audit.histories import ORDER

__all__ = ["RECORD", "commit_findings", "finding", "key_findings", "overlap_findings", "repeat_findings"]

RECORD: Final = "struct<offset:bigint,p:bigint,wall_ms:bigint,source:int,line:bigint>"


def _record(prefix: str = "") -> Column:
    """A row as the evidence it is; with a prefix, that of a struct."""
    return fn.struct(*[fn.col(f"{prefix}{name}") for name in ("offset", "p", "wall_ms", "source", "line")]).cast(RECORD)


def finding(
    rows: DataFrame, kind: Column | Kind, other: Column, key: Column | None = None, **numbers: Column
) -> DataFrame:
    """Rows as findings of one shape."""
    no_number = fn.lit(None).cast("long")
    return rows.select(
        "h",
        (kind if isinstance(kind, Column) else fn.lit(kind.value)).alias("kind"),
        (fn.col("key") if key is None else key).alias("key"),
        _record().alias("one"),
        other.alias("other"),
        numbers.get("low", no_number).cast("long").alias("low"),
        numbers.get("high", no_number).cast("long").alias("high"),
    )


def key_findings(late: DataFrame, facts: DataFrame) -> DataFrame:
    """Rule (a): first handled after a later message of its key was. Only keys of late rows are read."""
    firsts = late.where("not is_repeat and ordering <> 'N'")
    keys = firsts.select(
        "h", fn.coalesce("key", fn.lit("")).alias("name"), fn.col("key").isNull().alias("no_key")
    ).distinct()
    named = facts.where("event = 'handled' and ordering <> 'N'").withColumns({
        "name": fn.coalesce("key", fn.lit("")),
        "no_key": fn.col("key").isNull(),
    })  # fmt: skip
    by_key = Window.partitionBy("h", "name", "no_key").orderBy(*ORDER).rowsBetween(Window.unboundedPreceding, -1)
    newest = fn.struct("offset", (-fn.col("time_ns")).alias("early"), "p", "wall_ms", "source", "line")
    again = late.where("is_repeat").select("h", *ORDER)
    mine = named.join(keys, ["h", "name", "no_key"], "left_semi").join(again, ["h", *ORDER], "left_anti")
    rows = mine.withColumn("last", fn.max(newest).over(by_key))
    out = rows.where("offset < last.offset").join(firsts.select("h", *ORDER), ["h", *ORDER], "left_semi")
    return finding(out, Kind.NONMONOTONIC_POLL, _record("last."))


def overlap_findings(facts: DataFrame, clock_tolerance_ms: int | None) -> DataFrame:
    """Rule (c): a call that began before another owner's had ended.

    Within a host by the monotonic clock; across hosts by the wall clock, and only when it is more than the tolerance,
    or not at all when that is None. Only histories in which some call might be one are read again.
    """
    calls = facts.where("event = 'handled' and begin_mono_ns is not null and ordering <> 'N'")
    suspicious = fn.col("begin_ns") < fn.col("other_end_ns")
    if clock_tolerance_ms is not None:
        suspicious |= fn.col("begin_wall_ms") + clock_tolerance_ms < fn.col("other_host_end_ms")
    calls = calls.join(calls.where(suspicious).select("h").distinct(), "h", "left_semi")
    found = _newest_of_another(calls, ["h", "host"], "p").where("other.mono_ns > begin_mono_ns")
    findings = finding(found, Kind.OVERLAP, _record("other."))
    if clock_tolerance_ms is not None:
        across = _newest_of_another(calls, ["h"], "host").where("other.p <> p")
        across = across.where(fn.col("other.wall_ms") > fn.col("begin_wall_ms") + clock_tolerance_ms)
        findings = findings.unionByName(finding(across, Kind.OVERLAP, _record("other.")))
    return findings


def _newest_of_another(calls: DataFrame, within: list[str], name: str) -> DataFrame:
    """`other`: the newest call before each that has another `name`."""
    in_order = Window.partitionBy(*within).orderBy(*ORDER)
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    call = fn.struct("offset", "p", "wall_ms", "source", "line", "mono_ns", "host")
    rows = calls.withColumn("prev", fn.lag(call).over(in_order))
    changed = fn.when(fn.col(f"prev.{name}") != fn.col(name), fn.col("prev"))
    return rows.withColumn("other", fn.last(changed, ignorenulls=True).over(so_far))


def commit_findings(facts: DataFrame) -> DataFrame:
    """Rule (d): a commit below the commit, reset or position before it."""
    back = facts.where("event = 'committed' and offset < mark.offset")
    is_owner = fn.coalesce(fn.col("owner.p") == fn.col("p"), fn.lit(False))
    same = (fn.col("mark.event") != "committed") | (fn.col("mark.p") == fn.col("p"))
    kind = fn.when(is_owner & same, Kind.COMMIT_REGRESS.value).otherwise(Kind.STALE_COMMIT.value)
    return finding(back, kind, _record("mark."))


def repeat_findings(repeats: DataFrame) -> DataFrame:
    """Rule (b), of what `repeats` has classified."""
    wrong = repeats.where("kind is not null")
    below = fn.col("kind") == Kind.REWIND_BELOW_COMMIT.value
    stale = fn.col("kind") == Kind.STALE_REPEAT.value
    other = fn.when(below, _record("floor_record.")).when(~stale, _record("prev."))
    other = fn.when(other["line"].isNotNull(), other)
    return finding(wrong, fn.col("kind"), other, low=fn.col("floor"), high=fn.col("expected"))
