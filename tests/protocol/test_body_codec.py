"""Structured bodies as bytes: fastjson's form out, its dialects in, errors that name the member."""

import json
from typing import Any, NamedTuple, Self

import msgpack
import pytest

from lockstep.protocol.bodies.codec import as_list, as_object, decode_body, encode_body, take
from lockstep.protocol.bodies.locks import read_plain_batch
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.errors import BodyError, LocalProtocolError
from tests.rows import by_row

JSON, MSGPACK = SerializeType.JSON, SerializeType.MSGPACK
PLAIN = b'{"clientId":"c","consumerGroup":"g","mqSet":[{"brokerName":"b","queueId":0,"topic":"t"}],"more":%s}'


class Anything(NamedTuple):
    """A body that takes every object."""

    wire: dict[str, Any]

    def to_wire(self) -> dict[str, Any]:
        return self.wire

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        return cls(as_object(value, "the body"))


def read(data: bytes) -> dict[str, Any]:
    return decode_body(Anything, data, JSON).wire


def test_json_is_written_as_fastjson_writes_it() -> None:
    """Members in alphabetical order at every depth, no blanks, UTF-8 as it is."""
    assert encode_body(Anything({"b": {"d": 1, "c": "ä"}, "a": [True, None]}), JSON) == (
        '{"a":[true,null],"b":{"c":"ä","d":1}}'.encode()
    )


def test_the_body_follows_the_header() -> None:
    """JSON behind JSON and binary headers, msgpack behind MSGPACK ones."""
    body = Anything({"a": [1, "x"]})
    assert encode_body(body, SerializeType.ROCKETMQ) == encode_body(body, JSON) == b'{"a":[1,"x"]}'
    assert msgpack.unpackb(encode_body(body, MSGPACK)) == {"a": [1, "x"]}
    for serialize_type in SerializeType:
        assert decode_body(Anything, encode_body(body, serialize_type), serialize_type) == body


@by_row(
    "data, value",
    [
        (b'{0:"a"}', {"0": "a"}),
        (b'{0:"a",1:"b"}', {"0": "a", "1": "b"}),
        (b'{ 0 : "a" , -1\n: "b"}', {"0": "a", "-1": "b"}),
        (b'{"x":{0:{1:2}}}', {"x": {"0": {"1": 2}}}),
        (b'{"x":[1,2,{3:4}],5:6}', {"x": [1, 2, {"3": 4}], "5": 6}),
        (b'{0:"{1:2,3:4}"}', {"0": "{1:2,3:4}"}),
        (b'{0:"a\\",1:b"}', {"0": 'a",1:b'}),
        (b'{"a\\\\":1,2:3}', {"a\\": 1, "2": 3}),
        ('{7:"ä,8:"}'.encode(), {"7": "ä,8:"}),
    ],
)
def test_integer_keys_without_quotes(data: bytes, value: dict[str, Any]) -> None:
    """fastjson's bare keys are read wherever they stand, and text that looks like them stays text."""
    assert read(data) == value
    assert read(data + b"\n") == value


def test_a_trailing_newline_is_no_part_of_the_body() -> None:
    """C++ ends its bodies with a newline."""
    assert read(b'{"a":1}\n') == {"a": 1}


@by_row("data", [b"", b"\n", b"{", b"{a:b}", b"{0:1", b"{'a:1}", b'{"a":1', b"\xff", b"{0 1}",
                                  b"{0:1}}", b"[" * 100_000, b"{0:" * 50_000, b'{"a":"\xed\xa0\x80"}',
                                  b'{"a":"\\ud800"}',
                                  b'{"\\udc00":1}', b'{0:"\\ud800"}', b"\xef\xbb\xbf{}"])  # fmt: skip
def test_bytes_that_are_no_json_body(data: bytes) -> None:
    """Whatever is wrong with the bytes, it is a BodyError."""
    with pytest.raises(BodyError, match="not a Anything"):
        read(data)


@by_row("data", [b"", b"\xc1", b"\x81\xa1a", b"\x81\xa1a\x01\x01", b"\x91" * 5000, b"\x81\x01\x01",
                                  b"\xd7\xff" + b"\xff" * 8, b"\x81\xa1a\xa3\xed\xa0\x80"])  # fmt: skip
def test_bytes_that_are_no_msgpack_body(data: bytes) -> None:
    """Likewise in msgpack: cut short, too long, too deep, keys that are no text, bad UTF-8."""
    with pytest.raises(BodyError, match="not a Anything"):
        decode_body(Anything, data, MSGPACK)


def test_a_body_that_is_no_object() -> None:
    """Lists, numbers and null are named in the error, shortly."""
    for data in (b"[]", b"5", b"null", json.dumps("x" * 100_000).encode()):
        with pytest.raises(BodyError, match="must be an object") as raised:
            read(data)
        assert len(str(raised.value)) < 200


@pytest.mark.timeout(20)
@by_row(
    "unit", [b'\\"', b'"\\"', b"{", b"1", b" ", b",", b"{ ", b'{"', b"\\", b'"\\\\', b"-", b"{1 ", b"{-", b'{1:"\\"']
)
def test_no_text_makes_the_reader_slow(unit: bytes) -> None:
    """Half a megabyte of anything repeated is refused at once: the reader of bare keys never looks back.

    A reader that starts again at every quote would need hours for the first of them.
    """
    for start in (b'{0:1,"', b"{", b""):
        with pytest.raises(BodyError):
            read(start + unit * (500_000 // len(unit)))


def test_take_reads_members_by_kind() -> None:
    """A member has its kind, or its default; what fastjson would convert is converted, and nothing else."""
    wire: dict[str, Any] = {"n": 5, "t": "x", "b": True, "text": "12", "minus": "-3", "null": None, "f": 1.0}
    assert (take(wire, "n", int), take(wire, "t", str), take(wire, "b", bool)) == (5, "x", True)
    assert (take(wire, "text", int), take(wire, "minus", int)) == (12, -3)
    assert (take(wire, "none", int, 7), take(wire, "null", str, "d")) == (7, "d")
    more = {"yes": "TRUE", "one": 1, "half": 0.5, "tps": "1e3"}
    assert (take(wire, "f", int), take(wire, "n", str), take(wire, "b", str)) == (1, "5", "true")
    assert (take(more, "yes", bool), take(more, "one", bool)) == (True, True)
    assert (take(more, "half", float), take(more, "tps", float), take(wire, "n", float)) == (0.5, 1000.0, 5.0)
    wire |= {"half": 0.5, "nan": float("nan"), "list": [], "far": "1e999"}
    for name, kind in (
        ("none", int),
        ("null", int),
        ("t", int),
        ("b", int),
        ("half", int),
        ("half", str),
        ("list", str),
        ("n", bool),
        ("f", bool),
        ("b", float),
        ("nan", float),
        ("far", float),
        ("t", float),
        ("t", bool),
    ):
        with pytest.raises(BodyError, match=f"member {name} "):
            take(wire, name, kind)


@by_row("value", [2**63, -(2**63) - 1, 10**30, str(2**63), "9" * 5000, float("inf"), [[]], {"a": {}}])
def test_numbers_keep_to_64_bits(value: Any) -> None:
    """A number that no reader could be given again is refused where it comes in."""
    with pytest.raises(BodyError, match="member n ") as raised:
        take({"n": value}, "n", int)
    assert len(str(raised.value)) < 200
    assert take({"n": 2**63 - 1}, "n", int) == 2**63 - 1
    assert take({"n": -(2**63)}, "n", int) == -(2**63)


def test_lists() -> None:
    """A missing list is an empty one; anything but a list is refused."""
    assert as_list(None, "x") == []
    assert as_list([1], "x") == [1]
    value: Any
    for value in ({}, "x", 5, False):
        with pytest.raises(BodyError, match="x must be a list"):
            as_list(value, "x")


@pytest.mark.parametrize("value", ["\ud800", 2**64, object()], ids=["surrogate", "number", "object"])
def test_what_cannot_be_written_is_our_error(value: Any) -> None:
    """Values that msgpack has no form for fail here, with an error of this package."""
    with pytest.raises(LocalProtocolError):
        encode_body(Anything({"a": value}), MSGPACK)


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize("end", [b"}", b",}"], ids=["json", "dialect"])
def test_a_body_is_nested_200_deep_at_most(end: bytes) -> None:
    """Strict JSON as well as fastjson's dialect of it."""
    data = b'{"deep":%s' + end
    assert read(data % nested(199))
    for levels in (200, 900, 980, 1030, 5000):
        with pytest.raises(BodyError, match="nested deeper than 200 levels"):
            read(data % nested(levels))


def test_a_lock_request_is_nested_as_deep_as_any_body() -> None:
    """Its quick reader has another parser."""
    assert read_plain_batch(PLAIN % nested(199)) is not None
    for levels in (200, 900, 1010):
        assert read_plain_batch(PLAIN % nested(levels)) is None


def test_a_body_nested_to_the_limit_of_the_parser() -> None:
    """No depth exists that the parser takes and the error text cannot."""
    for depth in range(300, 1100):
        with pytest.raises(BodyError):
            read(b"[" * depth + b"]" * depth)
        with pytest.raises(BodyError):
            take(read(b'{"n":' + b"[" * depth + b"]" * depth + b"}"), "n", int)
