"""The log that all messages of a broker stand in, one after the other, in memory (wire.md 5).

Segments are fixed when made and never resize. They are anonymous mappings, so a page costs memory from its first
message on, and an idle broker stays small. When the limit is reached the oldest segment is used again.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterator
from mmap import mmap
from typing import Final

from lockstep.protocol.codes import SysFlag
from lockstep.protocol.message import MESSAGE_MAGIC, MESSAGE_OVERHEAD_BYTES
from lockstep.store.keys.words import words_in

__all__ = ["CommitLog"]

_SEARCH_PIECE_BYTES: Final = 1024 * 1024
_HEAD = struct.Struct(">iI20xq")  # totalSize, magic, and behind four more fields the physicalOffset
_SYS_FLAG_AT: Final = 36
_TIMES = struct.Struct(">i16xq4xq")  # sysFlag, and storeTimestamp as it stands behind a bornHost of 4 bytes and of 16
_BORN_V6: Final = int(SysFlag.BORN_HOST_V6)


class _Segment:
    __slots__ = ("buffer", "capacity", "start", "used")

    def __init__(self, start: int, capacity: int) -> None:
        self.start = start
        self.capacity = capacity
        self.buffer = mmap(-1, capacity)
        self.used = 0

    @property
    def end(self) -> int:
        return self.start + self.used


class CommitLog:
    """Addressed by commit log offset, which counts the bytes ever written."""

    def __init__(self, memory_limit_bytes: int, segment_bytes: int) -> None:
        assert 0 < segment_bytes <= memory_limit_bytes
        self._memory_limit_bytes = memory_limit_bytes
        self._segment_bytes = segment_bytes
        self._segments: list[_Segment] = []
        self._starts: list[int] = []
        self._active: _Segment | None = None
        self.min_offset = 0
        self.max_offset = 0  # where the next record will stand

    @property
    def reserved_bytes(self) -> int:
        """The sum of the segments, full or not; the limit holds for this."""
        return sum(segment.capacity for segment in self._segments)

    def make_room(self, record_bytes: int) -> bool:
        """See that the next record fits. True when old ones went: everything below `min_offset` is gone then."""
        active = self._active
        if active is not None and active.used + record_bytes <= active.capacity:
            return False
        capacity = max(self._segment_bytes, record_bytes)
        assert capacity <= self._memory_limit_bytes, "the largest message must fit; BrokerConfig sees to it"
        spare: _Segment | None = None
        evicted = False
        while self._segments and self.reserved_bytes + capacity > self._memory_limit_bytes:
            spare = self._segments.pop(0)
            evicted = True
            if spare.capacity != capacity:
                spare.buffer.close()
        if spare is not None and spare.capacity == capacity:
            spare.start, spare.used = self.max_offset, 0
        else:
            spare = _Segment(self.max_offset, capacity)
        self._segments.append(spare)
        self._starts = [segment.start for segment in self._segments]
        self._active = spare
        self.min_offset = self._segments[0].start
        return evicted

    def append(self, record: bytes) -> None:
        """Write a record at `max_offset`; `make_room` came before."""
        segment = self._active
        assert segment is not None
        end = segment.used + len(record)
        segment.buffer[segment.used : end] = record
        segment.used = end
        self.max_offset += len(record)

    def read(self, commit_log_offset: int, size_bytes: int) -> bytes:
        """`size_bytes` from `commit_log_offset` on, which must be whole records of one segment."""
        segment = self._segments[bisect_right(self._starts, commit_log_offset) - 1]
        start = commit_log_offset - segment.start
        return segment.buffer[start : start + size_bytes]

    def find_word(self, word: bytes, start: int, end: int) -> Iterator[int]:
        """Where `word` stands as a word of some property in [start, end), the newest place first.

        A plain search of memory: nothing is spent on a message that nobody asks for. Bodies may hold it too.
        """
        for segment in reversed(self._segments):
            low, high = max(start, segment.start), min(end, segment.end)
            while high > low:
                piece_start = max(low, high - _SEARCH_PIECE_BYTES)
                piece_end = min(high + len(word), end, segment.end)  # one more, to see what ends the word
                piece = segment.buffer[piece_start - segment.start : piece_end - segment.start]
                yield from (piece_start + at for at in reversed(words_in(piece, word)))
                high = piece_start + 1 if piece_start > low else low  # the first byte is seen with what stands before

    def segment_end(self, commit_log_offset: int) -> int:
        """Up to which offset a `read` from `commit_log_offset` may go."""
        return self._segments[bisect_right(self._starts, commit_log_offset) - 1].end

    def message_at(self, commit_log_offset: int) -> bytes | None:
        """The record that begins there; None when none does."""
        if not self.min_offset <= commit_log_offset < self.max_offset:
            return None
        left_bytes = self.segment_end(commit_log_offset) - commit_log_offset
        if left_bytes < MESSAGE_OVERHEAD_BYTES:
            return None
        size, magic, stands_at = _HEAD.unpack(self.read(commit_log_offset, _HEAD.size))
        if magic != MESSAGE_MAGIC or stands_at != commit_log_offset or not MESSAGE_OVERHEAD_BYTES <= size <= left_bytes:
            return None
        return self.read(commit_log_offset, size)

    def store_timestamp(self, commit_log_offset: int) -> int:
        """Epoch ms when the record there was stored."""
        sys_flag, behind_v4, behind_v6 = _TIMES.unpack(self.read(commit_log_offset + _SYS_FLAG_AT, _TIMES.size))
        timestamp: int = behind_v6 if sys_flag & _BORN_V6 else behind_v4
        return timestamp

    def close(self) -> None:
        """Give the memory back; the log is empty afterwards."""
        for segment in self._segments:
            segment.buffer.close()
        self._segments, self._starts, self._active = [], [], None
