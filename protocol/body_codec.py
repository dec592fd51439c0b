"""Structured bodies as bytes: JSON behind JSON and binary headers, msgpack behind MSGPACK ones (DESIGN, "Wire").

A body class has `to_wire()`, plain dicts and lists under RocketMQ's member names, and `from_wire(value)`. JSON is
written as fastjson writes it, members in alphabetical order and nothing between them, so that bodies made by us and
by Java are equal byte for byte. Reading takes a trailing newline (C++) and ignores members it does not know.
"""

import json
import re
from typing import Any, Protocol, Self, TypeVar

import msgpack

from lockstep.protocol.codes import SerializeType
from lockstep.protocol.errors import BodyError

__all__ = ["WireBody", "as_list", "as_object", "decode_body", "encode_body", "take"]

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
    wire = body.to_wire()
    if serialize_type == _MSGPACK:
        packed: bytes = msgpack.packb(wire)
        return packed
    return _encode_json(wire).encode("utf-8")


def decode_body(body_class: type[B], data: bytes, serialize_type: int) -> B:
    """Raises BodyError."""
    try:
        value = msgpack.unpackb(data) if serialize_type == _MSGPACK else _loads(data)
    except (ValueError, RecursionError, msgpack.exceptions.UnpackException) as error:
        raise BodyError(f"the body is not a {body_class.__name__}: {error}") from None
    return body_class.from_wire(value)


# A string, which is kept as it is, or a number that stands as a member's name without quotes (wire.md 1.5).
_BARE_KEY = re.compile(rb'"(?:[^"\\]|\\.)*"|(?<=[{,])(\s*)(-?\d+)(?=\s*:)')


def _loads(data: bytes) -> Any:
    """JSON, or fastjson's dialect of it with integer keys unquoted, as Apache's brokers send to old clients."""
    try:
        return json.loads(data)
    except json.JSONDecodeError:
        if not _BARE_KEY.search(data):
            raise
        return json.loads(_BARE_KEY.sub(lambda found: b'"%b"' % found[2] if found[2] else found[0], data))


_MISSING: Any = object()


def as_object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BodyError(f"{what} must be an object, not {value!r:.80}")
    return value


def as_list(value: Any, what: str) -> list[Any]:
    """A missing list is an empty one, as fastjson reads it."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BodyError(f"{what} must be a list, not {value!r:.80}")
    return value


def take(wire: dict[str, Any], name: str, kind: type[T], default: T = _MISSING) -> T:
    """Member `name` as `kind`; numbers may come as text (C++). Raises BodyError."""
    value = wire.get(name)
    if value is None:
        if default is _MISSING:
            raise BodyError(f"the member {name} is missing")
        return default
    if type(value) is kind:
        return value
    if kind is int and isinstance(value, str):
        try:
            return int(value)  # type: ignore[return-value]
        except ValueError:
            pass
    raise BodyError(f"the member {name} must be of type {kind.__name__}, not {value!r:.80}")
