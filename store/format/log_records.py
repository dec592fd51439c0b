"""Messages as they stand in the files of the log: is this a whole one, and where is the next (wire.md 5)?"""

import struct
from collections.abc import Iterator
from typing import Final

from lockstep.protocol.codes import FRAME_BYTES_MAX
from lockstep.protocol.message import MESSAGE_MAGIC
from lockstep.store.file.segments import Segments
from lockstep.store.format.layout import FILE_END_BYTES, PADDING_MAGIC
from lockstep.store.format.record import LogRecord, parse_record
from lockstep.store.keys.words import words_in

__all__ = ["LogScan", "next_record", "record_starts", "word_places"]

_MAGIC: Final = MESSAGE_MAGIC.to_bytes(4, "big")
_INT: Final = struct.Struct(">i")
_START: Final = struct.Struct(">iI")
_CHUNK_BYTES: Final = 4 * 1024 * 1024
_SEARCHED_BYTES: Final = 1024 * 1024
_BACK_BYTES: Final = 16 * 1024


class LogScan:
    """Iterate over the messages from `position` on, up to `end` or to what is none.

    Afterwards `position` is where it stopped, and `reason` why: empty at the end of the files or at `end`. So many
    bytes are read at a time.
    """

    def __init__(
        self, segments: Segments, position: int, end: int | None = None, chunk_bytes: int = _CHUNK_BYTES
    ) -> None:
        self._segments = segments
        self._chunk_bytes = chunk_bytes
        self._end = segments.end if end is None else end
        self._buffer = b""
        self._buffer_start = position
        self.position = position
        self.reason = ""

    def __iter__(self) -> Iterator[LogRecord]:
        file_end = 0
        while self.position < self._end:
            offset = self.position
            if offset >= file_end:
                file_end = self._segments.start_of(offset) + self._segments.file_bytes
                if not self._segments.has(offset):
                    self.reason = f"{self._segments.path_of(offset)} is missing"
                    return
            at = offset - self._buffer_start
            if not 0 <= at <= len(self._buffer) - FILE_END_BYTES:
                at = self._fill(offset, min(_START.size, file_end - offset), file_end)
            size, magic = _START.unpack_from(self._buffer, at) if file_end - offset >= FILE_END_BYTES else (0, 0)
            if magic == PADDING_MAGIC:
                self.position = file_end
                continue
            if magic == MESSAGE_MAGIC and 0 < size <= file_end - offset and at + size > len(self._buffer):
                at = self._fill(offset, size, file_end)
            record = parse_record(self._buffer, at, offset)
            if isinstance(record, str):
                self.reason = record
                return
            yield record
            self.position = offset + record.size_bytes

    def _fill(self, offset: int, wanted_bytes: int, file_end: int) -> int:
        """See that the buffer holds so many bytes from `offset` on. Returns where in it they begin."""
        at = offset - self._buffer_start
        if at < 0 or at + wanted_bytes > len(self._buffer):
            size = min(max(wanted_bytes, self._chunk_bytes), file_end - offset)
            self._buffer = self._segments.read(offset, size)
            self._buffer_start = offset
            at = 0
        return at


def next_record(segments: Segments, position: int, end: int) -> int | None:
    """Where the next whole message behind damage begins; None when there is none before `end`."""
    for piece_start, piece_end in segments.pieces(position, end):
        if not segments.has(piece_start):
            continue
        file_end = segments.start_of(piece_start) + segments.file_bytes
        at = piece_start
        while at < piece_end:
            data = segments.read(at, min(_CHUNK_BYTES, file_end - at))
            found = data.find(_MAGIC, 4)
            while found >= 0:
                offset = at + found - 4
                whole = segments.read(offset, min(_INT.unpack_from(data, found - 4)[0], file_end - offset))
                if not isinstance(parse_record(whole, 0, offset), str):
                    return offset
                found = data.find(_MAGIC, found + 1)
            if len(data) < _CHUNK_BYTES:
                break
            at += len(data) - 8
    return None


def word_places(segments: Segments, word: bytes, start: int, end: int) -> Iterator[int]:
    """Where `word` stands among properties in [start, end), the newest place first. Raises OSError."""
    high = end
    while high > start:
        file_start = segments.start_of(high - 1)
        low = max(start, file_start, high - _SEARCHED_BYTES)
        piece_end = min(high + len(word), end, file_start + segments.file_bytes)  # one more, to see what ends the word
        piece = segments.read(low, piece_end - low)
        yield from (low + at for at in reversed(words_in(piece, word)))
        high = low + 1 if low > max(start, file_start) else low  # the first byte is seen with what stands before


def record_starts(segments: Segments, position: int) -> Iterator[int]:
    """Where the bytes stand that begin a message, from `position` on backwards, within its file. Raises OSError."""
    file_start = segments.start_of(position)
    high, lowest = position, max(file_start, position - FRAME_BYTES_MAX)  # no message is larger
    while high > lowest:
        low = max(lowest, high - _BACK_BYTES)
        piece = segments.read(low, min(high + len(_MAGIC) - 1, file_start + segments.file_bytes) - low)
        at = piece.rfind(_MAGIC)
        while at >= 0:
            if low + at - _INT.size >= file_start:
                yield low + at - _INT.size
            at = piece.rfind(_MAGIC, 0, at + len(_MAGIC) - 1)
        high = low
