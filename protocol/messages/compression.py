"""Compressed bodies: zlib, LZ4 and zstd, in the frames of RocketMQ's Java client (wire.md 4.5).

Compressed data is not trusted. It is decompressed in small steps and up to a limit, so that a record of a few kilobytes
cannot fill the memory. LZ4 and zstd are imported on first use, to keep the start fast.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from lockstep.protocol.codes import SysFlag
from lockstep.protocol.errors import BodyError

__all__ = ["LEVELS", "PLAIN_BYTES_MAX", "CompressionType", "compress", "decompress"]

# 16 times the largest body of a RocketMQ producer.
PLAIN_BYTES_MAX: Final = 64 * 1024 * 1024
_TYPE_SHIFT: Final = 8
# No type: zlib, from clients that know only zlib.
_LEGACY: Final = 0
# A zstd block of 4 bytes may stand for 128 KiB: a step yields 16 MiB at most.
_ZSTD_STEP_BYTES: Final = 512
# Also the limit of Java's reader.
_ZSTD_WINDOW_BYTES_MAX: Final = 128 * 1024 * 1024


class CompressionType(IntEnum):
    """The values of bits 8 to 10 of the sysFlag."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The sysFlag bits of a body with this compression."""
        return int(SysFlag.COMPRESSED) | self << _TYPE_SHIFT


LEVELS: Final = {
    CompressionType.LZ4: (-(2**31), 2**31 - 1),  # the level is ignored, as in Java
    CompressionType.ZSTD: (1, 22),
    CompressionType.ZLIB: (0, 9),
}
"""The (lowest, highest) level of each type. A higher level is slower and compresses better."""


def compress(body: bytes, kind: CompressionType, level: int) -> bytes:
    """Compress a body like Java's client. LZ4 ignores the level, as in Java."""
    return _COMPRESSORS[kind](body, level)


def decompress(body: bytes, sys_flag: int, limit: int = PLAIN_BYTES_MAX) -> bytes:
    """Decompress the body of a message whose sysFlag has COMPRESSED.

    Args:
        limit: The largest allowed length of the result in bytes.

    Raises:
        BodyError: The body is not a complete stream of the type in the sysFlag, or is longer than `limit`.

    Source: wire.md 4.5.
    """
    number = (sys_flag & SysFlag.COMPRESSION_TYPE) >> _TYPE_SHIFT
    name, unpack = _DECOMPRESSORS.get(number, ("", None))
    if unpack is None:
        raise BodyError(
            f"a body flagged as compressed is of type {number}; known are LZ4 (1), ZSTD (2) and zlib (0, 3)"
        )
    try:
        plain, is_whole = unpack(body, limit)
    except (zlib.error, RuntimeError, ImportError) as error:  # lz4 raises RuntimeError
        raise BodyError(f"a body flagged as compressed is not {name}: {error}") from None
    if len(plain) > limit:
        raise BodyError(f"a body compressed by {name} is longer than {limit} bytes")
    if not is_whole:
        raise BodyError(f"a body compressed by {name} is cut short")
    return plain


def _compress_zlib(body: bytes, level: int) -> bytes:
    return zlib.compress(body, level)


def _compress_lz4(body: bytes, level: int) -> bytes:
    import lz4.frame

    # Java's LZ4FrameInputStream refuses linked blocks, which are the default of this library.
    packed: bytes = lz4.frame.compress(body, block_linked=False, store_size=False)
    return packed


def _compress_zstd(body: bytes, level: int) -> bytes:
    import zstandard

    # A new compressor each time: threads must not share one.
    return zstandard.compress(body, level)


def _decompress_zlib(body: bytes, limit: int) -> "_Unpacked":
    """Decompress zlib. Bytes after the stream are ignored, like in Java's InflaterInputStream."""
    unzipper = zlib.decompressobj()
    plain = unzipper.decompress(body, limit + 1)
    return plain, unzipper.eof


def _decompress_lz4(body: bytes, limit: int) -> "_Unpacked":
    """Decompress all LZ4 frames, like Java."""
    import lz4.frame

    parts, size, rest, is_whole = [], 0, body, False
    while rest and size <= limit:
        frame = lz4.frame.LZ4FrameDecompressor()
        part: bytes = frame.decompress(rest, limit - size + 1)
        parts.append(part)
        size += len(part)
        is_whole = frame.eof
        rest = frame.unused_data or b""
    return b"".join(parts), is_whole


def _decompress_zstd(body: bytes, limit: int) -> "_Unpacked":
    """Decompress all zstd frames, like Java. Small input steps limit the output, which the library cannot limit."""
    import zstandard

    library = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    parts, size, position = [], 0, 0
    frame = library.decompressobj()
    try:
        while position < len(body) and size <= limit:
            if frame.eof:
                frame = library.decompressobj()
            step = body[position : position + _ZSTD_STEP_BYTES]
            part = frame.decompress(step)
            parts.append(part)
            size += len(part)
            position += len(step) - (len(frame.unused_data) if frame.eof else 0)
    except zstandard.ZstdError as error:
        raise zlib.error(str(error)) from None
    return b"".join(parts), frame.eof


_Unpacked = tuple[bytes, bool]  # the plain bytes, a little over `limit` at most; whether they are complete
_Compressor = Callable[[bytes, int], bytes]
_Decompressor = Callable[[bytes, int], _Unpacked]

_COMPRESSORS: Final[dict[CompressionType, _Compressor]] = {
    CompressionType.ZLIB: _compress_zlib,
    CompressionType.LZ4: _compress_lz4,
    CompressionType.ZSTD: _compress_zstd,
}
_DECOMPRESSORS: Final[dict[int, tuple[str, _Decompressor]]] = {
    _LEGACY: ("zlib", _decompress_zlib),
    CompressionType.ZLIB: ("zlib", _decompress_zlib),
    CompressionType.LZ4: ("LZ4", _decompress_lz4),
    CompressionType.ZSTD: ("zstd", _decompress_zstd),
}
