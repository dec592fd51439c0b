"""The columns of a topic, named as Spark's Kafka source names them, and ours behind those.

`key` is the sharding key where a message has one, for that decides its queue as Kafka's key does; else RocketMQ's keys.
`partition` and `queueId` are the same number; with several brokers only (topic, brokerName, queueId) names a queue.
`timestamp` is when the broker stored the message: `timestampType` is always 1, Kafka's LogAppendTime.
`bodyError` says why a body could not be unpacked, or a record is no message; `value` is then what is stored. Else null.
`headers` come with the option includeProperties: every property of the message, RocketMQ's own among them.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lockstep.pipeline.errors import OptionError

__all__ = ["COLUMNS", "HEADERS", "LOG_APPEND_TIME", "SINK_COLUMNS", "checked_schema", "source_schema"]

LOG_APPEND_TIME: Final = 1
HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_ORDINARY: Final[tuple[tuple[str, DataType], ...]] = (
    ("key", BinaryType()),
    ("value", BinaryType()),
    ("topic", StringType()),
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("timestamp", TimestampType()),
    ("timestampType", IntegerType()),
    ("brokerName", StringType()),
    ("queueId", IntegerType()),
    ("storeTimestamp", TimestampType()),
    ("bornTimestamp", TimestampType()),
    ("tags", StringType()),
    ("keys", StringType()),
    ("shardingKey", StringType()),
    ("msgId", StringType()),
    ("flag", IntegerType()),
    ("reconsumeTimes", IntegerType()),
    ("bodyError", StringType()),
)
COLUMNS: Final[dict[str, DataType]] = {**dict(_ORDINARY), "headers": HEADERS}
"""Every column that a reader can make."""
SINK_COLUMNS: Final[dict[str, tuple[DataType, ...]]] = {
    "value": (BinaryType(), StringType()),
    "body": (BinaryType(), StringType()),
    "key": (BinaryType(), StringType()),
    "topic": (StringType(),),
    "tags": (StringType(),),
    "shardingKey": (StringType(),),
    "headers": (HEADERS,),
}
"""The columns that a writer takes, and of which types; value (or body) is required."""


def source_schema(names: Sequence[str] = (), *, include_properties: bool = False) -> StructType:
    """The schema of a read without a schema from the user: the named columns, or all."""
    all_names = [*dict(_ORDINARY), *(["headers"] if include_properties else [])]
    return StructType([StructField(name, COLUMNS[name], True) for name in names or all_names])


def checked_schema(schema: StructType, columns: Sequence[str] = ()) -> StructType:
    """Check the schema of `spark.read.schema(...)`: it may have any of the columns, and only those are read.

    Raises OptionError that names the unknown column, or the type it must have, or that option columns has others.
    """
    if columns and schema.fieldNames() != list(columns):
        raise OptionError(f"option columns names {', '.join(columns)}, the schema others: give one of them")
    for column in schema.fields:
        wanted = COLUMNS.get(column.name)
        if wanted is None:
            raise OptionError(f"schema: there is no column {column.name}; there are {', '.join(COLUMNS)}")
        if column.dataType.simpleString() != wanted.simpleString():
            found = column.dataType.simpleString()
            raise OptionError(f"schema: column {column.name} is of type {wanted.simpleString()}, not {found}")
    return schema
