"""Keeps the table of fenced locks in its file: appended to at each change of an owner, and written anew when long."""

from collections.abc import Callable
from functools import partial
from typing import Final

from lockstep.broker.catalog.offsets import ConsumerOffsetManager
from lockstep.broker.ownership.port import KeptLocks
from lockstep.broker.persistence.config_writer import ChangingTable, OnWritten, TableWriter, Writing
from lockstep.remoting.host.atomic_write import replace_file
from lockstep.remoting.host.storage import Storage, StoredFile
from lockstep.remoting.logs import EventLog
from lockstep.store.format.layout import CONFIG
from lockstep.store.format.lock_table import (
    LOCK_TABLE,
    LockKey,
    LockTable,
    LockTableDamaged,
    StoredLock,
    decode_lock_table,
    encode_changes,
    encode_lock_table,
)

__all__ = ["DiskLockPersistence", "LockTableFile"]

_ASIDE: Final = ".damaged"
# The file is written anew when it is so many times as long as it was then.
_GROWTH_MAX: Final = 4
_GROWTH_BYTES_MIN: Final = 1024 * 1024


class LockTableFile:
    """The file. `table` is written by a TableWriter: on one worker thread, one write at a time."""

    def __init__(self, storage: Storage, folder: str, log: EventLog) -> None:
        self._storage = storage
        self._folder = f"{folder}/{CONFIG}"
        self._path = f"{self._folder}/{LOCK_TABLE}"
        self._log = log
        self._locks: dict[LockKey, StoredLock] = {}
        self._pending: dict[LockKey, StoredLock | None] = {}
        self._head: Callable[[], tuple[int, bool]] = lambda: (0, False)
        self._file: StoredFile | None = None  # as the other attributes below: of the thread that writes
        self._end = 0
        self._end_max = 0
        self._must_rewrite = True
        self._written_grace = False
        self.table = ChangingTable(LOCK_TABLE, self._snapshot)

    def read(self) -> LockTable | None:
        """The table of the last run; None when there is none. A damaged file is kept beside it, and logged."""
        try:
            table = decode_lock_table(self._storage.read_file(self._path))
        except FileNotFoundError:
            return None
        except OSError as error:
            self._log.error("lock_table_unreadable", file=self._path, reason=str(error))
            return None
        except LockTableDamaged as error:
            self._storage.rename(self._path, self._path + _ASIDE)
            self._log.error("lock_table_damaged", file=self._path + _ASIDE, reason=str(error))
            return None
        self._locks = dict(table.locks)
        return table

    def begin(self, locks: KeptLocks) -> None:
        """Write what is there at the start: leases may be longer now. The head of the file is that of `locks`."""
        self._locks = {
            key: lock._replace(lease_ms=max(lock.lease_ms, locks.lease_ms)) for key, lock in self._locks.items()
        }
        self._head = lambda: locks.head
        self.table.change_count += 1

    def put(self, key: LockKey, lock: StoredLock) -> None:
        self._locks[key] = self._pending[key] = lock
        self.table.change_count += 1

    def free(self, key: LockKey) -> None:
        if self._locks.pop(key, None) is not None:
            self._pending[key] = None
            self.table.change_count += 1

    def note_head(self) -> None:
        """Write the file anew if its head says that the grace period lasts, and it is over."""
        if self._written_grace and not self._head()[1]:
            self._must_rewrite = True
            self.table.change_count += 1

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _snapshot(self) -> Writing:
        pending, self._pending = self._pending, {}
        if self._must_rewrite or self._end > self._end_max:
            self._must_rewrite = False
            boot, in_grace = self._head()
            return partial(self._write_whole, boot, in_grace, dict(self._locks))
        return partial(self._append, pending)

    def _write_whole(self, boot: int, in_grace: bool, locks: dict[LockKey, StoredLock]) -> None:
        try:
            self.close()
            content = encode_lock_table(boot, locks.values(), in_grace=in_grace)
            replace_file(self._storage, self._path, content)
            self._storage.sync_dir(self._folder)
            self._file = self._storage.open_file(self._path)
        except BaseException:
            self._must_rewrite = True
            raise
        self._end, self._written_grace = len(content), in_grace
        self._end_max = max(_GROWTH_MAX * self._end, _GROWTH_BYTES_MIN)

    def _append(self, changes: dict[LockKey, StoredLock | None]) -> None:
        try:
            assert self._file is not None
            line = encode_changes(changes)
            self._file.write_at(self._end, line)
            self._file.sync()
        except BaseException:
            # What is on the disk now is not known.
            self._must_rewrite = True
            raise
        self._end += len(line)


class DiskLockPersistence:
    """The `LockPersistence` of a broker with files. A period is kept with the committed offset at which it begins."""

    def __init__(self, file: LockTableFile, offsets: ConsumerOffsetManager, writer: TableWriter) -> None:
        self._file = file
        self._offsets = offsets
        self._writer = writer

    @property
    def is_durable(self) -> bool:
        return self._file.table.is_written

    def began(self, lock: StoredLock) -> None:
        self._file.put(lock.key, lock._replace(committed_offset=self._offsets.query(*lock.key)))

    def freed(self, key: LockKey) -> None:
        self._file.free(key)

    def when_durable(self, then: OnWritten) -> None:
        self._writer.when_written(then)

    def tick(self) -> None:
        """Called every 10 s: write what no answer waited for, and that the grace period is over."""
        self._file.note_head()
        self._file.table.on_change()
