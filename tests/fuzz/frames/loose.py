"""A frame whose parts may be anything: how it is written, and how its signature is reckoned, apart from the product.

The writers here are own code on purpose: what the product's codecs refuse to write must reach the broker too.
"""

import base64
import hashlib
import hmac
import json
import struct
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack

from lockstep.testing.peer import frame

__all__ = ["BINARY", "JSON", "LANGUAGES", "MSGPACK", "Account", "Loose", "sign", "to_bytes"]

JSON, BINARY, MSGPACK = 0, 1, 2
LANGUAGES: Final = ("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS")
_PLAIN: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False, default=str).encode
_PACK: Final = msgpack.Packer(default=str, unicode_errors="replace").pack
_ACCESS_KEY, _SIGNATURE = "AccessKey", "Signature"


@dataclass(slots=True)
class Loose:
    """A frame in parts.

    Args:
        kind: The header encoding.
        fields: The header fields by their names on the wire.
        names: Those of the positions of a MSGPACK header; None: there are no positions, all are further fields.
        extra: Text put into the JSON header as it is, such as a second field of the same name.
        body: A value that is encoded as JSON or MSGPACK, or bytes.
    """

    kind: int
    code: Any
    fields: dict[Any, Any] = field(default_factory=dict)
    body: Any = b""
    names: tuple[str, ...] | None = None
    flag: Any = 0
    opaque: Any = 0
    version: Any = 409
    language: Any = "JAVA"
    remark: Any = None
    extra: str = ""


@dataclass(frozen=True, slots=True)
class Account:
    """Keys as they are in a file of rules."""

    access_key: str
    secret_key: str


def to_bytes(loose: Loose) -> bytes:
    """The whole frame."""
    return frame(loose.kind, _HEADERS[loose.kind](loose), _body_bytes(loose))


def _body_bytes(loose: Loose) -> bytes:
    body = loose.body
    if not isinstance(body, bytes):
        body = loose.body = _packed(body) if loose.kind == MSGPACK else _PLAIN(body).encode("utf-8", "replace")
    return body


def _packed(value: Any) -> bytes:
    try:
        packed: bytes = _PACK(value)
    except OverflowError:  # msgpack has no longer numbers
        packed = _PACK(_shortened(value))
    return packed


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {_shortened(name): _shortened(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(each) for each in value]
    return value if not isinstance(value, int) or -(2**63) <= value < 2**64 else str(value)


def _json_header(loose: Loose) -> bytes:
    parts: dict[str, Any] = {"code": loose.code}
    if loose.fields:
        parts["extFields"] = loose.fields
    parts |= {"flag": loose.flag, "language": loose.language, "opaque": loose.opaque}
    if loose.remark is not None:
        parts["remark"] = loose.remark
    parts["version"] = loose.version
    text = _PLAIN(parts)
    if loose.extra:
        text = text[:-1] + "," + loose.extra + "}"
    return text.encode("utf-8", "replace")


def _binary_header(loose: Loose) -> bytes:
    remark = _text(loose.remark).encode("utf-8", "replace") if loose.remark is not None else b""
    entries = b"".join(
        struct.pack(">h", len(name) & 0x7FFF) + name + struct.pack(">i", len(value)) + value
        for name, value in (
            (_text(key).encode("utf-8", "replace"), _text(given).encode("utf-8", "replace"))
            for key, given in loose.fields.items()
            if given is not None
        )
    )
    language = LANGUAGES.index(loose.language) if loose.language in LANGUAGES else 200
    numbers = [_number(each) for each in (loose.code, loose.version, loose.opaque, loose.flag)]
    code, version, opaque, flag = numbers
    fixed = struct.pack(
        ">HBHIII", code & 0xFFFF, language, version & 0xFFFF, opaque & 0xFFFFFFFF, flag & 0xFFFFFFFF, len(remark)
    )
    return fixed + remark + struct.pack(">i", len(entries)) + entries


def _msgpack_header(loose: Loose) -> bytes:
    positions, ext = _positions(loose)
    return _packed((loose.code, loose.flag, loose.opaque, loose.version, loose.remark, positions, ext or None))


def _positions(loose: Loose) -> tuple[list[Any] | None, dict[Any, Any]]:
    if loose.names is None:
        return None, loose.fields
    ext = {name: value for name, value in loose.fields.items() if name not in loose.names}
    return [loose.fields.get(name) for name in loose.names], ext


_HEADERS: Final = {JSON: _json_header, BINARY: _binary_header, MSGPACK: _msgpack_header}


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "true" if value is True else "false" if value is False else "null" if value is None else str(value)


def sign(loose: Loose, account: Account) -> None:
    """Sign as RocketMQ's clients do: the values by the order of their names in UTF-16, then the body."""
    fields = loose.fields
    fields.pop(_SIGNATURE, None)
    fields[_ACCESS_KEY] = account.access_key
    absent = loose.kind != JSON  # a null of a binary header is not written, one of a MSGPACK position is no value
    given = [
        (_text(name), _text(value))
        for name, value in fields.items()
        if not (absent and value is None and (loose.kind == BINARY or (loose.names and name in loose.names)))
    ]
    given.sort(key=lambda pair: pair[0].encode("utf-16-be", "surrogatepass"))
    data = "".join([value for _, value in given]).encode("utf-8", "replace") + _body_bytes(loose)
    digest = hmac.new(account.secret_key.encode(), data, hashlib.sha1).digest()
    fields[_SIGNATURE] = base64.b64encode(digest).decode()
