"""Raw tables become keyed events in order: the flights as the demo makes them, and any CSV, Parquet or JSON lines."""

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lockstep.pipeline.errors import ColumnError
from lockstep.pipeline.jobs.publish import EventColumns, InputFormat, read_raw, transform
from scripts.demo.producer import AircraftOrder, body_of
from scripts.flights import FLIGHTS_ZIP, read_flights
from scripts.pipeline.events import flight_events, unpack
from tests.scripts.test_flights import ROWS, archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = EventColumns("who", ("at",))
SEVERAL_BLOCKS = 64 * 1024


def by_key(events: "DataFrame") -> dict[str, list[tuple[str, str]]]:
    """(tags, value) of each key's events, in the order in which a task would send them."""
    stories: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in events.collect():
        stories[row["shardingKey"]].append((row["tags"], row["value"]))
    return dict(stories)


def as_the_demo_makes_them(path: Path, limit: int | None = None) -> dict[str, list[tuple[str, str]]]:
    numbers, stories = AircraftOrder(), defaultdict(list)
    for event in read_flights(path, limit).events:
        stories[event.key].append((event.kind, body_of(event, numbers.next_number(event.key)).decode()))
    return dict(stories)


def test_spark_makes_the_flights_that_the_demo_makes(spark: "SparkSession", tmp_path: Path) -> None:
    """Late, diverted, cancelled, without an aircraft, never arrived: the same bytes in the same order for each key."""
    path = archive(tmp_path, *ROWS, *(row.replace("N1", "N9") for row in ROWS))
    assert by_key(flight_events(spark, unpack(path, tmp_path))) == as_the_demo_makes_them(path)


@pytest.mark.skipif(not FLIGHTS_ZIP.exists(), reason="the flights are fetched by make demo and make pipeline")
def test_the_first_flights_of_the_year_are_the_demos(spark: "SparkSession", tmp_path: Path) -> None:
    """20,000 real flights, whose file Spark reads in several blocks."""
    path = unpack(FLIGHTS_ZIP, tmp_path, 20_000)
    spark.conf.set("spark.sql.files.maxPartitionBytes", str(SEVERAL_BLOCKS))
    try:
        assert by_key(flight_events(spark, path)) == as_the_demo_makes_them(FLIGHTS_ZIP, 20_000)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


@pytest.mark.parametrize("kind", list(InputFormat))
def test_every_format_makes_the_same_events(spark: "SparkSession", tmp_path: Path, kind: InputFormat) -> None:
    """CSV, Parquet and JSON lines of one table: the rest of the columns is the message, as JSON."""
    rows = [("b", 2, "x"), ("a", 3, "y"), ("a", 1, "z"), ("b", 1, "w")]
    frame = spark.createDataFrame(rows, "who string, at int, what string").coalesce(1)
    path = str(tmp_path / "table")
    frame.write.options(header=True).format(kind.value).save(path)
    options = {"inferSchema": "true"} if kind is InputFormat.CSV else {}
    raw = read_raw(spark, [path], kind, options=options)
    found = transform(raw, EventColumns("who", ("at",), tags="what")).collect()
    stories = {key: [row["value"] for row in found if row["shardingKey"] == key] for key in "ab"}
    assert stories == {"a": ['{"what":"z"}', '{"what":"y"}'], "b": ['{"what":"w"}', '{"what":"x"}']}
    assert [row["tags"] for row in found if row["shardingKey"] == "a"] == ["z", "y"]


def test_one_column_of_text_is_the_message_itself(spark: "SparkSession") -> None:
    """A single string or binary column is not wrapped in JSON; a number is."""
    frame = spark.createDataFrame([("a", 1, "as it is", 7)], "who string, at int, text string, count int")
    (as_text,) = transform(frame, COLUMNS._replace(value=("text",))).collect()
    (as_json,) = transform(frame, COLUMNS._replace(value=("count",))).collect()
    assert (as_text["value"], json.loads(as_json["value"])) == ("as it is", {"count": 7})


def test_rows_are_numbered_as_they_lie_in_the_files(spark: "SparkSession", tmp_path: Path) -> None:
    """File after file by path, line after line, from 0."""
    for name, lines in (("b.csv", "who\nx\ny\n"), ("a.csv", "who\nu\nv\n")):
        (tmp_path / name).write_text(lines, encoding="utf-8")
    raw = read_raw(spark, [str(tmp_path / "b.csv"), str(tmp_path / "a.csv")], InputFormat.CSV, row_column="row")
    numbered = sorted((row["row"], row["who"]) for row in raw.collect())
    assert numbered == [(0, "u"), (1, "v"), (2, "x"), (3, "y")]


WRONG: list[tuple[EventColumns, str]] = [
    (EventColumns("nobody", ("at",)), "there is no column nobody; there are who, at, what"),
    (EventColumns("who", ("then",)), "there is no column then"),
    (EventColumns("who", ("at",), tags="kind"), "there is no column kind"),
    (EventColumns("who", ()), "name at least one column"),
]


@pytest.mark.parametrize(("columns", "said"), WRONG, ids=["key", "order", "tags", "no order"])
def test_a_column_that_is_not_there_is_named(spark: "SparkSession", columns: EventColumns, said: str) -> None:
    """Before anything runs, with those that there are."""
    frame = spark.createDataFrame([("a", 1, "x")], "who string, at int, what string")
    with pytest.raises(ColumnError, match=said):
        transform(frame, columns)


@pytest.mark.parametrize("key", [None, ""], ids=["null", "empty"])
def test_a_row_without_a_key_fails(spark: "SparkSession", key: str | None) -> None:
    """It would go to any queue, out of order. The error shows the row."""
    frame: Any = spark.createDataFrame([("a", 1, "x"), (key, 2, "y")], "who string, at int, what string")
    with pytest.raises(Exception, match=r'publish: a row has no who, which is its key: {.*"at":2,"what":"y"}'):
        transform(frame, COLUMNS).collect()


def test_a_broken_line_fails(spark: "SparkSession", tmp_path: Path) -> None:
    """A line that is no JSON is an error that says so, not an event of nulls."""
    path = tmp_path / "lines.json"
    path.write_text('{"who":"a","at":1}\n{"who":', encoding="utf-8")
    with pytest.raises(Exception, match="MALFORMED_RECORD_IN_PARSING"):
        read_raw(spark, [str(path)], InputFormat.JSON).collect()
