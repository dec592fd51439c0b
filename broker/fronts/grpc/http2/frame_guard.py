"""Looks at the frames of HTTP/2 before h2 does: only whole frames, a few at a time, and no floods (docs/hostile.md).

A frame that costs the peer nine bytes costs h2 some ten microseconds. So one read of 256 KiB could keep the loop for
300 ms, and attacks on HTTP/2 are made of such frames: resets of calls that began just now, settings, pings, empty data.
"""

from typing import Final

from lockstep.protocol.errors import FrameError

__all__ = ["FrameGuard"]

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD_BYTES: Final = 9
_FRAME_BYTES_MAX: Final = 16_384  # HTTP/2's default, which is not raised
_DATA, _HEADERS, _SETTINGS, _CONTINUATION = 0, 1, 4, 9
# Frames and bytes that go to h2 together: about a millisecond of work.
_FRAMES_AT_ONCE: Final = 32
_SLOW_FRAME: Final = 8  # headers may be many, and settings change the window of each call
_BYTES_AT_ONCE: Final = 128 * 1024
# Frames that carry nothing. Clients send a handful for a call: acknowledgements of windows, pings of their flow
# control; at their end a reset for each call that waits, which may be one a queue.
_IDLE_FRAMES_MAX: Final = 2000
_A_SECOND: Final = 200
_A_CALL: Final = 16
_A_BYTE: Final = 1 / 256
_DATA_BYTES_MIN: Final = 16  # below it data carries nothing, but at the end of its call
_END_STREAM: Final = 1
_END_HEADERS: Final = 4
_PADDED: Final = 8
_A_SETTING_BYTES: Final = 6


class FrameGuard:
    """Takes the bytes of one connection, and gives whole frames.

    Attributes:
        waiting_bytes: Those that were not given yet, and those of headers that h2 keeps until their last frame.
    """

    def __init__(self, now_ms: int) -> None:
        self._data = bytearray()
        self._block_bytes = 0
        self._in_preface = True
        self._allowance = float(_IDLE_FRAMES_MAX)
        self._at_ms = now_ms

    @property
    def waiting_bytes(self) -> int:
        return len(self._data) + self._block_bytes

    @property
    def in_headers(self) -> bool:
        """The last frame that was given does not end its headers."""
        return self._block_bytes > 0

    def receive(self, data: bytes, now_ms: int) -> None:
        self._data += data
        self._allow((now_ms - self._at_ms) * _A_SECOND / 1000)
        self._at_ms = now_ms

    def answered(self) -> None:
        """A call was answered."""
        self._allow(_A_CALL)

    def _allow(self, frames: float) -> None:
        self._allowance = min(self._allowance + frames, _IDLE_FRAMES_MAX)

    def next_batch(self) -> bytes:
        """Some of the whole frames that wait; b"": there are none. Raises FrameError for a flood, and for no HTTP/2."""
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
            kind, flags = data[at + 3], data[at + 4]
            padding_bytes = 1 + data[at + _HEAD_BYTES] if kind == _DATA and size and flags & _PADDED else 0
            self._count(kind, size - padding_bytes, ends=bool(flags & _END_STREAM))
            at += _HEAD_BYTES + size
            if kind in (_HEADERS, _CONTINUATION):
                self._block_bytes = 0 if flags & _END_HEADERS else self._block_bytes + _HEAD_BYTES + size
            count += _SLOW_FRAME if kind in (_HEADERS, _SETTINGS) else 1
        batch = bytes(data[:at])
        del data[:at]
        return batch

    def _count(self, kind: int, size: int, *, ends: bool) -> None:
        if kind == _DATA and (size >= _DATA_BYTES_MIN or (size > 0 and ends)):
            self._allow(size * _A_BYTE)
        elif kind != _HEADERS:
            self._allowance -= 1 + (size // _A_SETTING_BYTES if kind == _SETTINGS else 0)
            if self._allowance < 0:
                raise FrameError(f"over {_IDLE_FRAMES_MAX} frames carry nothing")
