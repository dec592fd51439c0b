"""A store's folder as a reader sees it: runs of files, and the messages of the log (docs/store.md). Nothing is written.

Paths in what is reported are relative to the folder, positions count from the beginning of the file.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.config import (
    ConsumerOffsetTable,
    DelayOffsetTable,
    SubscriptionGroupWrapper,
    TopicConfigWrapper,
)
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.message import MESSAGE_MAGIC
from lockstep.remoting.storage import Storage, StoredFile
from lockstep.store.format.layout import CONFIG, CONSUME_QUEUE, FILE_END_BYTES, PADDING_MAGIC, parse_file_name
from lockstep.store.format.record import LogRecord, parse_record

__all__ = [
    "CONFIG_BODIES",
    "Damage",
    "FileRun",
    "is_blank",
    "list_or_none",
    "log_end",
    "queue_runs",
    "read_config",
    "scan_log",
]

_CHUNK_BYTES: Final = 4 * 1024 * 1024
_BLANK: Final = memoryview(bytes(_CHUNK_BYTES))
_MAGIC: Final = MESSAGE_MAGIC.to_bytes(4, "big")
_PADDING: Final = PADDING_MAGIC.to_bytes(4, "big")

CONFIG_BODIES: Final = {
    "topics.json": TopicConfigWrapper,
    "subscriptionGroup.json": SubscriptionGroupWrapper,
    "consumerOffset.json": ConsumerOffsetTable,
    "delayOffset.json": DelayOffsetTable,
}


class Damage(NamedTuple):
    """`unfinished`: as a crash leaves it, and a broker puts it in order when it starts."""

    file: str
    position: int
    text: str
    unfinished: bool = False


def list_or_none(storage: Storage, path: str) -> list[str]:
    """The names in a folder; none when it is not there."""
    try:
        return storage.list_dir(path)
    except FileNotFoundError:
        return []


def is_blank(data: bytes) -> bool:
    """Zeros only."""
    return len(data) <= _CHUNK_BYTES and data == _BLANK[: len(data)]


class FileRun:
    """Files of one folder, none when it is missing, each named by the position of its first byte.

    Raises OSError.
    """

    def __init__(self, storage: Storage, root: str, folder: str) -> None:
        self._storage = storage
        self._root = root
        self.folder = folder
        names = list_or_none(storage, f"{root}/{folder}")
        self.starts = [start for name in names if (start := parse_file_name(name)) is not None]
        self.sizes = [self._size(start) for start in self.starts]
        self._file: tuple[int, StoredFile] | None = None

    @property
    def file_bytes(self) -> int:
        return self.sizes[0] if self.sizes else 0

    @property
    def end(self) -> int:
        return self.starts[-1] + self.sizes[-1] if self.starts else 0

    def name(self, start: int) -> str:
        return f"{self.folder}/{start:020d}"

    def _size(self, start: int) -> int:
        file = self._open(start)
        try:
            return file.size_bytes()
        finally:
            file.close()

    def _open(self, start: int) -> StoredFile:
        return self._storage.open_file(f"{self._root}/{self.name(start)}", read_only=True)

    def read(self, start: int, position: int, size_bytes: int) -> bytes:
        """Of the file that begins at `start`. Raises OSError."""
        return self._opened(start).read_at(position, size_bytes)

    def data_at(self, start: int, position: int) -> int:
        """As StoredFile's, of the file that begins at `start`. Raises OSError."""
        return self._opened(start).data_at(position)

    def _opened(self, start: int) -> StoredFile:
        if self._file is None or self._file[0] != start:
            self.close()
            self._file = (start, self._open(start))
        return self._file[1]

    def start_of(self, position: int) -> int | None:
        """The file that holds a position of the run."""
        if not self.starts or self.file_bytes == 0:
            return None
        start = self.starts[0] + (position - self.starts[0]) // self.file_bytes * self.file_bytes
        return start if start in self.starts else None

    def gaps(self) -> Iterator[Damage]:
        """Files that are missing between two, or have another size than the first."""
        for start, size in zip(self.starts, self.sizes, strict=True):
            if size != self.file_bytes:
                text = f"has {size:,} bytes, the first file {self.file_bytes:,}"
                yield Damage(self.name(start), min(size, self.file_bytes), text, start == self.starts[-1])
        for start, following in zip(self.starts, self.starts[1:], strict=False):
            if following != start + self.file_bytes:
                yield Damage(self.name(start + self.file_bytes), 0, "is missing")

    def close(self) -> None:
        if self._file is not None:
            self._file[1].close()
            self._file = None


def read_config(storage: Storage, root: str, name: str) -> object:
    """The body of a file of config/. Raises OSError and ProtocolError."""
    return decode_body(CONFIG_BODIES[name], storage.read_file(f"{root}/{CONFIG}/{name}"), SerializeType.JSON)


def queue_runs(storage: Storage, root: str) -> Iterator[tuple[str, int, FileRun]]:
    """(topic, queue id, files) of every queue."""
    for topic in list_or_none(storage, f"{root}/{CONSUME_QUEUE}"):
        for queue in storage.list_dir(f"{root}/{CONSUME_QUEUE}/{topic}"):
            if queue.isdecimal():
                yield topic, int(queue), FileRun(storage, root, f"{CONSUME_QUEUE}/{topic}/{queue}")


def scan_log(log: FileRun) -> Iterator[tuple[LogRecord, bytes] | Damage]:
    """All messages of the log, oldest first, and where something else stands. What follows damage is found again.

    Raises OSError.
    """
    written = [start for start in log.starts if log.read(start, 0, FILE_END_BYTES).strip(b"\0")]  # the next waits
    for start, size in zip(log.starts, log.sizes, strict=True):
        if start <= max(written, default=0):
            yield from _scan_file(log, start, size, is_last=start == written[-1])
    log.close()


def log_end(log: FileRun, known: int) -> int:
    """Behind the last message of the log, of which messages up to `known` are known already. Raises OSError."""
    end = known
    for start, size in zip(log.starts, log.sizes, strict=True):
        if start + size > known:
            for found in _scan_file(log, start, size, is_last=True, position=max(0, known - start)):
                if not isinstance(found, Damage):
                    end = found[0].offset + found[0].size_bytes
    log.close()
    return end


def _scan_file(
    log: FileRun, start: int, size: int, *, is_last: bool, position: int = 0
) -> Iterator[tuple[LogRecord, bytes] | Damage]:
    wanted, name = _CHUNK_BYTES, log.name(start)
    while position < size:
        data = log.read(start, position, min(wanted, size - position))
        at, is_cut = 0, position + len(data) < size
        while not isinstance(record := parse_record(data, at, start + position + at), str):
            yield record, data[at : at + record.size_bytes]
            at += record.size_bytes
        position += at
        length, magic = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + FILE_END_BYTES]
        if magic == _PADDING:
            if length != size - position:
                yield Damage(name, position, f"padding of {length:,} bytes does not end with the file", is_last)
            return
        wanted = max(_CHUNK_BYTES, length) if magic == _MAGIC and length <= size - position else _CHUNK_BYTES
        if is_cut and (at or wanted > len(data)):
            continue  # it is the end of what was read that makes it no message
        if position >= size or (is_last and not _rest(log, start, position, size)):
            return  # never written
        found = _next_message(log, start, position + 1, size)
        if found is None:
            yield Damage(name, position, f"{record}; no message follows in this file", unfinished=is_last)
            return
        yield Damage(name, position, f"{record}; the next message stands at {found}")
        position = found


def _rest(log: FileRun, start: int, position: int, size: int) -> bool:
    """Whether anything but zeros stands from there on."""
    while (position := log.data_at(start, position)) < size:
        data = log.read(start, position, min(_CHUNK_BYTES, size - position))
        if not is_blank(data):
            return True
        position += max(1, len(data))
    return False


def _next_message(log: FileRun, start: int, position: int, size: int) -> int | None:
    """Where in the file the next whole message begins."""
    at = position
    while (at := max(at, log.data_at(start, at) - FILE_END_BYTES)) < size:
        data = log.read(start, at, min(_CHUNK_BYTES, size - at))
        found = data.find(_MAGIC, 4)
        while found >= 0:
            begins = at + found - 4
            length = int.from_bytes(data[found - 4 : found], "big", signed=True)
            whole = log.read(start, begins, min(max(length, 0), size - begins))
            if not isinstance(parse_record(whole, 0, start + begins), str):
                return begins
            found = data.find(_MAGIC, found + 1)
        if at + len(data) >= size:
            return None
        at += len(data) - FILE_END_BYTES + 1
    return None
