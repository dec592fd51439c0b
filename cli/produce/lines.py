"""Reads lines of a file or a pipe, and makes a message of each."""

import base64
import binascii
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from lockstep.cli.output import CliError
from lockstep.protocol.codes import FRAME_BYTES_MAX
from lockstep.protocol.messages.to_send import Message
from lockstep.remoting.host.runtime import WorkerPool

__all__ = ["BadLine", "ByteReader", "Line", "LineFormat", "LineReader", "check_word"]

_READ_BYTES = 256 * 1024
_SEPARATORS = frozenset("\x01\x02")


class ByteReader(Protocol):
    """An unbuffered file: `read` returns what is available, and blocks only when nothing is."""

    def read(self, size: int, /) -> bytes | None: ...


class BadLine(CliError):
    """A line that cannot be a message; the text has its number."""


class Line(NamedTuple):
    number: int  # from 1
    data: bytes  # without its line end
    file: str | None = None  # given when several are read

    @property
    def place(self) -> str:
        return f"line {self.number}" if self.file is None else f"{self.file}, line {self.number}"


class LineReader:
    """Reads on a worker thread, so that a silent pipe does not block the event loop."""

    def __init__(self, source: ByteReader, pool: WorkerPool, file: str | None = None) -> None:
        self._source = source
        self._file = file
        self._pool = pool

    async def __aiter__(self) -> AsyncIterator[Line]:
        """Each line as soon as it is complete. Raises BadLine for a line that is longer than any message."""
        rest, number = b"", 0
        while chunk := await self._pool.submit(lambda: self._source.read(_READ_BYTES)):
            *whole, rest = (rest + chunk).split(b"\n")
            for data in whole:
                number += 1
                yield Line(number, data.removesuffix(b"\r"), self._file)
            last = Line(number + 1, rest.removesuffix(b"\r"), self._file)
            if len(rest) > FRAME_BYTES_MAX:
                raise BadLine(f"{last.place}: is longer than {FRAME_BYTES_MAX} bytes")
        if rest:
            yield last


@dataclass(frozen=True, kw_only=True)
class LineFormat:
    """How a line becomes a message of `topic`.

    With `text` the line is the body. With `envelope` it is a message as `lockstep consume` prints it. Otherwise it is a
    JSON object, and the body is the whole line or its `body_field`. The sharding key is `key`, or each line's
    `key_field`, or the text before `key_delimiter`, of which the rest is the body.

    `tags`, `keys` and `properties` are those of every message; they win over an envelope's own.
    """

    topic: str
    text: bool = False
    envelope: bool = False
    key: str | None = None
    key_field: str | None = None
    key_delimiter: str | None = None
    body_field: str | None = None
    tags: str | None = None
    keys: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    delay_ms: int = 0

    def message(self, line: Line) -> Message | None:
        """The message of a line; None for an empty line. Raises BadLine."""
        try:
            if self.text or self.key_delimiter is not None:
                return self._text_message(line.data)
            if not line.data.strip():
                return None
            fields = _json_object(line.data)
            return self._envelope_message(fields) if self.envelope else self._json_message(line.data, fields)
        except ValueError as error:
            raise BadLine(f"{line.place}: {error}") from None

    def _text_message(self, data: bytes) -> Message:
        key, body = self.key, data
        if self.key_delimiter is not None:
            before, found, body = data.partition(self.key_delimiter.encode("utf-8"))
            if not found:
                raise ValueError(f"has no {self.key_delimiter!r} after a key (--key-delimiter)")
            key = check_word(before.decode("utf-8"), "the key")
        if not body:
            raise ValueError("is empty; a body has at least one byte")
        return self._made(body, key)

    def _json_message(self, data: bytes, fields: dict[str, Any]) -> Message:
        key = self.key if self.key_field is None else _key(fields, self.key_field)
        body = data.strip() if self.body_field is None else _body(fields, self.body_field)
        return self._made(body, key)

    def _made(self, body: bytes, key: str | None) -> Message:
        properties = dict(self.properties)
        return Message(
            self.topic,
            body,
            tags=self.tags,
            keys=self.keys,
            sharding_key=key,
            properties=properties,
            delay_ms=self.delay_ms,
        )

    def _envelope_message(self, fields: dict[str, Any]) -> Message:
        key = self.key or _word(fields, "key")
        properties = _optional(fields, "properties", dict) or {}
        if not all(isinstance(value, str) for value in properties.values()):
            raise ValueError("field 'properties' must hold texts only")
        return Message(
            self.topic,
            _envelope_body(fields),
            tags=self.tags or _word(fields, "tags"),
            keys=self.keys or _word(fields, "keys"),
            sharding_key=key,
            properties={**properties, **self.properties},
            delay_ms=self.delay_ms,
        )


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")


def _json_object(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise ValueError(
            f"is not JSON: {error.msg} at character {error.colno} (--text takes lines as they are)"
        ) from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"is {_kind(value)}, not a JSON object (--text takes lines as they are)")
    return value


def _key(fields: dict[str, Any], name: str) -> str:
    value = _field(fields, name)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"field {name!r} is {_kind(value)}; a key is a text or a whole number")
    return check_word(str(value), f"field {name!r}")


def check_word(text: str, what: str) -> str:
    """Check a key or a tag: a property string must be able to hold it. Raises ValueError."""
    if not text:
        raise ValueError(f"{what} is empty; leave it out, or give it a character")
    if not _SEPARATORS.isdisjoint(text):
        raise ValueError(f"{what} has a character 0x01 or 0x02 in it, which separate properties")
    text.encode("utf-8")  # half of a surrogate pair cannot be encoded
    return text


def _body(fields: dict[str, Any], name: str) -> bytes:
    value = _field(fields, name)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not text:
        raise ValueError(f"field {name!r} is empty; a body has at least one byte")
    return text.encode("utf-8")


def _field(fields: dict[str, Any], name: str) -> Any:
    if name not in fields:
        raise ValueError(f"has no field {name!r}; it has {', '.join(map(repr, fields)) or 'none'}")
    return fields[name]


def _envelope_body(fields: dict[str, Any]) -> bytes:
    error = _optional(fields, "body_error", str)
    if error is not None:
        raise ValueError(
            f"has a body that could not be read ({error}), and is not sent: its bytes would be another body"
        )
    decoders: dict[str, Callable[[str], bytes]] = {
        "body": lambda text: text.encode("utf-8"),
        "body_base64": lambda text: base64.b64decode(text, validate=True),
    }
    for name, decode in decoders.items():
        text = _optional(fields, name, str)
        if text:
            try:
                return decode(text)
            except binascii.Error:
                raise ValueError(f"field {name!r} is not base64") from None
    raise ValueError("has no field 'body' or 'body_base64' with at least one byte in it")


def _word(fields: dict[str, Any], name: str) -> str | None:
    value = _optional(fields, name, str)
    return None if value is None else check_word(value, f"field {name!r}")


def _optional(fields: dict[str, Any], name: str, kind: type) -> Any:
    value = fields.get(name)
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"field {name!r} is {_kind(value)}; it must be {_kind(kind())}")
    return value


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    kinds = {str: "a text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return kinds[type(value)]
