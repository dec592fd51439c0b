"""The storage of a real process: the operating system's own calls."""

import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from lockstep.remoting.host.storage import AppendFile, DiskSpace, FileLock, StoredFile

__all__ = ["OsStorage"]

_MODE: Final = 0o644
_CLOSED: Final = -1
_HELD: Final = (errno.EAGAIN, errno.EACCES)  # POSIX allows either


def _open(path: str, flags: int) -> int:
    if flags & os.O_CREAT:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, flags | os.O_CLOEXEC, _MODE)


class _OsAppendFile:
    def __init__(self, path: str) -> None:
        self._fd = _open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, data: bytes) -> None:
        if self._fd < 0:
            raise ValueError("write to closed file")
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def close(self) -> None:
        fd, self._fd = self._fd, _CLOSED  # first: also a close that fails has closed it
        if fd >= 0:
            # After `close` the number may belong to another file.
            os.close(fd)


class _OsStoredFile:
    def __init__(self, path: str, flags: int) -> None:
        self.path = path
        self._fd = _open(path, flags)

    def size_bytes(self) -> int:
        return os.fstat(self._open_fd()).st_size

    def read_at(self, position: int, size_bytes: int) -> bytes:
        fd = self._open_fd()
        data = os.pread(fd, size_bytes, position)
        while len(data) < size_bytes:
            # Linux reads at most 2 GiB at once, and a signal may end a read early.
            more = os.pread(fd, size_bytes - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def data_at(self, position: int) -> int:
        try:
            return os.lseek(self._open_fd(), position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                # The file system does not report holes.
                return position
            return self.size_bytes()

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        fd = self._open_fd()
        written = os.pwrite(fd, data, position)
        if written < len(data):
            view = memoryview(data)
            while written < len(view):
                written += os.pwrite(fd, view[written:], position + written)

    def set_size(self, size_bytes: int) -> None:
        os.ftruncate(self._open_fd(), size_bytes)

    def sync(self) -> None:
        os.fsync(self._open_fd())

    def close(self) -> None:
        fd, self._fd = self._fd, _CLOSED  # first: also a close that fails has closed it
        if fd >= 0:
            os.close(fd)

    def _open_fd(self) -> int:
        if self._fd < 0:
            raise ValueError(f"{self.path} is closed")
        return self._fd


class _OsFileLock:
    """A lock of the open file on Linux: it also refuses a second lock of this process, and a JVM's tryLock.

    A shared lock needs read permission only.
    """

    def __init__(self, path: str, *, shared: bool = False) -> None:
        self._fd = _open(path, os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT)
        try:
            if hasattr(fcntl, "F_OFD_SETLK"):
                kind = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
                whole_file = struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0)
                fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, whole_file)
            else:
                fcntl.flock(self._fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            if error.errno in _HELD:
                raise BlockingIOError(error.errno, "it is locked", path) from None
            raise OSError(error.errno, error.strerror, path) from None

    def release(self) -> None:
        fd, self._fd = self._fd, _CLOSED  # first: also a close that fails has closed it
        if fd >= 0:
            os.close(fd)


class _OsFolderLock:
    """flock, which also a folder and a disk that is read-only can have."""

    def __init__(self, path: str, *, shared: bool) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            kind = BlockingIOError if error.errno in _HELD else OSError
            raise kind(error.errno, error.strerror, path) from None

    def release(self) -> None:
        fd, self._fd = self._fd, _CLOSED  # first: also a close that fails has closed it
        if fd >= 0:
            os.close(fd)


class OsStorage:
    def open_append(self, path: str) -> AppendFile:
        return _OsAppendFile(path)

    def open_file(
        self, path: str, *, create: bool = False, read_only: bool = False, private: bool = False
    ) -> StoredFile:
        file = _OsStoredFile(path, (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0))
        try:
            if private:
                Path(path).chmod(0o600)
        except BaseException:
            file.close()
            raise
        return file

    def read_file(self, path: str) -> bytes:
        file = _OsStoredFile(path, os.O_RDONLY)
        try:
            return file.read_at(0, file.size_bytes())
        finally:
            file.close()

    def list_dir(self, path: str) -> list[str]:
        return sorted(entry.name for entry in Path(path).iterdir())

    def rename(self, path: str, new_path: str) -> None:
        Path(path).replace(new_path)

    def delete(self, path: str) -> None:
        if Path(path).is_dir():
            Path(path).rmdir()
        else:
            Path(path).unlink()

    def sync_dir(self, path: str) -> None:
        for folder in (path, str(Path(path).parent)):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def space(self, path: str) -> DiskSpace:
        found = os.statvfs(path)
        return DiskSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def lock(self, path: str) -> FileLock:
        return _OsFileLock(path)

    def lock_folder(self, path: str, *, shared: bool = False) -> FileLock:
        return _OsFolderLock(path, shared=shared)

    def lock_shared(self, path: str) -> FileLock:
        return _OsFileLock(path, shared=True)
