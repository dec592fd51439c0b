"""Structured bodies as bytes: JSON behind JSON and binary headers, msgpack behind MSGPACK ones
(docs/architecture.md).

A body class has `to_wire()`, plain dicts and lists under RocketMQ's member names, and `from_wire(value)`. JSON is
written as fastjson writes it, members in alphabetical order and nothing between them, so that bodies made by us and
by Java are equal byte for byte. Reading takes a trailing newline (C++) and ignores members it does not know.
"""

import json
import re
from typing import Any, Protocol, Self, TypeVar

import msgpack

from lockstep.protocol.codecs.json_header import loads_text
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.errors import BodyError, LocalProtocolError, shown

__all__ = [
    "WireBody",
    "as_int",
    "as_list",
    "as_object",
    "as_table",
    "as_texts",
    "decode_body",
    "encode_body",
    "take",
]

_MSGPACK = int(SerializeType.MSGPACK)
_encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, check_circular=False).encode


class WireBody(Protocol):
    def to_wire(self) -> dict[str, Any]: ...

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        """Raises BodyError naming the member that is wrong."""


B = TypeVar("B", bound=WireBody)
T = TypeVar("T")


def encode_body(body: WireBody, serialize_type: int) -> bytes:
    """Raises LocalProtocolError for values that have no form on the wire."""
    wire = body.to_wire()
    try:
        if serialize_type == _MSGPACK:
            packed: bytes = msgpack.packb(wire)
            return packed
        return _encode_json(wire).encode("utf-8")
    except (ValueError, TypeError, OverflowError) as error:
        raise LocalProtocolError(f"a {type(body).__name__} cannot be written: {error}") from None


def decode_body(body_class: type[B], data: bytes, serialize_type: int) -> B:
    """Raises BodyError."""
    try:
        value = msgpack.unpackb(data) if serialize_type == _MSGPACK else _loads(data)
    except (ValueError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise BodyError(f"the body is not a {body_class.__name__}: {error}") from None
    return body_class.from_wire(value)


# A string, which is kept as it is, or a number that stands as a member's name without quotes (wire.md 1.5). A string
# that never ends is matched to its end, and nothing is tried twice, so that hostile text costs linear time.
_BARE_KEY = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|(?<=[{,])\s*+(-?\d++)(?=\s*+:)', re.DOTALL)


def _loads(data: bytes) -> Any:
    """JSON, or fastjson's dialect of it with integer keys unquoted, as Apache's brokers send to old clients."""
    try:
        return loads_text(data)
    except json.JSONDecodeError:
        return loads_text(_BARE_KEY.sub(lambda found: b'"%b"' % found[1] if found[1] else found[0], data))


_MISSING: Any = object()
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def as_object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BodyError(f"{what} must be an object, not {shown(value)}")
    return value


def as_list(value: Any, what: str) -> list[Any]:
    """A missing list is an empty one, as fastjson reads it."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BodyError(f"{what} must be a list, not {shown(value)}")
    return value


def as_table(value: Any, what: str) -> dict[str, Any]:
    """An object whose members' names are values too; msgpack could bring names that are no text."""
    table = as_object(value, what)
    if not all(type(name) is str for name in table):
        raise BodyError(f"{what} must have names of text")
    return table


def as_texts(value: Any, what: str) -> tuple[str, ...]:
    texts = as_list(value, what)
    if not all(type(text) is str for text in texts):
        raise BodyError(f"{what} must hold texts only")
    return tuple(texts)


def as_int(value: Any, what: str) -> int:
    """A number of 64 bits, the most that can be written again; it may come as text (C++)."""
    number = value
    if type(value) is str:
        try:
            number = int(value)
        except ValueError:
            number = None
    if type(number) is not int or not _INT64_MIN <= number <= _INT64_MAX:
        raise BodyError(f"{what} must be of type int, not {shown(value)}")
    return number


def take(wire: dict[str, Any], name: str, kind: type[T], default: T = _MISSING) -> T:
    """Member `name` as `kind`; numbers may come as text. Raises BodyError."""
    value = wire.get(name)
    if value is None:
        if default is _MISSING:
            raise BodyError(f"the member {name} is missing")
        return default
    if kind is int:
        return as_int(value, f"the member {name}")  # type: ignore[return-value]
    if type(value) is not kind:
        raise BodyError(f"the member {name} must be of type {kind.__name__}, not {shown(value)}")
    return value
