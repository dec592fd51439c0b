"""Deletes expired files while a store is used: slow steps on a thread, the new bounds on the event loop."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from lockstep.remoting.host.runtime import WorkerPool
from lockstep.remoting.host.storage import Storage
from lockstep.store.data_dir import DataDir
from lockstep.store.file.retention import DeletionPlan, Retention, delete_files, first_kept
from lockstep.store.file.store import FileStore
from lockstep.store.segments.queue import FileQueue

__all__ = ["Expiry"]

_TRIMMED_AT_ONCE: Final = 1024  # queues, some 4 ms


class Expiry:
    """Carries out one plan at a time. Files that could not be deleted are tried again first."""

    def __init__(
        self, store: FileStore, retention: Retention, pool: Callable[[], WorkerPool], on_end: Callable[[], None]
    ) -> None:
        self._store = store
        self._retention = retention
        self._pool = pool
        self._on_end = on_end
        self._events = store.events
        self._looking: asyncio.Future[list[int]] | None = None
        self._deleting: asyncio.Future[list[str]] | None = None
        self._pause: asyncio.Future[None] | None = None
        self._found: tuple[DeletionPlan, Iterator[tuple[FileQueue, int]]] | None = None  # queues that are left
        self._paths: list[str] = []  # of dropped files that still exist
        self._reasons: dict[str, str] = {}

    @property
    def is_under_way(self) -> bool:
        return any(future is not None for future in (self._looking, self._pause, self._deleting))

    def go_on(self, now_ms: int) -> None:
        """Do the next step. Call it only while no sync is running."""
        if self.is_under_way:
            return
        if self._found is not None:
            self._trim_some(*self._found)
            return
        try:
            plan_now = self._retention.plan(self._store, now_ms)
        except OSError as error:
            self._events.error("expiry_check_failed", reason=str(error))
            return
        if plan_now is not None:
            self._looking = self._pool().submit(partial(first_kept, plan_now))
            self._looking.add_done_callback(partial(self._on_looked, plan_now))

    def _on_looked(self, plan: DeletionPlan, future: "asyncio.Future[list[int]]") -> None:
        self._looking = None
        if future.cancelled():
            return
        try:
            self._found = plan, zip(plan.queues, future.result(), strict=True)
        except OSError as error:
            self._events.error("expiry_delete_failed", reason=str(error))
        self._on_end()

    def _trim_some(self, plan: DeletionPlan, left: Iterator[tuple[FileQueue, int]]) -> None:
        """Move the bounds of some queues: before that of the log, whose messages they point to."""
        some = list(islice(left, _TRIMMED_AT_ONCE))
        if not some:
            self._found = None
            self._begin_at(plan)
            return
        self._store.trim_to(plan.log_offset, some)
        self._pause = self._pool().submit(_nothing)
        self._pause.add_done_callback(self._on_paused)

    def _on_paused(self, future: "asyncio.Future[None]") -> None:
        self._pause = None
        if not future.cancelled():
            self._on_end()

    def _begin_at(self, plan: DeletionPlan) -> None:
        """Move the bounds of log and keys; from now on the old messages cannot be read."""
        self._reasons.update(plan.files)
        self._paths += self._store.forget_before(plan.log_offset)
        begin, paths = self._store.log.min_offset, tuple(self._paths)
        self._deleting = self._pool().submit(partial(_delete, self._store.data_dir, begin, self._store.storage, paths))
        self._deleting.add_done_callback(self._on_deleted)

    def _on_deleted(self, future: "asyncio.Future[list[str]]") -> None:
        self._deleting = None
        if future.cancelled():
            return
        try:
            gone = future.result()
            self._paths = self._paths[len(gone) :]
            for path in gone:
                reason = self._reasons.pop(path, None)
                if reason is not None:
                    self._events.info("log_file_deleted", file=path, reason=reason)
            self._store.log.segments.mark_names_unsynced()
            if not self._paths:
                # Only now: while the log exists, its queues must be complete.
                self._store.queues.delete_trimmed()
        except OSError as error:
            self._events.error("expiry_delete_failed", reason=str(error))
        self._on_end()


def _nothing() -> None:
    """Runs on a worker thread. Until it has returned, the loop does other work."""


def _delete(data_dir: DataDir, log_begin: int, storage: Storage, paths: Sequence[str]) -> list[str]:
    """Runs on a worker thread. Notes the new beginning of the log before the first deletion.

    So a file that is missing behind that offset was not deleted by the broker.
    """
    data_dir.write_log_begin(log_begin)
    return delete_files(storage, paths)
