"""What tasks of Spark's sink send, on Apache's broker and on ours."""

import asyncio
from collections.abc import Callable

import pyarrow as pa
import pyspark
import pytest

from lockstep.client.blocking import Addresses
from lockstep.pipeline.options import Options
from lockstep.pipeline.sink.columns import SinkColumns
from lockstep.pipeline.sink.task import Task, TaskWriter
from lockstep.pipeline.sink.topics import writable_queues
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.selector import queue_of_hash
from tests.integration.harness.processes import until
from tests.interop.harness.servers import Server
from tests.interop.harness.table import RowMaker
from tests.pipeline.sent import contiguous_rewinds, row_of, sent, task_of

pytestmark = pytest.mark.timeout(900)
ROWS = 2500
VALUE_AND_KEY = SinkColumns(0, 1, None, None, None, None, ())


def test_a_task_and_its_second_attempt(either: Server, fresh_topic: Callable[[], str], interop_row: RowMaker) -> None:
    """A topic is made with all its queues; keys go where Java sends them; batches and single sends are marked alike."""
    row = interop_row("Spark", pyspark.__version__, f"Spark -> {either.name}", "a DataFrame as a topic")
    topic = fresh_topic()
    rows = pa.record_batch(
        [pa.array([f"{n}" for n in range(ROWS)]), pa.array([f"key-{n % 19}" for n in range(ROWS)])],
        names=["value", "key"],
    )
    with Addresses((either.name_server,)).open() as client:
        queues = writable_queues(client, topic)
        for attempt, count in ((1, 1601), (2, ROWS)):
            task = Task("app", "query", 3, 5, attempt)
            writer = TaskWriter(client, Options(topic=topic, send_batch_size=100), VALUE_AND_KEY, queues, task)
            writer.add(rows.slice(0, count))
            writer.finish()

    def all_found() -> dict[int, list[MessageExt]] | None:
        """Apache's broker puts messages into their queues a moment after it answered."""
        by_queue = sent(either.name_server, topic)
        return by_queue if sum(map(len, by_queue.values())) >= ROWS + 1601 else None

    found = asyncio.run(until(all_found, "every message in its queue", 60))
    assert len(queues) == 4
    assert {task_of(message) for messages in found.values() for message in messages} == {("query", 3, 5)}
    for queue_id, messages in found.items():
        assert contiguous_rewinds([row_of(message) for message in messages]) == 1
        for message in messages:
            assert int(message.body) == row_of(message)
            assert message.keys == message.sharding_key == f"key-{row_of(message) % 19}"
            assert queue_of_hash(queues, message.sharding_key).queue_id == queue_id
    row.messages, row.order_kept, row.duplicates = sum(map(len, found.values())), True, 1601
    assert row.messages == ROWS + 1601
