"""Sends in order: each queue has one growing chunk, and at most one chunk in flight, so nothing overtakes.

A failed chunk is sent again, whole, before later ones: its messages may be stored twice, side by side. Lockstep brokers
get numbered chunks (broker/state/send_sequences.py), so a chunk that seemed lost cannot arrive later.
"""

import time
from collections import deque
from typing import Final

from lockstep.pipeline.client.blocking import BlockingClient, Ticket, send_command
from lockstep.pipeline.errors import SendFailed, TopicError
from lockstep.pipeline.sink.dedup import ROW_PROPERTY
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.messages.batch import decode_batch
from lockstep.protocol.messages.properties import decode_properties
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RemotingError, RequestRefused

__all__ = ["CHUNK_BYTES", "Lane", "Sender"]

CHUNK_BYTES: Final = 512 * 1024  # a broker takes 4 MiB by default
_UNDER_WAY_MAX: Final = 8  # chunks: their replies fit the buffers of a socket, so a write never waits for a read
_PAUSE_S_MAX: Final = 5.0
_STORED: Final = frozenset({
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
})  # fmt: skip  # wire.md 3
_BUSY: Final = frozenset({
    ResponseCode.FLUSH_DISK_TIMEOUT,  # in the log, maybe not flushed
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SEND_OUT_OF_SEQUENCE,
})  # fmt: skip

Chunk = list[bytes]  # records of a batch's body


class Lane:
    """One queue: `records` and `size_bytes` are the growing chunk; the caller that appends also updates the size."""

    __slots__ = ("chunk", "generation", "queue", "records", "sequence", "size_bytes", "ticket")

    def __init__(self, queue: MessageQueue, generation: int) -> None:
        self.queue = queue
        self.records: Chunk = []
        self.size_bytes = 0
        self.chunk: Chunk | None = None  # in flight ...
        self.ticket: Ticket | None = None  # ... unless it could not leave
        self.generation = generation
        self.sequence = 0


class Sender:
    """All lanes of a task. `mark` is the properties of all its messages, `lane_id` identifies it to the broker.

    `generation` is the first one of its lanes. Lockstep brokers refuse a generation below that of a later attempt: a
    task that Spark gave up, but that still runs, can send nothing.

    Raises (all calls):
        SendFailed: Not stored within `retries` times the request's timeout, with the pauses between.
    """

    def __init__(self, client: BlockingClient, mark: str, lane_id: str, generation: int = 0) -> None:
        self._client = client
        self._mark = mark
        self._lane_id = lane_id
        self._generation = generation
        self._lanes: dict[MessageQueue, Lane] = {}
        self._under_way: deque[Lane] = deque()

    def lane(self, queue: MessageQueue) -> Lane:
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = Lane(queue, self._generation)
        return lane

    def flush(self, lane: Lane) -> None:
        """Send the growing chunk, once the one before it is stored."""
        if lane.chunk is not None:
            self._under_way.remove(lane)
            self._settle(lane)
        elif len(self._under_way) >= _UNDER_WAY_MAX:
            self._settle(self._under_way.popleft())
        lane.chunk, lane.records, lane.size_bytes = lane.records, [], 0
        try:
            lane.ticket = self._start(lane, lane.chunk)
        except (RemotingError, TopicError):
            lane.ticket = None  # sent again when it is settled
        self._under_way.append(lane)

    def finish(self) -> None:
        """Wait until everything that was appended is stored."""
        for lane in self._lanes.values():
            if lane.records:
                self.flush(lane)
        while self._under_way:
            self._settle(self._under_way.popleft())

    def _settle(self, lane: Lane) -> None:
        chunk, ticket = lane.chunk, lane.ticket
        assert chunk is not None
        lane.chunk = lane.ticket = None
        self._store(lane, chunk, ticket)

    def _store(self, lane: Lane, chunk: Chunk, ticket: Ticket | None) -> None:
        """Send until a broker has stored it; `ticket` is of a send in flight."""
        tries = self._client.addresses.retries + 1
        failure: Exception | None = None
        for attempt in range(tries):
            try:
                if ticket is None:
                    self._pause(attempt)
                    if attempt:
                        self._client.route(lane.queue.topic, fresh=True)
                    ticket = self._start(lane, chunk)
                return self._finish(lane, chunk, ticket)
            except RequestRefused as error:
                if error.code not in _BUSY:
                    raise SendFailed(f"{_counted(chunk)} for queue {lane.queue}: {error}") from None
                failure = error
            except (RemotingError, TopicError) as error:
                failure = error
            ticket = None
            lane.generation += 1
            lane.sequence = 0
        raise SendFailed(
            f"{_counted(chunk)} for queue {lane.queue} may not be stored after {tries} tries; the last: {failure}"
        )

    def _finish(self, lane: Lane, chunk: Chunk, ticket: Ticket) -> None:
        reply = self._client.finish(ticket)
        if reply.code in _STORED:
            lane.sequence += 1
        elif reply.code == ResponseCode.MESSAGE_ILLEGAL and len(chunk) > 1:
            middle = len(chunk) // 2  # this broker has a lower limit, or one message is too large
            self._store(lane, chunk[:middle], None)
            self._store(lane, chunk[middle:], None)
        else:
            raise RequestRefused(ticket.wire.address, "a send", reply.code, reply.remark)

    def _pause(self, attempt: int) -> None:
        """Wait twice as long each time."""
        if attempt:
            time.sleep(min(self._client.addresses.retry_interval_ms / 1000 * 2 ** (attempt - 1), _PAUSE_S_MAX))

    def _start(self, lane: Lane, chunk: Chunk) -> Ticket:
        queue, is_batch = lane.queue, len(chunk) > 1
        if is_batch:
            body, properties = b"".join(chunk), self._mark
        else:
            (alone,) = decode_batch(chunk[0])
            body, properties = alone.body, alone.properties + self._mark
        place: tuple[int | None, int | None, str | None] = (None, None, None)
        if self._client.agrees(queue):
            place = (lane.generation, lane.sequence, self._lane_id)
        now_ms = int(time.time() * 1000)
        group = self._client.addresses.group
        command = send_command(group, queue, body, properties, now_ms, is_batch=is_batch, place=place)
        return self._client.start(queue, command)


def _counted(chunk: Chunk) -> str:
    ends = [*decode_batch(chunk[0]), *decode_batch(chunk[-1])]
    first, last = (decode_properties(record.properties).get(ROW_PROPERTY) for record in ends)
    if len(chunk) > 1:
        return f"{len(chunk)} messages (rows {first} to {last})"
    return f"a message of {len(ends[0].body)} bytes (row {first})"
