"""Bytes from anybody: the stream decoder and the header codecs either read them or refuse them in the one way."""

import itertools
import json
import struct
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.codes import LanguageCode, SerializeType
from lockstep.protocol.command import RemotingCommand, decode_command, encode_command
from lockstep.protocol.errors import FrameError, HeaderError
from lockstep.protocol.frame import Frame, FrameDecoder, encode_frame_head
from tests.fuzz.strategies import (
    HEADER_CLASSES,
    fuzz,
    fuzz_broken,
    headers,
    json_values,
    msgpack_values,
    texts,
    with_bytes_changed,
)

LIMIT = 4096  # of a frame, so that a random length field is sometimes right
flags = st.integers(0, 3)


@st.composite
def commands(draw: st.DrawFn) -> RemotingCommand:
    """Lawful commands in every encoding, with typed headers, extFields, both or neither."""
    header_class = draw(st.sampled_from([None, *HEADER_CLASSES]))
    serialize_type = draw(st.sampled_from(SerializeType))
    binary = serialize_type == SerializeType.ROCKETMQ  # which has no empty texts, and codes of 16 bits
    some_texts = texts.map(lambda text: text or "x") if binary else texts
    header = draw(headers(header_class)) if header_class else None
    if binary and header is not None:
        header = type(header)._make("x" if value == "" else value for value in header)  # type: ignore[attr-defined]
    return RemotingCommand(
        draw(st.integers(0, 2**15 - 1 if binary else 2**31 - 1)),
        header,
        draw(st.binary(max_size=40)),
        remark=draw(st.one_of(st.none(), some_texts)),
        ext_fields=draw(st.one_of(st.none(), st.dictionaries(texts.map("x".__add__), some_texts, max_size=2))),
        flag=draw(flags),
        opaque=draw(st.integers(-(2**31), 2**31 - 1)),
        serialize_type=serialize_type,
    )


def frame_bytes(serialize_type: int, header: bytes, body: bytes) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), serialize_type << 24 | len(header)) + header + body


streams = st.lists(commands().map(lambda c: encode_command(c) + c.body), min_size=1, max_size=4).map(b"".join)
odd_frames = st.lists(
    st.builds(frame_bytes, st.sampled_from([0, 0, 1, 2, 2, 3]), st.binary(max_size=12), st.binary(max_size=12)),
    max_size=4,
).map(b"".join)
hostile = st.one_of(st.binary(max_size=60), odd_frames, with_bytes_changed(streams), with_bytes_changed(odd_frames))


def read(data: bytes, cuts: list[int], decoder: FrameDecoder) -> tuple[list[Frame], int | None]:
    """All frames of a stream that arrives cut as said, and the bytes left over; None if the stream broke."""
    frames: list[Frame] = []
    edges = [0, *sorted(cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        decoder.feed(data[start:end])
        try:
            while (frame := decoder.next_frame()) is not None:
                frames.append(frame)
        except FrameError:
            return frames, None
    return frames, decoder.buffered_bytes


def check_stream(data: bytes, cuts: list[int], decoder_class: type[FrameDecoder] = FrameDecoder) -> None:
    whole = read(data, [], decoder_class(LIMIT))
    assert read(data, list(range(1, len(data))), decoder_class(LIMIT)) == whole
    assert read(data, cuts, decoder_class(LIMIT)) == whole
    frames, left = whole
    written = b"".join(frame_bytes(*frame) for frame in frames)
    assert data.startswith(written)
    assert left in (None, len(data) - len(written))


def check_command(frame: Frame, decode: Any = decode_command) -> None:
    try:
        command = decode(frame)
    except HeaderError:
        return
    assert type(command.code) is type(command.opaque) is type(command.flag) is int
    assert command.body == frame.body


@fuzz
@given(st.data())
def test_any_bytes_in_any_pieces(data: st.DataObject) -> None:
    """Random bytes give the same frames, or break at the same frame, whole, byte by byte, and cut anywhere."""
    stream = data.draw(hostile)
    check_stream(stream, data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))


@fuzz
@given(st.one_of(hostile, streams))
def test_any_frame_is_a_command_or_a_header_error(data: bytes) -> None:
    """Whatever stands in a frame, decode_command reads it or raises HeaderError and nothing else."""
    for frame in read(data, [], FrameDecoder(LIMIT))[0]:
        check_command(frame)


@fuzz
@given(st.sampled_from([0, 1, 2]), st.one_of(st.binary(max_size=80), json_values, msgpack_values))
def test_any_value_as_a_header(serialize_type: int, value: Any) -> None:
    """A header that is JSON, bytes or msgpack of something else altogether is a HeaderError."""
    if not isinstance(value, bytes):
        try:
            value = json.dumps(value).encode() if serialize_type == 0 else msgpack.packb(value)
        except (OverflowError, TypeError):
            return
    check_command(Frame(serialize_type, value, b""))


@fuzz
@given(commands(), st.data())
def test_commands_survive_the_wire(command: RemotingCommand, data: st.DataObject) -> None:
    """What was written is read again, in every encoding and any pieces."""
    stream = encode_command(command) + command.body
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=4))
    frames, left = read(stream, cuts, FrameDecoder())
    assert (len(frames), left) == (1, 0)
    again = decode_command(frames[0])
    for name in ("code", "opaque", "flag", "version", "remark", "body", "serialize_type"):
        assert getattr(again, name) == getattr(command, name), name
    assert again.language == LanguageCode.PYTHON
    if command.header is not None:
        assert again.decode_header(type(command.header)) == command.header
    for name, value in (command.ext_fields or {}).items():
        assert again.ext_fields is not None
        assert again.ext_fields[name] == value


@fuzz
@given(st.integers(0, 2), st.binary(max_size=50), st.binary(max_size=50))
def test_frames_survive_the_wire(serialize_type: int, header: bytes, body: bytes) -> None:
    """A frame head and a body make the frame they were made from."""
    stream = encode_frame_head(serialize_type, header, len(body)) + body
    assert read(stream, [], FrameDecoder()) == ([Frame(serialize_type, header, body)], 0)


class ForgetfulDecoder(FrameDecoder):
    """Forgets the start of a frame when more comes behind it."""

    def feed(self, data: bytes) -> None:
        if 0 < self.buffered_bytes < 4:
            self.__init__(self.frame_bytes_max)  # type: ignore[misc]
        super().feed(data)


class LenientDecoder(FrameDecoder):
    """Skips a frame it does not like instead of breaking."""

    def next_frame(self) -> Frame | None:
        try:
            return super().next_frame()
        except FrameError:
            self._position = len(self._buffer)
            return None


@pytest.mark.parametrize("broken", [ForgetfulDecoder, LenientDecoder])
def test_a_broken_decoder_is_caught(broken: type[FrameDecoder]) -> None:
    """The canary: the check above fails for decoders that lose bytes or hide a broken stream."""

    @fuzz_broken
    @given(st.data())
    def check(data: st.DataObject) -> None:
        stream = data.draw(hostile)
        check_stream(stream, data.draw(st.lists(st.integers(0, len(stream)), max_size=6)), broken)

    with pytest.raises(AssertionError):
        check()


def test_a_broken_codec_is_caught() -> None:
    """The canary: a codec that lets a KeyError out does not pass for one that refuses."""

    def careless(frame: Frame) -> RemotingCommand:
        parts = msgpack.unpackb(frame.header)
        return RemotingCommand(parts["code"])

    @fuzz_broken
    @given(hostile)
    def check(data: bytes) -> None:
        for frame in read(data, [], FrameDecoder(LIMIT))[0]:
            check_command(frame, careless)

    with pytest.raises(Exception, match=r".") as raised:
        check()
    assert not isinstance(raised.value, HeaderError)
