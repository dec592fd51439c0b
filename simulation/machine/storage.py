"""`remoting.storage.Storage` of one simulated process, on the disk of its host.

Writes of a crashed process, while its tasks are closed, are dropped silently.
"""

import errno
import os

from lockstep.remoting.host.storage import AppendFile, DiskSpace, FileLock, StoredFile
from lockstep.simulation.machine.disk import Disk, Lock
from lockstep.simulation.machine.disk_file import Content
from lockstep.simulation.machine.host import Host

__all__ = ["SimStorage"]


class _File:
    def __init__(self, host: Host, disk: Disk, path: str, content: Content) -> None:
        self.path = path
        self._host = host
        self._disk = disk
        self._content = content
        self._closed = False

    def close(self) -> None:
        self._closed = True

    def _check(self, operation: str) -> bool:
        """Returns False for a crashed process. Raises ValueError after `close`, and OSError for a fault of the disk."""
        if self._closed:
            raise ValueError(f"write to closed file: {self.path}")
        if self._host.alive:
            self._disk.check(operation, self.path)
        return self._host.alive

    def _write(self, position: int, data: bytes) -> None:
        free_bytes = self._disk.free_bytes(self._content, position, len(data))
        self._content.write(position, data[:free_bytes], self._disk.now_ns)
        if free_bytes < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)


class _AppendFile(_File):
    def write(self, data: bytes) -> None:
        if self._check("write"):
            self._write(self._content.size_bytes, data)


class _StoredFile(_File):
    def size_bytes(self) -> int:
        self._check("size_bytes")
        return self._content.size_bytes

    def read_at(self, position: int, size_bytes: int) -> bytes:
        self._check("read_at")
        self._disk.wait_for_read(self._host)
        return self._content.read(position, size_bytes)

    def data_at(self, position: int) -> int:
        self._check("data_at")
        return min(position, self._content.size_bytes)

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        if self._check("write_at"):
            self._write(position, bytes(data))

    def set_size(self, size_bytes: int) -> None:
        if self._check("set_size"):
            self._content.resize(size_bytes, self._disk.now_ns)

    def sync(self) -> None:
        self._disk.wait_for_sync()
        try:
            alive = self._check("sync")
        except OSError:
            self._content.sync_failed()
            raise
        if alive:
            self._content.sync(self._disk.clock_ns(), self._disk.now_ns)


class _ReadOnlyFile(_StoredFile):
    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)

    def set_size(self, size_bytes: int) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)


class SimStorage:
    def __init__(self, host: Host, disk: Disk) -> None:
        self._host = host
        self._disk = disk

    def open_append(self, path: str) -> AppendFile:
        self._disk.check("open_append", path)
        return _AppendFile(self._host, self._disk, path, self._disk.file(path))

    def open_file(
        self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False
    ) -> StoredFile:
        self._disk.check("open_file", path)
        content = self._disk.file(path) if create and self._host.alive else self._disk.find(path)
        return (
            _ReadOnlyFile(self._host, self._disk, path, content)
            if read_only
            else _StoredFile(self._host, self._disk, path, content)
        )

    def read_file(self, path: str) -> bytes:
        self._disk.check("read_file", path)
        self._disk.wait_for_read(self._host)
        content = self._disk.find(path)
        return content.read(0, content.size_bytes)

    def list_dir(self, path: str) -> list[str]:
        self._disk.check("list_dir", path)
        return self._disk.list_dir(path)

    def rename(self, path: str, new_path: str) -> None:
        self._disk.check("rename", path)
        if self._host.alive:
            self._disk.rename(path, new_path)

    def delete(self, path: str) -> None:
        self._disk.check("delete", path)
        if self._host.alive:
            self._disk.delete(path)

    def sync_dir(self, path: str) -> None:
        self._disk.wait_for_sync()
        self._disk.check("sync_dir", path)
        if self._host.alive:
            self._disk.sync_dir(path)

    def space(self, path: str) -> DiskSpace:
        self._disk.check("space", path)
        return self._disk.space(path)

    def lock(self, path: str) -> FileLock:
        self._disk.check("lock", path)
        return self._lock(path, self._disk.file(path), shared=False)

    def lock_folder(self, path: str, *, shared: bool = False) -> FileLock:
        self._disk.check("lock_folder", path)
        return self._lock(path, path, shared=shared)

    def lock_shared(self, path: str) -> FileLock:
        self._disk.check("lock", path)
        return self._lock(path, self._disk.find(path), shared=True)

    def _lock(self, path: str, what: Content | str, *, shared: bool) -> FileLock:
        held = [lock for lock in self._disk.locks.get(what, ()) if lock.is_held]
        if not all(shared and lock.shared for lock in held):
            raise BlockingIOError(errno.EAGAIN, "another process holds the lock", path)
        taken = Lock(self._host, shared)
        self._disk.locks[what] = [*held, taken]
        return taken
