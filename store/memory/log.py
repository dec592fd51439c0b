"""The commit log in memory: all messages of a broker, one after the other (wire.md 5).

Segments have a fixed size. They are anonymous mappings, so a page takes memory only when it is written to, and an idle
broker stays small. At the memory limit the oldest segment is reused.
"""

from bisect import bisect_right
from collections.abc import Iterator
from mmap import mmap

from lockstep.protocol.messages.message import MESSAGE_OVERHEAD_BYTES
from lockstep.store.base import StoreFull
from lockstep.store.format.record import STORED_AT_BYTES, parse_record, size_at, stored_at
from lockstep.store.keys.search import find_key

__all__ = ["CommitLog"]


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
        self.max_offset = 0  # of the next message

    @property
    def reserved_bytes(self) -> int:
        """The capacity of all segments; the memory limit applies to it."""
        return sum(segment.capacity for segment in self._segments)

    def make_room(self, record_bytes: int) -> None:
        """Make room for the next message. Old messages are dropped for it: those below `min_offset`.

        Raises:
            StoreFull: The system gives no memory. What was dropped before stays dropped.
        """
        if self.has_room(record_bytes):
            return
        capacity = max(self._segment_bytes, record_bytes)
        assert capacity <= self._memory_limit_bytes, "the largest message must fit; BrokerConfig checks it"
        spare: _Segment | None = None
        while self._segments and self.reserved_bytes + capacity > self._memory_limit_bytes:
            spare = self._segments.pop(0)
            if spare.capacity != capacity:
                spare.buffer.close()
        if spare is not None and spare.capacity == capacity:
            spare.start, spare.used = self.max_offset, 0
            self._segments.append(spare)
        else:
            # What is dropped is gone, whatever the system answers.
            self._segments_changed()
            try:
                self._segments.append(_Segment(self.max_offset, capacity))
            except OSError as error:
                raise StoreFull(f"no memory for {capacity} bytes of messages: {error.strerror}") from None
        self._segments_changed()

    def _segments_changed(self) -> None:
        self._starts = [segment.start for segment in self._segments]
        self._active = self._segments[-1] if self._segments else None
        self.min_offset = self._segments[0].start if self._segments else self.max_offset

    def truncate(self, log_offset: int) -> None:
        """Remove messages from `log_offset` on, which nobody has read; those that are dropped already stay so."""
        while self._segments and self._segments[-1].start >= log_offset:
            self._segments.pop().buffer.close()
        if self._segments:
            self._segments[-1].used = log_offset - self._segments[-1].start
        self.max_offset = log_offset
        self._segments_changed()

    def has_room(self, record_bytes: int) -> bool:
        """Whether messages of so many bytes fit where the next one goes."""
        active = self._active
        return active is not None and active.used + record_bytes <= active.capacity

    def append(self, record: bytes) -> None:
        """Write a message at `max_offset`, after `make_room`, or several after `has_room`."""
        segment = self._active
        assert segment is not None
        end = segment.used + len(record)
        segment.buffer[segment.used : end] = record
        segment.used = end
        self.max_offset += len(record)

    def read(self, commit_log_offset: int, size_bytes: int) -> bytes:
        """`size_bytes` from `commit_log_offset` on, within one segment."""
        segment = self._segments[bisect_right(self._starts, commit_log_offset) - 1]
        start = commit_log_offset - segment.start
        return segment.buffer[start : start + size_bytes]

    def find_key(self, key: bytes, start: int, end: int) -> Iterator[int | None]:
        """Positions in [start, end) that may hold `key` as a whole key, newest first, and a None now and then.

        The oldest segments may be dropped meanwhile.
        """

        def read(position: int, size_bytes: int) -> bytes:
            return self.read(position, size_bytes) if position >= self.min_offset else b""

        for low, high in [(segment.start, segment.end) for segment in reversed(self._segments)]:
            yield from find_key(read, key, max(start, low), min(end, high))

    def segment_end(self, commit_log_offset: int) -> int:
        """The end of what one `read` from `commit_log_offset` may read."""
        return self._segments[bisect_right(self._starts, commit_log_offset) - 1].end

    def message_at(self, commit_log_offset: int) -> bytes | None:
        """The message that begins at this offset; None when none does."""
        if not self.min_offset <= commit_log_offset < self.max_offset:
            return None
        left_bytes = self.segment_end(commit_log_offset) - commit_log_offset
        if left_bytes < MESSAGE_OVERHEAD_BYTES:
            return None
        size = size_at(self.read(commit_log_offset, MESSAGE_OVERHEAD_BYTES), commit_log_offset, left_bytes)
        if size is None:
            return None
        # The body of another may feign a head, but not a CRC.
        message = self.read(commit_log_offset, size)
        return None if isinstance(parse_record(message, 0, commit_log_offset), str) else message

    def store_timestamp(self, commit_log_offset: int) -> int:
        """Epoch ms when the message at this offset was stored."""
        return stored_at(self.read(commit_log_offset, STORED_AT_BYTES))

    def close(self) -> None:
        """Release the memory; the log is empty afterwards."""
        for segment in self._segments:
            segment.buffer.close()
        self._segments = []
        self._starts = []
        self._active = None
