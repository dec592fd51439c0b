"""Compressed bodies: what Java's compressors write is read, and what lies about itself costs little."""

import random
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import lz4.frame
import pytest
import zstandard

from lockstep.protocol.errors import BodyError
from lockstep.protocol.messages.compression import PLAIN_BYTES_MAX, CompressionType, compress, decompress
from tests.rows import by_row

MIB = 1024 * 1024
TEXT = b"the same words over and over, " * 4
KINDS = list(CompressionType)
# Written by the compressors of RocketMQ 5.3.2's Java client (lz4-java 1.8.0, zstd-jni 1.5.2-2), level 5, from TEXT.
OF_JAVA = {
    0x101: "04224d1860707327000000f1087468652073616d6520776f726473206f76657220616e64"
    "09002f2c201e0042507665722c2000000000",
    0x201: "28b52ffd0058140100c87468652073616d6520776f726473206f76657220616e642c20020017d4e06c4b13010000",
    0x301: "785e2bc94855284ecc4d5528cf2f4a2956c82f4b2d5248cc4b013374144a68260b002fea2ab5",
}


@pytest.mark.parametrize("sys_flag", [*OF_JAVA, 0x001])
def test_bodies_of_javas_client(sys_flag: int) -> None:
    """LZ4 frames of independent blocks, zstd frames without a size, zlib; clients that know no other name none."""
    assert decompress(bytes.fromhex(OF_JAVA[sys_flag | (0x300 if sys_flag == 1 else 0)]), sys_flag) == TEXT


@by_row("kind", KINDS)
@by_row("body", [b"a", TEXT, TEXT * 100_000, random.Random(1).randbytes(100_000)])
def test_there_and_back(kind: CompressionType, body: bytes) -> None:
    """Bodies of one step and of many, of one block and of several."""
    assert decompress(compress(body, kind, 5), kind.sys_flag) == body


def test_lz4_blocks_do_not_depend_on_each_other() -> None:
    """Java's reader refuses frames whose blocks do."""
    info = lz4.frame.get_frame_info(compress(TEXT * 10_000, CompressionType.LZ4, 5))
    assert info["block_linked"] is False


@pytest.mark.parametrize("kind", [CompressionType.LZ4, CompressionType.ZSTD])
def test_frames_one_behind_the_other(kind: CompressionType) -> None:
    """Java's readers go on with the next frame, short ones and long ones."""
    long = TEXT * 1000
    blob = b"".join(compress(body, kind, 5) for body in (TEXT, long, TEXT, TEXT))
    assert decompress(blob, kind.sys_flag) == TEXT + long + TEXT + TEXT


def test_what_follows_a_zlib_stream_is_passed_over() -> None:
    """As Java's InflaterInputStream does."""
    assert decompress(zlib.compress(TEXT) + b"more", 0x301) == TEXT


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_cut_anywhere_is_refused(kind: CompressionType) -> None:
    """No byte may be missing, not even one of a checksum."""
    packed = compress(TEXT, kind, 5)
    for cut in range(len(packed)):
        with pytest.raises(BodyError, match=r"cut short|is not"):
            decompress(packed[:cut], kind.sys_flag)


@by_row("sys_flag", [0x001, 0x101, 0x201, 0x301])
@by_row("body", [b"", b"plain text, and more of it" * 20, bytes(100)])
def test_a_body_that_is_not_what_its_flag_says(sys_flag: int, body: bytes) -> None:
    with pytest.raises(BodyError, match="compressed"):
        decompress(body, sys_flag)


@pytest.mark.parametrize("sys_flag", [0x401, 0x701])
def test_a_type_that_nobody_knows(sys_flag: int) -> None:
    """The text lists those that are known."""
    with pytest.raises(BodyError, match=r"of type \d; known are LZ4 \(1\), ZSTD \(2\) and zlib \(0, 3\)"):
        decompress(zlib.compress(TEXT), sys_flag)


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit(kind: CompressionType) -> None:
    """A body of just the limit is read, one byte more is refused."""
    packed = compress(TEXT * 1000, kind, 5)
    assert len(decompress(packed, kind.sys_flag, len(TEXT) * 1000)) == len(TEXT) * 1000
    with pytest.raises(BodyError, match=f"longer than {len(TEXT) * 1000 - 1} bytes"):
        decompress(packed, kind.sys_flag, len(TEXT) * 1000 - 1)


def packed_zeros(make: Callable[[], Any], mib: int) -> bytes:
    stream, zeros = make(), bytes(MIB)
    begin = stream.begin() if hasattr(stream, "begin") else b""
    return bytes(begin + b"".join([stream.compress(zeros) for _ in range(mib)]) + stream.flush())


@pytest.mark.parametrize(
    ("kind", "make", "mib"),
    [
        (CompressionType.LZ4, lambda: lz4.frame.LZ4FrameCompressor(block_linked=False, block_size=7), 320),
        (CompressionType.ZSTD, lambda: zstandard.ZstdCompressor().compressobj(), 3072),
        (CompressionType.ZLIB, lambda: zlib.compressobj(1), 320),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_bomb_is_not_unpacked(kind: CompressionType, make: Callable[[], Any], mib: int) -> None:
    """A few bytes that stand for gigabytes: what is unpacked before it shows is little more than the limit."""
    bomb = packed_zeros(make, mib)
    assert len(bomb) < 4 * MIB
    tracemalloc.start()
    try:
        with pytest.raises(BodyError, match="longer than"):
            decompress(bomb, kind.sys_flag)
        assert tracemalloc.get_traced_memory()[1] < 3 * PLAIN_BYTES_MAX
    finally:
        tracemalloc.stop()
