"""A queue's entries that are damaged, found again in the log: a message itself says which queue and offset it is of."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from lockstep.remoting.logs import EventLog
from lockstep.store.base import QueueEntry
from lockstep.store.file.log import FileLog
from lockstep.store.file.queue import FileQueue
from lockstep.store.file.segments import Segments
from lockstep.store.format.log_records import LogScan, next_record
from lockstep.store.format.record import LogRecord, parse_record

__all__ = ["EntryRepair", "Found", "SearchRunning", "Submit"]

_NEIGHBOURS_MAX: Final = 1000
_AT_ONCE_BYTES: Final = 1024 * 1024  # are searched while others wait
_SEARCHED_BYTES_MAX: Final = 256 * 1024 * 1024
_HOPELESS_MAX: Final = 10_000

Found = dict[int, LogRecord]  # by queue offset
Submit = Callable[[Callable[[], Found]], "asyncio.Future[Found]"]


class SearchRunning(Exception):
    """The message is being searched for; ask again later."""


class EntryRepair:
    """The messages stand between those of the entries before and behind: there the log is searched.

    `submit` runs a longer search on a thread; while it is None it is run at once. `tags_code_of`: what the entry of a
    message says of it.
    """

    def __init__(self, log: FileLog, events: EventLog) -> None:
        self._log = log
        self._events = events
        self.submit: Submit | None = None
        self.tags_code_of: Callable[[LogRecord], int] = _no_tag
        self._hopeless: dict[tuple[str, int, int], None] = {}  # searched for in vain
        self._searches: dict[FileQueue, asyncio.Future[Found]] = {}

    def message_of(self, queue: FileQueue, queue_offset: int) -> bytes | None:
        """The message, with its entry written anew; None when the log does not have it.

        Raises SearchRunning and OSError.
        """
        if queue in self._searches:
            raise SearchRunning
        if (queue.topic, queue.queue_id, queue_offset) in self._hopeless:
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
                return  # the file it began in is deleted meanwhile; who asks again is told of the rest
            self._events.error("queue_repair_failed", topic=queue.topic, reason=str(error))
            self._give_up(queue, queue_offset)

    def _apply(self, queue: FileQueue, queue_offset: int, found: Found) -> None:
        if queue_offset not in found:
            self._give_up(queue, queue_offset)
        mended = 0
        for at, record in found.items():
            entry = QueueEntry(record.offset, record.size_bytes, self.tags_code_of(record))
            if queue.min_offset <= at < queue.max_offset and queue.entries(at, 1) != [entry]:
                queue.put(at, entry)
                mended += 1
        if mended:
            self._events.warning(
                "queue_entries_repaired",
                topic=queue.topic, queue_id=queue.queue_id, queue_offset=queue_offset, entries=mended,
            )  # fmt: skip

    def _give_up(self, queue: FileQueue, queue_offset: int) -> None:
        if len(self._hopeless) >= _HOPELESS_MAX:
            self._hopeless.clear()
        self._hopeless[queue.topic, queue.queue_id, queue_offset] = None

    def _bounds(self, queue: FileQueue, queue_offset: int) -> tuple[int, int]:
        """Where in the log the messages before and behind end and begin."""
        start, end = self._log.min_offset, self._log.max_offset
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
        return record if record.is_of(queue.topic, queue.queue_id, queue_offset) else None


def _search(segments: Segments, start: int, end: int, topic: str, queue_id: int) -> Found:
    """All messages of a queue between two places, or of so much of it as is worth the time; maybe on another thread.

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
