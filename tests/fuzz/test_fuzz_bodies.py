"""Structured bodies from anybody, in both encodings and in fastjson's dialect."""

import json
import re
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.bodies.broker import ConsumerIdList
from lockstep.protocol.bodies.codec import WireBody, decode_body, encode_body
from lockstep.protocol.bodies.fastjson import loads
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.errors import BodyError
from tests.fuzz.admin_strategies import ADMIN_BODIES
from tests.fuzz.strategies import BODIES as BASIC_BODIES
from tests.fuzz.strategies import (
    fuzz,
    fuzz_broken,
    fuzz_each,
    json_values,
    msgpack_values,
    texts,
    with_bytes_changed,
    with_one_change,
)
from tests.rows import by_row

JSON, MSGPACK = SerializeType.JSON, SerializeType.MSGPACK
BODIES = BASIC_BODIES | ADMIN_BODIES
each_body = by_row("body_class", BODIES)


def wires(body_class: type[WireBody]) -> st.SearchStrategy[Any]:
    return BODIES[body_class].map(lambda body: loads(encode_body(body, JSON)))


def check_bytes(body_class: type[WireBody], data: bytes, serialize_type: SerializeType) -> None:
    """Bytes are a body that can be written again in both encodings, or a BodyError and nothing else."""
    try:
        body = decode_body(body_class, data, serialize_type)
    except BodyError:
        return
    for again in (JSON, MSGPACK):
        assert decode_body(body_class, encode_body(body, again), again) == body


@each_body
def test_lawful_bodies_survive_the_wire(body_class: type[WireBody]) -> None:
    """Every body goes unchanged behind each kind of header."""

    @fuzz_each
    @given(BODIES[body_class])
    def check(body: WireBody) -> None:
        for serialize_type in SerializeType:
            assert decode_body(body_class, encode_body(body, serialize_type), serialize_type) == body

    check()


@each_body
def test_any_json(body_class: type[WireBody]) -> None:
    """JSON of any shape, and bodies with one member changed, are read or refused."""

    @fuzz_each
    @given(st.one_of(json_values, with_one_change(wires(body_class), json_values)), st.booleans())
    def check(value: Any, ensure_ascii: bool) -> None:
        check_bytes(body_class, json.dumps(value, ensure_ascii=ensure_ascii).encode(), JSON)

    check()


@each_body
def test_any_msgpack(body_class: type[WireBody]) -> None:
    """Likewise msgpack, where names may be bytes and numbers unsigned."""

    @fuzz_each
    @given(st.one_of(msgpack_values, with_one_change(wires(body_class), msgpack_values)))
    def check(value: Any) -> None:
        check_bytes(body_class, msgpack.packb(value), MSGPACK)

    check()


@each_body
def test_any_bytes(body_class: type[WireBody]) -> None:
    """Bytes of any kind, and bodies with some bytes changed, are read or refused."""

    @fuzz_each
    @given(st.data(), st.sampled_from([JSON, MSGPACK]))
    def check(data: st.DataObject, serialize_type: SerializeType) -> None:
        lawful = BODIES[body_class].map(lambda body: encode_body(body, serialize_type))
        check_bytes(
            body_class, data.draw(st.one_of(st.binary(max_size=60), with_bytes_changed(lawful))), serialize_type
        )

    check()


class AnyBody(dict[str, Any]):
    """A body that takes every object, to see what the reader of JSON makes of it."""

    def to_wire(self) -> dict[str, Any]:
        return dict(self)

    @classmethod
    def from_wire(cls, value: Any) -> "AnyBody":
        return cls(value)


numbered = st.recursive(
    st.one_of(st.integers(), texts, st.sampled_from(['{1:"', '",2:', "\\", '\\"', "{3:4}"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.integers(-99, 99).map(str), texts), inner, max_size=3),
    ),
    max_leaves=10,
)


def as_fastjson(value: Any) -> str:
    """Written as fastjson does: integers that are names stand without quotes."""
    if isinstance(value, dict):
        pairs = [
            (name if re.fullmatch("-?[0-9]+", name) else json.dumps(name)) + ":" + as_fastjson(inner)
            for name, inner in value.items()
        ]
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(as_fastjson, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


@fuzz
@given(st.dictionaries(st.one_of(st.integers(-99, 99).map(str), texts), numbered, min_size=1, max_size=4))
def test_unquoted_integer_names(value: dict[str, Any]) -> None:
    """fastjson's form of an object is the object, whatever its texts look like."""
    assert decode_body(AnyBody, as_fastjson(value).encode(), JSON) == value


class Careless(ConsumerIdList):
    """Takes members on trust."""

    __slots__ = ()

    @classmethod
    def from_wire(cls, value: Any) -> "Careless":
        return cls(tuple(value["consumerIdList"]))


def test_a_careless_body_is_caught() -> None:
    """The canary: a class that indexes what it was sent does not pass for one that refuses."""

    @fuzz_broken
    @given(with_one_change(wires(ConsumerIdList), json_values))
    def check(value: Any) -> None:
        check_bytes(Careless, json.dumps(value).encode(), JSON)

    with pytest.raises((KeyError, TypeError)):
        check()
