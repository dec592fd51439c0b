"""Retention: which files of the log expire by age, size or disk usage (fileReservedTime and others).

Expiry takes five steps, so that requests do not wait for the disk: choose the files (event loop), find the first entry
to keep of each queue (thread), move the bounds of the queues, some in one go (event loop), move those of log and keys
(event loop), delete the files (thread).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, Self

from lockstep.remoting.host.storage import Storage
from lockstep.store.file.store import FileStore
from lockstep.store.format.consume_queue import next_log_offset, read_entries
from lockstep.store.segments.log import FileLog
from lockstep.store.segments.queue import FileQueue
from lockstep.store.segments.segments import Segments

__all__ = ["DeletionPlan", "Retention", "RetentionLimits", "delete_files", "first_kept"]

_INTERVAL_MS: Final = 10_000
_FILES_AT_ONCE_MAX: Final = 10
_ALL: Final = 100  # percent
_MS_PER_HOUR: Final = 3_600_000
_HOURS: Final = 24


class RetentionLimits(NamedTuple):
    """Limits of a store.

    Attributes:
        delete_hours: Hours of the day, UTC, in which files expire by age.
        data_bytes_max: Size of the log; 0 is no limit.
        disk_used_ratio_max: Percent of the file system; 0 is no limit.
    """

    reserved_ms: int
    delete_hours: tuple[int, ...]
    data_bytes_max: int
    disk_used_ratio_max: int


class _Snapshot(NamedTuple):
    """The files of a queue and the range of the entries in them, for use on a thread."""

    segments: Segments
    first: int
    end: int

    @classmethod
    def of(cls, queue: FileQueue) -> Self:
        """May run on a thread: the files are taken last, so that all these entries are in them."""
        first, end = queue.min_offset, queue.written_end
        return cls(queue.segments.twin(), first, end)


class DeletionPlan(NamedTuple):
    """`log_offset`: the new beginning of the log. `files`: (path, reason) of each expired file, oldest first."""

    log_offset: int
    files: Sequence[tuple[str, str]]
    queues: Sequence[FileQueue]


class Retention:
    """Checks every 10 s. Whole files expire, oldest first, never the active one."""

    def __init__(self, limits: Callable[[], RetentionLimits]) -> None:
        self._limits = limits
        self._next_ms = 0

    def plan(self, store: FileStore, now_ms: int) -> DeletionPlan | None:
        """None when no file has expired, or the last check was less than 10 s ago. Raises OSError."""
        if now_ms < self._next_ms:
            return None
        self._next_ms = now_ms + _INTERVAL_MS
        due = list(self._due(store, self._limits(), now_ms))[:_FILES_AT_ONCE_MAX]
        if not due:
            return None
        segments = store.log.segments
        files = [(segments.path_of(end - 1), reason) for end, reason in due if segments.has(end - 1)]
        return DeletionPlan(due[-1][0], files, list(store.queues.values()))

    def _due(self, store: FileStore, limits: RetentionLimits, now_ms: int) -> Iterator[tuple[int, str]]:
        """(end of a file, reason) of each expired file, oldest first."""
        log = store.log
        is_time = now_ms // _MS_PER_HOUR % _HOURS in limits.delete_hours
        space = store.storage.space(log.segments.folder) if log.segments.starts else None
        freed_bytes = 0
        for start, end in log.file_ends():
            oldest_kept_ms = _stored_ms(log, end, now_ms) if is_time else now_ms
            over_bytes = log.max_offset - start - limits.data_bytes_max
            used = space.total_bytes - space.free_bytes - freed_bytes if space else 0
            if is_time and now_ms - oldest_kept_ms > limits.reserved_ms:
                reason = "older than fileReservedTime"
            elif limits.data_bytes_max and over_bytes > 0:
                reason = "the log is larger than data_bytes_max"
            elif space and limits.disk_used_ratio_max and used * _ALL > limits.disk_used_ratio_max * space.total_bytes:
                reason = "the disk is fuller than diskMaxUsedSpaceRatio"
            else:
                return
            freed_bytes += end - start
            yield end, reason


def _stored_ms(log: FileLog, end: int, now_ms: int) -> int:
    """Epoch ms when the first message behind a file was stored; `now_ms` if no later file begins with a message.

    A damaged file tells no time, so its messages count as new.
    """
    for start in log.segments.starts:
        if end <= start and log.message_at(start) is not None:
            return log.store_timestamp(start)
    return now_ms


def first_kept(plan: DeletionPlan) -> list[int]:
    """The first entry to keep of each queue. Runs on a worker thread. Raises OSError."""
    found = []
    for queue in plan.queues:
        look = _Snapshot.of(queue)
        try:
            entries = range(look.first, look.end)
            read = partial(read_entries, look.segments)
            at = bisect_left(entries, plan.log_offset, key=partial(next_log_offset, read, look.end))
            found.append(look.first + at)
        except FileNotFoundError:
            found.append(look.first)  # its topic was deleted meanwhile
        finally:
            look.segments.close()
    return found


def delete_files(storage: Storage, paths: Sequence[str]) -> list[str]:
    """Delete the files in this order, up to the first failure. Runs on a worker thread.

    Returns the paths that no longer exist. Raises OSError when it could delete none.
    """
    gone: list[str] = []
    for path in paths:
        try:
            storage.delete(path)
        except FileNotFoundError:
            pass  # another process deleted it
        except OSError:
            if not gone:
                raise
            break
        gone.append(path)
    return gone
