"""The content of one simulated file: what processes read, and which changes are durable.

A change is durable from the virtual time at which a later sync returns. A power cut before that leaves none, all or
torn pieces of it.
"""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["PAGE_BYTES", "Content", "pages_of"]

PAGE_BYTES: Final = 4096  # files take space in pages
_SECTOR_BYTES: Final = 512  # the disk writes whole sectors
_NEVER: Final = -1


@dataclass(slots=True)
class _Change:
    """Bytes that were written at a position; no bytes: the file was resized."""

    position: int
    data: bytes
    size_bytes: int  # of the file, after the change
    at_ns: int
    safe_ns: int | None = None  # _NEVER: its sync failed


class _Image:
    """The bytes of a file; zeros at the end are not stored."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.size_bytes = 0

    def write(self, position: int, data: bytes) -> None:
        if position == len(self.written):
            self.written += data
        else:
            if position > len(self.written):
                self.written.extend(bytes(position - len(self.written)))
            self.written[position : position + len(data)] = data
        self.size_bytes = max(self.size_bytes, position + len(data))

    def resize(self, size_bytes: int) -> None:
        del self.written[size_bytes:]
        self.size_bytes = size_bytes

    def apply(self, change: _Change) -> None:
        if change.data:
            self.write(change.position, change.data)
        else:
            self.resize(change.size_bytes)

    def read(self, position: int, size_bytes: int) -> bytes:
        end = min(position + size_bytes, self.size_bytes)
        found = bytes(self.written[position:end])
        return found + bytes(max(0, end - position - len(found)))

    def copy(self) -> "_Image":
        image = _Image()
        image.written[:], image.size_bytes = self.written, self.size_bytes
        return image


class Content:
    """A file as processes see it, and its changes that are not durable yet.

    Args:
        keeps_all: Every change is durable at once.
    """

    def __init__(self, keeps_all: bool = False) -> None:
        self._seen = _Image()
        self._safe = self._seen if keeps_all else _Image()
        self._changes: deque[_Change] = deque()  # not in _safe yet, oldest first
        self.pages: set[int] = set()  # that take space

    @property
    def size_bytes(self) -> int:
        return self._seen.size_bytes

    def read(self, position: int, size_bytes: int) -> bytes:
        return self._seen.read(position, size_bytes)

    def write(self, position: int, data: bytes, at_ns: int) -> None:
        if data:
            self._seen.write(position, data)
            if self._safe is not self._seen:
                self._changes.append(_Change(position, data, self._seen.size_bytes, at_ns))
            self.pages.update(pages_of(position, len(data)))

    def resize(self, size_bytes: int, at_ns: int) -> None:
        self._seen.resize(size_bytes)
        if self._safe is not self._seen:
            self._changes.append(_Change(0, b"", size_bytes, at_ns))
        if self.pages:
            self.pages.intersection_update(range(-(-size_bytes // PAGE_BYTES)))

    def sync(self, now_ns: int, safe_ns: int) -> None:
        """The changes so far are durable from `safe_ns` on."""
        for change in self._changes:
            if change.safe_ns is None:
                change.safe_ns = safe_ns
        while self._changes and _is_safe(self._changes[0], now_ns):
            self._safe.apply(self._changes.popleft())

    def sync_failed(self) -> None:
        """The changes since the last sync are lost for the disk; no later sync makes them durable."""
        for change in self._changes:
            if change.safe_ns is None:
                change.safe_ns = _NEVER

    def move_times(self, from_ns: int, to_ns: int) -> None:
        """Count the times from `from_ns` on from `to_ns` instead."""
        for change in self._changes:
            if change.at_ns >= from_ns:
                change.at_ns += to_ns - from_ns
            if change.safe_ns is not None and change.safe_ns >= from_ns:
                change.safe_ns += to_ns - from_ns

    def killed(self, now_ns: int) -> None:
        """The process died: undo its changes after this moment, and syncs that had not returned."""
        for change in self._changes:
            if change.safe_ns is not None and change.safe_ns > now_ns:
                change.safe_ns = None
        if any(change.at_ns > now_ns for change in self._changes):
            self._changes = deque(change for change in self._changes if change.at_ns <= now_ns)
            self._seen = self._safe.copy()
            for change in self._changes:
                self._seen.apply(change)

    def power_cut(self, now_ns: int, rng: random.Random) -> int:
        """Keep durable changes, and a random part of the others. Returns the number of the others."""
        if self._safe is self._seen:
            return 0
        image, unsafe = self._safe, 0
        for change in self._changes:
            if change.at_ns > now_ns:
                continue
            if _is_safe(change, now_ns):
                image.apply(change)
            else:
                unsafe += 1
                _leave_some(image, change, rng)
        self._safe, self._seen = image, image.copy()
        self._changes.clear()
        return unsafe


def pages_of(position: int, size_bytes: int) -> range:
    return range(position // PAGE_BYTES, -(-(position + size_bytes) // PAGE_BYTES))


def _is_safe(change: _Change, now_ns: int) -> bool:
    return change.safe_ns is not None and _NEVER < change.safe_ns <= now_ns


def _leave_some(image: _Image, change: _Change, rng: random.Random) -> None:
    """A change is lost, complete or torn, each in a third of the cases. The file may have its new size in any case."""
    fate = rng.randrange(3)
    if fate == 0 or not change.data:
        if fate != 0 or (change.data and rng.randrange(2)):
            image.resize(change.size_bytes)
        return
    pieces = [(0, len(change.data))] if fate == 1 else _torn(len(change.data), change.position, rng)
    for start, end in pieces:
        image.write(change.position + start, change.data[start:end])
    if rng.randrange(2):
        image.resize(max(image.size_bytes, change.size_bytes))


def _torn(size_bytes: int, position: int, rng: random.Random) -> list[tuple[int, int]]:
    """The first part, or some of the sectors."""
    if rng.randrange(2):
        return [(0, rng.randrange(size_bytes))] if size_bytes > 1 else []
    return [piece for piece in _sectors(size_bytes, position) if rng.randrange(2)]


def _sectors(size_bytes: int, position: int) -> Iterator[tuple[int, int]]:
    start = 0
    while start < size_bytes:
        end = min(size_bytes, start + _SECTOR_BYTES - (position + start) % _SECTOR_BYTES)
        yield start, end
        start = end
