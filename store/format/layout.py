"""The layout of RocketMQ's store: file names, queue entries, padding and the checkpoint (wire.md 5 and 8.4).

commitlog/00000000000000000000      messages back to back; the name is the offset of the first byte
consumequeue/TOPIC/QUEUE/000...000  entries of 20 bytes; the name is the position of the first byte
index/20261121000000000             keys; the name is the time when the file was begun
config/*.json, each with a .bak     topics, groups, offsets
config/logBegin.json                ours: where the log begins since its oldest files were deleted
conf/plain_acl.yml                  accounts, which an operator may put there before the first start
checkpoint                          up to when messages, queues and keys are on the disk
abort                               exists while a broker runs, and after a crash
lock                                held by the process that has the store open
"""

import json
import struct
import zlib
from typing import Final, NamedTuple

from lockstep.protocol.kernels import ENTRY

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
    "RULES",
    "RULES_FILE",
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
RULES: Final = "conf"
RULES_FILE: Final = f"{RULES}/plain_acl.yml"

_NAME_DIGITS: Final = 20
ENTRY_BYTES: Final = ENTRY.size
BLANK_SIZE: Final = 0x7FFFFFFF
PRE_BLANK: Final = ENTRY.pack(0, BLANK_SIZE, 0)  # fills a queue's first file before its first entry
PADDING_MAGIC: Final = 0xCBD43194
_PADDING: Final = struct.Struct(">iI")
# Each log file keeps room for its padding.
FILE_END_BYTES: Final = _PADDING.size

CHECKPOINT_BYTES: Final = 4096
_TIMES: Final = struct.Struct(">qqq")
CHECKPOINT_TIMES_BYTES: Final = _TIMES.size
_POSITION: Final = struct.Struct(">8sqqqqqqI")
_POSITION_AT: Final = CHECKPOINT_BYTES - _POSITION.size
_POSITION_MARK: Final = b"LOCKSTEP"
# RocketMQ's own, for clocks that step.
_SLACK_MS: Final = 3000


def file_name(position: int) -> str:
    """Twenty digits, for example "00000000001073741824"."""
    return f"{position:0{_NAME_DIGITS}d}"


def parse_file_name(name: str) -> int | None:
    """The position in a file name; None for other names."""
    return int(name) if len(name) == _NAME_DIGITS and name.isascii() and name.isdecimal() else None


def encode_padding(size_bytes: int) -> bytes:
    """The padding behind a file's last message: the number of bytes to the end of the file, and a magic number."""
    return _PADDING.pack(size_bytes, PADDING_MAGIC)


class Checkpoint(NamedTuple):
    """What is on the disk. The times (epoch ms) are RocketMQ's, of messages, queues and keys.

    The other fields are Lockstep's own. They are None if Apache's broker wrote the file last.

    Attributes:
        log_offset: Messages below it, and their queue entries, are on the disk.
        index_offset: Keys of messages below it are on the disk.
        entry_count: Number of queue entries of messages below `log_offset`.
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
    """RocketMQ's times at the beginning of the page, our fields at its end, with a copy of the times and a CRC."""
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
    """Missing bytes count as zeros. Our fields are None if they are damaged or belong to other times."""
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
    """None when the content is no such file."""
    try:
        offset = json.loads(content)["logOffset"]
    except (ValueError, TypeError, KeyError):
        return None
    return offset if isinstance(offset, int) and offset >= 0 else None
