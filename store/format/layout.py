"""What stands in the files of RocketMQ's store: names, entries, marks and the checkpoint (wire.md 5 and 8.4).

commitlog/00000000000000000000      messages back to back; the name is the offset of the first byte
consumequeue/TOPIC/QUEUE/000...000  entries of 20 bytes; the name is the position of the first byte
index/20261121000000000             keys; the name is the time when the file was begun
config/*.json, each with a .bak     topics, groups, offsets
config/logBegin.json                ours: where the log begins since its oldest files were deleted
checkpoint, abort, lock             up to when all is on disk; a broker runs or has crashed; who has it open
"""

import json
import struct
import zlib
from typing import Final, NamedTuple

__all__ = [
    "ABORT",
    "BLANK_SIZE",
    "CHECKPOINT",
    "CHECKPOINT_BYTES",
    "CHECKPOINT_TIMES_BYTES",
    "COMMIT_LOG",
    "CONFIG",
    "CONSUME_QUEUE",
    "ENTRY",
    "ENTRY_BYTES",
    "FILE_END_BYTES",
    "INDEX",
    "LOCK",
    "LOG_BEGIN",
    "PADDING_MAGIC",
    "PRE_BLANK",
    "Checkpoint",
    "decode_checkpoint",
    "decode_log_begin",
    "encode_checkpoint",
    "encode_log_begin",
    "encode_padding",
    "file_name",
    "parse_file_name",
]

COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"
INDEX: Final = "index"
CONFIG: Final = "config"
CHECKPOINT: Final = "checkpoint"
ABORT: Final = "abort"
LOCK: Final = "lock"
LOG_BEGIN: Final = "logBegin.json"

_NAME_DIGITS: Final = 20
ENTRY: Final = struct.Struct(">qiq")  # commit log offset, size in bytes, tag hash or time of delivery
ENTRY_BYTES: Final = ENTRY.size
BLANK_SIZE: Final = 0x7FFFFFFF
PRE_BLANK: Final = ENTRY.pack(0, BLANK_SIZE, 0)  # fills a queue's first file before its first entry
PADDING_MAGIC: Final = 0xCBD43194
_PADDING: Final = struct.Struct(">iI")
FILE_END_BYTES: Final = _PADDING.size  # every file of the log keeps room for the mark that ends it

CHECKPOINT_BYTES: Final = 4096
_TIMES: Final = struct.Struct(">qqq")
CHECKPOINT_TIMES_BYTES: Final = _TIMES.size
_POSITION: Final = struct.Struct(">8sqqqqqqI")
_POSITION_AT: Final = CHECKPOINT_BYTES - _POSITION.size
_POSITION_MARK: Final = b"LOCKSTEP"
_SLACK_MS: Final = 3000  # RocketMQ's own, for clocks that step


def file_name(position: int) -> str:
    """ "00000000001073741824": twenty digits."""
    return f"{position:0{_NAME_DIGITS}d}"


def parse_file_name(name: str) -> int | None:
    """None for what is no name of a file of messages or entries."""
    return int(name) if len(name) == _NAME_DIGITS and name.isascii() and name.isdecimal() else None


def encode_padding(size_bytes: int) -> bytes:
    """The mark behind a file's last message: how far it is to the end of the file. What follows it means nothing."""
    return _PADDING.pack(size_bytes, PADDING_MAGIC)


class Checkpoint(NamedTuple):
    """Up to which store times (epoch ms) messages, queues and keys are on disk.

    The rest is ours: up to where in the log messages and queues are on disk, up to where keys are, and how many entries
    the queues have up to there. None when Apache's broker was the last that wrote the file: it knows nothing of them.
    """

    log_timestamp: int
    queue_timestamp: int
    index_timestamp: int
    log_offset: int | None = None
    index_offset: int | None = None
    entry_count: int | None = None

    @property
    def is_of_apache(self) -> bool:
        """Apache's broker wrote it last."""
        return self.log_offset is None and any(self[:3])

    @property
    def safe_ms(self) -> int:
        """Messages that were stored until then are on the disk, with the entries of their queues."""
        return min(self.log_timestamp, self.queue_timestamp) - _SLACK_MS

    def is_ahead_of(self, last_ms: int) -> bool:
        """Does it report messages newer than the newest one, which was stored at `last_ms`?

        Then these are lost, or the times were never true; its times of queues and keys cannot be used either.
        """
        return max(self.log_timestamp, self.queue_timestamp) > last_ms + _SLACK_MS


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """RocketMQ's three times; at the end of the page our offsets, with a copy of the times that they belong to."""
    page = bytearray(CHECKPOINT_BYTES)
    times = checkpoint[:3]
    _TIMES.pack_into(page, 0, *times)
    if checkpoint.log_offset is not None:
        values = (
            _POSITION_MARK,
            *times,
            checkpoint.log_offset,
            checkpoint.index_offset or 0,
            checkpoint.entry_count or 0,
        )
        crc = zlib.crc32(_POSITION.pack(*values, 0))
        _POSITION.pack_into(page, _POSITION_AT, *values, crc)
    return bytes(page)


def decode_checkpoint(page: bytes) -> Checkpoint:
    """Bytes that are missing count as zero. Offsets that are damaged, or of other times, count as not there."""
    page = page[:CHECKPOINT_BYTES].ljust(CHECKPOINT_BYTES, b"\0")
    times = _TIMES.unpack_from(page, 0)
    mark, *values, crc = _POSITION.unpack_from(page, _POSITION_AT)
    good = mark == _POSITION_MARK and crc == zlib.crc32(_POSITION.pack(mark, *values, 0))
    if not good or tuple(values[:3]) != times or min(values[3:]) < 0:
        return Checkpoint(*times)
    return Checkpoint(*times, *values[3:])


def encode_log_begin(offset: int) -> bytes:
    """The content of `logBegin.json`."""
    return json.dumps({"logOffset": offset}).encode()


def decode_log_begin(content: bytes) -> int | None:
    """None for what is no such file."""
    try:
        offset = json.loads(content)["logOffset"]
    except (ValueError, TypeError, KeyError):
        return None
    return offset if isinstance(offset, int) and offset >= 0 else None
