"""Checks a whole store: the log message by message, everything else against the log (docs/store.md)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from lockstep.protocol.bodies.config import StoredTopics
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, TRANSACTION_GIVEN_UP_TOPIC
from lockstep.remoting.host.storage import Storage
from lockstep.store.check.files import CONFIG_BODIES, Damage, file_damage, lock_table_damage, read_config, scan_log
from lockstep.store.check.index import IndexCheck
from lockstep.store.data_dir import DataDir
from lockstep.store.format.consume_queue import entries_end, read_entries
from lockstep.store.format.files import FileRun, close_all, is_blank, names_in, queue_folders
from lockstep.store.format.layout import (
    ABORT,
    CHECKPOINT,
    CHECKPOINT_BYTES,
    CHECKPOINT_TIMES_BYTES,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    ENTRY,
    ENTRY_BYTES,
    PRE_BLANK,
    Checkpoint,
)
from lockstep.store.format.lock_table import LOCK_TABLE
from lockstep.store.format.record import LogRecord, is_torn

__all__ = ["StoreCheck"]

_ENTRIES_AT_ONCE: Final = 5000
# Of one queue, damaged or unfinished, that are told one by one.
_PLACES_MAX: Final = 100
_PROGRESS_BYTES: Final = 256 * 1024 * 1024
_MIB: Final = 1024 * 1024
_PRE_BLANK: Final = ENTRY.unpack(PRE_BLANK)
# The transaction types in a sysFlag (wire.md 4.5).
_PREPARED = 0x4
_ROLLBACK = 0xC
_TRANSACTION_MASK = 0xC
_NEVER_DELETED: Final = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TIMER_TOPIC, TRANSACTION_GIVEN_UP_TOPIC})
# The end of the year 9999.
_DATE_MS_MAX: Final = 253_402_300_799_999


@dataclass(frozen=True)
class _Claims:
    """What the small files of a store say about its log and queues.

    Attributes:
        log_begin: Where the log begins since its oldest files were deleted; None when it is not known.
        topics: The table of topics; None when it cannot be read.
        entries_missing: Do the queues have fewer entries than the checkpoint counts? None when it counts none.
    """

    checkpoint: Checkpoint
    crashed: bool
    log_begin: int | None
    topics: StoredTopics | None
    queue_counts: Mapping[str, int]
    entries_missing: bool | None

    @classmethod
    def read(cls, storage: Storage, root: str) -> Self:
        """Raises OSError."""
        folder = DataDir(storage, root)
        checkpoint = folder.read_checkpoint()
        topics = _topics(storage, root)
        configs = topics.topics if topics is not None else ()
        return cls(
            checkpoint,
            ABORT in names_in(storage, root),
            folder.read_log_begin(),
            topics,
            {one.topic_name: max(one.read_queue_nums, one.write_queue_nums) for one in configs},
            _entries_missing(storage, root, checkpoint),
        )

    def missing_files(self, log: FileRun) -> Iterator[Damage]:
        """Files before the first one that exists, which no broker deleted for their age."""
        if self.log_begin is None or not log.starts:
            return
        for start in range(log.start_of(self.log_begin), log.starts[0], log.file_bytes):
            yield Damage(log.name_of(start), 0, "is missing: the log began there, and it was not deleted for its age")

    def is_gone(self, record: LogRecord) -> bool:
        """Is this a message of a topic that was deleted before the present one of its name was created?"""
        if self.topics is None or record.topic in _NEVER_DELETED:
            return False
        begin = self.topics.begins.get(record.topic)
        return begin is not None and record.offset < begin.log_offset

    def has_queue_of(self, record: LogRecord) -> bool:
        """Must the queue of this message exist? Not if its topic was deleted, also if it was created again."""
        return self.entries_missing is not False and self.has_entry_of(record)

    def has_entry_of(self, record: LogRecord) -> bool:
        """Must this message have an entry, if it has a queue? Not if its topic was deleted, or if a crash may have come
        before the entry was on the disk.
        """
        has_table = self.topics is not None and record.topic not in _NEVER_DELETED
        if has_table and record.queue_id >= self.queue_counts.get(record.topic, 0):
            return False
        if self.checkpoint.log_offset is not None:
            return record.offset < self.checkpoint.log_offset
        return not self.crashed or record.store_timestamp <= self.checkpoint.safe_ms

    def later_than(self, newest_ms: int) -> Iterator[Damage]:
        """The checkpoint reports messages newer than the newest one. Of an empty log other checks report enough."""
        if newest_ms and self.checkpoint.is_ahead_of(newest_ms):
            says_ms = max(self.checkpoint.log_timestamp, self.checkpoint.queue_timestamp)
            text = f"is of messages stored until {_date(says_ms)}, but the newest is of {_date(newest_ms)}"
            yield Damage(CHECKPOINT, 0, text)


def _topics(storage: Storage, root: str) -> StoredTopics | None:
    try:
        table = read_config(storage, root, "topics.json")
    except (FileNotFoundError, ProtocolError):
        return None
    assert isinstance(table, StoredTopics)
    return table


def _entries_missing(storage: Storage, root: str, checkpoint: Checkpoint) -> bool | None:
    if checkpoint.log_offset is None:
        return None
    count = 0
    for topic, queue_id in queue_folders(storage, root):
        files = FileRun.found(storage, root, f"{CONSUME_QUEUE}/{topic}/{queue_id}")
        try:
            count += entries_end(files, checkpoint.log_offset)
        finally:
            files.close()
    return count != checkpoint.entry_count


def _date(epoch_ms: int) -> str:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=min(max(0, epoch_ms), _DATE_MS_MAX))
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


class _Queue:
    """The entries of one queue, asked for in the order of the log."""

    def __init__(self, files: FileRun) -> None:
        self.files = files
        self._damage: list[Damage] = []  # what is wrong with the entries of its messages, as far as the log was read
        self._counts = [0, 0]  # of damaged places and of unfinished ones
        self._last = -1  # queue offset
        self._first = files.starts[0] // ENTRY_BYTES if files.starts else 0
        self._seen = bytearray()  # a byte an entry, from the first file on
        self._buffer, self._buffer_first = b"", 0

    def follows(self, queue_offset: int) -> None:
        """The next message of the log. If its offset is not above the last one, the topic was deleted and created
        again before it: earlier messages have no entries any more.
        """
        if queue_offset <= self._last:
            self._damage.clear()
            self._counts = [0, 0]
        self._last = queue_offset

    def add_damage(self, damage: Damage) -> None:
        """An earlier life of the topic may have one a message, so only the first ones are kept."""
        self._counts[damage.unfinished] += 1
        if self._counts[damage.unfinished] <= _PLACES_MAX:
            self._damage.append(damage)

    def damage(self) -> Iterator[Damage]:
        yield from self._damage
        for unfinished, count in zip((False, True), self._counts, strict=True):
            if count > _PLACES_MAX:
                text = f"{count - _PLACES_MAX} more entries are missing or point at something else"
                yield Damage(self.files.name, 0, text, unfinished)

    def mark(self, queue_offset: int) -> None:
        """The message of this entry was found."""
        at = queue_offset - self._first
        if at >= len(self._seen):
            self._seen.extend(bytes(max(at + 1, 2 * len(self._seen)) - len(self._seen)))
        self._seen[at] = 1

    def has_message(self, queue_offset: int) -> bool:
        at = queue_offset - self._first
        return at < len(self._seen) and self._seen[at] == 1

    def entry(self, queue_offset: int) -> tuple[int, int, int] | None:
        """None where nothing was written."""
        if not self.files.has(queue_offset * ENTRY_BYTES):
            return None
        if not self._buffer_first <= queue_offset < self._buffer_first + len(self._buffer) // ENTRY_BYTES:
            self._buffer = read_entries(self.files, queue_offset, _ENTRIES_AT_ONCE)
            self._buffer_first = queue_offset
        offset, size, tags_code = ENTRY.unpack_from(self._buffer, (queue_offset - self._buffer_first) * ENTRY_BYTES)
        return (offset, size, tags_code) if size > 0 else None

    def place(self, queue_offset: int) -> tuple[str, int]:
        """(file, position in it) of an entry."""
        position = queue_offset * ENTRY_BYTES
        files = self.files
        return (
            (files.name_of(position), files.position_in_file(position))
            if files.has(position)
            else (files.name, position)
        )

    def entries(self) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """(queue offset, entry) of all that the files hold, without long stretches of zeros."""
        files = self.files
        for start in files.starts:
            at, end = start, files.end_of(start)
            while (at := max(at, files.data_at(at, end) // ENTRY_BYTES * ENTRY_BYTES)) < end:
                first = at // ENTRY_BYTES
                data = read_entries(files, first, min(_ENTRIES_AT_ONCE, (end - at) // ENTRY_BYTES))
                if not is_blank(data):
                    yield from enumerate(ENTRY.iter_unpack(data), first)
                at += max(ENTRY_BYTES, len(data))
        files.close()


@dataclass
class StoreCheck:
    """Reads everything. The counts grow while `run` goes on.

    Attributes:
        on_progress: Gets a line of text every 256 MiB of messages.
    """

    storage: Storage
    root: str
    on_progress: Callable[[str], None] = lambda _: None
    messages: int = 0
    log_bytes: int = 0
    entries: int = 0
    _queues: dict[tuple[str, int], _Queue] = field(default_factory=dict)
    _log_range: tuple[int, int] = (0, 0)
    _whole_end: int = 0
    _newest_ms: int = 0
    _claims: _Claims = field(init=False)

    def run(self) -> Iterator[Damage]:
        """All damage. Raises OSError when the folder cannot be read; all files are closed at the end."""
        try:
            yield from self._run()
        finally:
            close_all([queue.files.close for queue in self._queues.values()])

    def _run(self) -> Iterator[Damage]:
        self._claims = _Claims.read(self.storage, self.root)
        for topic, queue_id in queue_folders(self.storage, self.root):
            yield from file_damage(self._open_queue(topic, queue_id).files)
        yield from self._check_log()
        for (topic, queue_id), queue in self._queues.items():
            yield from self._check_entries(topic, queue_id, queue)
        yield from self._check_configs()
        yield from self._check_checkpoint()

    def _open_queue(self, topic: str, queue_id: int) -> _Queue:
        files = FileRun.found(self.storage, self.root, f"{CONSUME_QUEUE}/{topic}/{queue_id}")
        queue = self._queues[topic, queue_id] = _Queue(files)
        return queue

    def _check_log(self) -> Iterator[Damage]:
        names = names_in(self.storage, self.root)
        if COMMIT_LOG not in names:
            yield Damage(COMMIT_LOG, 0, "is missing", not self._queues)
            return
        log = FileRun.found(self.storage, self.root, COMMIT_LOG)
        yield from self._claims.missing_files(log)
        yield from file_damage(log)
        if log.starts:
            self._log_range = (log.starts[0], log.end_of(log.starts[-1]))
        total_bytes = sum(map(log.size_of, log.starts))
        index = IndexCheck(self.storage, self.root, self._log_range[0], crashed=ABORT in names)
        try:
            yield from self._check_messages(log, index, total_bytes)
        finally:
            close_all([index.close, log.close])

    def _check_messages(self, log: FileRun, index: IndexCheck, total_bytes: int) -> Iterator[Damage]:
        for found in scan_log(log):
            if isinstance(found, Damage):
                yield found
                continue
            self._count(found, total_bytes)
            position = log.position_in_file(found.offset)
            if is_torn(found, position):
                yield Damage(log.name_of(found.offset), position, "the properties of the message are torn")
            yield from self._check_queued(found)
            yield from index.see(found)
        yield from index.rest()
        for queue in self._queues.values():
            yield from queue.damage()

    def _count(self, record: LogRecord, total_bytes: int) -> None:
        self.messages += 1
        self._whole_end = record.offset + record.size_bytes
        self._newest_ms = max(self._newest_ms, record.store_timestamp)
        before = self.log_bytes
        self.log_bytes += record.size_bytes
        if before // _PROGRESS_BYTES != self.log_bytes // _PROGRESS_BYTES:
            self.on_progress(f"{self.log_bytes // _MIB:,} of at most {total_bytes // _MIB:,} MiB of messages read")

    def _check_queued(self, record: LogRecord) -> Iterator[Damage]:
        """The entry of this message. What is wrong with it counts when the whole log was read."""
        if record.sys_flag & _TRANSACTION_MASK in (_PREPARED, _ROLLBACK) or self._claims.is_gone(record):
            return
        queue = self._queues.get((record.topic, record.queue_id))
        if queue is None:
            queue = self._open_queue(record.topic, record.queue_id)
            text = f"is missing: the log has a message of it at {record.offset}"
            yield Damage(queue.files.name, 0, text, unfinished=not self._claims.has_queue_of(record))
        queue.follows(record.queue_offset)
        entry = queue.entry(record.queue_offset)
        if entry is None:
            if queue.files.starts:
                text = f"no entry {record.queue_offset} for the message at {record.offset} of the log"
                unfinished = not self._claims.has_entry_of(record)
                queue.add_damage(Damage(*queue.place(record.queue_offset), text, unfinished))
            return
        queue.mark(record.queue_offset)
        if entry[:2] != (record.offset, record.size_bytes):
            text = f"entry {record.queue_offset} points at {entry[0]}, {entry[1]} bytes; its message stands at "
            text += f"{record.offset} and has {record.size_bytes} bytes"
            queue.add_damage(Damage(*queue.place(record.queue_offset), text))

    def _check_entries(self, topic: str, queue_id: int, queue: _Queue) -> Iterator[Damage]:
        """Entries whose message neither exists nor has expired."""
        first_offset, end_offset = self._log_range
        for queue_offset, entry in queue.entries():
            offset, size, _ = entry
            if queue.has_message(queue_offset):
                self.entries += 1
            elif (offset, size) != (0, 0) and entry != _PRE_BLANK and not 0 <= offset < first_offset:
                text = f"entry {queue_offset} of {topic} queue {queue_id} points at {offset}, where no such message is"
                yield Damage(*queue.place(queue_offset), text, unfinished=offset >= end_offset)

    def _check_configs(self) -> Iterator[Damage]:
        names = names_in(self.storage, f"{self.root}/{CONFIG}")
        for name in CONFIG_BODIES:
            if name not in names:
                continue
            try:
                read_config(self.storage, self.root, name)
            except ProtocolError as error:
                yield Damage(f"{CONFIG}/{name}", 0, str(error))
        if LOCK_TABLE in names:
            yield from lock_table_damage(self.storage, self.root)

    def _check_checkpoint(self) -> Iterator[Damage]:
        if CHECKPOINT not in names_in(self.storage, self.root):
            return
        size = len(self.storage.read_file(f"{self.root}/{CHECKPOINT}"))
        if size < CHECKPOINT_TIMES_BYTES:
            yield Damage(CHECKPOINT, size, f"ends before its times; {CHECKPOINT_BYTES} bytes are expected")
        yield from self._claims.later_than(self._newest_ms)
        safe_end = self._claims.checkpoint.log_offset or 0
        # At that place the rest of the file is padding.
        if safe_end > self._whole_end and safe_end != self._log_range[1]:
            text = f"says that the log is whole up to {safe_end}, but its last message ends at {self._whole_end}"
            yield Damage(CHECKPOINT, 0, text)
