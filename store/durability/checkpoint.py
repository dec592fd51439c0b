"""After a round of the log: syncs queues and index files, then writes the checkpoint; writes the broker's tables.

Tables such as consumer offsets must never be ahead of the log. So their state is taken when a round begins, and written
after that round has synced the log. Replies do not wait for it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from lockstep.remoting.host.runtime import WorkerPool
from lockstep.remoting.host.storage import Storage, StoredFile
from lockstep.store.data_dir import DataDir
from lockstep.store.file.store import FileStore
from lockstep.store.format.layout import Checkpoint
from lockstep.store.segments.queue import FileQueue

__all__ = ["CheckpointWork", "CheckpointWriter", "Writing"]

# Files and folders: writing them takes some 10 ms of the loop.
_SYNCED_AT_ONCE: Final = 64

Writing = Callable[[], None]


class CheckpointWork(NamedTuple):
    """Taken when a round begins; valid once that round has synced the log."""

    checkpoint: Checkpoint | None
    writings: Sequence[Writing]


class _Failed(NamedTuple):
    event: str
    error: OSError
    queues_safe: bool


@dataclass
class _Checking:
    """A checkpoint under way.

    Attributes:
        queues: Those that are left.
        at_work: Those whose files are being synced.
        failure: Why the entries of a queue could not be written.
    """

    pool: WorkerPool
    checkpoint: Checkpoint
    queues: Iterator[FileQueue]
    at_work: list[FileQueue] = field(default_factory=list)
    failure: OSError | None = None


class CheckpointWriter:
    """Writes one checkpoint and one set of tables at a time, independent of each other.

    Attributes:
        checkpoint: The content of the checkpoint file.
        queues_safe: False after a failed sync of queues or index files: only recovery can tell what they contain.
    """

    def __init__(self, store: FileStore, writings: Callable[[], Sequence[Writing]], on_end: Callable[[], None]) -> None:
        self._store = store
        self._writings = writings
        self._on_end = on_end
        self._events = store.events
        self._writing: asyncio.Future[Exception | None] | None = None
        self._checking: _Checking | None = None
        self.checkpoint = store.data_dir.read_checkpoint()
        self.queues_safe = True

    @property
    def is_under_way(self) -> bool:
        return self.are_written or self.is_checked

    @property
    def are_written(self) -> bool:
        """Tables are being written."""
        return self._writing is not None

    @property
    def is_checked(self) -> bool:
        """A checkpoint is being written, or the files that it covers are being synced."""
        return self._checking is not None

    def prepare(self, *, tables: bool, checkpoint: bool) -> CheckpointWork:
        """Call it when a round of the log begins."""
        return CheckpointWork(self._new_checkpoint() if checkpoint else None, self._writings() if tables else ())

    def _new_checkpoint(self) -> Checkpoint:
        store = self._store
        entry_count = sum([queue.max_offset for queue in store.queues.values()])
        last, keys = store.last_timestamp, store.keys
        return Checkpoint(last, last, keys.indexed_timestamp, store.visible_end, keys.indexed_offset, entry_count)

    def begin(self, pool: WorkerPool, work: CheckpointWork) -> None:
        """Write what `prepare` returned. The log is synced up to that point."""
        if work.writings:
            self._writing = pool.submit(partial(_write_tables, work.writings))
            self._writing.add_done_callback(self._finish_tables)
        if work.checkpoint is not None:
            self._checking = _Checking(pool, work.checkpoint, iter(list(self._store.queues.values())))
            self._sync_some(self._checking)

    def _sync_some(self, work: _Checking) -> None:
        """Write the waiting entries of some queues and sync them; with the last ones, write the checkpoint.

        A broker may have more queues than a process may have open files.
        """
        files: list[StoredFile] = []
        folders: list[str] = []
        is_last = True
        for queue in work.queues:
            if queue.is_deleted:
                continue
            try:
                queue.write_tail()
            except OSError as error:
                work.failure = error
            more_files, more_folders = queue.segments.take_dirty()
            if more_files:
                queue.in_sync = True
                work.at_work.append(queue)
            files += more_files
            folders += more_folders
            if len(files) + len(folders) >= _SYNCED_AT_ONCE:
                is_last = False
                break
        if is_last:
            more_files, more_folders = self._store.keys.take_dirty()
            files += more_files
            folders += more_folders
        checkpoint = work.checkpoint if is_last and work.failure is None and self.queues_safe else None
        storage, data_dir = self._store.storage, self._store.data_dir
        future = work.pool.submit(partial(_write_checkpoint, checkpoint, files, folders, storage, data_dir))
        future.add_done_callback(partial(self._finish_some, work, is_last))

    def _finish_tables(self, future: "asyncio.Future[Exception | None]") -> None:
        self._writing = None
        if future.cancelled():
            return
        error = future.result()
        if error is not None:
            self._events.error("offsets_write_failed", reason=str(error))
        self._on_end()

    def _finish_some(self, work: _Checking, is_last: bool, future: "asyncio.Future[_Failed | None]") -> None:
        if future.cancelled():
            self._checking = None
            return
        failed = future.result()
        for queue in work.at_work:
            queue.in_sync = False
        work.at_work.clear()
        if failed is None and not is_last:
            self._sync_some(work)
            return
        self._checking = None
        if failed is not None:
            self.queues_safe = failed.queues_safe
            self._events.error(failed.event, reason=str(failed.error))
        elif work.failure is not None:
            self._events.error("queue_write_postponed", reason=str(work.failure))
        elif self.queues_safe:
            self.checkpoint = work.checkpoint
        self._on_end()


def _write_tables(writings: Sequence[Writing]) -> Exception | None:
    """Runs on a worker thread."""
    failed: Exception | None = None
    for write in writings:
        try:
            write()
        except (OSError, ValueError) as error:
            # ValueError: a name that UTF-8 cannot encode.
            failed = error
    return failed


def _write_checkpoint(
    checkpoint: Checkpoint | None,
    files: Sequence[StoredFile],
    folders: Sequence[str],
    storage: Storage,
    data_dir: DataDir,
) -> _Failed | None:
    """Sync, then write the checkpoint if there is one. Runs on a worker thread."""
    try:
        for file in files:
            with contextlib.suppress(ValueError):
                # Closed, because its topic was deleted meanwhile.
                file.sync()
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):  # likewise
                storage.sync_dir(folder)
    except OSError as error:
        return _Failed("queue_sync_failed", error, False)
    try:
        if checkpoint is not None:
            data_dir.write_checkpoint(checkpoint)
    except OSError as error:
        return _Failed("checkpoint_write_failed", error, True)
    return None
