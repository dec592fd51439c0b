"""The lag of a group in each queue over time, as a stream (`lockstep-pipeline lag`).

Every tick asks the brokers for the ends of the queues and the group's offsets, and gives a row for each queue
(LAG_COLUMNS). A broker that does not answer gives a row with `error`; the stream goes on.
"""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lockstep.client.blocking import Addresses, BlockingClient
from lockstep.client.errors import NoRouteError
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import OffsetResponseHeader, QueryConsumerOffsetRequestHeader
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RemotingError, RequestRefused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["LAG_COLUMNS", "Watched", "lag_once", "lag_stream", "look", "start", "transform"]

LAG_COLUMNS: Final = (
    "at_ms long, group string, topic string, broker string, queue_id int, min_offset long, max_offset long, "
    "consumer_offset long, lag long, error string"
)
"""`consumer_offset` is null where the group has none, and its lag all that is stored; brokers say 0 then of a queue
that still has its first message. With `error` numbers are null, and the queue too if no name server has a route."""


class Watched(NamedTuple):
    """A group, its topics, and the name servers to ask; it pickles."""

    addresses: Addresses
    group: str
    topics: tuple[str, ...]


def lag_stream(spark: "SparkSession", watched: Watched) -> "DataFrame":
    """A streaming DataFrame of LAG_COLUMNS with one look a micro-batch: the trigger's interval is that of the looks."""
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).option("numPartitions", 1).load()
    return transform(ticks, watched)


def lag_once(spark: "SparkSession", watched: Watched) -> "DataFrame":
    """One look, as a batch."""
    return transform(spark.range(1), watched)


def transform(ticks: "DataFrame", watched: Watched) -> "DataFrame":
    """One look for each row of `ticks`; the content of the row is not used."""
    from pyspark.sql import functions as F  # noqa: N812

    columns = LAG_COLUMNS.replace(", ", ",").replace(" ", ":")
    looks = F.udf(_looks(watched), f"array<struct<{columns}>>", useArrow=False)
    looks = looks.asNondeterministic()  # one partition: one look a tick
    tick = F.hash(*(F.col(f"`{name}`") for name in ticks.columns))
    return ticks.select(F.inline(looks(tick)))


def start(lag: "DataFrame", *, every_ms: int, folder: str, checkpoint: str, kind: str = "parquet") -> "StreamingQuery":
    """Write a lag stream into a folder, as Parquet or JSON, until the query is stopped."""
    writer = lag.coalesce(1).writeStream.format(kind).option("path", folder).option("checkpointLocation", checkpoint)
    return writer.trigger(processingTime=f"{every_ms} milliseconds").outputMode("append").start()


def _looks(watched: Watched) -> Callable[[int], list[tuple[Any, ...]]]:
    def looks(_tick: int) -> list[tuple[Any, ...]]:
        with watched.addresses.open() as client:
            return list(look(client, watched, time.time_ns() // 1_000_000))

    return looks


def look(client: BlockingClient, watched: Watched, now_ms: int) -> Iterator[tuple[Any, ...]]:
    """The rows of one look."""
    for topic in watched.topics:
        try:
            queues = client.readable_queues(topic)
        except (RemotingError, NoRouteError) as error:
            yield _error_row(now_ms, watched.group, topic, str(error))
            continue
        if not queues:
            yield _error_row(now_ms, watched.group, topic, f"no queue of topic {topic} can be read")
        for queue in queues:
            yield (now_ms, watched.group, topic, queue.broker_name, queue.queue_id, *_numbers(client, queue, watched))


def _error_row(now_ms: int, group: str, topic: str, error: str) -> tuple[Any, ...]:
    return (now_ms, group, topic, *(None,) * 6, error)


def _numbers(client: BlockingClient, queue: MessageQueue, watched: Watched) -> tuple[Any, ...]:
    """min_offset, max_offset, consumer_offset, lag, error. The committed offset is read first: no lag is below 0."""
    try:
        offset = _consumer_offset(client, watched.group, queue)
        least, most = client.min_offset(queue), client.max_offset(queue)
    except (RemotingError, NoRouteError) as error:
        return (*(None,) * 4, str(error))
    begin = least if offset is None else max(offset, least)
    return least, most, offset, max(most - begin, 0), None


def _consumer_offset(client: BlockingClient, group: str, queue: MessageQueue) -> int | None:
    code = RequestCode.QUERY_CONSUMER_OFFSET
    header = QueryConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id)
    reply = client.finish(client.start(queue, RemotingCommand(code, header)))
    if reply.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    if reply.code != ResponseCode.SUCCESS:
        raise RequestRefused(client.address_of(queue), code.name, reply.code, reply.remark)
    return reply.decode_header(OffsetResponseHeader).offset
