"""Reads traces from files: checks records against the format, counts broken lines, and allows a torn last line."""

import errno
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lockstep.order.traces.format import why_broken

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

__all__ = ["BrokenLine", "Record", "TraceFile", "TraceLines", "checked"]

Record = Mapping[str, Any]
_READ_BYTES: Final = 1 << 18
# Lines of each file that are kept with their reasons; all are counted.
BROKEN_KEPT: Final = 10
_loads = json.JSONDecoder().decode
# Faster than json.loads: it skips no white space around the value.
_scan = json.JSONDecoder().raw_decode


class BrokenLine(NamedTuple):
    """A line that is not a valid record."""

    path: str
    number: int
    why: str


class _Part(io.RawIOBase):
    """The first bytes of a file."""

    def __init__(self, file: io.FileIO, size: int | None) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size if size is None else size
        self._left = self.size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "Buffer", /) -> int:
        with memoryview(buffer) as view:
            count = self._file.readinto(view[: self._left]) or 0
        self._left -= count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _opened(path: Path) -> io.FileIO:
    """The file. Raises OSError, before there is a `_Part`: Python closes one even if its constructor fails."""
    file = path.open("rb", buffering=0)
    if not file.seekable():
        file.close()
        raise OSError(errno.ESPIPE, "it is read twice, and a pipe cannot be; write a file", str(path))
    return file


class TraceLines:
    """Reads the lines of one trace. The counts are those of the last full pass.

    A killed process may tear its last line (`torn_lines`). If another process appends to the same file, its first
    record follows on that line: the record is read, and the line counts as torn. Every other invalid line counts in
    `broken_lines`; `broken` has the first of them.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.torn_lines = 0
        self.broken_lines = 0
        self.broken: list[BrokenLine] = []
        self.torn: list[int] = []  # numbers of the first torn lines
        self.number = 0  # of the line of the last record
        self.line = b""  # the line of the last record
        self._no_json = 0  # number of the last line that was not JSON

    def read(self, lines: Iterable[bytes], wanted: Callable[[bytes], bool] | None = None) -> Iterator[Record]:
        """Yield the records of the lines that are `wanted`. Lines may lack their ends."""
        self.torn_lines = 0
        self.broken_lines = 0
        self.broken, self.torn = [], []
        self._no_json = 0
        scan, why_not, number = _scan, why_broken, 0
        for number, line in enumerate(lines, 1):
            if wanted is not None and not wanted(line):
                continue
            try:
                text = line.decode()
                record, end = scan(text, 0)
                whole = end + 1 >= len(text) or not text[end:].strip()
            except (ValueError, RecursionError):
                whole = False
            if not whole:
                self.refused(number, line)
                record = self._rescued(line, number)
                if record is None:
                    continue
            why = why_not(record)
            if why is None:
                self.number, self.line = number, line
                yield _without_nulls(record) if b"null" in line else record
            else:
                self.refused(number, line)
                self._broken(number, why)
        if self._no_json == number > 0:
            # The torn last line of a killed process.
            self._torn(number)
            self.broken_lines -= 1
            self.broken = [line for line in self.broken if line.number != number]

    def refused(self, number: int, line: bytes) -> None:
        """Called with each line that is no record, or more than a record."""

    def _rescued(self, line: bytes, number: int) -> Record | None:
        """The record after a torn one on a line that is not JSON; None if there is no such record."""
        place = line.find(b'{"event":', 1)
        while place > 0:
            try:
                record: Any = _loads(line[place:].decode())
            except (ValueError, RecursionError):
                place = line.find(b'{"event":', place + 1)
                continue
            if why_broken(record) is None:
                self._torn(number)
                return record  # type: ignore[no-any-return]
            break
        self._no_json = number
        self._broken(number, "not JSON" if line.strip() else "an empty line")
        return None

    def _torn(self, number: int) -> None:
        self.torn_lines += 1
        if len(self.torn) < BROKEN_KEPT:
            self.torn.append(number)

    def _broken(self, number: int, why: str) -> None:
        self.broken_lines += 1
        if len(self.broken) < BROKEN_KEPT:
            self.broken.append(BrokenLine(self.name, number, why))


class TraceFile(TraceLines):
    """The records of one file, streamed; it may be read more than once.

    Every pass reads as many bytes as the file had at the first one, though its process may still write.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path
        self._size: int | None = None

    def __iter__(self) -> Iterator[Record]:
        """Yield every record. Raises OSError."""
        return self.records()

    def records(self, wanted: Callable[[bytes], bool] | None = None) -> Iterator[Record]:
        """Yield the records of the lines that are `wanted`. Raises OSError, for a pipe too: it cannot be read twice."""
        part = _Part(_opened(self.path), self._size)
        self._size = part.size
        with io.BufferedReader(part, _READ_BYTES) as lines:
            yield from self.read(lines, wanted)


def checked(records: Iterable[Any], name: str, broken: list[BrokenLine]) -> Iterator[Record]:
    """Yield the valid ones of records in memory, checked like lines of a file. Invalid ones go to `broken`."""
    for number, record in enumerate(records, 1):
        why = why_broken(record)
        if why is None:
            yield _without_nulls(record)
        else:
            broken.append(BrokenLine(name, number, why))


def _without_nulls(record: Record) -> Record:
    """The record without optional fields that are null: they mean absent, but for `key`."""
    if None not in record.values():
        return record
    return {name: value for name, value in record.items() if value is not None or name == "key"}
