"""Findings to violations: names for numbers, places in the files, and a sentence for each."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from lockstep.order import Kind

__all__ = ["violations"]

RULES: Final = {
    Kind.NONMONOTONIC_POLL: "a",
    Kind.UNEXPLAINED_REPEAT: "b",
    Kind.STALE_REPEAT: "b",
    Kind.REWIND_BELOW_COMMIT: "b",
    Kind.POLL_SKIP: "b",
    Kind.OVERLAP: "c",
    Kind.LOST_WRITE: "d",
    Kind.COMMIT_REGRESS: "d",
    Kind.STALE_COMMIT: "d",
}
# {one} and {other} are "client (period 1)", {queue} is "topic@broker:0"; the rest are numbers and names of the finding.
SENTENCES: Final = {
    Kind.NONMONOTONIC_POLL: "{one} first handled offset {offset} {key} of {queue} after offset {before}, by {other}",
    Kind.UNEXPLAINED_REPEAT: "{one} went back from offset {high} to {offset} though no attempt had failed, in {queue}",
    Kind.STALE_REPEAT: "{one} repeated offset {offset} although its ownership was over, in {queue}",
    Kind.REWIND_BELOW_COMMIT: "{one} began at offset {offset}, below the stored commit {low}, in {queue}",
    Kind.POLL_SKIP: "{one} repeated offset {offset} but left out some from {high} on, in {queue}",
    Kind.OVERLAP: "{one} began offset {offset} of {queue} while {other} was still handling offset {before}",
    Kind.LOST_WRITE: "{one} committed {queue} up to {offset}, but nobody handled {range}",
    Kind.COMMIT_REGRESS: "{one} moved the commit of {queue} back from {before} to {offset}",
    Kind.STALE_COMMIT: "{one} moved the commit of {queue} back from {before} to {offset}, its ownership over",
}


def violations(findings: DataFrame, queues: DataFrame, periods: DataFrame, files: DataFrame) -> DataFrame:
    """Findings (see rules.py) as the table `violations`, sorted by nothing: they may be many."""
    rows = findings.join(fn.broadcast(queues), "h")
    for which in ("one", "other"):
        named = periods.select(
            fn.col("p").alias(f"{which}_p"),
            fn.col("client_id").alias(f"{which}_client"),
            fn.format_string("%s (period %s)", fn.col("client_id"), fn.col("period")).alias(f"{which}_name"),
        )
        placed = files.select(
            "history", fn.col("source").alias(f"{which}_source"), fn.col("file").alias(f"{which}_file")
        )
        rows = rows.withColumns({f"{which}_p": fn.col(f"{which}.p"), f"{which}_source": fn.col(f"{which}.source")})
        rows = rows.join(fn.broadcast(named), f"{which}_p", "left")
        rows = rows.join(fn.broadcast(placed), ["history", f"{which}_source"], "left")
    both = ("one", "other")
    return rows.select(
        "history", "kind", _rule().alias("rule"), "group", "topic", "broker", "queue_id", "key",
        _each([fn.col(f"{which}.offset") for which in both]).alias("offsets"),
        _each([fn.col(f"{which}_client") for which in both]).alias("processes"),
        _each([fn.col(f"{which}.wall_ms") for which in both]).alias("times_ms"),
        _each([fn.concat_ws(":", f"{which}_file", f"{which}.line") for which in both], present="line").alias("places"),
        _sentence().alias("evidence"),
    )  # fmt: skip


def _each(columns: list[Column], present: str = "") -> Column:
    """An array of what there is of both records."""
    if present:
        columns = [
            fn.when(fn.col(f"{which}.{present}").isNotNull(), column)
            for which, column in zip(("one", "other"), columns, strict=True)
        ]
    return fn.array_compact(fn.array(*columns))


def _rule() -> Column:
    return fn.create_map(*[fn.lit(text) for kind, rule in RULES.items() for text in (kind.value, rule)])[fn.col("kind")]


def _sentence() -> Column:
    """The sentence of the kind, with its places filled in."""
    values: dict[str, Column] = {
        "one": fn.col("one_name"),
        "other": fn.col("other_name"),
        "queue": fn.format_string("%s@%s:%d", "topic", "broker", "queue_id"),
        "key": fn.coalesce(fn.concat(fn.lit("of key '"), "key", fn.lit("'")), fn.lit("without a key")),
        "offset": fn.col("one.offset").cast("string"),
        "before": fn.col("other.offset").cast("string"),
        "low": fn.col("low").cast("string"),
        "high": fn.col("high").cast("string"),
        "range": fn.when(fn.col("low") == fn.col("high"), fn.format_string("offset %d", "low")).otherwise(
            fn.format_string("offsets %d to %d", "low", "high")
        ),
    }
    chosen: Column = fn.lit(None).cast("string")
    for kind, sentence in SENTENCES.items():
        chosen = fn.when(fn.col("kind") == kind.value, _filled(sentence, values)).otherwise(chosen)
    return chosen


def _filled(sentence: str, values: dict[str, Column]) -> Column:
    parts: list[Column] = []
    for text in sentence.split("{"):
        name, brace, rest = text.partition("}")
        parts += [fn.coalesce(values[name], fn.lit("?")), fn.lit(rest)] if brace else [fn.lit(text)]
    return fn.concat(*parts)
