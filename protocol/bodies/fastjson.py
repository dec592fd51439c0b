"""fastjson's dialect of JSON (wire.md 1.5), in which RocketMQ's Java code writes bodies.

It extends JSON by names without quotes, `{0:"a"}`; objects as names, `{{"queueId":0}:1}`; text in single quotes;
trailing commas; and `{"$ref":"$.a[0]"}` for an object that is elsewhere in the body. The reader accepts all of these in
linear time and to the depth of all JSON here. Strict JSON is read by the json module, at its speed.

A name that is an object is kept as its canonical JSON text. `ObjectKeyed` writes such a map.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from lockstep.protocol.bodies.fastjson_refs import has_references, resolve_references
from lockstep.protocol.codecs.json_text import DEPTH_MAX, loads_text, too_deep
from lockstep.protocol.epochs import EpochValue, EpochValues, epoch_text

__all__ = ["ObjectKeyed", "dump_canonical", "dumps", "loads"]

_SPACE = re.compile(r"[ \t\r\n]*+")
_SPACE_AND_COMMAS = re.compile(r"[ \t\r\n,]*+")
_WORD = re.compile(r"[-+.$\w]++")
_SINGLE_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*+)'", re.DOTALL)
_QUOTE_OR_ESCAPE = re.compile(r"\\.|\"", re.DOTALL)
_NUMBER = re.compile(r"[-+]?\d++(\.\d*+)?([eE][-+]?\d++)?", re.ASCII)
_CONSTANTS = {"true": True, "false": False, "null": None}
_decode_string = json.JSONDecoder(strict=False).raw_decode


class ObjectKeyed:
    """A map to write with objects as names: canonical JSON text of a name -> value, in the order to write."""

    __slots__ = ("entries",)

    def __init__(self, entries: Mapping[str, Any]) -> None:
        self.entries = entries


class _ObjectKeyedFoundError(TypeError):
    pass


def _text_or_refuse(value: Any) -> Any:
    if isinstance(value, EpochValue):
        return str(value)
    if isinstance(value, EpochValues):
        return list(map(epoch_text, value.epochs))
    if isinstance(value, ObjectKeyed):
        raise _ObjectKeyedFoundError
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


dump_canonical = json.JSONEncoder(
    ensure_ascii=False,
    separators=(",", ":"),
    sort_keys=True,
    check_circular=False,
    allow_nan=False,
    default=_text_or_refuse,
).encode


def dumps(value: Any) -> str:
    """Write strict JSON with members in alphabetical order; only the names of an `ObjectKeyed` are objects.

    Raises ValueError or TypeError for a value that has no JSON form.
    """
    try:
        return dump_canonical(value)
    except _ObjectKeyedFoundError:
        return _dumps_slowly(value)


def _dumps_slowly(value: Any) -> str:
    if isinstance(value, ObjectKeyed):
        return "{" + ",".join([f"{key}:{_dumps_slowly(inner)}" for key, inner in value.entries.items()]) + "}"
    if isinstance(value, dict):
        members = [f"{dump_canonical(name)}:{_dumps_slowly(inner)}" for name, inner in sorted(value.items())]
        return "{" + ",".join(members) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_dumps_slowly, value)) + "]"
    return dump_canonical(value)


def loads(data: bytes, dialect_bytes_max: int | None = None) -> Any:
    """Read the value of a body.

    Args:
        dialect_bytes_max: The largest length of a text that is not strict JSON or has references: these take 20 to 40
            times as long to read. None: no limit.

    Raises:
        ValueError: The text has no value, is too long or too deep, or its references mean too many members.
    """
    too_long = dialect_bytes_max is not None and len(data) > dialect_bytes_max
    try:
        value = loads_text(data)
    except json.JSONDecodeError as error:
        if too_long:
            raise ValueError(f"it is no strict JSON ({error}), and {_over(data, dialect_bytes_max)}") from None
        value = _Reader(data.decode()).read()
        if b"\\u" in data:
            dump_canonical(value).encode()  # refuses lone surrogates
    if not has_references(data):
        return value
    if too_long:
        raise ValueError(f"it has references, and {_over(data, dialect_bytes_max)}")
    return resolve_references(value)


def _over(data: bytes, limit: int | None) -> str:
    return f"its {len(data)} bytes are over the limit of {limit} for such a text"


class _Reader:
    """Reads one text. Each method moves `_position` after the characters that it read. Nothing is read twice."""

    __slots__ = ("_position", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def read(self) -> Any:
        value = self._value(0)
        if self._next(_SPACE):
            raise self._error("something follows the value")
        return value

    def _next(self, skipped: re.Pattern[str]) -> str:
        """Skip characters and return the next one; "" at the end."""
        found = skipped.match(self._text, self._position)
        self._position = found.end() if found else self._position
        return self._text[self._position : self._position + 1]

    def _error(self, what: str) -> ValueError:
        return ValueError(f"{what}: character {self._position}")

    def _value(self, depth: int, *, in_key: bool = False) -> Any:
        first = self._next(_SPACE)
        if first in "{[" and first:
            if depth >= DEPTH_MAX:
                raise too_deep()
            self._position += 1
            return self._object(depth + 1, in_key) if first == "{" else self._list(depth + 1, in_key)
        if first in "\"'" and first:
            return self._string(first)
        return self._plain(self._word())

    def _object(self, depth: int, in_key: bool) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while (first := self._next(_SPACE_AND_COMMAS)) != "}":
            name = self._name(first, depth, in_key)
            if self._next(_SPACE) != ":":
                raise self._error("a colon is missing")
            self._position += 1
            members[name] = self._value(depth, in_key=in_key)
        self._position += 1
        return members

    def _name(self, first: str, depth: int, in_key: bool) -> str:
        if first in "\"'" and first:
            return self._string(first)
        if first != "{":
            return self._word()
        if in_key:
            # Each level would escape the inner quotes again.
            raise self._error("an object is a name inside a name")
        return dump_canonical(self._value(depth, in_key=True))

    def _list(self, depth: int, in_key: bool) -> list[Any]:
        values = []
        while self._next(_SPACE_AND_COMMAS) != "]":
            values.append(self._value(depth, in_key=in_key))
        self._position += 1
        return values

    def _string(self, quote: str) -> str:
        if quote == '"':
            text, self._position = _decode_string(self._text, self._position)
            return str(text)
        found = _SINGLE_QUOTED.match(self._text, self._position)
        if found is None:
            raise self._error("a text does not end")
        self._position = found.end()
        inner = _QUOTE_OR_ESCAPE.sub(lambda part: {'"': '\\"', "\\'": "'"}.get(part[0], part[0]), found[1])
        text, _ = _decode_string(f'"{inner}"')
        return str(text)

    def _word(self) -> str:
        found = _WORD.match(self._text, self._position)
        if found is None:
            raise self._error("a name or a value is missing")
        self._position = found.end()
        return found[0]

    def _plain(self, word: str) -> Any:
        if word in _CONSTANTS:
            return _CONSTANTS[word]
        number = _NUMBER.fullmatch(word)
        if number is None:
            raise self._error("neither a number nor true, false or null")
        return float(word) if number[1] or number[2] else int(word)
