"""One task of a write, without Spark: what an earlier attempt of it may still do."""

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lockstep.client.blocking import Addresses, BlockingClient
from lockstep.pipeline.errors import SendFailed
from lockstep.pipeline.options import Options
from lockstep.pipeline.sink.columns import SinkColumns
from lockstep.pipeline.sink.ordering import in_order
from lockstep.pipeline.sink.task import Task, TaskWriter
from lockstep.pipeline.sink.topics import writable_queues
from tests.pipeline.sent import row_of, sent

if TYPE_CHECKING:
    from tests.integration.harness.processes import Broker

VALUE_AND_KEY = SinkColumns(0, 1, None, None, None, None, ())


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch([[f"{n}" for n in range(count)], ["one key"] * count], names=["value", "key"])


def writer(client: BlockingClient, topic: str, attempt: int, partition: int = 0) -> TaskWriter:
    task = Task("app", "query", 0, partition, attempt)
    return TaskWriter(
        client, Options(topic=topic, send_batch_size=10), VALUE_AND_KEY, writable_queues(client, topic), task
    )


def test_an_attempt_that_was_given_up_sends_nothing_more(broker: "Broker") -> None:
    """When a later attempt of a task has begun, the broker refuses all sends of an earlier one that still runs."""
    with Addresses((broker.name_server,), retries=1, retry_interval_ms=1).open() as client:
        early, late = writer(client, "zombie", 1), writer(client, "zombie", 2)
        early.add(rows(31))
        late.add(rows(31))
        with pytest.raises(SendFailed, match=r"generation .* has ended"):
            early.add(rows(31))
        late.finish()
        writer(client, "zombie", 1, partition=1).finish()
    numbers = [row_of(message) for messages in sent(broker.name_server, "zombie").values() for message in messages]
    assert numbers[-31:] == list(range(31))
    assert max(numbers) == 30


def test_sorted_whatever_came_first() -> None:
    """Rows are sorted by orderBy, then by all else, so that a batch run again is the same; names may come twice."""
    columns = SinkColumns(1, 0, None, None, None, None, (("at", 2),))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(["b", "a", "b", "a"]), pa.array(["1", "2", "3", "4"]), pa.array([2, 2, 1, 1])], ["x", "x", "at"]
    )
    first = pa.Table.from_batches(in_order(iter([batch]), columns))
    again = pa.Table.from_batches(in_order(iter([batch.take([3, 1, 0]), batch.slice(2, 1)]), columns))
    assert first == again
    assert first.column(1).to_pylist() == ["4", "3", "2", "1"]
    assert list(in_order(iter([]), columns)) == []
