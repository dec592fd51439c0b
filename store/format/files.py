"""Reads files of one size, each named by the position of its first byte: a commit log or a consume queue."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Self

from lockstep.remoting.host.storage import Storage, StoredFile
from lockstep.store.format.layout import CONSUME_QUEUE, file_name, parse_file_name

__all__ = ["FileRun", "close_all", "is_blank", "names_in", "queue_folders"]

_PIECE_BYTES: Final = 4 * 1024 * 1024
_BLANK: Final = memoryview(bytes(_PIECE_BYTES))


def names_in(storage: Storage, folder: str) -> list[str]:
    """The names in a folder, sorted; none when the folder does not exist. Raises OSError."""
    try:
        return storage.list_dir(folder)
    except FileNotFoundError:
        return []


def queue_folders(
    storage: Storage, root: str, on_stray: Callable[[str], None] = lambda _: None
) -> Iterator[tuple[str, int]]:
    """(topic, queue id) of each consume queue of a store. `on_stray` gets paths that are neither topic nor queue."""
    for topic in names_in(storage, f"{root}/{CONSUME_QUEUE}"):
        folder = f"{root}/{CONSUME_QUEUE}/{topic}"
        try:
            names = storage.list_dir(folder)
        except NotADirectoryError:
            on_stray(folder)
            continue
        for name in names:
            if name.isdecimal():
                yield topic, int(name)
            else:
                on_stray(f"{folder}/{name}")


def is_blank(data: bytes) -> bool:
    """Zeros only."""
    return data == _BLANK[: len(data)] if len(data) <= _PIECE_BYTES else not data.strip(b"\0")


def close_all(closes: Iterable[Callable[[], None]]) -> None:
    """Call all of these. Raises the first OSError of them, after the last call."""
    failed: OSError | None = None
    for close in closes:
        try:
            close()
        except OSError as error:
            failed = failed or error
    if failed is not None:
        raise failed


class FileRun:
    """One run of such files, read as one sequence of bytes. A read stays within one file.

    Attributes:
        folder: The path of the files' folder; `name` is the same relative to the store.
        file_bytes: The size of each file.
        starts: The positions at which the existing files begin, ascending.
        strays: Those found at no multiple of `file_bytes`, which are not part of the run.
        before_open: Called before a file is opened; it may close others.
    """

    before_open: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, storage: Storage, root: str, name: str, file_bytes: int, *, read_only: bool = False) -> None:
        self._storage = storage
        self._root = root
        self._read_only = read_only
        self._sizes: dict[int, int] = {}  # of files that do not have `file_bytes`
        self._files: dict[int, StoredFile] = {}
        self.name = name
        self.folder = f"{root}/{name}"
        self.file_bytes = file_bytes
        self.starts: list[int] = []
        self.strays: list[int] = []

    @classmethod
    def found(cls, storage: Storage, root: str, name: str) -> Self:
        """The files that exist, to be read only: most of their names and sizes tell the size that they should have.

        Such a run keeps at most one file open. Raises OSError.
        """
        run = cls(storage, root, name, 0, read_only=True)
        try:
            run._find()
        finally:
            # Of thousands of queues only those that are read keep a file open.
            run.close()
        return run

    def _find(self) -> None:
        self.starts = self.list_starts()
        sizes = {start: self.file(start).size_bytes() for start in self.starts}
        distances = [after - start for start, after in zip(self.starts, self.starts[1:], strict=False)]
        self.file_bytes = next((size for size, _ in Counter([*sizes.values(), *distances]).most_common(1)), 0)
        if len(self.starts) == 1 and self.starts[0] and (not self.file_bytes or self.starts[0] % self.file_bytes):
            # The only file was cut: its size says less than its name.
            self.file_bytes = self.starts[0]
        self.file_bytes = self.file_bytes or 1
        self._sizes = {start: size for start, size in sizes.items() if size != self.file_bytes}
        self.strays = [start for start in self.starts if start % self.file_bytes]
        self.starts = [start for start in self.starts if start not in self.strays]

    def list_starts(self) -> list[int]:
        """Raises OSError."""
        names = names_in(self._storage, self.folder)
        return sorted(start for name in names if (start := parse_file_name(name)) is not None)

    # Positions -----------------------------------------------------------------------------------------------

    def start_of(self, position: int) -> int:
        """Where the file of a position begins, whether the file exists or not."""
        return position - position % self.file_bytes

    def position_in_file(self, position: int) -> int:
        return position % self.file_bytes

    def path_of(self, position: int) -> str:
        return f"{self._root}/{self.name_of(position)}"

    def name_of(self, position: int) -> str:
        """The path of a position's file, relative to the store."""
        return f"{self.name}/{file_name(self.start_of(position))}"

    def has(self, position: int) -> bool:
        """Does the file of this position exist?"""
        index = bisect_right(self.starts, position) - 1
        return index >= 0 and position < self.starts[index] + self.file_bytes

    @property
    def has_holes(self) -> bool:
        """Is a file between others missing?"""
        return bool(self.starts) and self.end - self.starts[0] != len(self.starts) * self.file_bytes

    @property
    def end(self) -> int:
        """Where the last file ends, at its full size; 0 without files."""
        return self.starts[-1] + self.file_bytes if self.starts else 0

    def size_of(self, start: int) -> int:
        """The size of the file that begins at `start`."""
        return self._sizes.get(start, self.file_bytes)

    def end_of(self, start: int) -> int:
        """Where the bytes end that this file has of the run."""
        return start + min(self.size_of(start), self.file_bytes)

    def pieces(self, position: int, end: int) -> Iterator[tuple[int, int]]:
        """[position, end) cut at the ends of files."""
        while position < end:
            piece_end = min(end, self.start_of(position) + self.file_bytes)
            yield position, piece_end
            position = piece_end

    # Bytes ---------------------------------------------------------------------------------------------------

    def file(self, start: int) -> StoredFile:
        """The open file that begins at `start`. Raises OSError."""
        file = self._files.get(start)
        if file is None:
            if self._read_only:
                self.close()
            self.before_open()
            path = self.path_of(start) if self.file_bytes else f"{self.folder}/{file_name(start)}"
            file = self._files[start] = self._storage.open_file(path, read_only=self._read_only)
        return file

    def read(self, position: int, size_bytes: int) -> bytes:
        """Zeros for a missing file; fewer bytes where a file is too short. Raises OSError."""
        start = position - position % self.file_bytes
        file = self._files.get(start)
        if file is None:
            if not self.has(position):
                return bytes(size_bytes)
            file = self.file(start)
        return file.read_at(position - start, size_bytes)

    def data_at(self, position: int, end: int) -> int:
        """The next position below `end`, in the same file, that takes room on the disk; `end` when there is none.

        All before it reads as zeros. Raises OSError.
        """
        if position >= end:
            return end
        start = self.start_of(position)
        return min(end, start + self.file(start).data_at(position - start))

    def written_from(self, position: int, end: int) -> bool:
        """Is a byte in [position, end) of one file not zero? Raises OSError."""
        while (position := self.data_at(position, end)) < end:
            data = self.read(position, min(_PIECE_BYTES, end - position))
            if not is_blank(data):
                return True
            position += max(1, len(data))
        return False

    def close(self) -> None:
        files, self._files = self._files, {}
        close_all([file.close for file in files.values()])
