"""Makes keyed, ordered events of a raw table and sends them to a topic (`lockstep-pipeline publish`).

The table is CSV, Parquet or JSON lines. A query in Spark's SQL may first make events of the view `raw`. Then columns
are named: the key, the order of the events of a key, and what goes into a message.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from lockstep.client.blocking import Addresses, BlockingClient
from lockstep.client.credentials import credentials_of_environment
from lockstep.client.errors import NoRouteError
from lockstep.client.tls import tls_of_environment
from lockstep.pipeline.errors import ColumnError
from lockstep.pipeline.sink.ordering import ordered
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.settings import parse_addresses

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["ORDER_COLUMN", "EventColumns", "InputFormat", "SentCount", "publish", "read_raw", "transform"]

ORDER_COLUMN: Final = "order_{}"
"""What the columns of an order are named in the events, from order_1 on; the sink checks them and sends none."""
_RAW_VIEW: Final = "raw"
_ROW_SHOWN: Final = 300
"""Characters of a row that an error shows."""


class InputFormat(StrEnum):
    CSV = "csv"
    PARQUET = "parquet"
    JSON = "json"


_READ_OPTIONS: Final[Mapping[InputFormat, Mapping[str, str]]] = {
    InputFormat.CSV: {"header": "true", "mode": "FAILFAST"},
    InputFormat.PARQUET: {},
    InputFormat.JSON: {"mode": "FAILFAST"},
}


class EventColumns(NamedTuple):
    """Which columns make an event. Without `value` a message is all columns but the key and the order, as JSON.

    One `value` column of strings or bytes is the message itself; several columns are JSON in the order of their names
    here.
    """

    key: str
    order_by: Sequence[str]
    value: Sequence[str] = ()
    tags: str | None = None


def read_raw(
    spark: "SparkSession",
    paths: Sequence[str],
    kind: InputFormat,
    *,
    options: Mapping[str, str] | None = None,
    row_column: str | None = None,
) -> "DataFrame":
    """Read the table. A broken line is an error. `options` are of Spark's reader, and override ours.

    `row_column` adds a column with the row's place in its files, from 0, by path and line. Numbering brings all rows
    together in one task.
    """
    reader = spark.read.format(kind.value).options(**{**_READ_OPTIONS[kind], **(options or {})})
    raw = reader.load(list(paths))
    return raw if row_column is None else _numbered(raw, row_column)


def _numbered(raw: "DataFrame", row_column: str) -> "DataFrame":
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    names = [F.col(f"`{name}`") for name in raw.columns]
    place = ["__path", "__block", "__line"]
    placed = raw.select(
        *names,
        F.col("_metadata.file_path").alias(place[0]),
        F.col("_metadata.file_block_start").alias(place[1]),
        F.monotonically_increasing_id().alias(place[2]),
    )
    number = F.row_number().over(Window.orderBy(*place)) - 1
    return placed.withColumn(row_column, number).drop(*place)


def transform(raw: "DataFrame", columns: EventColumns, *, query: str | None = None) -> "DataFrame":
    """The events as columns of the sink (shardingKey, value, tags, order_1 ...).

    Each key in one partition, in order.

    Raises ColumnError for a column that does not exist; a null or empty key fails when the job runs.
    """
    from pyspark.sql import functions as F  # noqa: N812

    rows = raw
    if query is not None:
        raw.createOrReplaceTempView(_RAW_VIEW)
        rows = raw.sparkSession.sql(query)
    _check(rows, columns)
    key = F.col(f"`{columns.key}`").cast("string")
    row = F.substring(F.to_json(F.struct(*(F.col(f"`{name}`") for name in rows.columns))), 1, _ROW_SHOWN)
    no_key = F.raise_error(F.concat(F.lit(f"publish: a row has no {columns.key}, which is its key: "), row))
    order = {ORDER_COLUMN.format(place): F.col(f"`{name}`") for place, name in enumerate(columns.order_by, 1)}
    events = rows.select(
        F.when(key != "", key).otherwise(no_key).alias("shardingKey"),
        _value(rows, columns).alias("value"),
        *([F.col(f"`{columns.tags}`").cast("string").alias("tags")] if columns.tags else []),
        *(column.alias(name) for name, column in order.items()),
    )
    return ordered(events, "shardingKey", list(order))


def _check(rows: "DataFrame", columns: EventColumns) -> None:
    if not columns.order_by:
        raise ColumnError("publish: name at least one column that orders the events of a key")
    named = [columns.key, *columns.order_by, *columns.value, *([columns.tags] if columns.tags else [])]
    for name in named:
        if name not in rows.columns:
            raise ColumnError(f"publish: there is no column {name}; there are {', '.join(rows.columns)}")


def _value(rows: "DataFrame", columns: EventColumns) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    if len(columns.value) == 1 and rows.schema[columns.value[0]].dataType.simpleString() in ("string", "binary"):
        return F.col(f"`{columns.value[0]}`")
    left = {columns.key, *columns.order_by}
    names = columns.value or [name for name in rows.columns if name not in left] or rows.columns
    return F.to_json(F.struct(*(F.col(f"`{name}`") for name in names)))


def publish(events: "DataFrame", topic: str, options: Mapping[str, str]) -> int:
    """Send the result of `transform`. Returns the number of events. `options` are the sink's, with nameServer.

    The topic must exist. Raises Spark's errors, with the sink's text inside.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    order = [name for name in events.columns if name.startswith(ORDER_COLUMN.format(""))]
    count = Observation("published")
    counted = events.observe(count, F.count(F.lit(1)).alias("events"))
    writer = counted.write.format("lockstep").options(**{"topic": topic, "orderBy": ",".join(order), **options})
    writer.mode("append").save()
    found: int = count.get["events"]
    return found


class SentCount:
    """How many messages a topic got since this object was made: `with SentCount(servers, topic) as sent: sent.text()`.

    It asks the brokers for the ends of the queues, so it costs the tasks nothing. It counts what others send too.
    """

    def __init__(self, name_server: str, topic: str) -> None:
        servers = tuple(map(str, parse_addresses(name_server)))
        addresses = Addresses(servers, retries=0, credentials=credentials_of_environment(), tls=tls_of_environment())
        self._client: BlockingClient = addresses.open()
        self._topic = topic
        self._before = self._stored() or 0
        self._last = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def text(self) -> str:
        """The number, such as "1,024 sent"; the last one when no broker answers. For one thread at a time."""
        stored = self._stored()
        if stored is not None:
            self._last = stored - self._before
        return f"{self._last:,} sent"

    def _stored(self) -> int | None:
        """None when the topic does not exist yet, or no broker answers."""
        try:
            return sum(map(self._client.max_offset, self._client.readable_queues(self._topic)))
        except (NoRouteError, RemotingError):
            return None
