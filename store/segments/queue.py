"""A consume queue in files of 20-byte entries: the i-th entry belongs to the i-th message (wire.md 5)."""

from bisect import bisect_left
from typing import Final, NamedTuple

from lockstep.remoting.host.storage import Storage
from lockstep.store.base import QueueEntry
from lockstep.store.format.consume_queue import entries_end, first_written, next_log_offset, read_entries
from lockstep.store.format.files import close_all
from lockstep.store.format.layout import CONSUME_QUEUE, ENTRY, ENTRY_BYTES, PRE_BLANK
from lockstep.store.format.record import LogRecord
from lockstep.store.segments.segments import Segments

__all__ = ["FileQueue", "QueueTable", "Tails"]

_TAIL_BYTES_MAX: Final = 64 * 1024
_OPENED_MAX: Final = 256
_SIZE_AT: Final = 8  # in an entry
_SUMMED_AT_ONCE: Final = 50_000


class FileQueue:
    """Queue offsets [`min_offset`, `max_offset`) can be read.

    New entries wait in memory until `write_tail`. If they are lost, recovery finds them again in the log.

    As a sequence this is the commit log offsets of the entries from `min_offset` on, for bisect. A zeroed entry counts
    with the offset of the next one, so that it is never taken for an expired message.

    Attributes:
        next_offset: The offset of the next message; higher than `max_offset` while messages are not readable yet.
        in_sync: Its files are being synced, and must stay open.
        trusted_from: Entries below it were written by an earlier process, and are checked before they are served.
        begin: Its messages are at this commit log offset or behind it; those before are of a deleted topic.
        must_clear: Files of a deleted queue may stand in its folder. They go before its first entry is written.
    """

    def __init__(self, storage: Storage, folder: str, topic: str, queue_id: int, file_bytes: int) -> None:
        self.segments = Segments(storage, folder, f"{CONSUME_QUEUE}/{topic}/{queue_id}", file_bytes)
        self.topic = topic
        self.queue_id = queue_id
        self.min_offset = 0
        self.max_offset = 0
        self.next_offset = 0
        self.trusted_from = 0
        self.begin = 0
        self.must_clear = False
        self.is_deleted = False
        self.in_sync = False
        self._tail = bytearray()
        self._tail_offset = 0

    def has(self, record: LogRecord, queue_offset: int) -> bool:
        """Is this the message of an entry? One of a deleted topic of the same name is not."""
        return record.offset >= self.begin and record.is_of(self.topic, self.queue_id, queue_offset)

    # Writing -------------------------------------------------------------------------------------------------

    def append(self, commit_log_offset: int, size_bytes: int, tags_code: int) -> None:
        """Add the entry of `max_offset`, in memory."""
        self._tail += ENTRY.pack(commit_log_offset, size_bytes, tags_code)
        self.max_offset += 1

    def append_entries(self, entries: bytes) -> None:
        """Add entries from `max_offset` on, which is the next offset, in memory."""
        self._tail += entries
        self.max_offset += len(entries) // ENTRY_BYTES
        self.next_offset = self.max_offset

    def drop_last(self, count: int) -> None:
        """Remove the last entries, which still wait in memory."""
        del self._tail[-count * ENTRY_BYTES :]
        self.max_offset -= count

    @property
    def tail_bytes(self) -> int:
        """The size of the entries that wait in memory."""
        return len(self._tail)

    @property
    def has_long_tail(self) -> bool:
        return len(self._tail) >= _TAIL_BYTES_MAX

    def write_tail(self) -> None:
        """Write the waiting entries to the files. Raises OSError; then they wait on."""
        if not self._tail:
            return
        # Files of a deleted topic of the same name go first. Their entries would stand before the new ones.
        if self.must_clear:
            self.segments.delete_found()
            self.must_clear = False
        segments, start = self.segments, self._tail_offset * ENTRY_BYTES
        view = memoryview(bytes(self._tail))
        for piece_start, piece_end in segments.pieces(start, start + len(view)):
            if not segments.has(piece_start) and not segments.starts:
                self._pre_blank(piece_start)
            segments.write(piece_start, view[piece_start - start : piece_end - start])
        # Only after all pieces are written: after an error the entries wait in memory, and are written again.
        self._tail.clear()
        self._tail_offset = self.max_offset

    def _pre_blank(self, position: int) -> None:
        """Fill a file before the queue's first entry with blanks, as RocketMQ does."""
        file_start = self.segments.start_of(position)
        if position > file_start:
            self.segments.write(file_start, PRE_BLANK * ((position - file_start) // ENTRY_BYTES))

    def restart_at(self, queue_offset: int) -> None:
        """Delete the entries from `queue_offset` on; the next entry gets this offset. Raises OSError."""
        if queue_offset <= self._tail_offset:
            self.segments.cut(queue_offset * ENTRY_BYTES)
            self._tail.clear()
            self._tail_offset = queue_offset
        else:
            self.write_tail()
            self.segments.cut(queue_offset * ENTRY_BYTES)
            self._tail_offset = queue_offset
        self.max_offset = self.next_offset = queue_offset
        self.min_offset = min(self.min_offset, queue_offset)

    def put(self, queue_offset: int, entry: tuple[int, int, int]) -> None:
        """Put an entry that was found in the log at its place; gaps before it read as zeros. Raises OSError."""
        if queue_offset == self.max_offset:
            self.append(*entry)
            self.next_offset = self.max_offset
            if self.has_long_tail:
                self.write_tail()
        elif queue_offset < self.min_offset:
            # The file of the first entries was lost.
            self._pre_blank(queue_offset * ENTRY_BYTES)
            self.segments.write(queue_offset * ENTRY_BYTES, ENTRY.pack(*entry))
            self.min_offset = queue_offset
        # The entry should be in the files. It is written only if it is not the same, because most are.
        elif queue_offset < self._tail_offset:
            if self.read(queue_offset, 1) != ENTRY.pack(*entry):
                self.segments.write(queue_offset * ENTRY_BYTES, ENTRY.pack(*entry))
        # The entries before it are gone, with their messages. They read as zeros, which are skipped.
        elif queue_offset > self.max_offset:
            self.write_tail()
            if self.max_offset == self.min_offset:
                self.min_offset = queue_offset
            self._tail_offset = self.max_offset = queue_offset
            self.append(*entry)
            self.next_offset = self.max_offset

    # Reading -------------------------------------------------------------------------------------------------

    def read(self, queue_offset: int, count: int) -> bytes:
        """The bytes of up to `count` entries from `queue_offset` on. Raises OSError."""
        end = min(queue_offset + count, self.max_offset)
        tail_offset = self._tail_offset
        parts = []
        if queue_offset < tail_offset:
            parts.append(read_entries(self.segments, queue_offset, min(end, tail_offset) - queue_offset))
            queue_offset = tail_offset
        if end > queue_offset:
            low = (queue_offset - tail_offset) * ENTRY_BYTES
            parts.append(bytes(self._tail[low : (end - tail_offset) * ENTRY_BYTES]))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def entries(self, queue_offset: int, count: int) -> list[QueueEntry]:
        return [QueueEntry(*entry) for entry in ENTRY.iter_unpack(self.read(queue_offset, count))]

    def __len__(self) -> int:
        return self.max_offset - self.min_offset

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return next_log_offset(self.read, self.max_offset, self.min_offset + index)

    # Loading and retention -------------------------------------------------------------------------------------

    def load(self, log_end: int) -> None:
        """Find the files; the queue ends behind its last message below `log_end`. Raises StoreUnusable and OSError."""
        self.segments.load()
        starts = self.segments.starts
        if not starts:
            return
        self.min_offset = starts[0] // ENTRY_BYTES
        self.end_at(entries_end(self.segments, log_end))

    def end_at(self, queue_offset: int) -> None:
        """The next entry gets `queue_offset`; ignore what the files have from there on."""
        self._tail_offset = self.max_offset = self.next_offset = queue_offset

    def cut_rest(self) -> None:
        """Zero what the files have behind the last entry. Raises OSError."""
        self.segments.cut(self._tail_offset * ENTRY_BYTES)

    @property
    def written_end(self) -> int:
        """Entries below this offset are in the files."""
        return self._tail_offset

    def trim(self, log_min_offset: int, first_kept: int) -> None:
        """Move `min_offset` past the entries of deleted messages. Raises OSError.

        Args:
            first_kept: The first entry to keep, by a search of the files; entries written later are searched here.
        """
        self.min_offset = max(self.min_offset, min(first_kept, self.max_offset))
        self.min_offset += bisect_left(self, log_min_offset)

    def delete_trimmed(self) -> None:
        """Delete whole files below `min_offset`. Raises OSError."""
        if len(self.segments.starts) > 1:
            self.segments.delete_before(min(self.min_offset, self._tail_offset) * ENTRY_BYTES)

    def skip_blank(self) -> None:
        """Blanks before the first entry are not part of the queue (wire.md 5)."""
        self.min_offset = first_written(self.read, self.min_offset, self.max_offset)

    def stored_bytes(self, first_offset: int, end_offset: int) -> int:
        """The size of the messages in a range that are not trimmed. Raises OSError."""
        first, end = max(first_offset, self.min_offset), min(end_offset, self.max_offset)
        total_bytes = 0
        for at in range(first, end, _SUMMED_AT_ONCE):
            data = self.read(at, min(_SUMMED_AT_ONCE, end - at))
            for byte in range(4):
                # Of the sizes, one byte position at a time: far faster than by entry.
                total_bytes += sum(data[_SIZE_AT + byte :: ENTRY_BYTES]) << (24 - 8 * byte)
        return total_bytes

    def delete(self) -> None:
        """Raises OSError."""
        # First the mark: a sync that begins now leaves the files alone.
        self.is_deleted = True
        self.segments.delete_all()
        self._tail.clear()

    def close(self) -> None:
        self.segments.close()


class Tails(NamedTuple):
    """`left_bytes`: size of the entries that still wait in memory. `failure`: why a write failed, or empty."""

    left_bytes: int
    failure: str


class QueueTable(dict[tuple[str, int], FileQueue]):
    """The queues of a store, by topic and queue id.

    A broker may have more queues than a process may have open files. So each time that 256 files of queues were opened,
    all are closed but those that have something to sync; the next access opens them again.
    """

    def __init__(self) -> None:
        super().__init__()
        self._opened = 0  # since they were closed
        self._with_files: dict[FileQueue, None] = {}  # those that may have open files

    def before_open(self, queue: FileQueue) -> None:
        """A file of a queue will be opened."""
        self._opened += 1
        if self._opened > _OPENED_MAX:
            self._opened = 1
            for one in list(self._with_files):
                if not one.in_sync:
                    one.segments.close_idle()
                if not one.segments.open_count:
                    del self._with_files[one]
        self._with_files[queue] = None

    def close(self) -> None:
        """Close the files of all queues, also of those that were taken out of the table and are not deleted yet."""
        queues, self._with_files = self._with_files, {}
        close_all([queue.close for queue in queues])

    def write_tails(self) -> None:
        """Write the waiting entries of all queues. Raises OSError after the last queue if one failed."""
        failed: OSError | None = None
        for queue in self.values():
            try:
                queue.write_tail()
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    def write_long_tails(self) -> Tails:
        left_bytes, failure = 0, ""
        for queue in self.values():
            if queue.has_long_tail:
                try:
                    queue.write_tail()
                except OSError as error:
                    failure = f"{queue.segments.folder} cannot be written to: {error.strerror or error}"
            left_bytes += queue.tail_bytes
        return Tails(left_bytes, failure)

    def delete_trimmed(self) -> None:
        """Delete the files of expired entries. Raises OSError."""
        for queue in self.values():
            queue.delete_trimmed()
