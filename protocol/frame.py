"""Frames on a byte stream: `total(4) | header type(1) header length(3) | header | body` (wire.md 1.1).

The decoder accepts any split of the bytes. It collects pieces in a list until a frame is complete, so a large frame in
many small pieces costs linear time. A frame that arrives in one piece is copied only once.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from lockstep.protocol.codes import FRAME_BYTES_MAX, SerializeType
from lockstep.protocol.errors import FrameError, LocalProtocolError
from lockstep.protocol.tuples import new_tuple

__all__ = ["Frame", "FrameDecoder", "encode_frame_head"]

_LENGTHS = struct.Struct(">II")
_LENGTH = struct.Struct(">I")
# Record type "handshake" and major version, where a frame's length would stand.
_TLS_HELLO = 0x1603
_HTTP = (b"HTTP", b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN")
_TYPES = frozenset(int(t) for t in SerializeType)
# Smaller pieces are joined: an object for each costs more than its bytes.
_SMALL_PIECE_BYTES = 4096


class Frame(NamedTuple):
    serialize_type: int
    header: bytes
    body: bytes


def encode_frame_head(serialize_type: int, header: bytes, body_bytes: int) -> bytes:
    """The bytes of a frame before its body. Raises LocalProtocolError if the frame is longer than 16 MiB."""
    total = 4 + len(header) + body_bytes
    if total > FRAME_BYTES_MAX:
        raise LocalProtocolError(f"a frame of {total} bytes is over the limit of {FRAME_BYTES_MAX}")
    return _LENGTHS.pack(total, serialize_type << 24 | len(header)) + header


class FrameDecoder:
    """Splits a byte stream into frames. Call `feed(data)`, then `frames()`, or `next_frame()` until it returns None.

    `buffered_bytes` is the number of bytes that were fed but not returned in a frame.
    """

    __slots__ = ("_buffer", "_need", "_pieces", "_position", "buffered_bytes", "frame_bytes_max", "header_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, header_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.header_bytes_max = header_bytes_max
        self._buffer = b""  # complete frames and the start of the next one ...
        self._position = 0
        self._pieces: list[bytes | bytearray] = []  # ... and later pieces, until `_need` bytes have arrived
        self._need = 0
        self.buffered_bytes = 0

    def feed(self, data: bytes) -> None:
        self.buffered_bytes += len(data)
        if self._pieces:
            # Pieces are joined once, when the frame is whole: to join at each read would copy a large frame again and
            # again.
            if len(data) >= _SMALL_PIECE_BYTES:
                self._pieces.append(data)
            elif type(last := self._pieces[-1]) is bytearray:
                last += data
            else:
                self._pieces.append(bytearray(data))
        elif self._position == len(self._buffer):
            self._buffer = data
            self._position = 0
        else:
            rest = self._buffer[self._position :]
            self._pieces = [rest, data]
            self._buffer = b""
            self._position = 0

    def clear(self) -> None:
        """Discard the bytes that were not returned in a frame."""
        self._buffer, self._position = b"", 0
        self._pieces = []
        self.buffered_bytes = self._need = 0

    def unread(self) -> tuple[bytes, int]:
        """The bytes that wait, and where the next frame begins in them. Not enough bytes for a frame may be hidden."""
        if self._pieces and self.buffered_bytes >= self._need:
            self._buffer = b"".join(self._pieces)
            self._position = 0
            self._pieces = []
            self._need = 0
        return self._buffer, self._position

    def skip_to(self, position: int) -> None:
        """The frames of `unread` that end at `position` were read elsewhere."""
        self.buffered_bytes -= position - self._position
        self._position = position
        if position == len(self._buffer):
            # As in `frames`.
            self._buffer = b""
            self._position = 0

    def next_frame(self) -> Frame | None:
        """The next complete frame, or None if more bytes are needed. Raises like `frames`."""
        return next(self.frames(), None)

    def frames(self) -> Iterator[Frame]:
        """Yield the complete frames. Frames that the caller does not take stay for the next call.

        Raises:
            FrameError: The bytes can never be a frame: the length is below 4 or over the limit, the header is longer
                than its frame or over its limit, or the header type is unknown. The first eight bytes are enough.
        """
        buffer, start = self.unread() if self._pieces else (self._buffer, self._position)
        end_of_buffer = len(buffer)
        while end_of_buffer - start >= 8:
            total, word = _LENGTHS.unpack_from(buffer, start)
            if not 4 <= total <= self.frame_bytes_max:
                raise self._bad_total(total)
            header_type, header_length = word >> 24, word & 0xFFFFFF
            if header_type not in _TYPES or header_length > total - 4 or header_length > self.header_bytes_max:
                raise self._bad_header(total, header_type, header_length)
            end = start + 4 + total
            if end > end_of_buffer:
                self._need = total + 4
                return
            body_start = start + 8 + header_length
            header = buffer[start + 8 : body_start]
            # Before the yield: the caller may stop here, and the next call must go on behind this frame.
            self._position = start = end
            self.buffered_bytes = end_of_buffer - end
            yield new_tuple(Frame, (header_type, header, buffer[body_start:end]))
        if start == end_of_buffer:
            # Do not keep a large frame in memory until the next one comes.
            self._buffer = b""
            self._position = 0
        elif end_of_buffer - start >= 4:
            total = _LENGTH.unpack_from(buffer, start)[0]
            if not 4 <= total <= self.frame_bytes_max:
                raise self._bad_total(total)
            # Until the first eight bytes are there, nothing is joined or looked at.
            self._need = 8
        elif end_of_buffer > start:
            self._need = 4

    def _bad_total(self, total: int) -> FrameError:
        if total >> 16 == _TLS_HELLO:
            return FrameError("the peer begins a TLS handshake; TLS is not supported, only plain TCP")
        if total.to_bytes(4, "big", signed=total < 0) in _HTTP:
            return FrameError(f"the peer speaks HTTP, another protocol: its first bytes are a frame length of {total}")
        return FrameError(f"a frame length of {total} is outside 4..{self.frame_bytes_max}")

    def _bad_header(self, total: int, header_type: int, header_length: int) -> FrameError:
        if header_type not in _TYPES:
            return FrameError(f"header type {header_type} is not one of 0 (JSON), 1 (ROCKETMQ), 2 (MSGPACK)")
        if header_length > total - 4:
            return FrameError(f"a header of {header_length} bytes does not fit a frame of {total}")
        return FrameError(f"a header of {header_length} bytes is over the limit of {self.header_bytes_max}")
