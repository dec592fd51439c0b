"""Recovery: finds the end of the log and makes the consume queues match it, when a store is opened.

The part that the checkpoint covers is not read again. Behind it the log is read up to its last whole message. After a
crash the log is cut there. The covered part is never cut: damage in it is reported and skipped by readers.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from lockstep.protocol.codes import SysFlag
from lockstep.store.file.store import FileStore
from lockstep.store.format.files import queue_folders
from lockstep.store.format.layout import FILE_END_BYTES, Checkpoint, encode_padding
from lockstep.store.format.log_records import LogScan, next_record
from lockstep.store.format.record import LogRecord, is_torn, parse_record
from lockstep.store.segments.queue import FileQueue

__all__ = ["Recovered", "Recovery"]

_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
# The transaction types that consumers may see (wire.md 5).
_IN_QUEUES: Final = (0, int(SysFlag.TRANSACTION_COMMIT))
# So many files RocketMQ reads again after a clean end.
_LAST_FILES: Final = 3
_PROGRESS_BYTES: Final = 128 * 1024 * 1024
_MIB: Final = 1024 * 1024
_NOWHERE: Final = 1 << 63
# Files of queues, which stay open until they are synced.
_UNSYNCED_MAX: Final = 256


class Recovered(NamedTuple):
    """`cut_bytes`: bytes removed from the torn end of the log. `damaged`: number of unreadable places in the log."""

    message_count: int
    cut_bytes: int
    damaged: int


class Recovery:
    """Opens a store for writing."""

    def __init__(
        self,
        store: FileStore,
        begins: Mapping[str, int],
        is_whole: bool,
        tags_code_of: Callable[[LogRecord], int],
        on_progress: Callable[[str], None],
    ) -> None:
        """
        Args:
            begins: The topics that exist, each with the commit log offset at which it begins: messages below it are of
                a deleted topic of its name. They get no entry.
            is_whole: No other topics exist: their messages get no entry either. Else all of these do.
            tags_code_of: Returns the tags code for the queue entry of a message.
            on_progress: Gets a line of text every 128 MiB.
        """
        self._store = store
        self._data_dir = store.data_dir
        self._begins = begins
        self._begin_of_others = _NOWHERE if is_whole else 0
        self._tags_code_of = store.repair.tags_code_of = tags_code_of
        self._events = store.events
        self._on_progress = on_progress
        self._last: dict[tuple[str, int], int] = {}
        self._rebuild = False
        # After a clean shutdown nothing follows the checkpoint.
        self._all_is_safe = False
        self._count = 0
        # Entries of deleted topics that the checkpoint counts, if it is older than the deletion.
        self._discarded = 0
        self._missing = 0  # files of the log
        self._damaged = 0

    def run(self) -> Recovered:
        """Make the store ready to be written to. Raises StoreUnusable and OSError."""
        store, log = self._store, self._store.log
        log.load()
        checkpoint = self._data_dir.read_checkpoint()
        safe = self._safe_offset(checkpoint)
        self._begin_log(safe)
        # First the queues up to the checkpoint, then the log from there on: each message behind it is entered again.
        self._load_queues(safe)
        if checkpoint.log_offset != safe:
            self._rebuild |= not _queues_are_complete(store, safe)
        # The checkpoint counts the entries. Another number means that files of queues were lost.
        elif checkpoint.entry_count not in (below := self._entries_below(), below + self._discarded):
            self._rebuild = True
        # A missing entry may be anywhere, so the whole log is read; else only the part behind the checkpoint.
        end = self._read_all(safe) if self._rebuild else self._read_log(safe, safe)
        if checkpoint.log_offset is None and checkpoint.is_ahead_of(store.last_timestamp):
            self._events.error(
                "checkpoint_not_believed",
                says_ms=max(checkpoint.log_timestamp, checkpoint.queue_timestamp),
                last_message_ms=store.last_timestamp,
            )
            checkpoint = Checkpoint(0, 0, 0)
            if not self._rebuild:
                end = self._read_all(safe)
        cut_bytes = self._cut_bytes(end)
        # What stands behind the end is half a message of the crash. It goes, or a later recovery could read it.
        log.begin_at(end, cut=bool(cut_bytes) or self._data_dir.crashed)
        if self._data_dir.crashed:
            # First synced, then served: a consumer must not handle a message that the next crash takes away.
            self._make_safe(safe, end)
        self._end_queues()
        store.keys.load(checkpoint.index_offset, checkpoint.index_timestamp, crashed=self._data_dir.crashed)
        store.last_timestamp = max(checkpoint.log_timestamp, store.last_timestamp)
        return Recovered(self._count, cut_bytes, self._damaged)

    def _make_safe(self, start: int, end: int) -> None:
        """Sync the part behind the checkpoint. The system may hold it in memory only, also after failed syncs."""
        log = self._store.log
        log.synced_offset = min(start, end)
        log.segments.rewrite(log.synced_offset, end)
        log.mark_unsynced(start)
        files, folders = log.take_dirty()
        for file in files:
            file.sync()
        for folder in folders:
            self._store.storage.sync_dir(folder)
        log.synced_offset = end

    # Where to begin ------------------------------------------------------------------------------------------

    def _safe_offset(self, checkpoint: Checkpoint) -> int:
        """The offset below which everything is on the disk, by our checkpoint or by RocketMQ's times."""
        log = self._store.log
        if checkpoint.log_offset is not None and checkpoint.log_offset >= log.min_offset:
            self._all_is_safe = not self._data_dir.crashed
            return checkpoint.log_offset
        starts = log.segments.starts
        if not starts:
            return 0
        # A log of RocketMQ's that ended cleanly: the last three files are read again, as RocketMQ does.
        if not self._data_dir.crashed:
            return starts[-_LAST_FILES:][0]
        for start in reversed(starts):
            first = next(iter(LogScan(log.segments, start)), None)
            if first is not None and 0 < first.store_timestamp <= checkpoint.safe_ms:
                return start
        return starts[0]

    def _begin_log(self, safe: int) -> None:
        """Report missing files; at the beginning only those that were not deleted for their age."""
        segments = self._store.log.segments
        first = segments.starts[0] if segments.starts else segments.start_of(max(0, safe - 1))
        known = self._data_dir.read_log_begin()
        if known is None:
            self._note_begin(first)
        begin = min(first, first if known is None else segments.start_of(known))
        for start in range(begin, max(segments.end, safe), segments.file_bytes):
            if not segments.has(start):
                self._events.error("log_file_missing", file=segments.path_of(start))
                self._missing += 1
        self._damaged = self._missing

    def _note_begin(self, offset: int) -> None:
        try:
            self._data_dir.write_log_begin(offset)
        except OSError as error:  # the next start notes it
            self._events.error("log_begin_write_failed", reason=str(error))

    def _load_queues(self, safe: int) -> None:
        store = self._store

        def on_stray(path: str) -> None:
            self._events.warning("stray_path_ignored", path=path, allowed="consumequeue/TOPIC/QUEUE_ID")

        for topic, queue_id in queue_folders(store.storage, store.settings.folder, on_stray):
            queue = self._new_queue(topic, queue_id)
            queue.load(safe)
            queue.skip_blank()
            if len(queue) and queue[0] < queue.begin and queue[len(queue) - 1] < queue.begin:
                if queue.begin >= safe:
                    # So it has no entries of the new topic below the checkpoint.
                    self._discarded += queue.max_offset
                # The deletion of its files failed, or was lost in the crash.
                store.discard(queue)
            else:
                self._check_end(queue)

    def _new_queue(self, topic: str, queue_id: int) -> FileQueue:
        queue = self._store.new_queue(topic, queue_id)
        queue.begin = self._begins.get(topic, 0)
        return queue

    def _check_end(self, queue: FileQueue) -> None:
        """End the queue at its last entry that points to a message of it; entries behind are damage."""
        log = self._store.log
        queue.min_offset += bisect_left(queue, log.min_offset)
        self._rebuild |= queue.segments.has_holes or queue.min_offset > log.min_offset == 0  # the first file is lost
        for at in range(queue.max_offset, queue.min_offset, -1):
            (entry,) = queue.entries(at - 1, 1)
            if 0 < entry.size_bytes <= log.segments.file_bytes:
                record = parse_record(log.read(entry.commit_log_offset, entry.size_bytes), 0, entry.commit_log_offset)
                if isinstance(record, LogRecord) and queue.has(record, at - 1):
                    queue.end_at(at)
                    return
        # No message can be read, so the log is damaged and not the queue: keep its end.

    def _entries_below(self) -> int:
        return sum([queue.max_offset for queue in self._store.queues.values()])

    # Reading the log -----------------------------------------------------------------------------------------

    def _read_all(self, safe: int) -> int:
        """Read the whole log and make every entry again. Returns the end of the log."""
        self._events.error("queue_entries_missing")
        self._rebuild = True
        self._last.clear()
        self._count = 0
        self._damaged = self._missing
        return self._read_log(self._store.log.min_offset, safe)

    def _read_log(self, start: int, safe: int) -> int:
        """Enter every message from `start` on into its queue. Returns the end of the log."""
        segments = self._store.log.segments
        suspect_from = safe if self._data_dir.crashed else segments.end
        position, report_at = start, start + _PROGRESS_BYTES
        while True:
            scan = LogScan(segments, position)
            torn = False
            for record in scan:
                offset = record.offset
                if offset >= suspect_from and is_torn(record, segments.position_in_file(offset)):
                    torn = True
                    break
                self._enter(record)
                if offset >= report_at:
                    report_at = offset + _PROGRESS_BYTES
                    self._report_progress(offset - start, segments.end - start)
            if torn or not scan.reason:
                return max(scan.position, safe)
            following = self._behind_damage(scan.position, safe)
            if following is None:
                return max(scan.position, safe)
            self._report_damage(scan.position, following, scan.reason)
            position = following

    def _behind_damage(self, position: int, safe: int) -> int | None:
        """Where to read on; None if the log ends here. After a crash, data behind a torn write is not used."""
        segments = self._store.log.segments
        if position < safe:
            return next_record(segments, position + 1, safe) or safe
        # A message behind a torn one was never answered. It may even have come to the disk before it.
        if self._data_dir.crashed or self._all_is_safe:
            return None
        return next_record(segments, position + 1, segments.end)

    def _report_damage(self, start: int, end: int, reason: str) -> None:
        self._damaged += 1
        self._events.error(
            "log_damaged",
            place=self._store.log.place(start),
            bytes=end - start,
            reason=reason,
        )

    def _report_progress(self, done_bytes: int, total_bytes: int) -> None:
        self._on_progress(f"recovering {self._data_dir.folder}: {done_bytes // _MIB} of {total_bytes // _MIB} MiB")

    def _enter(self, record: LogRecord) -> None:
        self._count += 1
        if record.store_timestamp > self._store.last_timestamp:
            self._store.last_timestamp = record.store_timestamp
        # Half messages and rollbacks are in the log alone (wire.md 5).
        if record.sys_flag & _TRANSACTION not in _IN_QUEUES:
            return
        if record.offset < self._begins.get(record.topic, self._begin_of_others):
            return  # the topic was deleted
        key = (record.topic, record.queue_id)
        queue = self._store.queues.get(key)
        if queue is None:
            queue = self._new_queue(*key)
        before = self._last.get(key)
        if before is None:
            before = -1 if self._rebuild else queue.max_offset - 1
        self._last[key] = record.queue_offset
        if record.queue_offset <= before:
            # The topic was deleted and created again.
            queue.restart_at(record.queue_offset)
        queue.put(record.queue_offset, (record.offset, record.size_bytes, self._tags_code_of(record)))

    # The end -------------------------------------------------------------------------------------------------

    def _end_queues(self) -> None:
        """Write what they have in memory. Above some files they are synced, so that they can be closed again."""
        dirty_count = 0
        for queue in self._store.queues.values():
            queue.write_tail()
            queue.trusted_from = queue.max_offset
            # Entries behind the last message may point to what the crash took away.
            if self._data_dir.crashed or self._rebuild:
                queue.cut_rest()
            dirty_count += queue.segments.is_dirty
            if dirty_count > _UNSYNCED_MAX:
                files, folders = queue.segments.take_dirty()
                for file in files:
                    file.sync()
                for folder in folders:
                    self._store.storage.sync_dir(folder)

    def _cut_bytes(self, end: int) -> int:
        """The number of bytes written behind the end of the log, without trailing zeros."""
        segments, written_end = self._store.log.segments, end
        for start, piece_end in segments.pieces(end, segments.end):
            for at in range(start, piece_end, _MIB):
                piece = segments.read(at, min(_MIB, piece_end - at)).rstrip(b"\0")
                if not piece:
                    return written_end - end
                written_end = at + len(piece)
        return written_end - end


def _queues_are_complete(store: FileStore, end: int) -> bool:
    """Do the queues have every message of the log's files below `end`? Messages of deleted topics count as missing.

    The sizes in the queues' entries tell where the messages of each file end. The padding must begin there.
    Raises OSError.
    """
    segments = store.log.segments
    queues = list(store.queues.values())
    firsts = [queue.min_offset for queue in queues]
    for start in segments.starts:
        file_end = start + segments.file_bytes
        if file_end > end:
            return True
        message_bytes = 0
        for number, queue in enumerate(queues):
            first, firsts[number] = firsts[number], _first_from(queue, file_end)
            message_bytes += store.stored_bytes(queue.topic, queue.queue_id, first, firsts[number])
        at = start + message_bytes
        if at > file_end - FILE_END_BYTES or store.log.read(at, FILE_END_BYTES) != encode_padding(file_end - at):
            return False
    return True


def _first_from(queue: FileQueue, log_offset: int) -> int:
    """The queue offset of the first message at or behind a commit log offset."""
    return queue.min_offset + bisect_left(queue, log_offset)
