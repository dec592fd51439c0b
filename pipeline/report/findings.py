"""What a report shows, collected from the tables of an audit: bounded, however large those are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["AuditFindings", "Row", "collect"]

Row = dict[str, Any]

EVIDENCE_SHOWN: Final = 102  # findings of a kind
OWNERS_SHOWN: Final = 4_000
HANDOVERS_SHOWN: Final = 2_000
QUEUES_SHOWN: Final = 300
BROKEN_LINES_SHOWN: Final = 50
POINTS: Final = 600  # of a curve
_QUEUE: Final = ("group", "topic", "broker", "queue_id")


@dataclass(slots=True)
class AuditFindings:
    """One history. Rows have the columns of the audit's TABLES; times are epoch milliseconds."""

    history: str
    summary: Row
    kinds: list[Row] = field(default_factory=list)  # kind, rule, undecided, findings
    violations: list[Row] = field(default_factory=list)
    undecided: list[Row] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    clocks: list[str] = field(default_factory=list)
    duplicates: list[Row] = field(default_factory=list)  # cause, messages
    handovers: list[Row] = field(default_factory=list)
    owners: list[Row] = field(default_factory=list)
    latency: list[Row] = field(default_factory=list)
    broken_lines: list[Row] = field(default_factory=list)
    rate_bin_s: int = 1
    rates: list[Row] = field(default_factory=list)  # second_ms, attempts, repeats: sums of rate_bin_s seconds
    lag: list[Row] = field(default_factory=list)  # at_ms, topic, broker, queue_id, lag


def collect(tables: "Mapping[str, DataFrame]", lag: "DataFrame | None" = None) -> list[AuditFindings]:
    """A history each, in the order of their names. `lag`: what the job lag has written; it belongs to the first."""
    from pyspark.sql import functions as F  # noqa: N812

    found = []
    for row in tables["summary"].orderBy("history").collect():
        mine = {name: table.where(F.col("history") == row["history"]) for name, table in tables.items()}
        found.append(_history(row["history"], row.asDict(), mine))
    if lag is not None and found:
        found[0].lag = _lag(lag)
    return found


def _history(name: str, summary: Row, tables: "Mapping[str, DataFrame]") -> AuditFindings:
    from pyspark.sql import functions as F  # noqa: N812

    by_cause = tables["duplicates"].groupBy("cause").agg(F.sum("messages").alias("messages"))
    findings = AuditFindings(
        name,
        summary,
        _rows(_kinds(tables)),
        _some_of_each_kind(tables["violations"]),
        _some_of_each_kind(tables["undecided"]),
        [row["sentence"] for row in _rows(tables["unseen"])],
        [row["sentence"] for row in _rows(tables["clocks"]) if row["sentence"]],
        _rows(by_cause.orderBy(F.desc("messages"), "cause")),
        _rows(tables["handovers"].orderBy(F.desc("duration_ms")).limit(HANDOVERS_SHOWN)),
        _rows(tables["owners"].orderBy(F.desc("overlaps"), *_QUEUE, "from_ms").limit(OWNERS_SHOWN)),
        _rows(tables["latency"].orderBy("measure", *_QUEUE).limit(QUEUES_SHOWN)),
        _rows(tables["broken_lines"].orderBy("torn", "file", "line").limit(BROKEN_LINES_SHOWN)),
    )
    findings.rate_bin_s, findings.rates = _rates(tables["rates"])
    return findings


def _kinds(tables: "Mapping[str, DataFrame]") -> "DataFrame":
    """How many findings of each kind there are; counted here where the audit has not counted them."""
    from pyspark.sql import functions as F  # noqa: N812

    if not tables["kinds"].isEmpty():
        return tables["kinds"].orderBy("undecided", "rule", "kind")
    counted = tables["violations"].groupBy("rule", "kind").agg(F.count("*").alias("findings"))
    return counted.withColumn("undecided", F.lit(False)).orderBy("rule", "kind")


def _some_of_each_kind(table: "DataFrame") -> list[Row]:
    """The findings with evidence, of each kind in time order; an audit that keeps all of them is cut here."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    found = _rows(table.limit(EVIDENCE_SHOWN))
    if len(found) == EVIDENCE_SHOWN:
        place = F.row_number().over(Window.partitionBy("kind").orderBy(F.col("word").isNull(), *_QUEUE))
        found = _rows(table.withColumn("place", place).where(f"place <= {EVIDENCE_SHOWN}").drop("place"))
    return sorted(found, key=_in_kind)


def _in_kind(row: Row) -> tuple[str, str, int, int]:
    """The first finding of its kind before all others, the last behind them."""
    word, times = row["word"] or "", row["times_ms"] or [0]
    rank = 0 if "first" in word else 2 if "last" in word else 1
    return row["rule"], row["kind"], rank, times[0] or 0


def _rows(table: "DataFrame") -> list[Row]:
    return [row.asDict() for row in table.collect()]


def _rates(table: "DataFrame") -> tuple[int, list[Row]]:
    from pyspark.sql import functions as F  # noqa: N812

    (span,) = table.agg(F.min("second_ms").alias("begin"), F.max("second_ms").alias("end")).collect()
    if span["begin"] is None:
        return 1, []
    bin_s = max(1, (span["end"] - span["begin"]) // 1000 // POINTS)
    sums = [F.sum(name).alias(name) for name in ("attempts", "repeats")]
    return bin_s, _rows(table.groupBy(_binned("second_ms", bin_s * 1000)).agg(*sums).orderBy("second_ms"))


def _lag(table: "DataFrame") -> list[Row]:
    """Of each bin the last look, a queue."""
    from pyspark.sql import functions as F  # noqa: N812

    told = table.where("lag is not null")
    (span,) = told.agg(F.min("at_ms").alias("begin"), F.max("at_ms").alias("end")).collect()
    if span["begin"] is None:
        return []
    bin_ms = max(1, (span["end"] - span["begin"]) // POINTS)
    keys = (_binned("at_ms", bin_ms), "topic", "broker", "queue_id")
    return _rows(told.groupBy(*keys).agg(F.max_by("lag", "at_ms").alias("lag")).orderBy("at_ms"))


def _binned(name: str, bin_ms: int) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    return (F.floor(F.col(name) / bin_ms) * bin_ms).cast("long").alias(name)
