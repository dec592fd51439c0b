"""gRPC on a stream: messages in any pieces, timeouts, texts of a status; and the descriptor of the messages."""

import hashlib
from pathlib import Path

import pytest

from lockstep.protocol.errors import FrameError
from lockstep.protocol.grpc.descriptor import SOURCE_SHA256
from lockstep.protocol.grpc.wire import MessageReader, encode_message, encode_text, has_more_fields, parse_timeout_ms
from tests.rows import by_row

MESSAGES = [b"", b"one", b"x" * 300]


def test_messages_come_in_any_pieces() -> None:
    """Whatever the cuts, the messages are the same, and no bytes are left."""
    data = b"".join(map(encode_message, MESSAGES))
    for size in (1, 2, 4, 5, 6, 7, 100, len(data)):
        reader = MessageReader(300)
        found = [one for at in range(0, len(data), size) for one in reader.receive(data[at : at + size])]
        assert (found, reader.waiting_bytes) == (MESSAGES, 0)


@pytest.mark.parametrize("data", [encode_message(b"x" * 301), b"\x01\x00\x00\x00\x01x", b"\x00\xff\xff\xff\xff"])
def test_a_long_or_compressed_message_is_refused(data: bytes) -> None:
    """By its head, before its bytes are kept; also when that comes in pieces."""
    reader = MessageReader(300)
    with pytest.raises(FrameError):
        reader.receive(data[:5])
    reader = MessageReader(300)
    assert reader.receive(data[:3]) == []
    with pytest.raises(FrameError):
        reader.receive(data[3:])


@by_row(
    "text, ms",
    [("6S", 6000), ("6010m", 6010), ("5884226u", 5884), ("2M", 120_000), ("1H", 3_600_000), ("99n", 0),
     ("", None), ("6", None), ("S", None), ("-1S", None), ("123456789S", None), ("\u0661S", None)],
)  # fmt: skip
def test_a_timeout_has_a_unit(text: str, ms: int | None) -> None:
    """Eight digits at most; else it is none."""
    if ms is not None:
        assert parse_timeout_ms(text) == ms
        return
    with pytest.raises(FrameError):
        parse_timeout_ms(text)


def test_a_text_is_printable_ascii() -> None:
    """Other bytes, and the sign that stands for them, are written as numbers."""
    assert encode_text("50% of é\n") == "50%25 of %C3%A9%0A"


@by_row(
    "data, count",
    [(b"", 0), (b"\x0a\0", 1), (b"\x0a\x02\x0a\0" * 2, 2), (b"\x08\x96\x01" * 3, 3),
     (b"\x09" + bytes(8) + b"\x0a\0", 2), (b"\x0d" + bytes(4) + b"\x0a\0", 2),
     (b"\x0a\x80\x01" + bytes(128) + b"\x0a\0", 2), (b"\x0b\x0a\0\x0c", 3)],
)  # fmt: skip
def test_fields_are_counted(data: bytes, count: int) -> None:
    """Of each type, and not what is inside of them; what cannot be read is none."""
    assert not has_more_fields(data, count)
    assert not count or has_more_fields(data, count - 1)
    for fault in (b"\xff" * 100, b"\x0a\x05", b"\x08"):
        assert not has_more_fields(data + fault, count + 1)


def test_the_descriptor_is_that_of_the_source() -> None:
    """Who changes messaging.proto runs scripts/proto."""
    source = Path(__file__).parents[2] / "protocol" / "grpc" / "messaging.proto"
    assert hashlib.sha256(source.read_bytes()).hexdigest() == SOURCE_SHA256
