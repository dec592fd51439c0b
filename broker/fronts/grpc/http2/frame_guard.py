"""Looks at the frames of HTTP/2 before h2 does: only whole frames, a few at a time, and no floods (docs/hostile.md).

A frame that costs the peer nine bytes costs h2 some ten microseconds. So one read of 256 KiB could keep the loop for
300 ms, and attacks on HTTP/2 are made of such frames: resets of calls that began just now, settings, pings, empty data.
"""

from collections.abc import Iterator
from typing import Final

from lockstep.protocol.errors import FrameError

__all__ = ["FrameGuard"]

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD_BYTES: Final = 9
_FRAME_BYTES_MAX: Final = 16_384  # HTTP/2's default, which is not raised
_DATA, _HEADERS = 0, 1
# Frames and bytes that go to h2 together: about a millisecond of work.
_FRAMES_AT_ONCE: Final = 32
_A_CALL_OF_FRAMES: Final = 8  # headers may be many
_BYTES_AT_ONCE: Final = 128 * 1024
# Frames that carry nothing. Clients send a handful for a call: acknowledgements of windows, pings of their flow
# control; at their end a reset for each call that waits, which may be one a queue.
_IDLE_FRAMES_MAX: Final = 2000
_A_SECOND: Final = 200
_A_CALL: Final = 16
_A_BYTE: Final = 1 / 256
_DATA_BYTES_MIN: Final = 16  # below it data carries nothing, but at the end of its call
_END_STREAM: Final = 1


class FrameGuard:
    """Takes the bytes of one connection, and gives whole frames.

    Attributes:
        waiting_bytes: Those that were not given yet.
    """

    def __init__(self, now_ms: int) -> None:
        self._data = bytearray()
        self._in_preface = True
        self._allowance = float(_IDLE_FRAMES_MAX)
        self._at_ms = now_ms

    @property
    def waiting_bytes(self) -> int:
        return len(self._data)

    def receive(self, data: bytes, now_ms: int) -> None:
        self._data += data
        self._allow((now_ms - self._at_ms) * _A_SECOND / 1000)
        self._at_ms = now_ms

    def answered(self) -> None:
        """A call was answered."""
        self._allow(_A_CALL)

    def _allow(self, frames: float) -> None:
        self._allowance = min(self._allowance + frames, _IDLE_FRAMES_MAX)

    def batches(self) -> Iterator[bytes]:
        """The whole frames that wait, some at a time. Raises FrameError for a flood, and for what is no HTTP/2."""
        while batch := self._next():
            yield batch

    def _next(self) -> bytes:
        data, at, count = self._data, 0, 0
        if self._in_preface:
            if not _PREFACE.startswith(data[: len(_PREFACE)]):
                raise FrameError("the connection does not begin as HTTP/2")
            if len(data) < len(_PREFACE):
                return b""
            self._in_preface, at = False, len(_PREFACE)
        while count < _FRAMES_AT_ONCE and at < _BYTES_AT_ONCE and len(data) - at >= _HEAD_BYTES:
            size = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            if size > _FRAME_BYTES_MAX:
                raise FrameError(f"a frame has {size} bytes; at most {_FRAME_BYTES_MAX} are allowed")
            if at + _HEAD_BYTES + size > len(data):
                break
            kind = data[at + 3]
            self._count(kind, size, ends=bool(data[at + 4] & _END_STREAM))
            at += _HEAD_BYTES + size
            count += _A_CALL_OF_FRAMES if kind == _HEADERS else 1
        batch = bytes(data[:at])
        del data[:at]
        return batch

    def _count(self, kind: int, size: int, *, ends: bool) -> None:
        if kind == _DATA and (size >= _DATA_BYTES_MIN or (size and ends)):
            self._allow(size * _A_BYTE)
        elif kind != _HEADERS:
            self._allowance -= 1
            if self._allowance < 0:
                raise FrameError(f"over {_IDLE_FRAMES_MAX} frames carry nothing")
