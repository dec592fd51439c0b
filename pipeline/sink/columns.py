"""Columns of a DataFrame to send: types are checked once, values are taken from Arrow a batch at a time."""

import struct
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lockstep.pipeline.errors import ColumnError, RowError
from lockstep.pipeline.options import Options
from lockstep.pipeline.schema import COLUMNS, SINK_COLUMNS

__all__ = ["SinkColumns", "bodies", "check_columns", "order_values", "texts"]

_ORDERABLE: Final = (
    NumericType, DecimalType, DateType, TimestampType, TimestampNTZType, StringType, BinaryType, BooleanType,
)  # fmt: skip
_ORDERABLE_NAMES: Final = "a number, a date, a timestamp, string, binary or boolean"


class SinkColumns(NamedTuple):
    """Position of each column, None for an absent one. `order_by` has names and positions."""

    value: int
    key: int | None
    topic: int | None
    tags: int | None
    sharding_key: int | None
    headers: int | None
    order_by: tuple[tuple[str, int], ...]


def check_columns(schema: StructType, options: Options) -> SinkColumns:
    """Raises ColumnError that names the column and the types it may have.

    Names match in any case, as in Spark. Columns that only a read makes (offset, brokerName ...) are ignored, so that a
    read DataFrame can be sent again. Any other column is an error, because it may be misspelt.
    """
    positions: dict[str, int] = {}
    names = {name.lower(): name for name in SINK_COLUMNS}
    left_aside = {name.lower() for name in COLUMNS} | {name.lower() for name in options.order_by}
    for position, field in enumerate(schema.fields):
        name = names.get(field.name.lower())
        if name is None:
            if field.name.lower() not in left_aside:
                raise ColumnError(
                    f"there is no place for column {field.name} in a message; there is for {', '.join(SINK_COLUMNS)}."
                    " Drop it, or name it in option orderBy"
                )
            continue
        if name in positions:
            raise ColumnError(f"there are two columns {name}")
        _check_type(name, field.dataType)
        positions[name] = position
    return SinkColumns(
        _value_position(positions),
        positions.get("key"),
        None if options.topic else _topic_position(positions),
        positions.get("tags"),
        positions.get("shardingKey"),
        positions.get("headers"),
        tuple((name, _order_position(schema, name)) for name in options.order_by),
    )


def _check_type(name: str, found: DataType) -> None:
    allowed = SINK_COLUMNS[name]
    if not any(_like(found) == _like(one) for one in allowed):
        types = " or ".join(one.simpleString() for one in allowed)
        raise ColumnError(f"column {name} must be {types}, not {found.simpleString()}")


def _like(found: DataType) -> str:
    """Whether two types are equal apart from nullability and collation."""
    return "string" if isinstance(found, StringType) else found.simpleString()


def _value_position(positions: dict[str, int]) -> int:
    found = [name for name in ("value", "body") if name in positions]
    if len(found) != 1:
        what = "there is neither" if not found else "there are both"
        raise ColumnError(f"a message needs one column value (or body), binary or string, and {what}")
    return positions[found[0]]


def _topic_position(positions: dict[str, int]) -> int:
    if "topic" not in positions:
        raise ColumnError('where to? Give option("topic", "..."), or a column topic, string')
    return positions["topic"]


def _order_position(schema: StructType, name: str) -> int:
    for position, field in enumerate(schema.fields):
        if field.name.lower() == name.lower():
            if not isinstance(field.dataType, _ORDERABLE):
                found = field.dataType.simpleString()
                raise ColumnError(f"column {name} of option orderBy must be {_ORDERABLE_NAMES}, not {found}")
            return position
    raise ColumnError(f"option orderBy: there is no column {name}; there are {', '.join(schema.fieldNames())}")


# From Arrow -----------------------------------------------------------------------------------------------------------


def bodies(column: pa.Array, first_row: int) -> list[bytes]:
    """Message bodies.

    Raises RowError for a null, and for an empty one, which producers may not send (wire.md 12.11).
    """
    if column.null_count:
        raise RowError(f"row {first_row + _first(column.is_null())}: value is null; a message has a body")
    slices = _slices(column)
    if not all(slices):
        raise RowError(f"row {first_row + slices.index(b'')}: value is empty; a message has a body of 1 byte or more")
    return slices


def texts(column: pa.Array, name: str, first_row: int) -> list[str | None]:
    """Texts of a string or binary column; each distinct text is made once.

    Raises RowError for bytes that are not UTF-8.
    """
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        column = column.cast(pa.binary() if "binary" in str(column.type) else pa.string())
    encoded = column.dictionary_encode()
    words: list[str | None] = []
    for number, word in enumerate(_slices(encoded.dictionary)):
        try:
            words.append(word.decode())
        except UnicodeDecodeError:
            row = first_row + _first(pc.equal(encoded.indices, number))
            raise RowError(f"row {row}: {name} is no UTF-8 text, and RocketMQ's properties are text") from None
    words.append(None)  # the last element, for index -1
    indices = encoded.indices.fill_null(-1)
    _, data = indices.buffers()
    numbers = memoryview(data).cast("i")[indices.offset : indices.offset + len(indices)]
    return [words[number] for number in numbers]


def order_values(column: pa.Array, name: str, first_row: int) -> list[Any]:
    """Comparable values. Raises RowError for a null or a NaN, which have no order."""
    if column.null_count:
        raise RowError(f"row {first_row + _first(column.is_null())}: {name}, a column of option orderBy, is null")
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        raise RowError(f"row {first_row + _first(pc.is_nan(column))}: {name}, a column of option orderBy, is NaN")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        values: list[Any] = column.to_numpy().tolist()
        return values
    pylist: list[Any] = column.to_pylist()
    return pylist


def _first(mask: pa.Array) -> int:
    index: int = pc.index(mask, True).as_py()
    return index


def _slices(column: pa.Array) -> list[bytes]:
    """The bytes of every value of a column without nulls; much faster than `to_pylist`."""
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
        column = column.cast(pa.binary())
    if not len(column):
        return []
    _, offset_buffer, data_buffer = column.buffers()
    ends = struct.unpack_from(f"{len(column) + 1}i", offset_buffer, column.offset * 4)
    start, stop = ends[0], ends[-1]
    data = data_buffer.slice(start, stop - start).to_pybytes() if stop > start else b""
    return [data[begin - start : end - start] for begin, end in pairwise(ends)]
