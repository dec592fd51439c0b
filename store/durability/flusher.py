"""Puts a store on the disk, off the event loop: many sends to one fsync, offsets, the checkpoint, a clean end.

One round of the log is under way at a time. It makes safe what was there when it began; who came meanwhile is of the
next one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from lockstep.remoting.runtime import Runtime, TimerHandle, WorkerPool
from lockstep.remoting.storage import Storage, StoredFile
from lockstep.store.durability.checkpoint import CheckpointWork, CheckpointWriter, Writing
from lockstep.store.file.expiry import Expiry
from lockstep.store.file.retention import Retention
from lockstep.store.file.segments import Segments
from lockstep.store.file.store import FileStore
from lockstep.store.format.log_records import LogScan
from lockstep.store.format.record import is_torn
from lockstep.store.keys.indexer import KeyIndexer

__all__ = ["FlushSettings", "ReadbackFailed", "StoreFlusher"]

_THREADS: Final = 4  # for the log, for tables, for queues and their checkpoint, for old files
_LOG: Final = "log"


class ReadbackFailed(Exception):
    """Messages that were stored cannot be read back; the text says where, and why."""


OnSafe = Callable[[str], None]  # empty: it is safe; else why it is not
Failure = OSError | ReadbackFailed


class FlushSettings(NamedTuple):
    """`at_once`: flush as soon as anything was stored, and not every `flush_interval_ms` only."""

    at_once: bool
    flush_interval_ms: int
    tables_interval_ms: int
    checkpoint_interval_ms: int


class _Work(NamedTuple):
    """What a round does: [`log_start`, `log_end`) is safe when files and folders are synced; the tables come behind.

    `suspect`: the log, when an earlier sync of what is not safe has failed.
    """

    log_start: int
    log_end: int
    log_files: Sequence[StoredFile]
    log_folders: Sequence[str]
    suspect: Segments | None
    tables: CheckpointWork


class StoreFlusher:
    """`on_visible` is called after messages have become readable. `writings`: files of tables, as they stand now."""

    def __init__(
        self,
        runtime: Runtime,
        store: FileStore,
        settings: FlushSettings,
        retention: Retention,
        writings: Callable[[], Sequence[Writing]],
        on_visible: Callable[[], None],
    ) -> None:
        self._expiry = Expiry(store, retention, self._pool_now, self._after_end)
        self._keys = KeyIndexer(runtime, store, settings.flush_interval_ms)
        self._tables = CheckpointWriter(store, writings, self._after_end)
        self._runtime = runtime
        self._store = store
        self._settings = settings
        self._on_visible = on_visible
        self._events = store.events
        self._pool: WorkerPool | None = None
        self._searches: WorkerPool | None = None  # of its own: however many there are, syncs do not wait for them
        self._round: asyncio.Future[Failure | None] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._waiting: deque[tuple[int, OnSafe]] = deque()
        self._timer: TimerHandle | None = None
        self._next_tables_ms = 0
        self._next_checkpoint_ms = 0
        self._failed = False  # the last sync of the log
        self._readback_failed = False  # for good
        self._stopped = False

    def start(self) -> None:
        """Call on the loop."""
        now_ms = self._runtime.now_ms()
        self._next_tables_ms = now_ms + self._settings.tables_interval_ms
        self._next_checkpoint_ms = now_ms + self._settings.checkpoint_interval_ms
        self._keys.start()
        self._searches = self._runtime.new_worker_pool("search", 1)
        self._store.repair.submit = self._searches.submit
        self._arm()

    # What senders wait for -----------------------------------------------------------------------------------

    def when_safe(self, then: OnSafe) -> None:
        """`then` is called when all that is stored by now is safe, or with why it is not."""
        if self._readback_failed:
            then(self._store.refusal)  # no round will come
        else:
            self._waiting.append((self._store.log.max_offset, then))

    def check(self) -> None:
        """After whatever may have stored something: begin a round, unless one is under way."""
        log = self._store.log
        ready = self._settings.at_once and self._round is None and not self._stopped and not self._failed
        if ready and log.max_offset > log.synced_offset:
            self._begin(self._due())

    # Rounds --------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        self._timer = self._runtime.call_later_ms(self._settings.flush_interval_ms, self._tick)

    def _tick(self) -> None:
        self._arm()
        self._store.bound_tails()
        if self._round is not None or self._readback_failed:
            return  # its end sees to what is due
        self.retain(self._runtime.now_ms())
        log, due = self._store.log, self._due()
        if any(due) or log.max_offset > log.synced_offset or self._failed:
            self._begin(due)

    def _due(self) -> tuple[bool, bool]:
        """Are tables to be written behind the round that begins now, and a checkpoint?"""
        now_ms = self._runtime.now_ms()
        tables = now_ms >= self._next_tables_ms and not self._tables.are_written
        checkpoint = now_ms >= self._next_checkpoint_ms and not self._tables.is_checked
        if tables:
            self._next_tables_ms = now_ms + self._settings.tables_interval_ms
        if checkpoint:
            self._next_checkpoint_ms = now_ms + self._settings.checkpoint_interval_ms
        return tables, checkpoint

    def retain(self, now_ms: int) -> None:
        """Old files go, step by step; not while any of them may be synced."""
        if self._round is None and not self._tables.is_under_way:
            self._expiry.go_on(now_ms)

    def _pool_now(self) -> WorkerPool:
        if self._pool is None:
            self._pool = self._runtime.new_worker_pool("store", _THREADS)
        return self._pool

    def _begin(self, due: tuple[bool, bool] = (False, False)) -> None:
        store, log = self._store, self._store.log
        log_end = log.max_offset
        tables = self._tables.prepare(tables=due[0], checkpoint=due[1])
        if self._failed:
            log.mark_unsynced(log.synced_offset)
        files, folders = log.take_dirty()
        suspect = log.segments.twin() if self._failed else None
        work = _Work(log.synced_offset, log_end, files, folders, suspect, tables)
        store.sync_count += len(files)
        self._round = self._pool_now().submit(partial(_sync_log, work, store.storage))
        self._round.add_done_callback(partial(self._finish, work))

    def _finish(self, work: _Work, future: "asyncio.Future[Failure | None]") -> None:
        if future.cancelled():
            self._round = None
            return
        error = future.result()
        if error is not None:
            self._on_failed(work, error)
        else:
            self._on_safe(work.log_end)
            self._tables.begin(self._pool_now(), work.tables)
        self._round = None  # not before: nothing may begin while this one is being ended
        self._after_end()

    def _after_end(self) -> None:
        if not self._stopped:
            self.retain(self._runtime.now_ms())
        self.check()
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _on_safe(self, log_end: int) -> None:
        store = self._store
        assert log_end >= store.log.synced_offset, "rounds end in the order in which they began"
        store.log.synced_offset = log_end
        if self._failed:
            self._failed = False
            store.refuse(_LOG, "")
            self._events.info("log_sync_recovered")
        store.make_visible(log_end)
        while self._waiting and self._waiting[0][0] <= log_end:
            self._waiting.popleft()[1]("")
        self._on_visible()

    def _on_failed(self, work: _Work, error: Failure) -> None:
        """Nobody is told that something is safe; nothing more is taken until all was written again and synced."""
        store = self._store
        if isinstance(error, ReadbackFailed):
            self._readback_failed = True
            reason = f"what the disk did not take is lost: {error}"
            self._events.error("log_readback_failed", reason=reason)
        else:
            reason = f"{store.log.segments.path_of(work.log_end)} cannot be put on the disk: {error.strerror or error}"
            if not self._failed:
                self._events.error("log_sync_failed", reason=reason)
        self._failed = True
        store.refuse(_LOG, reason)
        waiting, self._waiting = self._waiting, deque()
        for _, then in waiting:
            then(reason)

    # The end -------------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Wait until all that is stored by now is safe, or was found not to be; what comes meanwhile does not count."""
        log = self._store.log
        end = log.max_offset
        while log.synced_offset < end and not self._failed:
            if self._round is None:
                self._begin()
            await self._next_end()

    async def stop(self) -> None:
        """Everything on disk and the folder given back; the store is closed afterwards."""
        self._stopped = True
        self._keys.stop()
        self._store.repair.submit = None
        if self._timer is not None:
            self._timer.cancel()
        await self.flush()
        await self._settle()
        self._keys.enter_all()
        if not self._readback_failed:
            self._begin((True, True))
            await self._settle()
        self._end()

    async def _settle(self) -> None:
        while self._round is not None or self._tables.is_under_way or self._expiry.is_under_way:
            await self._next_end()

    async def _next_end(self) -> None:
        if self._idle is None or self._idle.done():
            self._idle = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._idle)

    def _end(self) -> None:
        store, written = self._store, self._tables.checkpoint.log_offset
        safe = not self._failed and store.log.synced_offset == store.log.max_offset and self._tables.queues_safe
        if safe and written == store.log.max_offset:
            try:
                store.data_dir.ended_well()
            except OSError as error:
                self._events.error("abort_file_delete_failed", reason=str(error))
        else:
            self._events.error(
                "unclean_shutdown",
                log_end=store.log.max_offset,
                safe_end=store.log.synced_offset,
                checkpoint=written,
                reason=store.refusal or None,
            )
        store.close()
        store.data_dir.release()
        for pool in (self._pool, self._searches):
            if pool is not None:
                pool.close()


def _sync_log(work: _Work, storage: Storage) -> Failure | None:
    """On a thread of its own."""
    try:
        if work.suspect is not None:
            try:
                _write_again(work.suspect, work.log_start, work.log_end)
            finally:
                work.suspect.close()
        for file in work.log_files:
            file.sync()
        for folder in work.log_folders:
            storage.sync_dir(folder)
    except (OSError, ReadbackFailed) as error:
        return error
    return None


def _write_again(segments: Segments, start: int, end: int) -> None:
    """After a failed sync: write the messages in [start, end) again, if every one of them can be read back.

    The system may count the pages of a failed sync as written, drop them, and read them from the disk as they were
    before (docs/store.md). So messages are checked as after a crash. Raises ReadbackFailed and OSError.
    """
    scan = LogScan(segments, start, end)
    for record in scan:
        if is_torn(record, segments.position_in_file(record.offset)):
            scan.reason = "a part of its properties is zeros"
            break
    if scan.position < end:
        at = scan.position
        raise ReadbackFailed(f"{segments.path_of(at)}, byte {segments.position_in_file(at)}: {scan.reason}")
    segments.rewrite(start, end)
