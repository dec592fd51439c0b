"""Frames out of a byte stream, whatever the split and whatever the length fields claim."""

import gc
import itertools
import json
import struct
import tracemalloc

import pytest

from lockstep.protocol.codes import FRAME_BYTES_MAX, HEADER_BYTES_MAX, PROPERTIES_BYTES_MAX
from lockstep.protocol.errors import FrameError, LocalProtocolError
from lockstep.protocol.frame import Frame, FrameDecoder, encode_frame_head
from tests.rows import by_row

FRAMES = [
    Frame(0, b'{"code":11}', b"body"),
    Frame(2, b"\x97", b""),
    Frame(1, b"", b""),
    Frame(0, b"h" * 300, b"b" * 5000),
    Frame(2, b"", b"only a body"),
]
STREAM = b"".join(encode_frame_head(f.serialize_type, f.header, len(f.body)) + f.body for f in FRAMES)


def drain(decoder: FrameDecoder) -> list[Frame]:
    frames = []
    while (frame := decoder.next_frame()) is not None:
        frames.append(frame)
    return frames


def read_in_pieces(data: bytes, size: int) -> list[Frame]:
    decoder = FrameDecoder()
    frames = []
    for start in range(0, len(data), size):
        decoder.feed(data[start : start + size])
        frames += drain(decoder)
    assert decoder.buffered_bytes == 0
    return frames


@by_row("size", [1, 2, 3, 4, 5, 7, 8, 9, 64, 1000, 5000, len(STREAM)])
def test_any_piece_size_gives_the_same_frames(size: int) -> None:
    """Frames do not depend on how many bytes a read returns, down to one at a time."""
    assert read_in_pieces(STREAM, size) == FRAMES


def test_every_split_in_three_of_a_short_frame() -> None:
    """Two cuts, anywhere, the length field included."""
    data = encode_frame_head(0, b"{}", 3) + b"abc"
    for first, second in itertools.combinations_with_replacement(range(len(data) + 1), 2):
        decoder = FrameDecoder()
        frames = []
        for piece in (data[:first], data[first:second], data[second:]):
            decoder.feed(piece)
            frames += drain(decoder)
        assert frames == [Frame(0, b"{}", b"abc")]


def test_feeding_twice_before_reading() -> None:
    """A caller that takes one frame and feeds again before asking for the next misses nothing."""
    large, small = encode_frame_head(0, b"{}", 900) + b"x" * 900, encode_frame_head(0, b"{}", 1) + b"y"
    decoder = FrameDecoder()
    decoder.feed(large[:10])
    assert decoder.next_frame() is None
    decoder.feed(large[10:] + small[:5])
    assert decoder.next_frame() == Frame(0, b"{}", b"x" * 900)
    decoder.feed(small[5:])
    assert decoder.next_frame() == Frame(0, b"{}", b"y")


def test_buffered_bytes_counts_what_waits() -> None:
    """What was fed and not given out is known at any time, for back-pressure."""
    decoder = FrameDecoder()
    for count in range(1, 12):
        decoder.feed(STREAM[count - 1 : count])
        assert decoder.next_frame() is None
        assert decoder.buffered_bytes == count


class CountingBytes(bytes):
    """Bytes that count how many of them slices and joins hand on."""

    copied = 0

    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        result = super().__getitem__(key)
        if isinstance(key, slice):
            CountingBytes.copied += len(result)
            return CountingBytes(result)
        return result


def test_a_trickled_large_frame_costs_linear_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame that comes in thousands of pieces is copied a few times in all, not once a piece."""
    body_bytes, piece_bytes = 400_000, 100
    data = encode_frame_head(0, b"{}", body_bytes) + bytes(body_bytes)
    monkeypatch.setattr(CountingBytes, "copied", 0)
    decoder = FrameDecoder()
    largest = []
    frames = []
    for start in range(0, len(data), piece_bytes):
        decoder.feed(CountingBytes(data[start : start + piece_bytes]))
        frames += drain(decoder)
        largest.append(len(decoder._buffer))
    assert [len(frame.body) for frame in frames] == [body_bytes]
    joins = sum(1 for before, after in itertools.pairwise(largest) if before != after)
    assert joins <= 4, "the pieces were joined before the frame was whole"
    assert CountingBytes.copied <= 2 * len(data)


def test_one_read_of_many_frames_copies_no_rest() -> None:
    """Frames that arrive together are cut out one by one; what is behind them is not copied for each."""
    frame = encode_frame_head(0, b"{}", 0)
    decoder = FrameDecoder()
    decoder.feed(frame * 1000)
    buffer = decoder._buffer
    for _ in range(1000):
        assert decoder.next_frame() == Frame(0, b"{}", b"")
        assert decoder._buffer is buffer
    assert decoder.next_frame() is None


def test_an_empty_feed_changes_nothing() -> None:
    """A read of no bytes is no event."""
    decoder = FrameDecoder()
    decoder.feed(b"")
    assert decoder.next_frame() is None
    decoder.feed(STREAM[:6])
    decoder.feed(b"")
    assert decoder.next_frame() is None
    decoder.feed(STREAM[6:])
    assert drain(decoder) == FRAMES


@pytest.mark.parametrize("total", [0, 1, 3, FRAME_BYTES_MAX + 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_an_impossible_length_is_refused_at_once(total: int) -> None:
    """A length below 4 or over 16 MiB ends the stream as soon as its four bytes are there, and stays refused."""
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">I", total))
    for _ in range(2):
        with pytest.raises(FrameError, match=str(total)):
            decoder.next_frame()
    decoder.feed(b"more")
    with pytest.raises(FrameError):
        decoder.next_frame()


def test_a_frame_of_exactly_the_limit_passes() -> None:
    """16 MiB behind the length field is the largest frame, as in Java."""
    head = encode_frame_head(0, b"{}", FRAME_BYTES_MAX - 6)
    assert struct.unpack_from(">I", head) == (FRAME_BYTES_MAX,)
    decoder = FrameDecoder()
    decoder.feed(head + bytes(FRAME_BYTES_MAX - 6))
    frame = decoder.next_frame()
    assert frame is not None
    assert len(frame.body) == FRAME_BYTES_MAX - 6
    with pytest.raises(LocalProtocolError, match="over the limit"):
        encode_frame_head(0, b"{}", FRAME_BYTES_MAX - 5)


def test_a_smaller_limit_can_be_set() -> None:
    """The limit is the decoder's, not a constant of the format."""
    decoder = FrameDecoder(frame_bytes_max=100)
    decoder.feed(encode_frame_head(0, b"", 97))
    with pytest.raises(FrameError, match=r"4\.\.100"):
        decoder.next_frame()


def test_frames_before_a_bad_one_are_given_out() -> None:
    """What was whole and right is delivered before the error."""
    decoder = FrameDecoder()
    decoder.feed(STREAM + b"\xff\xff\xff\xff")
    assert [decoder.next_frame() for _ in FRAMES] == FRAMES
    with pytest.raises(FrameError):
        decoder.next_frame()


def test_a_header_longer_than_its_frame() -> None:
    """The header length may use the whole frame and no byte more."""
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">II", 10, 6) + b"header")
    assert decoder.next_frame() == Frame(0, b"header", b"")
    decoder.feed(struct.pack(">II", 10, 7) + b"header")
    with pytest.raises(FrameError, match="header of 7 bytes"):
        decoder.next_frame()


@pytest.mark.parametrize("header_type", [3, 4, 127, 255])
def test_an_unknown_header_type(header_type: int) -> None:
    """Type bytes other than 0, 1 and 2 end the stream, as in Apache's decoder."""
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">II", 4, header_type << 24))
    with pytest.raises(FrameError, match=f"header type {header_type}"):
        decoder.next_frame()


@pytest.mark.parametrize("hello", ["16030100c8010000c4", "16030300", "160301"])
def test_a_tls_handshake_is_named(hello: str) -> None:
    """As soon as four bytes are there, whatever the version; three could still be a frame's first."""
    decoder = FrameDecoder()
    decoder.feed(bytes.fromhex(hello))
    if len(hello) < 8:
        assert decoder.next_frame() is None
    else:
        with pytest.raises(FrameError, match="TLS"):
            decoder.next_frame()


@by_row("said", [b"HTTP/1.1 400 Bad Request\r\n", b"GET / HTTP/1.1\r\n", b"POST"])
def test_http_is_named(said: bytes) -> None:
    """Of a wrong port the other protocol helps more than a number."""
    decoder = FrameDecoder()
    decoder.feed(said)
    with pytest.raises(FrameError, match="the peer speaks HTTP"):
        decoder.next_frame()


def test_a_header_over_its_limit_is_refused_before_it_has_arrived() -> None:
    """Eight bytes tell: nobody waits for a header of 15 MiB, and the largest that RocketMQ's clients make passes."""
    decoder = FrameDecoder(header_bytes_max=HEADER_BYTES_MAX)
    decoder.feed(struct.pack(">II", FRAME_BYTES_MAX, HEADER_BYTES_MAX + 1))
    with pytest.raises(FrameError, match=f"header of {HEADER_BYTES_MAX + 1} bytes is over the limit"):
        decoder.next_frame()
    properties = "\x01" * PROPERTIES_BYTES_MAX  # the worst that a message may have, as JSON writes it
    header = json.dumps({"code": 310, "extFields": {"i": properties}}).encode()
    other = FrameDecoder(header_bytes_max=HEADER_BYTES_MAX)
    other.feed(encode_frame_head(0, header, 0))
    assert other.next_frame() == Frame(0, header, b"")


def test_a_frame_in_tiny_pieces_costs_little_more_than_its_bytes() -> None:
    """A peer that sends two bytes at a time must not cost an object for each of them."""
    decoder = FrameDecoder()
    decoder.feed(struct.pack(">II", 1_000_000, 0))
    assert decoder.next_frame() is None
    piece = bytes(2)
    gc.collect()
    tracemalloc.start()
    try:
        for start in range(0, 400_000, 2):
            decoder.feed(piece[:1] + start.to_bytes(4, "big")[3:])
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoder.buffered_bytes == 400_008
    assert held_bytes < 800_000


def test_a_large_frame_is_not_kept_when_it_was_handed_out() -> None:
    """A connection that has sent 8 MiB and is silent then costs nothing of it."""
    decoder = FrameDecoder()
    tracemalloc.start()
    try:
        decoder.feed(encode_frame_head(0, b"", 8 << 20))
        for _ in range(8):
            decoder.feed(bytes(1 << 20))
        assert len(list(decoder.frames())) == 1
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoder.buffered_bytes == 0
    assert held_bytes < 1 << 20


def test_what_is_cleared_is_forgotten() -> None:
    """The bytes of a connection that was lost are given back, whole frames and the start of one."""
    decoder = FrameDecoder()
    decoder.feed(STREAM + STREAM[:5])
    assert decoder.next_frame() == FRAMES[0]
    decoder.clear()
    assert (decoder.buffered_bytes, decoder.next_frame()) == (0, None)
    decoder.feed(STREAM)
    assert list(decoder.frames()) == FRAMES
