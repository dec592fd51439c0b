"""Is a store whole? Its log message by message, and everything else against the log (docs/store.md)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from lockstep.protocol.errors import ProtocolError
from lockstep.remoting.storage import Storage
from lockstep.store.check.claims import StoreClaims
from lockstep.store.check.files import (
    CONFIG_BODIES,
    Damage,
    FileRun,
    is_blank,
    list_or_none,
    queue_runs,
    read_config,
    scan_log,
)
from lockstep.store.check.index import IndexCheck
from lockstep.store.format.layout import (
    ABORT,
    CHECKPOINT,
    CHECKPOINT_BYTES,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    ENTRY,
    ENTRY_BYTES,
    PRE_BLANK,
    decode_checkpoint,
)
from lockstep.store.format.record import LogRecord, is_torn

__all__ = ["StoreCheck"]

_READ_BYTES: Final = ENTRY_BYTES * 5_000
_TOLD_EVERY_BYTES: Final = 256 * 1024 * 1024
_MIB: Final = 1024 * 1024
_PRE_BLANK: Final = ENTRY.unpack(PRE_BLANK)
_PREPARED, _ROLLBACK, _TRANSACTION_MASK = 0x4, 0xC, 0xC


class _Queue:
    """Entries of one queue, asked for in order of the log."""

    def __init__(self, run: FileRun) -> None:
        self.run = run
        self._seen = bytearray()  # a byte an entry, from the first file on
        self._buffer, self._buffer_start = b"", 0

    def mark(self, queue_offset: int) -> None:
        """Its message was found."""
        at = queue_offset - self.run.starts[0] // ENTRY_BYTES
        if at >= len(self._seen):
            self._seen.extend(bytes(max(at + 1, 2 * len(self._seen)) - len(self._seen)))
        self._seen[at] = 1

    def has_message(self, queue_offset: int) -> bool:
        at = queue_offset - self.run.starts[0] // ENTRY_BYTES
        return at < len(self._seen) and self._seen[at] == 1

    def entry(self, queue_offset: int) -> tuple[int, int, int] | None:
        """None where nothing was written."""
        position = queue_offset * ENTRY_BYTES
        if not self._buffer_start <= position <= self._buffer_start + len(self._buffer) - ENTRY_BYTES:
            start = self.run.start_of(position)
            if start is None:
                return None
            self._buffer = self.run.read(start, position - start, _READ_BYTES)
            self._buffer_start = position
        at = position - self._buffer_start
        if len(self._buffer) < at + ENTRY_BYTES:
            return None
        offset, size, tags_code = ENTRY.unpack_from(self._buffer, at)
        return (offset, size, tags_code) if size > 0 else None


def _entries(run: FileRun) -> Iterator[tuple[int, int, tuple[int, int, int]]]:
    """(start of the file, position in it, entry) of all there is room for, but for long stretches of nothing."""
    for start, size in zip(run.starts, run.sizes, strict=True):
        at, end = 0, size - size % ENTRY_BYTES
        while (at := max(at, _entry_at(run.data_at(start, at)))) < end:
            data = run.read(start, at, min(_READ_BYTES, end - at))
            whole = data[: len(data) - len(data) % ENTRY_BYTES]
            if not is_blank(whole):
                for i, entry in enumerate(ENTRY.iter_unpack(whole)):
                    yield start, at + i * ENTRY_BYTES, entry
            at += max(ENTRY_BYTES, len(whole))
    run.close()


def _entry_at(position: int) -> int:
    """Where the entry begins that a byte is of."""
    return position - position % ENTRY_BYTES


@dataclass
class StoreCheck:
    """`run` finds all damage; the counts are of what it has looked at. Raises OSError of a folder it cannot read.

    `tell` gets lines for people while it takes long.
    """

    storage: Storage
    root: str
    tell: Callable[[str], None] = lambda _: None
    messages: int = 0
    log_bytes: int = 0
    entries: int = 0
    _queues: dict[tuple[str, int], _Queue] = field(default_factory=dict)
    _log_range: tuple[int, int] = (0, 0)
    _whole_end: int = 0
    _newest_ms: int = 0
    _claims: StoreClaims = field(init=False)

    def run(self) -> Iterator[Damage]:
        self._claims = StoreClaims.read(self.storage, self.root)
        for topic, queue_id, run in queue_runs(self.storage, self.root):
            self._queues[topic, queue_id] = _Queue(run)
            yield from run.gaps()
        yield from self._check_log()
        for (topic, queue_id), queue in self._queues.items():
            yield from self._check_entries(topic, queue_id, queue)
        yield from self._check_configs()
        yield from self._check_checkpoint()

    def _check_log(self) -> Iterator[Damage]:
        if COMMIT_LOG not in list_or_none(self.storage, self.root):
            yield Damage(COMMIT_LOG, 0, "is missing", not self._queues)
            return
        log = FileRun(self.storage, self.root, COMMIT_LOG)
        yield from self._claims.missing_files(log)
        yield from log.gaps()
        self._log_range = (log.starts[0] if log.starts else 0, log.end)
        crashed = ABORT in list_or_none(self.storage, self.root)
        index = IndexCheck(self.storage, self.root, self._log_range[0], crashed=crashed)
        for found in scan_log(log):
            if isinstance(found, Damage):
                yield found
                continue
            record, _ = found
            self._count(record, sum(log.sizes))
            start = log.start_of(record.offset) or 0
            if is_torn(record, record.offset - start):
                yield Damage(log.name(start), record.offset - start, "the properties of the message are torn")
            yield from self._check_queued(record)
            yield from index.see(record)
        yield from index.rest()

    def _count(self, record: LogRecord, total_bytes: int) -> None:
        self.messages += 1
        self._whole_end = record.offset + record.size_bytes
        self._newest_ms = max(self._newest_ms, record.store_timestamp)
        before = self.log_bytes
        self.log_bytes += record.size_bytes
        if before // _TOLD_EVERY_BYTES != self.log_bytes // _TOLD_EVERY_BYTES:
            self.tell(f"{self.log_bytes // _MIB:,} of at most {total_bytes // _MIB:,} MiB of messages read")

    def _check_queued(self, record: LogRecord) -> Iterator[Damage]:
        """That the message's entry is there."""
        if record.sys_flag & _TRANSACTION_MASK in (_PREPARED, _ROLLBACK):
            return
        queue = self._queues.get((record.topic, record.queue_id))
        name = f"{CONSUME_QUEUE}/{record.topic}/{record.queue_id}"
        if queue is None:
            self._queues[record.topic, record.queue_id] = queue = _Queue(FileRun(self.storage, self.root, name))
            text = f"is missing: the log has a message of it at {record.offset}"
            yield Damage(name, 0, text, unfinished=not self._claims.has_queue_of(record))
        entry = queue.entry(record.queue_offset) if queue.run.starts else None
        if entry is None:
            if queue.run.starts:
                position = record.queue_offset * ENTRY_BYTES
                text = f"no entry {record.queue_offset} for the message at {record.offset} of the log"
                yield Damage(*self._place(queue, position), text, unfinished=True)
            return
        queue.mark(record.queue_offset)
        if entry[:2] != (record.offset, record.size_bytes):
            text = f"entry {record.queue_offset} points at {entry[0]}, {entry[1]} bytes; its message stands at "
            position = record.queue_offset * ENTRY_BYTES
            yield Damage(*self._place(queue, position), f"{text}{record.offset} and has {record.size_bytes} bytes")

    def _place(self, queue: _Queue, position: int) -> tuple[str, int]:
        start = queue.run.start_of(position)
        return (queue.run.folder, position) if start is None else (queue.run.name(start), position - start)

    def _check_entries(self, topic: str, queue_id: int, queue: _Queue) -> Iterator[Damage]:
        """That every entry has its message, or had one that is deleted."""
        first_offset, end_offset = self._log_range
        for start, position, entry in _entries(queue.run):
            queue_offset = (start + position) // ENTRY_BYTES
            offset, size, _ = entry
            if queue.has_message(queue_offset):
                self.entries += 1
            elif (offset, size) != (0, 0) and entry != _PRE_BLANK and not 0 <= offset < first_offset:
                text = f"entry {queue_offset} of {topic} queue {queue_id} points at {offset}, where no such message is"
                yield Damage(queue.run.name(start), position, text, unfinished=offset >= end_offset)

    def _check_configs(self) -> Iterator[Damage]:
        names = list_or_none(self.storage, f"{self.root}/{CONFIG}")
        for name in CONFIG_BODIES:
            if name not in names:
                continue
            try:
                read_config(self.storage, self.root, name)
            except ProtocolError as error:
                yield Damage(f"{CONFIG}/{name}", 0, str(error))

    def _check_checkpoint(self) -> Iterator[Damage]:
        names = list_or_none(self.storage, self.root)
        if CHECKPOINT not in names:
            return
        found = self.storage.read_file(f"{self.root}/{CHECKPOINT}")
        if len(found) < 24:
            yield Damage(CHECKPOINT, len(found), f"ends before its times; {CHECKPOINT_BYTES} bytes are expected")
        yield from self._claims.later_than(self._newest_ms)
        safe_end = decode_checkpoint(found).log_offset or 0
        if safe_end > self._whole_end and safe_end != self._log_range[1]:  # there, the rest of the file is padding
            text = f"says that the log is whole up to {safe_end}, but its last message ends at {self._whole_end}"
            yield Damage(CHECKPOINT, 0, text)
