"""The disk, as a Runtime offers it: files of bytes, the names they have, and what survives what.

Three promises, and a simulated disk keeps exactly these:
1. What `write` or `write_at` has taken survives the death of the process (a SIGKILL), not that of the machine.
2. What was written before `sync` began survives the death of the machine once `sync` has returned. Without it any part
   of a write may be there afterwards, or none; the rest of a file that was made longer reads as zeros.
3. A name that was made, changed or removed stays so over the death of the machine once `sync_dir` of its folder has
   returned; before, it may be back as it was. `rename` is never seen half done.

Every call may block, so the slow ones (`sync`, `sync_dir`) belong on a worker pool; all may be called from there. What
fails raises OSError with its errno (ENOSPC, EIO, EACCES ...). Paths are text, with "/" between their parts.
"""

from typing import NamedTuple, Protocol

__all__ = ["AppendFile", "DiskSpace", "FileLock", "Storage", "StoredFile"]


class DiskSpace(NamedTuple):
    """Of the file system: `free_bytes` are those that this process may still fill."""

    free_bytes: int
    total_bytes: int


class AppendFile(Protocol):
    def write(self, data: bytes) -> None:
        """Hand `data` to the operating system before returning; it survives a SIGKILL of this process.

        Raises OSError, and ValueError after `close`.
        """

    def close(self) -> None: ...


class StoredFile(Protocol):
    """A file to read and write anywhere in. Everything but `close` raises ValueError after `close`."""

    @property
    def path(self) -> str: ...

    def size_bytes(self) -> int: ...

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` from `position` on: fewer only where the file ends."""

    def data_at(self, position: int) -> int:
        """Where the next byte stands, from `position` on, that takes room on the disk: all before it are zeros, and
        need not be read. The file's size when there is none.
        """

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`; the file grows as needed. When it raises, a first part of it may have been written."""

    def set_size(self, size_bytes: int) -> None:
        """Cut the file, or make it longer by zeros, which take no room on the disk before they are written over."""

    def sync(self) -> None:
        """Put on the disk what was written. When it raises, nothing written since the last `sync` that returned is
        safe, not even after another one: it must be written anew first.
        """

    def close(self) -> None: ...


class FileLock(Protocol):
    def release(self) -> None:
        """The file stays. The end of the process releases too."""


class Storage(Protocol):
    def open_append(self, path: str) -> AppendFile:
        """Makes the file and its folders when they are not there."""

    def open_file(self, path: str, *, create: bool = False, read_only: bool = False) -> StoredFile:
        """Open what is there, without emptying it. Raises FileNotFoundError, unless it may create file and folders."""

    def read_file(self, path: str) -> bytes:
        """Raises FileNotFoundError."""

    def list_dir(self, path: str) -> list[str]:
        """The names of files and folders in a folder, sorted. Raises FileNotFoundError and NotADirectoryError."""

    def rename(self, path: str, new_path: str) -> None:
        """Of a file; what has the new name already is replaced in the same instant."""

    def delete(self, path: str) -> None:
        """Of a file, or of a folder that is empty. Raises FileNotFoundError. Open files go on without a name."""

    def sync_dir(self, path: str) -> None:
        """Put the names in a folder on the disk, and that of the folder itself."""

    def space(self, path: str) -> DiskSpace:
        """Of the file system that holds `path`, which must be there."""

    def lock(self, path: str) -> FileLock:
        """Make the file when it is not there, and hold it alone. Raises BlockingIOError when somebody else does, and
        OSError when nobody can.
        """

    def lock_shared(self, path: str) -> FileLock:
        """Hold a file together with other readers: nothing is made or written, so its disk may be read-only.

        Raises:
            BlockingIOError: Somebody holds it alone.
            FileNotFoundError: It is not there.
            OSError: Nobody can hold it.
        """
