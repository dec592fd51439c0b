"""The data source of Spark on Apache's broker and on ours: the same rows of the same messages."""

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyspark
import pytest

from lockstep.client.blocking import Addresses, BlockingClient
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.model import MessageQueue
from tests.integration.harness.processes import until
from tests.interop.harness.servers import Server
from tests.interop.harness.table import RowMaker
from tests.pipeline.conftest import java, spark  # noqa: F401
from tests.pipeline.topics import BORN_MS, plain_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)
COUNT = 3_000


def fill(client: BlockingClient, queues: list[MessageQueue], count: int) -> None:
    for queue in queues:
        for first in range(0, count, 200):
            records = [plain_record(queue.queue_id, n) for n in range(first, first + 200)]
            client.send_batch(queue, records, BORN_MS)
    for queue in queues:
        can_be_read(client, queue, count)


def can_be_read(client: BlockingClient, queue: MessageQueue, end: int) -> None:
    """Wait until it can: on Apache's broker a queue follows the log a little later than the answer to a send."""
    asyncio.run(until(lambda: client.max_offset(queue) == end, f"{queue} ends at {end}"))


@pytest.fixture
def topic(either: Server, fresh_topic: Callable[[], str]) -> str:
    return asyncio.run(either.create_topic(fresh_topic(), 2))


def test_a_topic_as_a_frame(
    spark: "SparkSession",  # noqa: F811
    either: Server,
    topic: str,
    interop_row: RowMaker,
) -> None:
    """Every message once and in order; ranges and tags narrow it."""
    row = interop_row("Spark", pyspark.__version__, f"Spark <- {either.name}", "a topic as a DataFrame")
    with Addresses((either.name_server,)).open() as client:
        queues = client.writable_queues(topic)
        fill(client, queues, COUNT)
        broker_name = queues[0].broker_name
    options = {"nameServer": either.name_server, "subscribe": topic}
    rows = spark.read.format("lockstep").options(**options).load().collect()
    for queue_id in range(2):
        found = [(r.offset, bytes(r.value), r.tags, r.shardingKey) for r in rows if r.queueId == queue_id]
        assert found == [(n, f"{queue_id}:{n}".encode(), "AB"[n % 2], f"key-{n % 10}") for n in range(COUNT)]
    some = json.dumps({topic: {broker_name: {"0": 100, "1": -1}}})
    part = spark.read.format("lockstep").options(**options, startingOffsets=some, tags="B").load()
    assert [r.offset for r in part.collect()] == list(range(101, COUNT, 2))
    row.messages, row.order_kept, row.duplicates = len(rows), True, 0


@pytest.mark.parametrize("serialize_type", [SerializeType.JSON, SerializeType.ROCKETMQ, SerializeType.MSGPACK])
def test_the_blocking_client_speaks_each_encoding(either: Server, topic: str, serialize_type: SerializeType) -> None:
    """Apache reads JSON and binary headers; offered MSGPACK it goes on in JSON."""
    with Addresses((either.name_server,), serialize_type=serialize_type).open() as client:
        queue = client.writable_queues(topic)[1]
        assert client.send(queue, plain_record(1, 0), BORN_MS).queue_offset == 0
        assert client.send_batch(queue, [plain_record(1, n) for n in range(1, 9)], BORN_MS).queue_offset == 1
        can_be_read(client, queue, 9)
        assert client.pull(queue, 4, 32).next_begin_offset == 9
        assert (client.min_offset(queue), client.max_offset(queue)) == (0, 9)
