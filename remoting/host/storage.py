"""The disk of a Runtime: files of bytes, their names, and what survives a crash.

Three promises; a simulated disk keeps exactly these:
1. Bytes that `write` or `write_at` took survive the end of the process (SIGKILL), but not a power cut.
2. Bytes that were written before `sync` began survive a power cut after `sync` returned. Without `sync` any part of a
   write may survive, or none; the rest of a file that became longer reads as zeros.
3. A name that was made, changed or removed survives a power cut after `sync_dir` of its folder returned. Before that
   the old name may come back. `rename` is atomic.

Every call may block, so the slow ones (`sync`, `sync_dir`) belong on a worker pool. All may be called there. A failure
raises OSError with its errno (ENOSPC, EIO, EACCES ...). Paths are text, with "/" between their parts.
"""

from typing import NamedTuple, Protocol

__all__ = ["AppendFile", "DiskSpace", "FileLock", "Storage", "StoredFile"]


class DiskSpace(NamedTuple):
    """The space of a file system. `free_bytes` are those that this process may use."""

    free_bytes: int
    total_bytes: int


class AppendFile(Protocol):
    def write(self, data: bytes) -> None:
        """Hand `data` to the operating system before returning; it survives a SIGKILL of this process.

        Raises OSError, and ValueError after `close`.
        """

    def close(self) -> None: ...


class StoredFile(Protocol):
    """A file with random access. After `close` every other call raises ValueError."""

    @property
    def path(self) -> str: ...

    def size_bytes(self) -> int: ...

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` from `position`; fewer only at the end of the file."""

    def data_at(self, position: int) -> int:
        """The position of the next byte, from `position` on, that is not in a hole of the file.

        All bytes before it are zeros. When the rest of the file is a hole, this is the file's size.
        """

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`; the file grows as needed. When this raises, a first part may have been written."""

    def set_size(self, size_bytes: int) -> None:
        """Truncate the file, or extend it by a hole, which reads as zeros and takes no space on the disk."""

    def sync(self) -> None:
        """Make the written bytes durable.

        When this raises, no bytes written since the last successful `sync` are durable. A later `sync` does not make
        them durable either: they must be written again first.
        """

    def close(self) -> None: ...


class FileLock(Protocol):
    def release(self) -> None:
        """Release the lock; the file stays. The end of the process releases it too."""


class Storage(Protocol):
    def open_append(self, path: str) -> AppendFile:
        """Open a file to append to; the file and its folders are made when they do not exist."""

    def open_file(
        self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False
    ) -> StoredFile:
        """Open a file, not truncated. Raises FileNotFoundError, unless `create` makes the file and its folders.

        `private`: from now on only its owner may read it.
        """

    def read_file(self, path: str) -> bytes:
        """The whole content. Raises FileNotFoundError."""

    def list_dir(self, path: str) -> list[str]:
        """The names of files and folders in a folder, sorted. Raises FileNotFoundError or NotADirectoryError."""

    def rename(self, path: str, new_path: str) -> None:
        """Rename a file; a file with the new name is replaced atomically."""

    def delete(self, path: str) -> None:
        """Delete a file or an empty folder. Raises FileNotFoundError. An open file stays usable without its name."""

    def sync_dir(self, path: str) -> None:
        """Make the names in a folder durable, and the name of the folder itself."""

    def space(self, path: str) -> DiskSpace:
        """The space of the file system that holds `path`, which must exist."""

    def lock(self, path: str) -> FileLock:
        """Lock a file exclusively; it is made when it does not exist.

        Raises:
            BlockingIOError: Another process or another lock of this process holds it.
            OSError: The file system has no locks.
        """

    def lock_folder(self, path: str, *, shared: bool = False) -> FileLock:
        """Lock a folder itself, which must exist: that holds also when the files in it are deleted.

        Raises:
            BlockingIOError: Another process or another lock of this process holds it.
            OSError: The file system has no locks of folders.
        """

    def lock_shared(self, path: str) -> FileLock:
        """Lock a file together with other readers. No file is made or written, so the disk may be read-only.

        Raises:
            BlockingIOError: It is locked exclusively.
            FileNotFoundError: The file does not exist.
            OSError: The file system has no locks.
        """
