"""Reads the 20-byte entries of consume queues; the i-th message of a queue is the i-th entry (wire.md 5)."""

from collections.abc import Callable
from typing import Final

from lockstep.store.format.files import FileRun
from lockstep.store.format.layout import BLANK_SIZE, ENTRY, ENTRY_BYTES

__all__ = ["entries_end", "first_written", "next_log_offset", "read_entries"]

_ENTRIES_AT_ONCE: Final = 50_000
_FEW_ENTRIES: Final = 1000
_NOWHERE: Final = 2**63 - 1

ReadEntries = Callable[[int, int], bytes]  # from a queue offset, up to so many entries; raises OSError


def read_entries(files: FileRun, first: int, count: int) -> bytes:
    """`count` entries from queue offset `first` on; zeros for what the files do not have. Raises OSError."""
    pieces = []
    for start, end in files.pieces(first * ENTRY_BYTES, (first + count) * ENTRY_BYTES):
        piece = files.read(start, end - start)
        if len(piece) < end - start:
            # The file is cut, maybe within an entry.
            piece = piece[: len(piece) - len(piece) % ENTRY_BYTES].ljust(end - start, b"\0")
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def next_log_offset(read: ReadEntries, end: int, at: int) -> int:
    """The commit log offset of entry `at`, or of the first entry behind it that is not damaged.

    A position behind every message when no such entry is below `end`. Raises OSError.
    """
    count = 1
    while at < end:
        for offset, size, _ in ENTRY.iter_unpack(read(at, min(count, end - at))):
            if size > 0 and offset >= 0:
                found: int = offset
                return found
        at, count = at + count, _FEW_ENTRIES
    return _NOWHERE


def entries_end(files: FileRun, log_end: int = _NOWHERE) -> int:
    """The queue offset behind the last entry of a message below `log_end`, by the last file with one.

    Raises OSError.
    """
    for start in reversed(files.starts):
        first, last = start // ENTRY_BYTES, (start + files.file_bytes) // ENTRY_BYTES
        end = first
        for at in range(first, last, _ENTRIES_AT_ONCE):
            chunk = read_entries(files, at, min(_ENTRIES_AT_ONCE, last - at))
            for i, (offset, size, _) in enumerate(ENTRY.iter_unpack(chunk), at):
                if size > 0 and 0 <= offset < log_end:
                    end = i + 1
            if not chunk.strip(b"\0"):
                break
        if end > first:
            return end
    return files.starts[0] // ENTRY_BYTES if files.starts else 0


def first_written(read: ReadEntries, first: int, end: int) -> int:
    """The first queue offset in [first, end) that is not a blank, which stands before a queue's first entry."""
    while first < end:
        blank_count = 0
        for offset, size, _ in ENTRY.iter_unpack(read(first, min(_FEW_ENTRIES, end - first))):
            if size != BLANK_SIZE or offset:
                return first + blank_count
            blank_count += 1
        if not blank_count:
            break
        first += blank_count
    return first
