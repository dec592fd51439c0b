"""Repairs damaged entries of consume queues: each message in the log names its queue and queue offset."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from lockstep.remoting.logs import EventLog
from lockstep.store.base import QueueEntry
from lockstep.store.format.log_records import LogScan, next_record
from lockstep.store.format.record import LogRecord, parse_record
from lockstep.store.segments.log import FileLog
from lockstep.store.segments.queue import FileQueue
from lockstep.store.segments.segments import Segments

__all__ = ["EntryRepair", "Found", "SearchRunning", "Submit"]

_NEIGHBOURS_MAX: Final = 1000
# A search of at most so much runs on the event loop.
_AT_ONCE_BYTES: Final = 1024 * 1024
_SEARCHED_BYTES_MAX: Final = 256 * 1024 * 1024
_NOT_FOUND_MAX: Final = 10_000

Found = dict[int, LogRecord]  # by queue offset
Submit = Callable[[Callable[[], Found]], "asyncio.Future[Found]"]


class SearchRunning(Exception):
    """The message is being searched for. Ask again later."""


class EntryRepair:
    """Searches the log between the messages of the entries before and behind a damaged one.

    Attributes:
        submit: Runs a long search on a thread; None: searches run at once.
        tags_code_of: Returns the tags code for the queue entry of a message.
    """

    def __init__(self, log: FileLog, events: EventLog) -> None:
        self._log = log
        self._events = events
        self.submit: Submit | None = None
        self.tags_code_of: Callable[[LogRecord], int] = _no_tag
        self._not_found: dict[tuple[str, int, int], None] = {}  # entries whose message was not found
        self._searches: dict[FileQueue, asyncio.Future[Found]] = {}

    def message_of(self, queue: FileQueue, queue_offset: int) -> bytes | None:
        """The message of a damaged entry, after the entry was repaired; None when the log does not have it.

        Raises SearchRunning and OSError.
        """
        if queue in self._searches:
            raise SearchRunning
        if (queue.topic, queue.queue_id, queue_offset) in self._not_found:
            return None
        start, end = self._bounds(queue, queue_offset)
        search = partial(_search, self._log.segments.twin(), start, end, queue.topic, queue.queue_id)
        if self.submit is not None and end - start > _AT_ONCE_BYTES:
            future = self._searches[queue] = self.submit(search)
            future.add_done_callback(partial(self._finish, queue, queue_offset, start))
            raise SearchRunning
        found = search()
        self._apply(queue, queue_offset, found)
        record = found.get(queue_offset)
        return self._log.read(record.offset, record.size_bytes) if record is not None else None

    def _finish(self, queue: FileQueue, queue_offset: int, start: int, future: "asyncio.Future[Found]") -> None:
        self._searches.pop(queue, None)
        if future.cancelled() or self.submit is None or queue.is_deleted:
            return
        try:
            self._apply(queue, queue_offset, future.result())
        except OSError as error:
            if start < self._log.min_offset:
                # The file was deleted meanwhile; the next read searches the rest.
                return
            self._events.error("queue_repair_failed", topic=queue.topic, reason=str(error))
            self._give_up(queue, queue_offset)

    def _apply(self, queue: FileQueue, queue_offset: int, found: Found) -> None:
        if queue_offset not in found:
            self._give_up(queue, queue_offset)
        repaired = 0
        for at, record in found.items():
            entry = QueueEntry(record.offset, record.size_bytes, self.tags_code_of(record))
            if queue.min_offset <= at < queue.max_offset and queue.entries(at, 1) != [entry]:
                queue.put(at, entry)
                repaired += 1
        if repaired:
            self._events.warning(
                "queue_entries_repaired",
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=queue_offset,
                entries=repaired,
            )

    def _give_up(self, queue: FileQueue, queue_offset: int) -> None:
        if len(self._not_found) >= _NOT_FOUND_MAX:
            self._not_found.clear()
        self._not_found[queue.topic, queue.queue_id, queue_offset] = None

    def _bounds(self, queue: FileQueue, queue_offset: int) -> tuple[int, int]:
        """[start, end) of the log between the nearest readable messages of the queue."""
        start, end = max(self._log.min_offset, queue.begin), self._log.max_offset
        for at in range(queue_offset - 1, max(queue.min_offset, queue_offset - _NEIGHBOURS_MAX) - 1, -1):
            if (record := self._record(queue, at)) is not None:
                start = record.offset + record.size_bytes
                break
        for at in range(queue_offset + 1, min(queue.max_offset, queue_offset + _NEIGHBOURS_MAX)):
            if (record := self._record(queue, at)) is not None:
                end = record.offset
                break
        return start, end

    def _record(self, queue: FileQueue, queue_offset: int) -> LogRecord | None:
        (entry,) = queue.entries(queue_offset, 1)
        offset, size, _ = entry
        if not (size > 0 and self._log.min_offset <= offset and offset + size <= self._log.segment_end(offset)):
            return None
        record = parse_record(self._log.read(offset, size), 0, offset)
        if isinstance(record, str) or record.size_bytes != size:
            return None
        return record if queue.has(record, queue_offset) else None


def _search(segments: Segments, start: int, end: int, topic: str, queue_id: int) -> Found:
    """All messages of a queue in [start, end), but at most 256 MiB are searched. May run on a worker thread.

    Raises OSError.
    """
    found: Found = {}
    position, end = start, min(end, start + _SEARCHED_BYTES_MAX)
    try:
        while position < end:
            scan = LogScan(segments, position, end)
            for record in scan:
                if record.queue_id == queue_id and record.topic == topic:
                    found[record.queue_offset] = record
            if scan.position >= end:
                break
            following = next_record(segments, scan.position + 1, end)
            position = end if following is None else following
    finally:
        segments.close()
    return found


def _no_tag(_: LogRecord) -> int:
    return 0
