"""Checks and parses messages in the files of the log (wire.md 5)."""

import struct
import zlib
from typing import Final, NamedTuple

from lockstep.protocol.codes import SysFlag
from lockstep.protocol.messages.message import MESSAGE_MAGIC, MESSAGE_OVERHEAD_BYTES

__all__ = ["STORED_AT_BYTES", "LogRecord", "is_torn", "parse_record", "size_at", "stored_at"]

_HEAD: Final = struct.Struct(">iIii4xqqi")  # size, magic, crc, queue id, queue offset, log offset, sysFlag
_FIXED: Final = struct.Struct(">iIii4xqqi16xq20xi")  # these, storeTimestamp, length of the body; for hosts of 4 bytes
_STAMP: Final = struct.Struct(">36xi16xq4xq")  # sysFlag; storeTimestamp behind a bornHost of 4 bytes, and of 16
_LONG: Final = struct.Struct(">q")
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")
_BORN_V6: Final = int(SysFlag.BORN_HOST_V6)
_STORE_V6: Final = int(SysFlag.STORE_HOST_V6)
_ANY_V6: Final = _BORN_V6 | _STORE_V6
_V6_MORE_BYTES: Final = 12
_STORE_TIMESTAMP_AT: Final = 56
_CRC_MASK: Final = 0x7FFFFFFF
_SECTOR_BYTES: Final = 512
STORED_AT_BYTES: Final = _STAMP.size


def size_at(head: bytes, offset: int, size_max: int) -> int | None:
    """The size of the message that begins at commit log offset `offset`; None when none of at most `size_max` does.

    Args:
        head: Its first bytes, as many as the smallest message has.
    """
    size, magic, _, _, _, stands_at, _ = _HEAD.unpack_from(head)
    fits = magic == MESSAGE_MAGIC and stands_at == offset and MESSAGE_OVERHEAD_BYTES <= size <= size_max
    return size if fits else None


def stored_at(head: bytes) -> int:
    """Epoch ms when a message was stored, by its first `STORED_AT_BYTES` bytes; 0 where they are cut off."""
    if len(head) < STORED_AT_BYTES:
        return 0
    sys_flag, behind_v4, behind_v6 = _STAMP.unpack(head)
    timestamp: int = behind_v6 if sys_flag & _BORN_V6 else behind_v4
    return timestamp


class LogRecord(NamedTuple):
    """The fields of a message that the store uses. `text_at`: the position of the topic's length in the message."""

    offset: int
    size_bytes: int
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_timestamp: int
    topic: str
    properties: bytes
    text_at: int

    def is_of(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        return (self.queue_offset, self.queue_id, self.topic) == (queue_offset, queue_id, topic)


def parse_record(buffer: bytes, at: int, offset: int) -> LogRecord | str:
    """The message at position `at` of the buffer, which is commit log offset `offset`; or text why there is none."""
    if len(buffer) - at < MESSAGE_OVERHEAD_BYTES:
        return "the file ends within a message"
    fixed = _FIXED.unpack_from(buffer, at)
    size, magic, crc, queue_id, queue_offset, stands_at, sys_flag, stored_ms, body_bytes = fixed
    if magic != MESSAGE_MAGIC:
        return "no message begins here" if magic or size else "nothing was written here"
    if stands_at != offset:
        return f"the message has offset {stands_at}, which is not its place"
    if not MESSAGE_OVERHEAD_BYTES <= size <= len(buffer) - at:
        return f"a message of {size} bytes does not fit"
    body_at = at + _FIXED.size
    if sys_flag & _ANY_V6:
        more = _V6_MORE_BYTES if sys_flag & _BORN_V6 else 0
        (stored_ms,) = _LONG.unpack_from(buffer, at + _STORE_TIMESTAMP_AT + more)
        body_at += more + (_V6_MORE_BYTES if sys_flag & _STORE_V6 else 0)
        if body_at > at + size:
            return f"a message of {size} bytes has no room for the addresses that its flags tell of"
        (body_bytes,) = _INT.unpack_from(buffer, body_at - _INT.size)
    text_at = body_at + body_bytes
    end = at + size
    if body_bytes < 0 or text_at + 3 > end:
        return f"a body of {body_bytes} bytes does not fit into a message of {size}"
    properties_at = text_at + 3 + buffer[text_at]
    if properties_at > end or properties_at + _SHORT.unpack_from(buffer, properties_at - 2)[0] != end:
        return "topic and properties do not end where the message does"
    if zlib.crc32(buffer[body_at:text_at]) & _CRC_MASK != crc:
        return "the CRC of the body is wrong"
    try:
        topic = buffer[text_at + 1 : properties_at - 2].decode()
    except UnicodeDecodeError:
        return "the topic is no UTF-8"
    if not topic or "\0" in topic or "/" in topic or queue_id < 0 or queue_offset < 0:
        return f"topic {topic!r}, queue {queue_id} and offset {queue_offset} are not valid"
    properties = buffer[properties_at:end]
    return LogRecord(offset, size, queue_id, queue_offset, sys_flag, stored_ms, topic, properties, text_at - at)


def is_torn(record: LogRecord, file_position: int) -> bool:
    """Did a part of the properties not reach the disk? No CRC covers them.

    Such a part is zeros: up to the end of the message, or all bytes of one sector.
    """
    properties = record.properties
    if not properties or b"\0" not in properties:
        return False
    if properties[-1] == 0:
        return True
    start = file_position + record.size_bytes - len(properties)
    first = start - start % _SECTOR_BYTES
    for sector in range(first, start + len(properties), _SECTOR_BYTES):
        piece = properties[max(0, sector - start) : max(0, sector + _SECTOR_BYTES - start)]
        if piece and not piece.strip(b"\0"):
            return True
    return False
