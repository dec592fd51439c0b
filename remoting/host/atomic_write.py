"""Small files that are replaced atomically: a reader, and the next start, find the old content or the new."""

from typing import Final

from lockstep.remoting.host.storage import Storage

__all__ = ["replace_file", "replace_file_keeping_backup"]

_NEW: Final = ".tmp"
_BACKUP: Final = ".bak"


def replace_file(storage: Storage, path: str, content: bytes, *, private: bool = False) -> None:
    """Replace a file atomically. Its bytes are durable before it gets its name; the name is after `sync_dir`.

    `private`: only its owner may read it. Raises OSError.
    """
    file = storage.open_file(path + _NEW, create=True, private=private)
    try:
        file.set_size(0)
        file.write_at(0, content)
        file.sync()
    finally:
        file.close()
    storage.rename(path + _NEW, path)


def replace_file_keeping_backup(storage: Storage, path: str, content: bytes) -> None:
    """As `replace_file`; the file is durable on return, and the old content is kept as `.bak`. Raises OSError."""
    try:
        before = storage.read_file(path)
    except FileNotFoundError:
        before = b""
    # When they are equal, the last attempt failed after the rename, and the name may not be durable yet.
    if before != content:
        if before:
            replace_file(storage, path + _BACKUP, before)
        replace_file(storage, path, content)
    storage.sync_dir(path.rpartition("/")[0])
