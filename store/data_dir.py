"""The folder of a store: checks that it is one, locks it, detects a crash; reads and writes its small files."""

from typing import Final

from lockstep.remoting.host.atomic_write import replace_file, replace_file_keeping_backup
from lockstep.remoting.host.storage import FileLock, Storage
from lockstep.store.errors import StoreUnusable
from lockstep.store.format.files import names_in
from lockstep.store.format.layout import (
    ABORT,
    CHECKPOINT,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    INDEX,
    LOCK,
    LOG_BEGIN,
    RULES,
    Checkpoint,
    decode_checkpoint,
    decode_log_begin,
    encode_checkpoint,
    encode_log_begin,
    parse_file_name,
)

__all__ = ["DataDir", "lock_folder"]

_NEW: Final = ".tmp"
_OURS: Final = frozenset({ABORT, CHECKPOINT, CHECKPOINT + _NEW, COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX, LOCK, RULES})
_BACKUP: Final = ".bak"


def lock_folder(storage: Storage, folder: str, *, shared: bool = False) -> FileLock | None:
    """Lock the folder itself. None: a network's file system may have locks of files only. Raises BlockingIOError."""
    try:
        return storage.lock_folder(folder, shared=shared)
    except BlockingIOError:
        raise
    except OSError:
        return None


class DataDir:
    """The folder of one store.

    Attributes:
        crashed: Set by `open`: the last process that had it open did not end cleanly.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self.folder = folder
        self.crashed = False
        self._locks: list[FileLock] = []

    # Open and close -----------------------------------------------------------------------------------------

    def open(self, *, writing: bool = True) -> None:
        """Lock the folder. A reader (`writing=False`) creates nothing but the lock file.

        Raises:
            StoreUnusable: It is no store, or another process has it open.
            OSError: It cannot be read.
        """
        names = self._names()
        self._check(names)
        try:
            self._take_locks()
        except BlockingIOError:
            self.release()
            raise StoreUnusable(
                f"{self.folder} is open in another broker; two must not write to one folder: stop it, or use another"
            ) from None
        # Only now: the process that had it open may just have ended.
        self.crashed = ABORT in self._names()
        if writing and not self.crashed:
            self._storage.open_file(f"{self.folder}/{ABORT}", create=True).close()
            self._storage.sync_dir(self.folder)

    def _names(self) -> list[str]:
        try:
            return names_in(self._storage, self.folder)
        except NotADirectoryError:
            raise StoreUnusable(f"{self.folder} is a file; the store needs a folder") from None

    def _check(self, names: list[str]) -> None:
        if COMMIT_LOG not in names:
            strange = [name for name in names if name not in _OURS]
            if strange:
                raise StoreUnusable(
                    f"{self.folder} is no store of RocketMQ's layout: it has {strange[0]!r} and no {COMMIT_LOG!r}; "
                    "give an empty or a new folder"
                )
            return
        try:
            files = self._storage.list_dir(f"{self.folder}/{COMMIT_LOG}")
        except NotADirectoryError:
            raise StoreUnusable(f"{self.folder}/{COMMIT_LOG} is a file; in RocketMQ's layout it is a folder") from None
        for name in files:
            if parse_file_name(name) is None:
                raise StoreUnusable(
                    f"{self.folder}/{COMMIT_LOG}/{name} is no file of a commit log, whose names have 20 digits; "
                    "the store of another program, or of another mode of RocketMQ, is not read here"
                )

    def ended_well(self) -> None:
        """Mark a clean shutdown: everything is on the disk, and the next start needs no recovery. Raises OSError."""
        try:
            self._storage.delete(f"{self.folder}/{ABORT}")
        except FileNotFoundError:
            pass  # another process deleted it
        self._storage.sync_dir(self.folder)

    def _take_locks(self) -> None:
        """Lock the file, which Apache's broker respects, and the folder, which stays locked when the file is deleted.

        The file first: it makes the folder.
        """
        self._locks.append(self._storage.lock(f"{self.folder}/{LOCK}"))
        lock = lock_folder(self._storage, self.folder)
        if lock is not None:
            self._locks.append(lock)

    def release(self) -> None:
        while self._locks:
            self._locks.pop().release()

    # Small files ---------------------------------------------------------------------------------------------

    def read_checkpoint(self) -> Checkpoint:
        """All zeros when the file does not exist. Raises OSError."""
        try:
            return decode_checkpoint(self._storage.read_file(f"{self.folder}/{CHECKPOINT}"))
        except FileNotFoundError:
            return decode_checkpoint(b"")

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Raises OSError."""
        path = f"{self.folder}/{CHECKPOINT}"
        replace_file(self._storage, path, encode_checkpoint(checkpoint))
        self._storage.sync_dir(self.folder)

    def read_log_begin(self) -> int | None:
        """Where the log begins since its oldest files were deleted. Raises OSError.

        None when it is not known: also after Apache's broker used the folder, which deletes files without noting it.
        """
        if self.read_checkpoint().is_of_apache:
            return None
        return next(
            (at for _, content in self.read_config(LOG_BEGIN) if (at := decode_log_begin(content)) is not None), None
        )

    def write_log_begin(self, offset: int) -> None:
        """It is on the disk when this returns. Raises OSError."""
        self.write_config(LOG_BEGIN, encode_log_begin(offset))

    def read_config(self, name: str) -> list[tuple[str, bytes]]:
        """(path, content) of a file of `config` and of its backup, those that exist. Raises OSError."""
        found = []
        for path in (f"{self.folder}/{CONFIG}/{name}", f"{self.folder}/{CONFIG}/{name}{_BACKUP}"):
            try:
                found.append((path, self._storage.read_file(path)))
            except FileNotFoundError:
                continue
        return found

    def write_config(self, name: str, content: bytes) -> None:
        """Replace a file atomically and keep the old one as backup. It is on the disk then. Raises OSError."""
        replace_file_keeping_backup(self._storage, f"{self.folder}/{CONFIG}/{name}", content)
