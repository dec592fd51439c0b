"""Group commit: one fsync round covers everything that was appended before it began. Off the event loop.

One round runs at a time. Messages that arrive during a round are covered by the next one. Tables, the checkpoint and a
clean shutdown follow the rounds.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from lockstep.remoting.host.runtime import Runtime, TimerHandle, WorkerPool
from lockstep.remoting.host.storage import Storage, StoredFile
from lockstep.store.durability.checkpoint import CheckpointWork, CheckpointWriter, Writing
from lockstep.store.durability.indexer import KeyIndexer
from lockstep.store.file.expiry import Expiry
from lockstep.store.file.retention import Retention
from lockstep.store.file.store import FileStore
from lockstep.store.format.files import close_all
from lockstep.store.format.log_records import LogScan
from lockstep.store.format.record import is_torn
from lockstep.store.segments.segments import Segments

__all__ = ["FlushSettings", "ReadbackFailed", "StoreFlusher"]

# For the log, for tables, for queues and their checkpoint, for old files.
_THREADS: Final = 4
_LOG: Final = "log"


class ReadbackFailed(Exception):
    """Messages that were stored cannot be read back; the text says where, and why."""


OnSafe = Callable[[str], None]  # gets "" when the data is on the disk, else the reason why it is not
Failure = OSError | ReadbackFailed


class FlushSettings(NamedTuple):
    """When to write. `at_once`: sync after each append, and not only every `flush_interval_ms`."""

    at_once: bool
    flush_interval_ms: int
    tables_interval_ms: int
    checkpoint_interval_ms: int


class _Work(NamedTuple):
    """One round: [`log_start`, `log_end`) is safe once these files and folders are synced. Then the tables follow.

    Attributes:
        suspect: The log, if an earlier sync failed and the messages have to be written again; else None.
    """

    log_start: int
    log_end: int
    log_files: Sequence[StoredFile]
    log_folders: Sequence[str]
    suspect: Segments | None
    tables: CheckpointWork


class StoreFlusher:
    """Writes a store to the disk while it is used, and ends it cleanly."""

    def __init__(
        self,
        runtime: Runtime,
        store: FileStore,
        settings: FlushSettings,
        retention: Retention,
        writings: Callable[[], Sequence[Writing]],
        on_visible: Callable[[], None],
    ) -> None:
        """
        Args:
            writings: Returns the writings of the broker's tables in their present state.
            on_visible: Called after messages have become readable.
        """
        self._expiry = Expiry(store, retention, self._pool_now, self._after_end)
        self._keys = KeyIndexer(runtime, store, settings.flush_interval_ms)
        self._tables = CheckpointWriter(store, writings, self._after_end)
        self._runtime = runtime
        self._store = store
        self._settings = settings
        self._on_visible = on_visible
        self._events = store.events
        self._pool: WorkerPool | None = None
        # A second pool, so that syncs do not wait for searches.
        self._searches: WorkerPool | None = None
        self._round: asyncio.Future[Failure | None] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._waiting: deque[tuple[int, OnSafe]] = deque()
        self._timer: TimerHandle | None = None
        self._next_tables_ms = 0
        self._next_checkpoint_ms = 0
        self._failed = False  # the last sync of the log
        self._readback_failed = False  # until the broker is restarted
        self._stopped = False

    def start(self) -> None:
        """Call on the loop."""
        now_ms = self._runtime.now_ms()
        self._next_tables_ms = now_ms + self._settings.tables_interval_ms
        # A second crash need not read the same part of the log again.
        crashed = self._store.data_dir.crashed
        self._next_checkpoint_ms = now_ms + (0 if crashed else self._settings.checkpoint_interval_ms)
        self._keys.start()
        self._searches = self._runtime.new_worker_pool("search", 1)
        # From now on a search for a lost message runs on its own thread, and no longer on the loop.
        self._store.repair.submit = self._searches.submit
        self._arm()

    # Acknowledgements -----------------------------------------------------------------------------------

    def when_safe(self, then: OnSafe) -> None:
        """Call `then` once everything stored so far is on the disk, or with the reason why it is not."""
        log = self._store.log
        # The end of the log now: what is appended later is no matter of this caller.
        log_end = log.max_offset
        if self._readback_failed:
            then(self._store.refusal)  # no round will come
        elif log.synced_offset == log_end:
            then("")
        else:
            self._waiting.append((log_end, then))

    def check(self) -> None:
        """Begin a round if there is something to sync and none is running. Call it after each append."""
        log = self._store.log
        ready = self._settings.at_once and self._round is None and not self._stopped and not self._failed
        if ready and log.max_offset > log.synced_offset:
            self._begin(self._due())

    def after_read(self) -> None:
        """Call it after the requests of a read: the index gives way to them."""
        self._keys.asked()
        self.check()

    # Rounds --------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        self._timer = self._runtime.call_later_ms(self._settings.flush_interval_ms, self._tick)

    def _tick(self) -> None:
        # First the next tick: an error below must not end the rounds.
        self._arm()
        self._store.bound_tails()
        if self._round is not None or self._readback_failed:
            # The end of the round checks what is due.
            return
        self.retain(self._runtime.now_ms())
        log, due = self._store.log, self._due()
        if any(due) or log.max_offset > log.synced_offset or self._failed:
            self._begin(due)

    def _due(self) -> tuple[bool, bool]:
        """(tables, checkpoint): which of them follow the round that begins now."""
        now_ms = self._runtime.now_ms()
        tables = now_ms >= self._next_tables_ms and not self._tables.are_written
        checkpoint = now_ms >= self._next_checkpoint_ms and not self._tables.is_checked
        if tables:
            self._next_tables_ms = now_ms + self._settings.tables_interval_ms
        if checkpoint:
            self._next_checkpoint_ms = now_ms + self._settings.checkpoint_interval_ms
        return tables, checkpoint

    def retain(self, now_ms: int) -> None:
        """Delete old files, one step a call. Not during a sync, which may use them."""
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
        # After a failed sync the pages may be lost although they can be read. They are written and synced again.
        if self._failed:
            log.mark_unsynced(log.synced_offset)
        # The end of the log was read before: what is appended while the threads sync belongs to the next round.
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
        try:
            if error is not None:
                self._on_failed(work, error)
            else:
                # First the log, then the tables: an offset on the disk must never be beyond the messages that are
                # there.
                self._on_safe(work.log_end)
                self._tables.begin(self._pool_now(), work.tables)
        finally:
            # Only now: no round may begin while this one ends. Also after a fault of who hears of it.
            self._round = None
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
        # First readable, then answered: a producer that has its answer finds its message.
        store.make_visible(log_end)
        while self._waiting and self._waiting[0][0] <= log_end:
            self._tell(self._waiting.popleft()[1], "")
        self._on_visible()

    def _on_failed(self, work: _Work, error: Failure) -> None:
        """On sync failure: reject pending acknowledgements and refuse appends until a new sync succeeds."""
        store = self._store
        if isinstance(error, ReadbackFailed):
            self._readback_failed = True
            reason = f"messages that could not be synced are lost: {error}"
            self._events.error("log_readback_failed", reason=reason)
        else:
            reason = f"{store.log.segments.path_of(work.log_end)} cannot be synced: {error.strerror or error}"
            if not self._failed:
                self._events.error("log_sync_failed", reason=reason)
        self._failed = True
        # First refuse new messages, then answer those that wait: a caller may send again at once.
        store.refuse(_LOG, reason)
        waiting, self._waiting = self._waiting, deque()
        for _, then in waiting:
            self._tell(then, reason)

    def _tell(self, then: OnSafe, reason: str) -> None:
        try:
            then(reason)
        # A fault of ours in one answer keeps no other caller waiting.
        except Exception as error:
            self._events.error("answer_failed", exc_info=error)

    # The end -------------------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Wait until everything stored before this call is on the disk, or its sync has failed."""
        log = self._store.log
        end = log.max_offset
        while log.synced_offset < end and not self._failed:
            if self._round is None:
                self._begin()
            await self._next_end()

    async def stop(self) -> None:
        """Write everything, release the folder and close the store."""
        self._stopped = True
        self._keys.stop()
        self._store.repair.submit = None
        if self._timer is not None:
            self._timer.cancel()
        await self.flush()
        await self._settle()
        # The index comes after the flush, which may have made more messages readable.
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
        pools = [pool.close for pool in (self._pool, self._searches) if pool is not None]
        close_all([store.close, store.data_dir.release, *pools])


def _sync_log(work: _Work, storage: Storage) -> Failure | None:
    """Runs on a worker thread."""
    try:
        if work.suspect is not None:
            try:
                _write_again(work.suspect, work.log_start, work.log_end)
            finally:
                work.suspect.close()
        # First the files, then the folders that name them: a name without content would be damage.
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
