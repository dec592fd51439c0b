"""On an executor: pulls the stored bytes of a slice ahead of their use, and makes Arrow batches of them."""

import logging
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from lockstep.client.blocking import Addresses, BlockingClient, PullReply, Ticket
from lockstep.pipeline.errors import DataLossError, errors_in_one_line
from lockstep.pipeline.source.planning import QueueSlice, addresses_of, lost_text
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.pulled import decode_pulled, take, unpack
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RemotingError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lockstep.pipeline.options import Options
    from lockstep.pipeline.source.columns import BatchBuilder

__all__ = ["Fetcher", "SliceReader"]

_AHEAD_MAX: Final = 16  # pulls in flight
_AHEAD_BYTES: Final = 1024 * 1024  # of replies to them
_LARGE_BYTES: Final = 128 * 1024  # brokers give at most 256 KiB by default
_BATCH_BYTES: Final = 4 * 1024 * 1024
_BATCH_PULLS: Final = 1024
_log = logging.getLogger("lockstep.pipeline")


class SliceReader:
    """Reads slices of queues into batches of a schema's columns; it pickles."""

    def __init__(self, options: "Options", schema: "StructType") -> None:
        self._addresses = addresses_of(options)
        self._tags = options.tags
        self._pull_batch_size = options.pull_batch_size
        self._fail_on_data_loss = options.fail_on_data_loss
        self._columns = [(column.name, column.nullable) for column in schema.fields]

    def read(self, part: QueueSlice) -> "Iterator[pa.RecordBatch]":
        """A record that is no message becomes a row with its bytes and a `bodyError`.

        Raises DataLossError, RemotingError, TopicError.
        """
        from lockstep.pipeline.source.columns import BatchBuilder

        builder = BatchBuilder(self._columns, part.queue, self._tags)
        with errors_in_one_line(), self._addresses.open() as client:
            fetcher = Fetcher(client, part.queue, self._tags, self._pull_batch_size, fail=self._fail_on_data_loss)
            start = yield from self._batches(fetcher, builder, part)
            while start is not None:
                messages, start = self._alone(client, fetcher, QueueSlice(part.queue, start, part.end))
                yield builder.rows([message for message in messages if message.queue_offset < part.end])
                start = yield from self._batches(fetcher, builder, QueueSlice(part.queue, start, part.end))

    def _batches(
        self, fetcher: "Fetcher", builder: "BatchBuilder", part: QueueSlice
    ) -> "Generator[pa.RecordBatch, None, int | None]":
        """Read to the end, or up to a record that is no message. Returns where to pull that record; None: the end."""
        from lockstep.pipeline.source.columns import DamagedRecord

        pieces: list[bytes] = []
        size, first = 0, part.start
        try:
            for offset, body in fetcher.bodies(part.start, part.end):
                first = first if pieces else offset
                pieces.append(body)
                size += len(body)
                if size >= _BATCH_BYTES or len(pieces) >= _BATCH_PULLS:
                    yield from builder.batches(b"".join(pieces), part.end)
                    pieces, size = [], 0
            if pieces:
                yield from builder.batches(b"".join(pieces), part.end)
        except DamagedRecord as damaged:
            fetcher.forget()
            return first if damaged.offset is None else damaged.offset
        return None

    def _alone(self, client: BlockingClient, fetcher: "Fetcher", part: QueueSlice) -> tuple[list[MessageExt], int]:
        """The first message, or the bytes of its record, and the next offset. Raises DataLossError, RemotingError."""
        queue, offset = part.queue, part.start
        reply = client.pull(queue, offset, 1, self._tags)
        following = fetcher.following(reply, offset, part.end)
        pulled = unpack(decode_pulled(reply.body, queue.broker_name))
        taken = take(pulled, reply.body, queue, offset, 1, following)
        assert taken is not None, "one message was asked for"
        return taken.messages, max(taken.next_offset, offset + 1)


class _Pull(NamedTuple):
    offset: int
    asked: int
    ticket: Ticket


class Fetcher:
    """Keeps several pulls in flight. How many messages a reply will have is guessed from the last one.

    A wrong guess costs the pulls after it, and nothing else: offsets always follow the replies.
    """

    def __init__(
        self, client: BlockingClient, queue: MessageQueue, tags: str, pull_batch_size: int, *, fail: bool
    ) -> None:
        self._client = client
        self._addresses: Addresses = client.addresses
        self._queue = queue
        self._tags = tags
        self._pull_batch_size = pull_batch_size
        self._fail = fail
        self._under_way: deque[_Pull] = deque()
        self._step = 0  # messages in a reply; 0: unknown, no guess
        self._step_max = pull_batch_size
        self._ahead = 1  # pulls in flight

    def bodies(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """(offset that was asked for, stored messages) from `start` on; the last may have messages at `end` or later.

        Raises as SliceReader.
        """
        offset, failures = start, 0
        while offset < end:
            try:
                self._go_ahead(offset, end)
                pull = self._under_way.popleft()
                reply = self._client.finish_pull(pull.ticket)
            except RemotingError as error:
                self._under_way.clear()
                failures += 1
                if failures > self._addresses.retries or not error.retriable:
                    raise
                time.sleep(self._addresses.retry_interval_ms / 1000)
                self._client.route(self._queue.topic, fresh=True)
                continue
            failures = 0
            following = self.following(reply, offset, end)
            if following < end and self._tags == "*":
                self._learn(pull.asked, following - offset, len(reply.body))
            asked, offset = offset, following
            if offset < end:
                self._go_ahead_quietly(offset, end)
            if reply.code == ResponseCode.SUCCESS:
                yield asked, reply.body

    def _go_ahead_quietly(self, offset: int, end: int) -> None:
        """Start pulls; a failure shows when the reply is taken."""
        try:
            self._go_ahead(offset, end)
        except RemotingError:
            self._under_way.clear()

    def _go_ahead(self, offset: int, end: int) -> None:
        """Start the pull of `offset`, if it is not in flight, and the pulls that will probably follow it."""
        under_way = self._under_way
        if under_way and under_way[0].offset != offset:
            self.forget()
        following = under_way[-1].offset + under_way[-1].asked if under_way else offset
        while following < end and len(under_way) < self._ahead:
            count = min(self._step or self._pull_batch_size, end - following)
            ticket = self._client.start_pull(self._queue, following, count, self._tags)
            under_way.append(_Pull(following, count, ticket))
            following += count

    def forget(self) -> None:
        """Give up the pulls that are in flight, also those that fail."""
        while self._under_way:  # their replies must be taken
            with suppress(RemotingError):
                self._client.finish_pull(self._under_way.popleft().ticket)

    def _learn(self, asked: int, count: int, size: int) -> None:
        """Guess how many messages the next replies will have, from a reply of `count` messages and `size` bytes.

        Brokers limit messages and bytes. A large reply was limited in bytes: messages differ in size, so ask for fewer.
        Ask for more again when they become smaller.
        """
        large = size >= _LARGE_BYTES
        if not size:  # nothing was there
            self._step, self._ahead = 0, 1
            return
        if count < asked:
            self._step = max(1, count * 7 // 8) if large else count
            self._step_max = self._pull_batch_size if large else count
        elif not self._step or not large:
            self._step = min(self._step_max, count * 2)
        self._ahead = min(_AHEAD_MAX, max(2, _AHEAD_BYTES // size))

    def following(self, reply: PullReply, offset: int, end: int) -> int:
        """The next offset. Raises DataLossError."""
        if reply.code == ResponseCode.SUCCESS:
            return reply.next_begin_offset
        if reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY and reply.next_begin_offset > offset:
            if reply.status == "MESSAGE_WAS_REMOVING":
                self._lost(offset, min(reply.next_begin_offset, end), "the broker is deleting them")
            return reply.next_begin_offset
        first = reply.min_offset if offset < reply.min_offset else end
        why = f"the broker has {reply.min_offset} to {reply.max_offset - 1}"
        self._lost(offset, min(first, end), why)
        return min(first, end)

    def _lost(self, start: int, end: int, why: str) -> None:
        text = lost_text(self._queue, start, end, why)
        if self._fail:
            raise DataLossError(text)
        _log.warning("%s", text)
