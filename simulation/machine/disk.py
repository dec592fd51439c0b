"""The disk of a simulated host. It survives the processes; at a power cut it keeps only what was synced.

It guarantees what `remoting/host/storage.py` promises and no more: unsynced bytes and names may be lost, complete or
torn. A sync takes `sync_ms` inside a job of a worker pool, and has no effect if the power is cut before it returns.
While the disk hangs, no sync and no read inside a job returns; reads on the event loop find their bytes in the
page cache.

disk.fail("sync", errno.EIO, path="commitlog", times=1)   # by the names of Storage and StoredFile
disk.capacity_bytes = disk.used_bytes + 10_000            # ENOSPC after that
"""

import errno
import os
import posixpath
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from lockstep.remoting.host.storage import DiskSpace
from lockstep.simulation.machine.disk_file import PAGE_BYTES, Content, pages_of
from lockstep.simulation.machine.host import Host

__all__ = ["Disk", "Lock"]

_TOTAL_BYTES: Final = 1 << 40  # the size of a disk without a capacity
_ROOTS: Final = (".", "/")
_HUNG_NS: Final = 1 << 62  # times from here on are counted from the end of the hang, which is not known yet
_FOLDER: Final = None  # the value of a folder's name
_GONE: Final = object()


@dataclass(slots=True)
class _Naming:
    """Names that changed together, and the folders whose sync makes that durable.

    `moved`: the old and the new name of a folder. If it keeps its old name, what changed in it later did so there.
    """

    steps: list[tuple[str, object]]  # name -> Content, _FOLDER, _GONE
    waits_for: set[str]
    at_ns: int
    safe_ns: int | None = None
    moved: tuple[str, str] | None = None


@dataclass(slots=True)
class Lock:
    """The lock of a file or folder; it ends with its process."""

    host: Host
    shared: bool = False
    released: bool = False

    @property
    def is_held(self) -> bool:
        return self.host.alive and not self.released

    def release(self) -> None:
        self.released = True


@dataclass(slots=True)
class _Fault:
    operation: str
    number: int
    path: str
    times: int | None


@dataclass
class Disk:
    """The disk of all generations of a host. `used_bytes`: the pages of its files."""

    clock_ns: Callable[[], int] = lambda: 0
    sync_ms: int = 0
    slow_sync_ms: int = 0  # a sync takes so much longer
    slow_read_ms: int = 0  # on the event loop it keeps the whole process
    hangs: bool = False
    capacity_bytes: int | None = None
    locks: dict[Content | str, list[Lock]] = field(default_factory=dict)
    _names: dict[str, object] = field(default_factory=dict)
    _safe_names: dict[str, object] = field(default_factory=dict)
    _namings: list[_Naming] = field(default_factory=list)  # not in _safe_names yet, oldest first
    _faults: list[_Fault] = field(default_factory=list)
    _job_ns: int | None = None  # the time that the running job of a worker pool has reached
    _hung: list[tuple[int, Callable[[int], object]]] = field(default_factory=list)  # jobs, as for `at_end`

    # For scenarios -------------------------------------------------------------------------------------------

    def paths(self) -> list[str]:
        """The paths of all files."""
        return sorted(path for path, found in self._names.items() if isinstance(found, Content))

    def read(self, path: str) -> bytes:
        """Raises FileNotFoundError."""
        content = self._names.get(_clean(path))
        if not isinstance(content, Content):
            raise FileNotFoundError(f"{path!r} does not exist; the files are {self.paths()}")
        return content.read(0, content.size_bytes)

    def write(self, path: str, position: int, data: bytes) -> None:
        """Change bytes from outside, durably: damage."""
        content = self.file(path)
        content.write(position, data, self.now_ns)
        content.sync(self.now_ns, self.now_ns)

    def keep(self, path: str) -> None:
        """Create a file all of whose bytes are durable at once; they are in memory only once."""
        if _clean(path) not in self._names:
            self._change([(_clean(path), Content(keeps_all=True))])

    def fail(self, operation: str, number: int, *, path: str = "", times: int | None = None) -> None:
        """Let operations on paths that contain `path` raise OSError, always or `times` times."""
        self._faults.append(_Fault(operation, number, path, times))

    def heal(self) -> None:
        """Remove all faults but slowness."""
        self._faults.clear()
        self.release()

    def hang(self) -> None:
        """Answer no sync and no read of a worker pool's job until `release`."""
        self.hangs = True

    def release(self) -> None:
        """Answer again, now, what hangs."""
        self.hangs = False
        now_ns, (hung, self._hung) = self.clock_ns(), (self._hung, [])
        for naming in self._namings:
            naming.at_ns = _released(naming.at_ns, now_ns)
            naming.safe_ns = None if naming.safe_ns is None else _released(naming.safe_ns, now_ns)
        for content in self._contents():
            content.move_times(_HUNG_NS, now_ns)
        for after_ns, set_timer in hung:
            set_timer(now_ns + after_ns)

    @property
    def used_bytes(self) -> int:
        return PAGE_BYTES * sum(len(content.pages) for content in self._contents())

    def killed(self) -> None:
        """The process died: everything that it has written stays."""
        self._hung.clear()
        now_ns, self._job_ns = self.clock_ns(), None
        for naming in self._namings:
            if naming.safe_ns is not None and naming.safe_ns > now_ns:
                naming.safe_ns, naming.waits_for = None, {_parent(name) for name, _ in naming.steps}
        if any(naming.at_ns > now_ns for naming in self._namings):
            self._namings = [naming for naming in self._namings if naming.at_ns <= now_ns]
            self._names = dict(self._safe_names)
            for naming in self._namings:
                _apply(self._names, naming)
        for content in self._contents():
            content.killed(now_ns)

    def power_cut(self, rng: random.Random) -> str:
        """Drop unsynced names and bytes, except a random part. Returns a line with their numbers."""
        self._hung.clear()
        now_ns, self._job_ns = self.clock_ns(), None
        names, at_stake = dict(self._safe_names), 0
        unmoved: dict[str, str] = {}  # the new name of a folder that kept its old name -> that name
        for naming in self._namings:
            safe = naming.safe_ns is not None and naming.safe_ns <= now_ns
            if naming.at_ns <= now_ns and (safe or rng.randrange(2)):
                _apply(names, naming, unmoved)
            elif naming.moved is not None:
                unmoved[naming.moved[1]] = naming.moved[0]
            at_stake += not safe
        self._names = {path: found for path, found in names.items() if all(map(names.__contains__, _folders(path)))}
        self._safe_names, self._namings = dict(self._names), []
        changes = sum(content.power_cut(now_ns, rng) for content in self._contents())
        return f"{at_stake} names and {changes} writes at stake"

    # For the storage of a host -------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        return self.clock_ns() if self._job_ns is None else self._job_ns

    def begin_job(self) -> None:
        self._job_ns = self.clock_ns()

    def end_job(self) -> int:
        """Returns the time of the job's disk operations, in ns."""
        assert self._job_ns is not None
        took_ns, self._job_ns = self._job_ns - self.clock_ns(), None
        return took_ns

    def at_end(self, due_ns: int, set_timer: Callable[[int], object]) -> None:
        """Call `set_timer` with the time at which a job ends, when that is known."""
        if due_ns < _HUNG_NS:
            set_timer(due_ns)
        else:
            self._hung.append((due_ns - _HUNG_NS, set_timer))

    def wait_for_sync(self) -> None:
        self._wait(self.sync_ms + self.slow_sync_ms)

    def wait_for_read(self, host: Host) -> None:
        if self._job_ns is None and self.slow_read_ms and host.cpu is not None:
            host.cpu.keep_busy(self.slow_read_ms * 1_000_000)
        self._wait(self.slow_read_ms)

    def _wait(self, duration_ms: int) -> None:
        if self._job_ns is not None:
            self._job_ns += duration_ms * 1_000_000
            if self.hangs:
                self._job_ns = max(self._job_ns, _HUNG_NS)

    def check(self, operation: str, path: str) -> None:
        """Raises OSError for a fault that was set."""
        for fault in self._faults:
            if fault.operation == operation and fault.path in path and fault.times != 0:
                if fault.times is not None:
                    fault.times -= 1
                raise _error(fault.number, path)

    def find(self, path: str) -> Content:
        """Raises FileNotFoundError and IsADirectoryError."""
        path = _clean(path)
        found = self._names.get(path, _GONE)
        if isinstance(found, Content):
            return found
        raise _error(errno.ENOENT if found is _GONE and path not in _ROOTS else errno.EISDIR, path)

    def file(self, path: str) -> Content:
        """Find a file, or create it with its folders."""
        path = _clean(path)
        if path not in self._names:
            for folder in _folders(path):
                if folder not in self._names:
                    self._change([(folder, _FOLDER)])
                elif self._names[folder] is not _FOLDER:
                    raise _error(errno.ENOTDIR, path)
            self._change([(path, Content())])
        return self.find(path)

    def free_bytes(self, content: Content, position: int, size_bytes: int) -> int:
        """How many of `size_bytes` bytes fit on the disk."""
        if self.capacity_bytes is None:
            return size_bytes
        free_pages = max(0, self.capacity_bytes - self.used_bytes) // PAGE_BYTES
        for page in pages_of(position, size_bytes):
            if page not in content.pages:
                if free_pages == 0:
                    return max(0, page * PAGE_BYTES - position)
                free_pages -= 1
        return size_bytes

    def space(self, path: str) -> DiskSpace:
        if (path := _clean(path)) not in self._names and path not in _ROOTS:
            raise _error(errno.ENOENT, path)
        total_bytes = _TOTAL_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return DiskSpace(max(0, total_bytes - self.used_bytes), total_bytes)

    def list_dir(self, path: str) -> list[str]:
        path = self._folder(path)
        return sorted(posixpath.basename(name) for name in self._names if posixpath.dirname(name) == _as_parent(path))

    def rename(self, path: str, new_path: str) -> None:
        path, new_path = _clean(path), _clean(new_path)
        self._folder(posixpath.dirname(new_path) or ".")
        if self._names.get(path, _GONE) is _FOLDER:
            self._rename_folder(path, new_path)
            return
        content = self.find(path)
        if self._names.get(new_path, content) is _FOLDER:
            raise _error(errno.EISDIR, new_path)
        self._change([(path, _GONE), (new_path, content)])

    def _rename_folder(self, path: str, new_path: str) -> None:
        """With all that is in it, in one change. As in Linux an empty folder is replaced."""
        if f"{new_path}/".startswith(f"{path}/"):
            raise _error(errno.EINVAL, new_path)
        if new_path in self._names:
            if self._names[new_path] is not _FOLDER:
                raise _error(errno.ENOTDIR, new_path)
            if self.list_dir(new_path):
                raise _error(errno.ENOTEMPTY, new_path)
        steps: list[tuple[str, object]] = []
        for name, found in list(self._names.items()):
            if name == path or name.startswith(f"{path}/"):
                steps += [(name, _GONE), (new_path + name.removeprefix(path), found)]
        waits_for = {_parent(path), _parent(new_path)}
        naming = _Naming(steps, waits_for, self.now_ns, moved=(path, new_path))
        self._namings.append(naming)
        _apply(self._names, naming)

    def delete(self, path: str) -> None:
        path = _clean(path)
        if self._names.get(path, _GONE) is _FOLDER:
            if self.list_dir(path):
                raise _error(errno.ENOTEMPTY, path)
        else:
            self.find(path)
        self._change([(path, _GONE)])

    def sync_dir(self, path: str) -> None:
        path = self._folder(path)
        for naming in self._namings:
            for name, _ in naming.steps:
                if _parent(name) == path or name == path:
                    naming.waits_for.discard(_parent(name))
            if not naming.waits_for and naming.safe_ns is None:
                naming.safe_ns = self.now_ns
        while self._namings and (safe_ns := self._namings[0].safe_ns) is not None and safe_ns <= self.clock_ns():
            _apply(self._safe_names, self._namings.pop(0))

    def _folder(self, path: str) -> str:
        path = _clean(path)
        found = self._names.get(path, _FOLDER if path in _ROOTS else _GONE)
        if found is not _FOLDER:
            raise _error(errno.ENOENT if found is _GONE else errno.ENOTDIR, path)
        return path

    def _change(self, steps: list[tuple[str, object]]) -> None:
        naming = _Naming(steps, {_parent(name) for name, _ in steps}, self.now_ns)
        self._namings.append(naming)
        _apply(self._names, naming)

    def _contents(self) -> Iterator[Content]:
        return (found for found in self._names.values() if isinstance(found, Content))


def _released(at_ns: int, now_ns: int) -> int:
    return at_ns if at_ns < _HUNG_NS else at_ns - _HUNG_NS + now_ns


def _apply(names: dict[str, object], naming: _Naming, unmoved: Mapping[str, str] = {}) -> None:
    for name, found in naming.steps:
        for new_folder, folder in unmoved.items():
            if name == new_folder or name.startswith(f"{new_folder}/"):
                name = folder + name.removeprefix(new_folder)
        if found is _GONE:
            names.pop(name, None)
        else:
            names[name] = found


def _clean(path: str) -> str:
    return posixpath.normpath(path)


def _as_parent(path: str) -> str:
    """A folder, as `posixpath.dirname` returns it."""
    return "" if path == "." else path


@lru_cache(maxsize=4096)  # each sync of a folder asks for those of all names that are not durable yet
def _parent(path: str) -> str:
    return posixpath.dirname(path) or "."


def _folders(path: str) -> list[str]:
    """The folders above, outermost first, without the root."""
    found: list[str] = []
    while (path := _parent(path)) not in _ROOTS:
        found.append(path)
    return found[::-1]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
