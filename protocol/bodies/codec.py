"""Encodes structured bodies: JSON after JSON and binary headers, msgpack after MSGPACK headers (docs/architecture.md).

A body class has `to_wire()`, which returns dicts and lists with RocketMQ's member names, and `from_wire(value)`. JSON
is written like in fastjson: members in alphabetical order, no white space. So the bytes are equal to Java's.
fastjson.py describes the JSON that is read. Values of another type are converted like in fastjson. A trailing newline
(from C++) and unknown members are ignored.
"""

import math
from collections.abc import Callable
from typing import Any, Protocol, Self, TypeVar

import msgpack

from lockstep.protocol.bodies.fastjson import ObjectKeyed, dumps, loads
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.epochs import EpochValue, EpochValues
from lockstep.protocol.errors import BodyError, LocalProtocolError, short_text

__all__ = [
    "WireBody",
    "as_bool",
    "as_float",
    "as_int",
    "as_list",
    "as_object",
    "as_table",
    "as_text",
    "as_texts",
    "decode_body",
    "encode_body",
    "encode_part",
    "take",
]

_MSGPACK = int(SerializeType.MSGPACK)


class WireBody(Protocol):
    def to_wire(self) -> dict[str, Any]: ...

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        """Read a body. Raises BodyError with the name of a wrong member."""


B = TypeVar("B", bound=WireBody)
T = TypeVar("T")


def encode_body(body: WireBody, serialize_type: int) -> bytes:
    """Encode a body. Raises LocalProtocolError if a value has no wire form."""
    return encode_part(body.to_wire(), serialize_type, type(body).__name__)


def encode_part(wire: Any, serialize_type: int, what: str = "body") -> bytes:
    """Encode a value of dicts, lists and scalars. Raises LocalProtocolError with `what` in its text."""
    try:
        if serialize_type == _MSGPACK:
            packed: bytes = msgpack.packb(wire, default=_entries)
            return packed
        return dumps(wire).encode("utf-8")
    except (ValueError, TypeError, OverflowError) as error:
        raise LocalProtocolError(f"a {what} cannot be written: {error}") from None


def _entries(value: Any) -> Any:
    if isinstance(value, ObjectKeyed):
        return value.entries
    if isinstance(value, EpochValues):
        return value.epochs
    if isinstance(value, EpochValue):
        return value.epoch
    raise TypeError(f"a {type(value).__name__} has no form in msgpack")


def decode_body(body_class: type[B], data: bytes, serialize_type: int, *, dialect_bytes_max: int | None = None) -> B:
    """Decode a body. Raises BodyError. For `dialect_bytes_max` see `fastjson.loads`."""
    try:
        value = msgpack.unpackb(data) if serialize_type == _MSGPACK else loads(data, dialect_bytes_max)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise BodyError(f"the body is not a {body_class.__name__}: {error}") from None
    return body_class.from_wire(value)


_MISSING: Any = object()
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def as_object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BodyError(f"{what} must be an object, not {short_text(value)}")
    return value


def as_list(value: Any, what: str) -> list[Any]:
    """Check a list. A missing list counts as empty, like in fastjson."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BodyError(f"{what} must be a list, not {short_text(value)}")
    return value


def as_table(value: Any, what: str) -> dict[str, Any]:
    """Check an object whose member names are data. In msgpack a name may be of another type than text: refuse it."""
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
    """Read an integer of 64 bits, the largest that can be written. Text (from C++) and `1.0` are accepted."""
    number = value
    if type(value) is str:
        try:
            number = int(value)
        except ValueError:
            number = None
    elif type(value) is float and value.is_integer():
        number = int(value)
    if type(number) is not int or not _INT64_MIN <= number <= _INT64_MAX:
        raise BodyError(f"{what} must be of type int, not {short_text(value)}")
    return number


def as_float(value: Any, what: str) -> float:
    """Read a finite number. Text and integers are accepted."""
    try:
        number = float(value) if type(value) in (float, int, str) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise BodyError(f"{what} must be of type float, not {short_text(value)}")
    return number


def as_bool(value: Any, what: str) -> bool:
    """Read a boolean. Text in any case, and 1 and 0, are accepted."""
    key = value.lower() if type(value) is str else value
    truth = _TRUTHS.get(key) if type(key) in (bool, int, str) else None
    if truth is None:
        raise BodyError(f"{what} must be of type bool, not {short_text(value)}")
    return truth


def as_text(value: Any, what: str) -> str:
    """Read a text. A number or boolean becomes its JSON text."""
    if type(value) is str:
        return value
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int and _INT64_MIN <= value <= _INT64_MAX:
        return str(value)
    raise BodyError(f"{what} must be of type str, not {short_text(value)}")


_TRUTHS = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}
_CONVERTED: dict[type, Callable[[Any, str], Any]] = {int: as_int, float: as_float, bool: as_bool, str: as_text}


def take(wire: dict[str, Any], name: str, kind: type[T], default: T = _MISSING) -> T:
    """Read the member `name` as `kind`: int, float, bool or str. Raises BodyError."""
    value = wire.get(name)
    if value is None:
        if default is _MISSING:
            raise BodyError(f"the member {name} is missing")
        return default
    if type(value) is kind and kind is not int and kind is not float:
        return value
    converted: T = _CONVERTED[kind](value, f"the member {name}")
    return converted
