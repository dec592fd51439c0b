"""Sends in order: each queue has one growing chunk, and at most one chunk in flight, so nothing overtakes.

A failed chunk is sent again, whole, before later ones. Lockstep brokers get numbered chunks
(broker/messages/send_sequences.py), so a chunk that seemed lost cannot arrive later, and they are asked first
whether they have it (FIND_SENT, docs/wire.md 17.3). Other brokers may store its messages twice, side by side.
"""

import time
from collections import deque
from typing import Final

from lockstep.client.blocking import BlockingClient, Ticket, send_command
from lockstep.client.errors import NoRouteError
from lockstep.pipeline.errors import SendFailed
from lockstep.pipeline.sink.dedup import ROW_PROPERTY
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import FindSentRequestHeader
from lockstep.protocol.messages.batch import decode_batch
from lockstep.protocol.messages.properties import UNIQ_KEY, decode_properties
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RemotingError, RequestRefused

__all__ = ["CHUNK_BYTES", "QueueSends", "Sender"]

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

# After these an attempt may be stored: it is in the log, or its number is stored already.
_DOUBTFUL: Final = (ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SEND_OUT_OF_SEQUENCE)

Chunk = list[bytes]  # records of a batch's body


class QueueSends:
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
    """What a task sends to its queues.

    `mark` is the properties of all its messages, `sender_id` identifies the task to the broker.

    `generation` is the first one of its queues. Lockstep brokers refuse a generation below that of a later attempt: a
    task that Spark gave up, but that still runs, can send nothing.

    Raises (all calls):
        SendFailed: Not stored within `retries` times the request's timeout, with the pauses between.
    """

    def __init__(self, client: BlockingClient, mark: str, sender_id: str, generation: int = 0) -> None:
        self._client = client
        self._mark = mark
        self._sender_id = sender_id
        self._generation = generation
        self._queues: dict[MessageQueue, QueueSends] = {}
        self._under_way: deque[QueueSends] = deque()

    def sends_to(self, queue: MessageQueue) -> QueueSends:
        sends = self._queues.get(queue)
        if sends is None:
            sends = self._queues[queue] = QueueSends(queue, self._generation)
        return sends

    def flush(self, sends: QueueSends) -> None:
        """Send the growing chunk, once the one before it is stored."""
        if sends.chunk is not None:
            self._under_way.remove(sends)
            self._settle(sends)
        elif len(self._under_way) >= _UNDER_WAY_MAX:
            self._settle(self._under_way.popleft())
        sends.chunk, sends.records, sends.size_bytes = sends.records, [], 0
        try:
            sends.ticket = self._start(sends, sends.chunk)
        except (RemotingError, NoRouteError):
            sends.ticket = None  # sent again when it is settled
        self._under_way.append(sends)

    def finish(self) -> None:
        """Wait until everything that was appended is stored."""
        for sends in self._queues.values():
            if sends.records:
                self.flush(sends)
        while self._under_way:
            self._settle(self._under_way.popleft())

    def _settle(self, sends: QueueSends) -> None:
        chunk, ticket = sends.chunk, sends.ticket
        assert chunk is not None
        sends.chunk = sends.ticket = None
        self._store(sends, chunk, ticket)

    def _store(self, sends: QueueSends, chunk: Chunk, ticket: Ticket | None) -> None:
        """Send until a broker has stored it; `ticket` is of a send in flight."""
        tries = self._client.addresses.retries + 1
        failure: Exception | None = None
        in_doubt = False  # an attempt may be stored
        for attempt in range(tries):
            try:
                if ticket is None:
                    self._pause(attempt)
                    if attempt:
                        self._client.route(sends.queue.topic, fresh=True)
                    if in_doubt and self._is_stored(sends, chunk):
                        return None
                    ticket = self._start(sends, chunk)
                return self._finish(sends, chunk, ticket)
            except RequestRefused as error:
                if error.code not in _BUSY:
                    raise SendFailed(f"{_counted(chunk)} for queue {sends.queue}: {error}") from None
                failure, in_doubt = error, in_doubt or error.code in _DOUBTFUL
            except (RemotingError, NoRouteError) as error:
                failure, in_doubt = error, True
            ticket = None
            sends.generation += 1
            sends.sequence = 0
        raise SendFailed(
            f"{_counted(chunk)} for queue {sends.queue} may not be stored after {tries} tries; the last: {failure}"
        )

    def _finish(self, sends: QueueSends, chunk: Chunk, ticket: Ticket) -> None:
        reply = self._client.finish(ticket)
        if reply.code in _STORED:
            sends.sequence += 1
        elif reply.code == ResponseCode.MESSAGE_ILLEGAL and len(chunk) > 1:
            middle = len(chunk) // 2  # this broker has a lower limit, or one message is too large
            self._store(sends, chunk[:middle], None)
            self._store(sends, chunk[middle:], None)
        else:
            raise RequestRefused(ticket.endpoint.address, "a send", reply.code, reply.remark)

    def _is_stored(self, sends: QueueSends, chunk: Chunk) -> bool:
        """Ask for an earlier attempt. Only a Lockstep broker knows the question."""
        queue = sends.queue
        if not self._client.agrees(queue):
            return False
        message_id = decode_properties(decode_batch(chunk[0])[0].properties).get(UNIQ_KEY, "")
        header = FindSentRequestHeader(
            queue.topic, queue.queue_id, 0, message_id, len(chunk), sends.generation, sends.sequence, self._sender_id
        )
        ticket = self._client.start(queue, RemotingCommand(RequestCode.FIND_SENT, header))
        reply = self._client.finish(ticket)
        if reply.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            raise RequestRefused(ticket.endpoint.address, "a search for a send", reply.code, reply.remark)
        return reply.code == ResponseCode.SUCCESS

    def _pause(self, attempt: int) -> None:
        """Wait twice as long each time."""
        if attempt:
            time.sleep(min(self._client.addresses.retry_interval_ms / 1000 * 2 ** (attempt - 1), _PAUSE_S_MAX))

    def _start(self, sends: QueueSends, chunk: Chunk) -> Ticket:
        queue, is_batch = sends.queue, len(chunk) > 1
        if is_batch:
            body, properties = b"".join(chunk), self._mark
        else:
            (alone,) = decode_batch(chunk[0])
            body, properties = alone.body, alone.properties + self._mark
        place: tuple[int | None, int | None, str | None] = (None, None, None)
        if self._client.agrees(queue):
            place = (sends.generation, sends.sequence, self._sender_id)
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
