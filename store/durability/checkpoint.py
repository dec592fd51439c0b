"""After a round of the log: syncs queues and index files, then writes the checkpoint; writes the broker's tables.

Tables such as consumer offsets must never be ahead of the log. So their state is taken when a round begins, and written
after that round has synced the log. Replies do not wait for it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from lockstep.remoting.runtime import WorkerPool
from lockstep.remoting.storage import Storage, StoredFile
from lockstep.store.data_dir import DataDir
from lockstep.store.file.segments import Segments
from lockstep.store.file.store import FileStore
from lockstep.store.format.layout import Checkpoint
from lockstep.store.keys.index import KeyIndex

__all__ = ["CheckpointWork", "CheckpointWriter", "Writing"]

_OPEN_FILES_MAX: Final = 256  # of queues; beyond that, files with nothing to sync are closed

Writing = Callable[[], None]


class CheckpointWork(NamedTuple):
    """Taken when a round begins; valid once that round has synced the log."""

    checkpoint: Checkpoint | None
    writings: Sequence[Writing]


class _Failed(NamedTuple):
    event: str
    error: OSError
    queues_safe: bool


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
        self._checking: asyncio.Future[_Failed | None] | None = None
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

    def _new_checkpoint(self) -> Checkpoint | None:
        """None when the entries of queues cannot be written, or are not safe."""
        store = self._store
        try:
            store.write_tails()
        except OSError as error:
            self._events.error("queue_write_postponed", reason=str(error))
            return None
        if not self.queues_safe:
            return None
        visible_end = store.visible_end
        entry_count = sum([queue.max_offset for queue in store.queues.values()])
        last = store.last_timestamp
        keys = store.keys
        return Checkpoint(last, last, keys.indexed_timestamp, visible_end, keys.indexed_offset, entry_count)

    def begin(self, pool: WorkerPool, work: CheckpointWork) -> None:
        """Write what `prepare` returned. The log is synced up to that point."""
        if work.writings:
            self._writing = pool.submit(partial(_write_tables, work.writings))
            self._writing.add_done_callback(self._finish_tables)
        if work.checkpoint is not None:
            files: list[StoredFile] = []
            folders: list[str] = []
            kept_files: list[KeyIndex | Segments] = [self._store.keys]
            kept_files += [queue.segments for queue in self._store.queues.values()]
            for kept in kept_files:
                more_files, more_folders = kept.take_dirty()
                files += more_files
                folders += more_folders
            storage, data_dir = self._store.storage, self._store.data_dir
            self._checking = pool.submit(partial(_write_checkpoint, work.checkpoint, files, folders, storage, data_dir))
            self._checking.add_done_callback(partial(self._finish_checkpoint, work.checkpoint))

    def _finish_tables(self, future: "asyncio.Future[Exception | None]") -> None:
        self._writing = None
        if future.cancelled():
            return
        error = future.result()
        if error is not None:
            self._events.error("offsets_write_failed", reason=str(error))
        self._on_end()

    def _finish_checkpoint(self, checkpoint: Checkpoint, future: "asyncio.Future[_Failed | None]") -> None:
        self._checking = None
        if future.cancelled():
            return
        failed = future.result()
        if failed is None:
            self.checkpoint = checkpoint
            self._close_idle()
        else:
            self.queues_safe = failed.queues_safe
            self._events.error(failed.event, reason=str(failed.error))
        self._on_end()

    def _close_idle(self) -> None:
        """Limit the number of open files."""
        open_count = 0
        for queue in self._store.queues.values():
            open_count += queue.segments.open_count
            if open_count > _OPEN_FILES_MAX:
                queue.segments.close_idle()


def _write_tables(writings: Sequence[Writing]) -> Exception | None:
    """Runs on a worker thread."""
    failed: Exception | None = None
    for write in writings:
        try:
            write()
        except (OSError, ValueError) as error:  # ValueError: a name that UTF-8 cannot encode
            failed = error
    return failed


def _write_checkpoint(
    checkpoint: Checkpoint, files: Sequence[StoredFile], folders: Sequence[str], storage: Storage, data_dir: DataDir
) -> _Failed | None:
    """Runs on a worker thread."""
    try:
        for file in files:
            with contextlib.suppress(ValueError):  # closed, because its topic was deleted meanwhile
                file.sync()
        for folder in folders:
            with contextlib.suppress(FileNotFoundError):  # likewise
                storage.sync_dir(folder)
    except OSError as error:
        return _Failed("queue_sync_failed", error, False)
    try:
        data_dir.write_checkpoint(checkpoint)
    except OSError as error:
        return _Failed("checkpoint_write_failed", error, True)
    return None
