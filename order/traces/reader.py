"""Reads traces from files: checks records against the format, counts broken lines, and allows a torn last line."""

import errno
import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lockstep.order.traces.format import why_broken

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

__all__ = ["BrokenLine", "Record", "TraceFile", "TraceLines", "checked"]

Record = Mapping[str, Any]
_READ_BYTES: Final = 1 << 18
_GZIP: Final = b"\x1f\x8b"
# Windows writes it at the start of a file.
_BOM: Final = "\ufeff".encode()
_BEGIN: Final = b'{"event":'
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

    def read(self, lines: Iterable[bytes], wanted: Callable[[bytes], bool] | None = None) -> Iterator[Record]:
        """Yield the records of the lines that are `wanted`. Lines may lack their ends."""
        self.torn_lines = 0
        self.broken_lines = 0
        self.broken, self.torn = [], []
        scan, why_not, number, last, no_json = _scan, why_broken, 0, b"", 0
        for number, line in enumerate(lines, 1):
            if line[:1] == _BOM[:1]:
                line = line.removeprefix(_BOM)
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
                if line.find(_BEGIN, 1) > 0:
                    yield from self._parts(line, number)
                else:
                    last, no_json = line, number
                    self._broken(number, _why_no_json(line))
                continue
            why = why_not(record)
            if why is None:
                self.number, self.line = number, line
                yield _without_nulls(record) if b"null" in line else record
            else:
                self.refused(number, line)
                self._broken(number, why)
        # A killed process tears its last line, before its end. A first line that cannot be read is no end of anything.
        is_cut = not last.endswith(b"\n") and _may_be_torn(last)
        if no_json == number > 1 and (is_cut or not last.strip()):
            self.broken_lines -= 1
            self.broken = [line for line in self.broken if line.number != number]
            if last.strip():
                self._torn(number)

    def refused(self, number: int, line: bytes) -> None:
        """Called with each line that is no record, or more than a record."""

    def _parts(self, line: bytes, number: int) -> Iterator[Record]:
        """The records on a line that lacks an end in its middle. What stands before a record may be torn."""
        why, is_torn = None, False
        head, *parts = line.split(_BEGIN)
        for part in [head, *(_BEGIN + part for part in parts)] if head else [_BEGIN + part for part in parts]:
            record = _whole(part)
            if record is not None and why_broken(record) is None:
                self.number, self.line = number, line
                yield _without_nulls(record)
            elif _may_be_torn(part):
                is_torn = True
            else:
                why = why_broken(record) if record is not None else _why_no_json(part)
        if why is not None:
            self._broken(number, why)
        elif is_torn:
            self._torn(number)

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
            if lines.peek(len(_GZIP))[: len(_GZIP)] != _GZIP:
                yield from self.read(lines, wanted)
                return
            # A rotated log is often compressed.
            try:
                yield from self.read(gzip.GzipFile(fileobj=lines), wanted)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise OSError(errno.EIO, f"its gzip data is damaged: {error}", str(self.path)) from None


def checked(records: Iterable[Any], name: str, broken: list[BrokenLine]) -> Iterator[Record]:
    """Yield the valid ones of records in memory, checked like lines of a file. Invalid ones go to `broken`."""
    for number, record in enumerate(records, 1):
        why = why_broken(record)
        if why is None:
            yield _without_nulls(record)
        else:
            broken.append(BrokenLine(name, number, why))


def _whole(part: bytes) -> Any:
    """The JSON value that a part of a line is; None if it is none, or more than one."""
    try:
        return _loads(part.decode())
    except (ValueError, RecursionError):
        return None


def _may_be_torn(part: bytes) -> bool:
    """Whether this may be the beginning of a record. NUL bytes are what a power cut leaves of any number of records."""
    if not part.startswith(b"{") or b"\0" in part:
        return False
    try:
        _scan(part.decode("utf-8", "ignore"), 0)
    except (ValueError, RecursionError):
        return True
    return False


def _why_no_json(line: bytes) -> str:
    """Why a line, or a part of it, is not JSON."""
    if not line.strip():
        return "an empty line"
    if b"e\0v\0e" in line:  # of the word "event"
        return "UTF-16, and a trace is UTF-8"
    if b"\0" in line:
        return "NUL bytes, as a power cut leaves them: records are missing"
    try:
        line.decode()
    except UnicodeDecodeError:
        return "not UTF-8"
    return "not JSON"


def _without_nulls(record: Record) -> Record:
    """The record without optional fields that are null: they mean absent, but for `key`."""
    if None not in record.values():
        return record
    return {name: value for name, value in record.items() if value is not None or name == "key"}
