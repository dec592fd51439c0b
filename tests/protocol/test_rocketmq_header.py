"""The binary header (wire.md 1.3), byte by byte; Java's own are in test_vectors."""

import struct
from typing import Any

import pytest

from lockstep.protocol.codecs import rocketmq_header
from lockstep.protocol.codes import LanguageCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError, LocalProtocolError
from lockstep.protocol.headers.messaging import QueueRequestHeader, UnregisterClientRequestHeader
from tests.rows import by_row


def binary(code: int = 11, language: int = 0, remark: bytes = b"", ext: bytes = b"", **lengths: int) -> bytes:
    """A header whose lengths may lie."""
    fixed = struct.pack(">hBhii", code, language, 409, 5, 0)
    remark_length = lengths.get("remark_length", len(remark))
    ext_length = lengths.get("ext_length", len(ext))
    return fixed + struct.pack(">i", remark_length) + remark + struct.pack(">i", ext_length) + ext


def entry(key: bytes, value: bytes, key_length: int | None = None, value_length: int | None = None) -> bytes:
    key_length = len(key) if key_length is None else key_length
    value_length = len(value) if value_length is None else value_length
    return struct.pack(">h", key_length) + key + struct.pack(">i", value_length) + value


def test_the_bytes_are_rocketmqs() -> None:
    """21 bytes and two texts: code, PYTHON, version, opaque, flag, remark, and the fields as text."""
    command = RemotingCommand(30, QueueRequestHeader("T", 3), remark="ä", flag=2, opaque=7, ext_fields={"x": True})
    assert rocketmq_header.encode_header(command) == (
        b"\x00\x1e\x03\x01\x99\x00\x00\x00\x07\x00\x00\x00\x02\x00\x00\x00\x02\xc3\xa4"
        b"\x00\x00\x00\x25\x00\x05topic\x00\x00\x00\x01T\x00\x07queueId\x00\x00\x00\x013\x00\x01x\x00\x00\x00\x04true"
    )
    assert len(rocketmq_header.encode_header(RemotingCommand(0))) == 21


def test_empty_texts_are_absent() -> None:
    """Java reads an empty text as null, so we neither write one nor read one."""
    command = RemotingCommand(35, UnregisterClientRequestHeader("c", "", "G"), remark="", ext_fields={"": "x", "y": ""})
    *_, remark, ext_fields, _ = rocketmq_header.decode_header(rocketmq_header.encode_header(command))
    assert (remark, ext_fields) == (None, {"clientID": "c", "consumerGroup": "G"})
    *_, remark, ext_fields, _ = rocketmq_header.decode_header(binary(ext=entry(b"a", b"") + entry(b"", b"b")))
    assert (remark, ext_fields) == (None, None)


@pytest.mark.parametrize("code", [-(2**15), -1, 0, 30001, 2**15 - 1])
def test_codes_of_16_bits(code: int) -> None:
    """Our own codes from 30001 fit; so does a negative one."""
    assert rocketmq_header.decode_header(rocketmq_header.encode_header(RemotingCommand(code)))[0] == code


@pytest.mark.parametrize(
    "command",
    [RemotingCommand(200_050), RemotingCommand(1, version=2**15), RemotingCommand(1, ext_fields={"k" * 2**15: "v"})],
    ids=["code", "version", "name"],
)  # fmt: skip
def test_what_does_not_fit_is_our_error(command: RemotingCommand) -> None:
    """RocketMQ 5's codes have no binary form; the sender learns of it, in a text of bounded length."""
    with pytest.raises(LocalProtocolError, match="too large") as raised:
        rocketmq_header.encode_header(command)
    assert len(str(raised.value)) < 200


@pytest.mark.parametrize(("sent", "read"), [(1, 1), (12, 12), (13, 7), (255, 7)])
def test_languages(sent: int, read: int) -> None:
    """Ordinals that nobody knows are OTHER."""
    assert rocketmq_header.decode_header(binary(language=sent))[1] == LanguageCode(read)


def test_the_last_of_equal_names_wins() -> None:
    """As in JSON."""
    assert rocketmq_header.decode_header(binary(ext=entry(b"a", b"1") + entry(b"a", b"2")))[6] == {"a": "2"}


@by_row("data", [b"", bytes(20), binary()[:-1], binary() + b"\n", binary(remark=b"ab", remark_length=3),
     binary(remark_length=-1), binary(remark_length=2**31 - 1), binary(remark=b"\xff"), binary(ext_length=-1),
     binary(ext_length=2**31 - 1), binary(ext=b"\x00"), binary(ext=entry(b"a", b"1", key_length=-1)),
     binary(ext=entry(b"a", b"1", key_length=32767)), binary(ext=entry(b"a", b"1", value_length=-1)),
     binary(ext=entry(b"a", b"1", value_length=2)), binary(ext=entry(b"a", b"1", value_length=2**31 - 1)),
     binary(ext=entry(b"\xed\xa0\x80", b"1")), binary(ext=entry(b"a", b"\xc3")),
     binary(ext=entry(b"a", b"1")[:-2])])  # fmt: skip
def test_lengths_that_lie_and_bytes_that_are_no_text(data: Any) -> None:
    """Whatever is wrong with the bytes, it is a HeaderError."""
    with pytest.raises(HeaderError, match=r"binary header|extFields"):
        rocketmq_header.decode_header(data)
