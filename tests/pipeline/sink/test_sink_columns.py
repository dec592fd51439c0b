"""Columns that may be sent, and what Arrow's become."""

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType, _parse_datatype_string

from lockstep.pipeline.errors import ColumnError, RowError
from lockstep.pipeline.options import Options
from lockstep.pipeline.schema import source_schema
from lockstep.pipeline.sink.columns import bodies, check_columns, order_values, texts

TO_T = Options(topic="t")


def schema(ddl: str) -> StructType:
    found = _parse_datatype_string(ddl)
    assert isinstance(found, StructType)
    return found


@pytest.fixture(autouse=True)
def _session(spark: object) -> None:
    """Spark's JVM reads DDL."""


@pytest.mark.parametrize(
    ("ddl", "options", "words"),
    [
        ("key string", TO_T, ["one column value (or body)", "neither"]),
        ("value string, body string", TO_T, ["one column value (or body)", "both"]),
        ("value int", TO_T, ["column value", "binary or string", "int"]),
        ("value string, key bigint", TO_T, ["column key", "binary or string", "bigint"]),
        ("value string, tags array<string>", TO_T, ["column tags", "string", "array<string>"]),
        ("value string, headers map<string,string>", TO_T, ["column headers", "array<struct<key:string,"]),
        ("value string, shardingkye string", TO_T, ["column shardingkye", "shardingKey"]),
        ("value string", Options(), ["topic"]),
        ("value string", Options(topic="t", order_by=("at",)), ["orderBy", "column at", "value"]),
        ("value string, at map<string,int>", Options(topic="t", order_by=("at",)), ["column at", "timestamp", "map"]),
    ],
)  # fmt: skip
def test_a_wrong_column_is_named(ddl: str, options: Options, words: list[str]) -> None:
    """A DataFrame that cannot be sent is refused with the column and what it may be."""
    with pytest.raises(ColumnError) as caught:
        check_columns(schema(ddl), options)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_columns_are_found_in_any_case_and_order() -> None:
    """Spark's names have no case; option topic stands in for its column; orderBy may name a column of no message."""
    found = check_columns(
        schema("at timestamp, TOPIC string, ShardingKey string, Value binary"), Options(topic="t", order_by=("AT",))
    )
    assert found == (3, None, None, None, 2, None, (("AT", 0),))
    assert check_columns(schema("topic string, body string"), Options()).topic == 0


def test_what_was_read_can_be_sent() -> None:
    """Columns that only a read makes are left aside."""
    found = check_columns(source_schema(include_properties=True), TO_T)
    assert None not in (found.value, found.key, found.tags, found.sharding_key, found.headers)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.string_view()])
def test_bodies_and_texts_of_every_kind(kind: pa.DataType) -> None:
    """Any layout of Arrow's gives the same bytes and texts, of a slice as well."""
    column = pa.array(["left out", "a", "bb", "ä", "bb"], kind).slice(1)
    assert bodies(column, 0) == [b"a", b"bb", "ä".encode(), b"bb"]
    assert texts(column, "key", 0) == ["a", "bb", "ä", "bb"]


def test_texts_may_be_null() -> None:
    """A null stays one, also where all are null or there is nothing."""
    assert texts(pa.array(["a", None, "b", None]).slice(1), "key", 0) == [None, "b", None]
    assert texts(pa.array([None, None], pa.string()), "key", 0) == [None, None]
    assert texts(pa.array([], pa.binary()), "key", 0) == []


def test_rows_that_cannot_be_sent_are_numbered() -> None:
    """The row in the partition is named, not that in the batch."""
    with pytest.raises(RowError, match="row 12: value is null"):
        bodies(pa.array([b"a", b"b", None]), 10)
    with pytest.raises(RowError, match="row 11: value is empty"):
        bodies(pa.array(["a", ""]), 10)
    with pytest.raises(RowError, match="row 11: key is no UTF-8"):
        texts(pa.array([b"a", b"\xff", b"a"]), "key", 10)
    with pytest.raises(RowError, match=r"row 11: at.*null"):
        order_values(pa.array([1, None]), "at", 10)
    with pytest.raises(RowError, match=r"row 11: at.*NaN"):
        order_values(pa.array([1.0, float("nan")]), "at", 10)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2], pa.int64()), pa.array([1, 2], pa.timestamp("us", tz="UTC")), pa.array([1, 2], pa.date32()),
        pa.array(["a", "b"]), pa.array([b"a", b"b"]), pa.array([1.5, 2.5]), pa.array([False, True]),
        pa.array([Decimal("1.10"), Decimal("1.20")]),
    ],
)  # fmt: skip
def test_order_values_compare(column: pa.Array) -> None:
    """Whatever a column of orderBy may be, its values compare as Spark sorts them."""
    first, second = order_values(column, "at", 0)
    assert first < second
