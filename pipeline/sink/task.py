"""A task of a write: makes records of rows and chunks of records, in the order of the rows."""

import os
import time
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple

from lockstep.client.blocking import BlockingClient
from lockstep.pipeline.errors import OptionError, OrderError, RowError
from lockstep.pipeline.options import Options
from lockstep.pipeline.sink.columns import SinkColumns, bodies, order_values, texts
from lockstep.pipeline.sink.dedup import ROW_PROPERTY, TASK_PROPERTY
from lockstep.pipeline.sink.router import Place, Places, Shard, header_text
from lockstep.pipeline.sink.sequencer import CHUNK_BYTES, QueueSends, Sender
from lockstep.pipeline.sink.topics import writable_queues
from lockstep.protocol.codes import FRAME_BYTES_MAX
from lockstep.protocol.messages.batch import encode_batch_record
from lockstep.protocol.messages.ids import UniqueKeyMaker
from lockstep.protocol.messages.properties import NAME_END, PAIR_END, UNIQ_KEY
from lockstep.protocol.model import MessageQueue

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Task", "TaskWriter", "current_task"]

_ROWS: Final = 10_000  # rows at once: fewer than a UNIQ_KEY can count in one millisecond
_BODY_BYTES_MAX: Final = FRAME_BYTES_MAX - 65_536
_GENERATIONS: Final = 1 << 20  # generations that one attempt of a task may use


class Task(NamedTuple):
    """Identity of the rows. It is the same for every attempt, but for `attempt`, which only grows within `app`."""

    app: str
    query: str
    batch: int
    partition: int
    attempt: int


def current_task() -> Task:
    """The task of Spark's TaskContext. Raises OptionError when Spark may run a task twice at the same time."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "a sink writes in a task"
    if context.getLocalProperty("spark.speculation") == "true":
        raise OptionError(
            "spark.speculation is true: two attempts of one task would send at the same time, and neither in order."
            " Set it to false"
        )
    stream = context.getLocalProperty("sql.streaming.queryId")
    query = stream or context.getLocalProperty("spark.sql.execution.query.id")
    if not query:  # before Spark 4.1 ids begin at 0 in each application
        query = f"{context.getLocalProperty('spark.app.id')}-{context.getLocalProperty('spark.sql.execution.id')}"
    batch = context.getLocalProperty("streaming.sql.batchId") if stream else None
    app = context.getLocalProperty("spark.app.id") or ""
    return Task(app, query, int(batch or 0), context.partitionId(), context.taskAttemptId())


class TaskWriter:
    """`add` every batch, then `finish`. Raises RowError, OrderError, SendFailed, TopicError, RemotingError."""

    def __init__(
        self,
        client: BlockingClient,
        options: Options,
        columns: SinkColumns,
        queues: Sequence[MessageQueue],
        task: Task,
    ) -> None:
        mark = f"{TASK_PROPERTY}{NAME_END}{task.query}/{task.batch}/{task.partition}"
        sender_id = f"{client.addresses.group}@{task.app}/{task.query}/{task.partition}"
        self.rows = 0
        self._client = client
        self._columns = columns
        self._task = task
        self._batch_size = options.send_batch_size
        self._topic = options.topic
        self._sender = Sender(client, mark, sender_id, task.attempt * _GENERATIONS)
        self._queues = {options.topic: self._sends_to(queues)} if options.topic and queues else {}
        self._places = Places(self._queues_of, options.topic)
        self._unique_keys = UniqueKeyMaker(
            blake2b(task.query.encode(), digest_size=4).digest(), os.getpid(), task.attempt
        )
        self._now_ms = 0

    def add(self, batch: "pa.RecordBatch") -> None:
        for start in range(0, batch.num_rows, _ROWS):
            try:
                self._add(batch.slice(start, _ROWS))
            except (RowError, OrderError) as error:
                raise type(error)(f"partition {self._task.partition}: {error}") from None

    def finish(self) -> None:
        self._sender.finish()

    def keys(self) -> Iterator[tuple[str, str]]:
        """Every (topic, sharding key) that was sent, once; the topic is "" when all messages have the same."""
        for shard in self._places.shards.values():
            if shard.key is not None:
                yield "" if self._topic else shard.topic, shard.key

    def _queues_of(self, topic: str) -> Sequence[QueueSends]:
        queues = self._queues.get(topic)
        if queues is None:
            queues = self._queues[topic] = self._sends_to(writable_queues(self._client, topic))
        return queues

    def _sends_to(self, queues: Sequence[MessageQueue]) -> list[QueueSends]:
        return [self._sender.sends_to(queue) for queue in queues]

    def _add(self, batch: "pa.RecordBatch") -> None:
        """Add rows. All rows are checked before the first one is sent."""
        columns, first_row = self._columns, self.rows
        values = bodies(batch.column(columns.value), first_row)
        if max(map(len, values)) > _BODY_BYTES_MAX:
            row = next(row for row, value in enumerate(values, first_row) if len(value) > _BODY_BYTES_MAX)
            size = len(values[row - first_row])
            raise RowError(f"row {row}: value has {size} bytes; no frame of RocketMQ holds over {_BODY_BYTES_MAX}")
        places = self._places.find(self._combinations(batch, first_row), first_row)
        if columns.order_by:
            self._check_order(batch, places, first_row)
        if columns.headers is not None:
            headers = batch.column(columns.headers).to_pylist()
            places = [
                Place(place.head + header_text(own, row), place.shard) if own else place
                for row, (place, own) in enumerate(zip(places, headers, strict=True), first_row)
            ]
        self._append(values, places)

    def _combinations(self, batch: "pa.RecordBatch", first_row: int) -> list[tuple[str | None, ...]]:
        columns = self._columns
        wanted = (
            ("topic", columns.topic), ("key", columns.key), ("shardingKey", columns.sharding_key),
            ("tags", columns.tags),
        )  # fmt: skip
        found = [
            repeat(None, batch.num_rows) if position is None else texts(batch.column(position), name, first_row)
            for name, position in wanted
        ]
        return list(zip(*found, strict=True))

    def _append(self, values: list[bytes], places: list[Place]) -> None:
        """The inner loop: each row becomes a record in the chunk of its queue."""
        row, unique = self.rows, self._unique()
        flush = self._sender.flush
        most = self._batch_size
        for value, (head, shard) in zip(values, places, strict=True):
            sends = shard.sends or self._turn(shard, row)
            text = (
                f"{head}{UNIQ_KEY}{NAME_END}{unique}{row & 0xFFFF:04X}{PAIR_END}{ROW_PROPERTY}{NAME_END}{row}{PAIR_END}"
            )
            record = encode_batch_record(0, value, text.encode())
            size = len(record)
            if sends.records and (sends.size_bytes + size > CHUNK_BYTES or len(sends.records) >= most):
                flush(sends)
            sends.records.append(record)
            sends.size_bytes += size
            row += 1
        self.rows = row

    def _unique(self) -> str:
        """The first 28 characters of UNIQ_KEYs; each call uses a millisecond of its own."""
        self._now_ms = max(int(time.time() * 1000), self._now_ms + 1)
        return self._unique_keys.next(self._now_ms)[:-4]

    def _turn(self, shard: Shard, row: int) -> QueueSends:
        """Rows without a key go to the queues in turn, a chunk each.

        The same row goes to the same queue in each attempt.
        """
        queues = self._queues_of(shard.topic)
        return queues[(row // self._batch_size + self._task.partition) % len(queues)]

    def _check_order(self, batch: "pa.RecordBatch", places: list[Place], first_row: int) -> None:
        names = [name for name, _ in self._columns.order_by]
        found = [order_values(batch.column(position), name, first_row) for name, position in self._columns.order_by]
        values = found[0] if len(found) == 1 else list(zip(*found, strict=True))
        for number, (value, (_, shard)) in enumerate(zip(values, places, strict=True)):
            if shard.sends is None:
                continue
            if shard.last is not None and value < shard.last:
                raise OrderError(
                    f"row {first_row + number}: key {shard.key!r} goes back in {', '.join(names)}, from {shard.last!r}"
                    f" to {value!r}. Send lockstep.pipeline.sink.ordering.ordered(df, key, order_by)"
                )
            shard.last = value
