"""What a store's small files claim of its log and queues, to be held against them (docs/store.md)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from lockstep.protocol.bodies.config import TopicConfigWrapper
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.names import HALF_TOPIC, OP_HALF_TOPIC, SCHEDULE_TOPIC, TRANSACTION_GIVEN_UP_TOPIC
from lockstep.remoting.storage import Storage
from lockstep.store.check.files import Damage, FileRun, list_or_none, queue_runs, read_config
from lockstep.store.format.layout import (
    ABORT,
    CHECKPOINT,
    CONFIG,
    ENTRY,
    ENTRY_BYTES,
    LOG_BEGIN,
    Checkpoint,
    decode_checkpoint,
    decode_log_begin,
)
from lockstep.store.format.record import LogRecord

__all__ = ["StoreClaims"]

_SLACK_MS: Final = 3000  # for clocks that step, as RocketMQ has it
_NEVER_DELETED: Final = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_GIVEN_UP_TOPIC})
_DATE_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999


@dataclass(frozen=True)
class StoreClaims:
    """`queue_counts`: of each topic, how many queues; None when no file says it.

    `log_begin`: where the log begins since its oldest files were deleted; None when that is not known.

    `entries_missing`: the queues have not as many entries as the checkpoint counts; None when it counts none.
    """

    checkpoint: Checkpoint
    crashed: bool
    log_begin: int | None
    queue_counts: Mapping[str, int] | None
    entries_missing: bool | None

    @classmethod
    def read(cls, storage: Storage, root: str) -> Self:
        """Raises OSError."""
        try:
            checkpoint = decode_checkpoint(storage.read_file(f"{root}/{CHECKPOINT}"))
        except FileNotFoundError:
            checkpoint = decode_checkpoint(b"")
        of_apache = checkpoint.log_offset is None and any(checkpoint[:3])  # it deletes old files without a word
        return cls(
            checkpoint,
            ABORT in list_or_none(storage, root),
            None if of_apache else _log_begin(storage, root),
            _queue_counts(storage, root),
            _entries_missing(storage, root, checkpoint),
        )

    def missing_files(self, log: FileRun) -> Iterator[Damage]:
        """Files of the log before the first that is there, which were not deleted for their age."""
        if self.log_begin is None or not log.starts:
            return
        begin = self.log_begin - self.log_begin % log.file_bytes
        for start in range(begin, log.starts[0], log.file_bytes):
            yield Damage(log.name(start), 0, "is missing: the log began there, and nobody deleted it for its age")

    def has_queue_of(self, record: LogRecord) -> bool:
        """Is the queue of this message claimed to be there? Not when its topic was deleted, or a crash may have come
        before its files were on the disk.
        """
        counts = self.queue_counts
        if counts is not None and record.topic not in _NEVER_DELETED and record.queue_id >= counts.get(record.topic, 0):
            return False
        if self.entries_missing is not None:
            assert self.checkpoint.log_offset is not None, "it counts entries up to there"
            return self.entries_missing and record.offset < self.checkpoint.log_offset
        safe_ms = min(self.checkpoint.log_timestamp, self.checkpoint.queue_timestamp) - _SLACK_MS
        return not self.crashed or record.store_timestamp <= safe_ms

    def later_than(self, newest_ms: int) -> Iterator[Damage]:
        """A checkpoint of messages that were stored later than all that there are. Without any the log says enough."""
        says_ms = max(self.checkpoint.log_timestamp, self.checkpoint.queue_timestamp)
        if newest_ms and says_ms > newest_ms + _SLACK_MS:
            text = f"is of messages stored until {_date(says_ms)}, but the newest is of {_date(newest_ms)}"
            yield Damage(CHECKPOINT, 0, text)


def _log_begin(storage: Storage, root: str) -> int | None:
    try:
        return decode_log_begin(storage.read_file(f"{root}/{CONFIG}/{LOG_BEGIN}"))
    except FileNotFoundError:
        return None


def _queue_counts(storage: Storage, root: str) -> dict[str, int] | None:
    try:
        table = read_config(storage, root, "topics.json")
    except (FileNotFoundError, ProtocolError):
        return None
    assert isinstance(table, TopicConfigWrapper)
    return {one.topic_name: max(one.read_queue_nums, one.write_queue_nums) for one in table.topics}


def _entries_missing(storage: Storage, root: str, checkpoint: Checkpoint) -> bool | None:
    if checkpoint.log_offset is None:
        return None
    ends = [_end_below(run, checkpoint.log_offset) for _, _, run in queue_runs(storage, root)]
    return sum(ends) != checkpoint.entry_count


def _end_below(run: FileRun, log_offset: int) -> int:
    """The queue offset behind the last entry of a message that stands below `log_offset`."""
    try:
        for start, size in reversed(list(zip(run.starts, run.sizes, strict=True))):
            data = run.read(start, 0, size - size % ENTRY_BYTES)
            entries = list(ENTRY.iter_unpack(data.rstrip(b"\0") + bytes(-len(data.rstrip(b"\0")) % ENTRY_BYTES)))
            for at in range(len(entries) - 1, -1, -1):
                offset, size_bytes, _ = entries[at]
                if size_bytes > 0 and offset < log_offset:
                    return start // ENTRY_BYTES + at + 1
        return run.starts[0] // ENTRY_BYTES if run.starts else 0
    finally:
        run.close()


def _date(epoch_ms: int) -> str:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=min(max(0, epoch_ms), _DATE_MS_MAX))
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
