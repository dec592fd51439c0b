"""The header encodings: JSON as RocketMQ's clients write it, and the msgpack array of our own. The binary one has its
own file."""

import json
from contextlib import suppress
from typing import Any, NamedTuple

import msgpack
import pytest

from lockstep.protocol.codecs import CODECS, HeaderCodec, json_header, msgpack_header
from lockstep.protocol.codes import LanguageCode
from lockstep.protocol.command import RemotingCommand, decode_command
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.frame import Frame
from lockstep.protocol.headers.messaging import QueueRequestHeader
from tests.rows import by_row


class Decoded(NamedTuple):
    code: int
    language: int
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext_fields: Any
    positional: Any


def encoded_header(codec: HeaderCodec, code: int, opaque: int, flag: int, remark: Any, header: Any, ext: Any) -> bytes:
    command = RemotingCommand(code, header, remark=remark, ext_fields=ext, flag=flag, opaque=opaque, version=409)
    return codec.encode_header(command)


def decoded_header(codec: HeaderCodec, data: bytes) -> Decoded:
    return Decoded(*codec.decode_header(data))


GOOD: dict[str, Any] = {"code": 11, "language": "JAVA", "version": 409, "opaque": 5, "flag": 0}
each_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=["json", "rocketmq", "msgpack"])
REFUSED = "^(the header|code must|version, opaque|extFields must)"


def json_bytes(**members: Any) -> bytes:
    return json.dumps({name: value for name, value in (GOOD | members).items() if value is not ...}).encode()


def test_json_is_written_as_fastjson_writes_it() -> None:
    """Members in alphabetical order, no blanks, extFields as text, null members left out."""
    data = encoded_header(json_header, 30, 7, 2, None, QueueRequestHeader("TopicO", 3), {"x": True, "n": 5})
    assert data == (
        b'{"code":30,"extFields":{"topic":"TopicO","queueId":"3","x":"true","n":"5"},"flag":2,"language":"PYTHON",'
        b'"opaque":7,"serializeTypeCurrentRPC":"JSON","version":409}'
    )
    bare = json.loads(encoded_header(json_header, 0, 7, 1, "ok", None, None))
    assert "extFields" not in bare
    assert bare["remark"] == "ok"


@pytest.mark.parametrize("remark", [None, "", "FOUND", '100 % of "%s" \\ %d', "\n\x01 ü 😀", "a\ud800b"])
def test_json_of_usual_fields_is_that_of_any_fields(remark: str | None) -> None:
    """A header whose values have the types of its fields is written in one step, with the same bytes."""
    usual = encoded_header(json_header, 11, 7, 1, remark, QueueRequestHeader("T%d", 3), None)
    fields = {"topic": "T%d", "queueId": 3}
    assert usual == encoded_header(json_header, 11, 7, 1, remark, None, fields)
    assert json.loads(usual).get("remark") == (remark and remark.replace("\ud800", "?"))


def test_json_keeps_text_as_utf8() -> None:
    """Non-ASCII goes as UTF-8, and a lone surrogate, which UTF-8 cannot hold, as a question mark."""
    data = encoded_header(json_header, 0, 0, 1, "ä中😀\ud800", None, None)
    assert "ä中😀?".encode() in data


@each_codec
def test_lone_surrogates_are_sent_as_question_marks(codec: HeaderCodec) -> None:
    """A file name read with surrogateescape must reach the peer as a readable header, in every encoding."""
    decoded = decoded_header(codec, encoded_header(codec, 0, 3, 1, "a\udcffb", None, {"k": "\ud800"}))
    assert (decoded.opaque, decoded.remark, decoded.ext_fields) == (3, "a?b", {"k": "?"})
    assert decoded_header(codec, encoded_header(codec, 0, 4, 1, "plain", None, None)).remark == "plain"


@pytest.mark.parametrize(
    "data",
    [json_bytes(remark="\ud800"), json_bytes(extFields={"topic": "\udfff"}), json_bytes(extFields={"\uDBFFx": "1"}),
     json_bytes(remark="raw").replace(b"raw", b"\xed\xa0\x80")],
    ids=["remark", "value", "name", "raw bytes"],
)  # fmt: skip
def test_json_with_lone_surrogates_is_refused(data: bytes) -> None:
    """What is no Unicode text would fail later, where it is stored or passed on to others."""
    with pytest.raises(HeaderError):
        decoded_header(json_header, data)


def test_json_surrogate_pairs_are_characters() -> None:
    """Writers that escape non-ASCII send pairs; they are one character."""
    assert decoded_header(json_header, json_bytes(remark="😀 \\ud800 ü")).remark == "😀 \\ud800 ü"


def test_json_takes_what_clients_send() -> None:
    """A newline behind it (C++), raw numbers and booleans (ali-ons), null members, and members nobody knows."""
    data = (
        json_bytes(extFields={"a": 1, "b": True, "c": "x"}, remark=None, serializeTypeCurrentRPC="JSON", more=[1])
        + b"\n"
    )
    decoded = decoded_header(json_header, data)
    assert (decoded.code, decoded.version, decoded.opaque, decoded.flag) == (11, 409, 5, 0)
    assert decoded.ext_fields == {"a": 1, "b": True, "c": "x"}
    assert (decoded.remark, decoded.language, decoded.positional) == (None, LanguageCode.JAVA, None)


@by_row("language, ordinal", [("CPP", 1), ("GO", 9), ("RUST", 12), ("COBOL", 7), (5, 7), (None, 7), ([], 7), (..., 7)])
def test_json_languages(language: Any, ordinal: int) -> None:
    """Known names get their ordinal; anything else is OTHER."""
    assert decoded_header(json_header, json_bytes(language=language)).language == ordinal


def test_json_defaults() -> None:
    """Version and flag may be absent; code and opaque may not."""
    decoded = decoded_header(json_header, json_bytes(version=..., flag=...))
    assert (decoded.version, decoded.flag) == (0, 0)


@by_row("members",
    [{"code": ...}, {"code": "11"}, {"code": True}, {"code": 1.0}, {"code": None}, {"opaque": ...}, {"opaque": "5"},
     {"opaque": None}, {"flag": "0"}, {"flag": False}, {"version": None}, {"version": 1.5}, {"extFields": []},
     {"extFields": "x"}, {"extFields": 5}])  # fmt: skip
def test_json_headers_that_are_refused(members: dict[str, Any]) -> None:
    """A header whose numbers are no numbers, or whose extFields are no object, is unreadable."""
    with pytest.raises(HeaderError, match=REFUSED):
        decoded_header(json_header, json_bytes(**members))


@by_row("data", [b"", b"\n", b"null", b"5", b"[]", b'"x"', b"{", b"\xff\xfe", b"{}x", b"\xef\xbb\xbf{}", b"[" * 100_000,
             b'{"a":' * 50_000, b'{"code":' + b"9" * 5000 + b"}", "{}".encode("utf-16")])  # fmt: skip
def test_bytes_that_are_no_json_header(data: bytes) -> None:
    """Whatever is wrong with the bytes, depth included, it is a HeaderError."""
    with pytest.raises(HeaderError):
        decoded_header(json_header, data)


def test_a_header_nested_to_the_limit_of_the_parser() -> None:
    """No depth exists that the JSON parser takes and the error text, or the typed header, cannot."""
    for depth in range(2, 1100, 1):
        data = (
            b'{"code":11,"opaque":1,"flag":0,"extFields":{"topic":' + b"[" * depth + b"]" * depth + b',"queueId":"1"}}'
        )
        with pytest.raises(HeaderError):
            _decode_typed(data)
        with pytest.raises(HeaderError):
            decoded_header(json_header, b'{"code":' + b"[" * depth + b"]" * depth + b"}")


def nested(levels: int, brackets: str, inmost: bytes = b"1") -> bytes:
    """Lists and objects in each other: "[{" for both by turns."""
    opened = [{"[": b"[", "{": b'{"a":'}[brackets[level % len(brackets)]] for level in range(levels)]
    closed = [{b"[": b"]"}.get(one, b"}") for one in reversed(opened)]
    return b"".join([*opened, inmost, *closed])


@pytest.mark.parametrize("more", [b"1", b"NaN"], ids=["orjson", "json"])  # orjson refuses NaN
@pytest.mark.parametrize("brackets", ["[", "{", "[{"])
def test_a_header_is_nested_200_deep_at_most(more: bytes, brackets: str) -> None:
    """Whichever parser reads it. The header itself is one level; brackets in texts are none."""
    texts = b'["\\"%s", "]", "\\\\"]' % (b"[{" * 300)
    for deep in (nested(199, brackets), nested(198, brackets, texts)):
        assert decoded_header(json_header, b'{"code":1,"opaque":1,"deep":%s,"more":%s}' % (deep, more)).code == 1
    for deep in (nested(199, brackets, texts), *(nested(levels, brackets) for levels in (200, 800, 1020, 1030, 5000))):
        with pytest.raises(HeaderError, match=r"^the header is not JSON: nested deeper than 200 levels$"):
            decoded_header(json_header, b'{"code":1,"opaque":1,"deep":%s,"more":%s}' % (deep, more))


def _decode_typed(data: bytes) -> None:
    decode_command(Frame(0, data, b"")).decode_header(QueueRequestHeader)


def test_an_error_text_is_short() -> None:
    """A peer's megabytes never become ours: they would go into a remark and a log."""
    for members in ({"code": "x" * 100_000}, {"opaque": ["x" * 100_000]}, {"flag": "y" * 100_000}):
        with pytest.raises(HeaderError) as raised:
            decoded_header(json_header, json_bytes(**members))
        assert len(str(raised.value)) < 400


def test_msgpack_is_the_documented_array() -> None:
    """[code, flag, opaque, version, remark, fields, ext], fields in the order of the class."""
    data = encoded_header(msgpack_header, 30, 7, 2, "r", QueueRequestHeader("TopicO", 3), {"x": "y"})
    assert msgpack.unpackb(data) == [30, 2, 7, 409, "r", ["TopicO", 3], {"x": "y"}]
    assert msgpack.unpackb(encoded_header(msgpack_header, 0, 7, 1, None, None, None)) == [
        0,
        1,
        7,
        409,
        None,
        None,
        None,
    ]
    decoded = decoded_header(msgpack_header, data)
    assert (decoded.code, decoded.flag, decoded.opaque, decoded.version, decoded.remark) == (30, 2, 7, 409, "r")
    assert (decoded.positional, decoded.ext_fields) == (["TopicO", 3], {"x": "y"})


@by_row("parts", [[], [1] * 6, [1] * 8, [1, 0, 1, 409, None, None, None, None], ["1", 0, 1, 409, None, None, None],
     [1, False, 1, 409, None, None, None], [1, 0, 1.0, 409, None, None, None], [1, 0, None, 409, None, None, None],
     [1, 0, 1, 409, 5, None, None], [1, 0, 1, 409, b"r", None, None], [1, 0, 1, 409, None, {}, None],
     [1, 0, 1, 409, None, "x", None], [1, 0, 1, 409, None, None, []],
     [1, 0, 1, 409, None, None, {b"AccessKey": "a"}], {}, "x", 5, None])  # fmt: skip
def test_msgpack_headers_that_are_refused(parts: Any) -> None:
    """Every part has its type; nothing is converted."""
    with pytest.raises(HeaderError, match="the header is not"):
        decoded_header(msgpack_header, msgpack.packb(parts))


@by_row("data", [b"", b"\xc1", b"\x97", b"\x97\x01", b"\xdd\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\x91" * 5000,
             b"\xa1\xff", b"\x81\x91\x01\x01", b"\xd7\xff" + b"\xff" * 8, b"\x90\x90",
             b"\x97\x01\x00\x01\x00\xa3\xed\xa0\x80\xc0\xc0"])  # fmt: skip
def test_bytes_that_are_no_msgpack_header(data: bytes) -> None:
    """Cut short, nested too deep, lengths that lie, bad UTF-8, bad extension types: HeaderError."""
    with pytest.raises(HeaderError):
        decoded_header(msgpack_header, data)


def test_the_msgpack_writer_survives_its_own_error() -> None:
    """A value that cannot be written corrupts one command and not those after it."""
    for wrong in (object(), 2**64, "\ud800"):
        with suppress(TypeError, OverflowError):
            encoded_header(msgpack_header, 0, 1, 1, None, (1, wrong), None)
        assert msgpack.unpackb(encoded_header(msgpack_header, 0, 2, 1, None, (5,), None)) == [
            0,
            1,
            2,
            409,
            None,
            [5],
            None,
        ]
