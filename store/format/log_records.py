"""Reads the messages of a commit log in order, and finds the next whole message after damage (wire.md 5)."""

import struct
from collections.abc import Iterator
from typing import Final

from lockstep.protocol.codes import FRAME_BYTES_MAX
from lockstep.protocol.messages.message import MESSAGE_MAGIC
from lockstep.store.format.files import FileRun
from lockstep.store.format.layout import FILE_END_BYTES, PADDING_MAGIC
from lockstep.store.format.record import LogRecord, parse_record

__all__ = ["LogScan", "next_record", "record_starts"]

_MAGIC: Final = MESSAGE_MAGIC.to_bytes(4, "big")
_INT: Final = struct.Struct(">i")
_START: Final = struct.Struct(">iI")
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_BACK_BYTES: Final = 16 * 1024


class LogScan:
    """Iterates over the messages from `position` to `end`, or to the first bytes that are no message.

    Attributes:
        position: After the iteration: where it stopped.
        reason: Why it stopped; empty at `end`.
        padding_at: Where the last padding begins that was passed over; -1 before any.
    """

    def __init__(self, files: FileRun, position: int, end: int | None = None, chunk_bytes: int = _CHUNK_BYTES) -> None:
        self._files = files
        self._chunk_bytes = chunk_bytes
        self._end = files.end if end is None else end
        self._buffer = b""
        self._buffer_start = position
        self.position = position
        self.reason = ""
        self.padding_at = -1

    def __iter__(self) -> Iterator[LogRecord]:
        file_end = 0
        while self.position < self._end:
            offset = self.position
            if offset >= file_end:
                file_end = self._files.start_of(offset) + self._files.file_bytes
                if not self._files.has(offset):
                    self.reason = f"{self._files.path_of(offset)} is missing"
                    return
            at = offset - self._buffer_start
            record = parse_record(self._buffer, at, offset) if at >= 0 else ""
            if isinstance(record, str):
                # Padding, or not all of the message is in the buffer.
                if self._passes_padding(offset, file_end):
                    continue
                record = parse_record(self._buffer, offset - self._buffer_start, offset)
                if isinstance(record, str):
                    self.reason = record
                    return
            yield record
            self.position = offset + record.size_bytes

    def _passes_padding(self, offset: int, file_end: int) -> bool:
        """Read what begins at `offset` into the buffer. Returns True, and moves on, when it is padding."""
        at = self._fill(offset, min(_START.size, file_end - offset), file_end)
        size, magic = _START.unpack_from(self._buffer, at) if len(self._buffer) - at >= _START.size else (0, 0)
        if magic == PADDING_MAGIC:
            self.padding_at = offset
            self.position = file_end
            return True
        if magic == MESSAGE_MAGIC and 0 < size <= file_end - offset:
            self._fill(offset, size, file_end)
        return False

    def _fill(self, offset: int, wanted_bytes: int, file_end: int) -> int:
        """Read at least `wanted_bytes` from `offset`, if the file has them. Returns where they are in the buffer."""
        at = offset - self._buffer_start
        if at < 0 or at + wanted_bytes > len(self._buffer):
            size = min(max(wanted_bytes, self._chunk_bytes), file_end - offset)
            self._buffer = self._files.read(offset, size)
            self._buffer_start = offset
            at = 0
        return at


def next_record(files: FileRun, position: int, end: int) -> int | None:
    """Where the next whole message at or after `position` begins; None when there is none below `end`. Raises OSError.

    Parts of files that were never written are not read.
    """
    for at, piece_end in files.pieces(position, end):
        if not files.has(at):
            continue
        file_end = files.end_of(files.start_of(at))
        while (at := max(at, files.data_at(at, file_end) - FILE_END_BYTES)) < min(piece_end, file_end):
            data = files.read(at, min(_CHUNK_BYTES, file_end - at))
            found = data.find(_MAGIC, 4)
            while found >= 0 and at + found - 4 < piece_end:
                offset = at + found - 4
                whole = files.read(offset, min(max(0, _INT.unpack_from(data, found - 4)[0]), file_end - offset))
                if not isinstance(parse_record(whole, 0, offset), str):
                    return offset
                found = data.find(_MAGIC, found + 1)
            if len(data) < FILE_END_BYTES or at + len(data) >= file_end:
                # Shorter than asked for: the file was cut.
                break
            at += len(data) - FILE_END_BYTES + 1
    return None


def record_starts(files: FileRun, position: int) -> Iterator[int]:
    """Possible starts of the message around `position`, nearest first, within its file. Raises OSError."""
    file_start = files.start_of(position)
    high, lowest = position, max(file_start, position - FRAME_BYTES_MAX)  # no message is larger
    while high > lowest:
        low = max(lowest, high - _BACK_BYTES)
        piece = files.read(low, min(high + len(_MAGIC) - 1, file_start + files.file_bytes) - low)
        at = piece.rfind(_MAGIC)
        while at >= 0:
            if low + at - _INT.size >= file_start:
                yield low + at - _INT.size
            at = piece.rfind(_MAGIC, 0, at + len(_MAGIC) - 1)
        high = low
