"""How gRPC puts messages on a stream of HTTP/2: five bytes before each, a timeout as text, a status at the end.

Inside a message protobuf has fields, one after the other; `has_more_fields` counts them before they are decoded.
"""

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from lockstep.protocol.errors import FrameError, short_text

__all__ = [
    "GrpcStatus",
    "MessageReader",
    "Nested",
    "encode_message",
    "encode_text",
    "has_more_fields",
    "parse_timeout_ms",
]

_HEAD: Final = struct.Struct(">BI")  # whether it is compressed, its length
_HEAD_BYTES: Final = _HEAD.size
_DIGITS_MAX: Final = 8
_MS_OF_UNIT: Final = {"H": 3_600_000.0, "M": 60_000.0, "S": 1000.0, "m": 1.0, "u": 1e-3, "n": 1e-6}

# A field of protobuf: its key, a varint with its type in the last three bits, and then what the type says.
_TYPE_BITS: Final = 7
_VARINT, _LENGTH = 0, 2
_VARINT_BYTES_MAX: Final = 10
_BYTES_OF_TYPE: Final = {1: 8, 5: 4}  # others have none: each field inside a group counts by itself


Nested = Mapping[int, "Nested"]


class GrpcStatus(IntEnum):
    """How a call ends. Source: gRPC's doc/statuscodes.md."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class MessageReader:
    """Takes the bytes of one direction of a call, and gives its messages.

    Attributes:
        waiting_bytes: Those of a message that is not whole yet.

    Args:
        bytes_max: Of one message.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self.waiting_bytes = 0

    def receive(self, data: bytes) -> list[bytes]:
        """The messages that are whole now. Raises FrameError for one that is too long or compressed."""
        if self._parts:
            # Joined only when it can matter: a long message comes in hundreds of parts.
            self._parts.append(data)
            self.waiting_bytes += len(data)
            if self.waiting_bytes < _HEAD_BYTES or self.waiting_bytes < self._wanted():
                return []
            data = b"".join(self._parts)
        messages, at = list[bytes](), 0
        while len(data) - at >= _HEAD_BYTES:
            end = at + self._size_of(data, at)
            if end > len(data):
                break
            messages.append(data[at + _HEAD_BYTES : end])
            at = end
        self._parts = [data[at:]] if at < len(data) else []
        self.waiting_bytes = len(data) - at
        return messages

    def _wanted(self) -> int:
        if len(self._parts[0]) < _HEAD_BYTES:
            self._parts = [b"".join(self._parts)]
        return self._size_of(self._parts[0], 0) if len(self._parts[0]) >= _HEAD_BYTES else 0

    def _size_of(self, data: bytes, at: int) -> int:
        compressed, length = _HEAD.unpack_from(data, at)
        if compressed:
            raise FrameError("a message is compressed, which no client was offered")
        if length > self._bytes_max:
            raise FrameError(f"a message has {length} bytes; at most {self._bytes_max} are allowed")
        return _HEAD_BYTES + int(length)


def encode_message(data: bytes) -> bytes:
    """One message as it stands on a stream."""
    return _HEAD.pack(0, len(data)) + data


def parse_timeout_ms(text: str) -> int:
    """The milliseconds of a `grpc-timeout`, such as "2998568u". Raises FrameError."""
    digits, unit = text[:-1], text[-1:]
    if unit not in _MS_OF_UNIT or not (digits.isascii() and digits.isdecimal()) or len(digits) > _DIGITS_MAX:
        raise FrameError(f"{short_text(text)} is no timeout")
    return int(int(digits) * _MS_OF_UNIT[unit])


def encode_text(text: str) -> str:
    """The text of a status as `grpc-message` has it: printable ASCII, other bytes and % as %XX."""
    data = text.encode("utf-8", "replace")
    return "".join(chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}" for byte in data)


def has_more_fields(data: bytes, fields_max: int, inside: Nested | None = None) -> bool:
    """Whether a message of protobuf has over `fields_max` fields.

    One that cannot be read has no more than those before the fault: decoding it refuses it.

    Args:
        inside: The numbers of those fields whose own fields count too, and the same of each.
    """
    at, end, inside, around = 0, len(data), inside or {}, list[tuple[int, Nested]]()
    # A field has a byte at least.
    if end <= fields_max:
        return False
    try:
        for _ in range(fields_max):
            while at >= end and around:
                end, inside = around.pop()
            key, at = _varint(data, at)
            kind = key & _TYPE_BITS
            if kind == _LENGTH:
                size, at = _varint(data, at)
                within = inside.get(key >> 3)
                if within is None:
                    at += size
                else:
                    around.append((end, inside))
                    end, inside = at + size, within
            elif kind == _VARINT:
                _, at = _varint(data, at)
            else:
                at += _BYTES_OF_TYPE.get(kind, 0)
    except IndexError:
        return False  # this was the end, or a number does not end
    return at < len(data)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number there, and where it ends. Raises IndexError for none."""
    number = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise IndexError
