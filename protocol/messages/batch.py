"""The body of SEND_BATCH_MESSAGE: consecutive messages for one queue (wire.md 4.4).

size i | magic i | crc i | flag i | bodyLength i | body | propertiesLength h | properties
"""

import struct
from typing import Final, NamedTuple

from lockstep.protocol.errors import BatchTooLong, BodyError

__all__ = ["BatchRecord", "decode_batch", "encode_batch", "encode_batch_record"]

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")
_OVERHEAD_BYTES: Final = _HEAD.size + _SHORT.size


class BatchRecord(NamedTuple):
    """One message inside a SEND_BATCH_MESSAGE body (wire.md 4.4)."""

    flag: int
    body: bytes
    properties: str


def encode_batch_record(flag: int, body: bytes, properties: bytes) -> bytes:
    """Encode one message of a batch. Raises struct.error if the properties have more than 32767 bytes."""
    size = _OVERHEAD_BYTES + len(body) + len(properties)
    head = _HEAD.pack(size, 0, 0, flag, len(body))
    return b"".join((head, body, _SHORT.pack(len(properties)), properties))


def encode_batch(records: list[BatchRecord]) -> bytes:
    """Encode a batch. Lone surrogates become question marks. Raises struct.error for properties over 32767 bytes."""
    return b"".join([encode_batch_record(flag, body, text.encode("utf-8", "replace")) for flag, body, text in records])


def decode_batch(blob: bytes, records_max: int | None = None) -> list[BatchRecord]:
    """Decode a batch. Raises BodyError if it has no record or a damaged one, BatchTooLong above `records_max`."""
    records = []
    position, end = 0, len(blob)
    try:
        while position < end:
            size, _magic, _crc, flag, body_bytes = _HEAD.unpack_from(blob, position)
            body_start = position + _HEAD.size
            body_end = body_start + body_bytes
            (properties_bytes,) = _SHORT.unpack_from(blob, body_end) if body_bytes >= 0 else (-1,)
            if properties_bytes < 0 or body_end + 2 + properties_bytes != position + size or position + size > end:
                raise BodyError(f"batch record at byte {position}: its lengths do not add up to {size}")
            text = blob[body_end + 2 : position + size].decode("utf-8", "replace")
            records.append(BatchRecord(flag, blob[body_start:body_end], text))
            position += size
            if len(records) == records_max and position < end:
                raise BatchTooLong(f"a batch may hold at most {records_max} messages (batch_messages_max)")
    except struct.error as error:
        raise BodyError(f"batch record at byte {position}: {error}") from None
    if not records:
        raise BodyError("a batch holds at least one message")
    return records
