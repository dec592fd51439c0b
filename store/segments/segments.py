"""Files of one size that are written to (RocketMQ's mapped files): create, write, sync, truncate, delete."""

from bisect import bisect_right
from typing import Final

from lockstep.remoting.host.storage import Storage, StoredFile
from lockstep.store.errors import StoreUnusable
from lockstep.store.format.files import FileRun
from lockstep.store.format.layout import file_name

__all__ = ["Segments"]

_COPY_BYTES: Final = 4 * 1024 * 1024


class Segments(FileRun):
    """A run of files that is written to. Each file has its full size; unwritten bytes read as zeros."""

    def __init__(self, storage: Storage, root: str, name: str, file_bytes: int) -> None:
        super().__init__(storage, root, name, file_bytes)
        self._dirty: dict[int, None] = {}
        self._new_names = False

    def twin(self) -> "Segments":
        """The same files with handles of their own, for another thread."""
        twin = Segments(self._storage, self._root, self.name, self.file_bytes)
        twin.starts = list(self.starts)
        return twin

    def load(self) -> None:
        """Find the files. Raises StoreUnusable when names or sizes do not fit, OSError when they are unreadable."""
        self.starts = self.list_starts()
        for start in self.starts:
            if start % self.file_bytes:
                raise StoreUnusable(
                    f"{self.path_of(start)}: files here have {self.file_bytes} bytes each, so none begins at {start}; "
                    "give the sizes that the folder was written with"
                )
        sizes = {start: self.file(start).size_bytes() for start in self.starts}
        for start, size_bytes in sizes.items():
            if size_bytes > self.file_bytes:
                raise StoreUnusable(
                    f"{self.path_of(start)} has {size_bytes} bytes, but files here have {self.file_bytes} each; "
                    "give the size that the folder was written with"
                )
        for start, size_bytes in sizes.items():
            # Only after all checks: a wrong setting must not change files.
            if size_bytes < self.file_bytes:
                self._complete(start)

    def _complete(self, start: int) -> None:
        """Give a file its full size: a crash may come between creation and sizing."""
        # The missing part reads as zeros, which is found as damage.
        self.file(start).set_size(self.file_bytes)
        self._dirty[start] = None

    # Bytes ---------------------------------------------------------------------------------------------------

    def add(self, start: int) -> StoredFile:
        """Create the file that begins at `start` unless it exists. Raises OSError."""
        if self.has(start):
            return self.file(start)
        self.before_open()
        file = self._storage.open_file(self.path_of(start), create=True)
        try:
            file.set_size(self.file_bytes)
        except OSError:
            file.close()
            raise
        self._files[start] = file
        self.starts.insert(bisect_right(self.starts, start), start)
        self._new_names = True
        return file

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Creates the file if needed. Raises OSError."""
        start = position - position % self.file_bytes
        file = self._files.get(start) or self.add(start)
        self._dirty[start] = None
        file.write_at(position - start, data)

    def rewrite(self, position: int, end: int) -> None:
        """Write these bytes again, as they are read, so that a sync covers them. Raises OSError."""
        for start, piece_end in self.pieces(position, end):
            for at in range(start, piece_end, _COPY_BYTES):
                self.write(at, self.read(at, min(_COPY_BYTES, piece_end - at)))

    # The disk ------------------------------------------------------------------------------------------------

    @property
    def is_dirty(self) -> bool:
        return bool(self._dirty)

    def take_dirty(self) -> tuple[list[StoredFile], list[str]]:
        """(files, folders) that were changed since the last call and have to be synced."""
        files = [self._files[start] for start in self._dirty if start in self._files]
        self._dirty.clear()
        folders = [self.folder] if self._new_names else []
        self._new_names = False
        return files, folders

    def mark_written(self, start: int) -> None:
        """The file that begins at `start` was written to by other means than `write`."""
        self._dirty[start] = None

    def mark_names_unsynced(self) -> None:
        """The folder has to be synced again."""
        self._new_names = True

    @property
    def open_count(self) -> int:
        return len(self._files)

    def forget_before(self, position: int) -> list[str]:
        """Drop whole files below `position`, never the last. Returns their paths for deletion, oldest first."""
        paths = []
        while len(self.starts) > 1 and self.starts[0] + self.file_bytes <= position:
            start = self.starts.pop(0)
            paths.append(self.path_of(start))
            file = self._files.pop(start, None)
            if file is not None:
                file.close()
            self._dirty.pop(start, None)
        return paths

    def delete_before(self, position: int) -> list[str]:
        """Delete whole files below `position`, never the last. Returns their paths. Raises OSError."""
        gone = []
        while len(self.starts) > 1 and self.starts[0] + self.file_bytes <= position:
            gone.append(self._delete(self.starts[0]))
        return gone

    def cut(self, position: int) -> None:
        """Zero everything from `position` on. Raises OSError."""
        while self.starts and self.starts[-1] >= position and self.starts[-1] > 0:
            self._delete(self.starts[-1])
        if self.has(position):
            start = self.start_of(position)
            file = self.file(start)
            file.set_size(position - start)
            file.set_size(self.file_bytes)
            self._dirty[start] = None

    def delete_found(self) -> None:
        """Delete the files that are in the folder, whoever made them. Raises OSError."""
        for start in self.list_starts():
            self._storage.delete(f"{self.folder}/{file_name(start)}")

    def delete_all(self) -> None:
        """Delete the files and the folder. Raises OSError."""
        while self.starts:
            self._delete(self.starts[0])
        try:
            self._storage.delete(self.folder)
        except FileNotFoundError:
            pass  # it never had a file

    def moved(self, root: str, name: str) -> None:
        """The folder was renamed; files that are open stay so."""
        self._root = root
        self.name = name
        self.folder = f"{root}/{name}"

    def _delete(self, start: int) -> str:
        path = self.path_of(start)
        self._storage.delete(path)
        file = self._files.pop(start, None)
        if file is not None:
            file.close()
        self.starts.remove(start)
        self._dirty.pop(start, None)
        self._new_names = True
        return path

    def close_idle(self) -> None:
        """Close files that have nothing to sync; the next access opens them again."""
        for start in [start for start in self._files if start not in self._dirty]:
            self._files.pop(start).close()
