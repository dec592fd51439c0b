"""Small files that are replaced as a whole: a reader, and the next start, find the old content or the new."""

from typing import Final

from lockstep.remoting.storage import Storage

__all__ = ["replace_file", "replace_file_keeping_backup"]

_NEW: Final = ".tmp"
_BACKUP: Final = ".bak"


def replace_file(storage: Storage, path: str, content: bytes) -> None:
    """In one instant; its bytes are on the disk before it has the name. The name is once `sync_dir` was called.

    Raises OSError.
    """
    file = storage.open_file(path + _NEW, create=True)
    try:
        file.set_size(0)
        file.write_at(0, content)
        file.sync()
    finally:
        file.close()
    storage.rename(path + _NEW, path)


def replace_file_keeping_backup(storage: Storage, path: str, content: bytes) -> None:
    """Likewise, on disk when it returns; what was there before is kept as the older copy. Raises OSError."""
    try:
        before = storage.read_file(path)
    except FileNotFoundError:
        before = b""
    if before != content:  # else it may be there in name only: the last attempt failed behind the renaming
        if before:
            replace_file(storage, path + _BACKUP, before)
        replace_file(storage, path, content)
    storage.sync_dir(path.rpartition("/")[0])
