"""What a sync that failed leaves behind (docs/store.md): nobody knows what the disk has, nor what the system kept.

The system may count the pages as written, and read them back from the disk as they were before. So what is not safe is
looked at as after a crash, and only when every message of it is whole is it handed over once more.
"""

from typing import Final

from lockstep.store.file.segments import Segments
from lockstep.store.format.log_records import LogScan
from lockstep.store.format.record import is_torn

__all__ = ["LogInDoubt", "copy_over", "write_again"]

_COPY_BYTES: Final = 4 * 1024 * 1024


class LogInDoubt(Exception):
    """Messages that were taken cannot be read back; the text says where, and why."""


def write_again(segments: Segments, start: int, end: int) -> None:
    """Whole messages in [start, end) are written once more, to be synced. Raises LogInDoubt and OSError."""
    scan = LogScan(segments, start, end)
    for record in scan:
        if is_torn(record, segments.position_in_file(record.offset)):
            scan.reason = "a part of its properties is zeros"
            break
    if scan.position < end:
        at = scan.position
        raise LogInDoubt(f"{segments.path_of(at)}, byte {segments.position_in_file(at)}: {scan.reason}")
    copy_over(segments, start, end)


def copy_over(segments: Segments, start: int, end: int) -> None:
    """Hand these bytes to the operating system once more, as they are read. Raises OSError."""
    for piece_start, piece_end in segments.pieces(start, end):
        for at in range(piece_start, piece_end, _COPY_BYTES):
            segments.write(at, segments.read(at, min(_COPY_BYTES, piece_end - at)))
