"""The JSON header, type 0 (wire.md 1.2), which every RocketMQ client and broker supports.

The values of extFields are written as strings, which Go and C++ require; numbers and booleans are read too. Lone
surrogates have no UTF-8 form: they are written as question marks, like in Java, and refused on receipt.
"""

import json
from collections.abc import Collection
from functools import lru_cache
from json.encoder import encode_basestring as _quoted
from types import NoneType
from typing import Any, NamedTuple

import orjson

from lockstep.protocol.codecs.base import DecodedHeader, EncodableHeader, ExtValue
from lockstep.protocol.codecs.json_text import SHALLOW_BYTES, is_too_deep, loads_text
from lockstep.protocol.codes import LanguageCode
from lockstep.protocol.errors import HeaderError, short_text
from lockstep.protocol.headers.spec import spec_of

__all__ = ["decode_header", "encode_header", "to_text"]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_PLAIN = frozenset((str, int, bool, NoneType))
_LANGUAGES = {language.name: int(language) for language in LanguageCode}
_OTHER = int(LanguageCode.OTHER)


def encode_header(command: EncodableHeader) -> bytes:
    header, ext_fields = command.header, command.ext_fields
    if header is not None and not ext_fields:
        form = _form(type(header), tuple(map(type, header)))
        if form is not None:
            values = [value for value in header if value is not None]
            for place in form.texts:
                values[place] = _quoted(values[place])
            for place in form.flags:
                values[place] = "true" if values[place] else "false"
            before, version = (command.code, *values, command.flag, command.opaque), command.version
            if command.remark is None:
                return (form.form % (*before, version)).encode("utf-8", "replace")
            return (form.with_remark % (*before, _quoted(command.remark), version)).encode("utf-8", "replace")
    ext = remark = ""
    if header is not None or ext_fields is not None:
        texts: dict[str, str] = {} if header is None else spec_of(type(header)).to_texts(header)
        texts.update((name, to_text(value)) for name, value in (ext_fields or {}).items())
        ext = _encode(texts)
    if command.remark is not None:
        remark = f'"remark":{_quoted(command.remark)},'
    text = _text(f"{command.code:d}", ext, f"{command.flag:d}", f"{command.opaque:d}", f"{command.version:d}", remark)
    return text.encode("utf-8", "replace")


def _text(code: str, ext_fields: str, flag: str, opaque: str, version: str, remark: str = "") -> str:
    """A header; an empty `ext_fields` is left out. `remark` is a whole member or nothing."""
    ext = f'"extFields":{ext_fields},' if ext_fields else ""
    return (
        f'{{"code":{code},{ext}"flag":{flag},"language":"PYTHON","opaque":{opaque},'
        f'{remark}"serializeTypeCurrentRPC":"JSON","version":{version}}}'
    )


class _Form(NamedTuple):
    """How headers of one shape are written: formats, and which of the values for them are texts and booleans."""

    form: str
    with_remark: str
    texts: list[int]
    flags: list[int]


@lru_cache(maxsize=512)
def _form(header_class: type[tuple[Any, ...]], types: tuple[type, ...]) -> _Form | None:
    """The form of a header whose values have these types; None unless they are those of its fields."""
    pairs = zip(spec_of(header_class).fields, types, strict=True)
    present = [(field, kind) for field, kind in pairs if kind is not NoneType]
    if any(field.kind is not kind for field, kind in present):
        return None
    members = [f'"{field.wire_name}":%s' if kind is str else f'"{field.wire_name}":"%s"' for field, kind in present]
    texts = [place for place, (_, kind) in enumerate(present) if kind is str]
    flags = [place for place, (_, kind) in enumerate(present) if kind is bool]
    ext, numbers = "{" + ",".join(members) + "}", ("%d", "%d", "%d")
    return _Form(_text("%d", ext, *numbers), _text("%d", ext, *numbers, '"remark":%s,'), texts, flags)


def to_text(value: ExtValue) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)


def decode_header(data: bytes) -> DecodedHeader:
    """Decode a header: a usual one with orjson, in half the time of the json module, which reads all others.

    orjson refuses NaN and lone surrogates, and reads a number of more than 64 bits as a float. So a header with
    numbers of another type, or with other values in extFields than texts and whole numbers, is not a usual one.
    """
    try:
        parts = orjson.loads(data)
        get = parts.get
        code, version, opaque, flag, ext = (
            get("code"),
            get("version", 0),
            get("opaque"),
            get("flag", 0),
            get("extFields"),
        )
        usual = type(code) is type(version) is type(opaque) is type(flag) is int and (
            ext is None or _is_plain(ext.values())
        )
    except (ValueError, AttributeError):
        usual = False
    if not usual or (len(data) > SHALLOW_BYTES and is_too_deep(data)):
        return _decode_any(data)
    language, remark = get("language"), get("remark")
    ordinal = _LANGUAGES.get(language, _OTHER) if type(language) is str else _OTHER
    return code, ordinal, version, opaque, flag, remark if type(remark) is str else None, ext, None


def _is_plain(values: Collection[Any]) -> bool:
    """Are all of these texts, whole numbers, booleans or null? The first look takes a third of the second."""
    try:
        "".join(values)
    except TypeError:
        return _PLAIN.issuperset(map(type, values))
    return True


def _decode_any(data: bytes) -> DecodedHeader:
    try:
        parts = loads_text(data)
    except ValueError as error:
        raise HeaderError(f"the header is not JSON: {error}") from None
    if not isinstance(parts, dict):
        raise HeaderError("the header is not a JSON object")
    get = parts.get
    code, language, remark, ext = get("code"), get("language"), get("remark"), get("extFields")
    if type(code) is not int:
        raise HeaderError(f"code must be a number, not {short_text(code)}")
    version, opaque, flag = get("version", 0), get("opaque"), get("flag", 0)
    if not (type(version) is type(opaque) is type(flag) is int):
        found = ", ".join(map(short_text, (version, opaque, flag)))
        raise HeaderError(f"version, opaque and flag must be numbers, not {found}")
    if ext is not None and not isinstance(ext, dict):
        raise HeaderError("extFields must be an object")
    ordinal = _LANGUAGES.get(language, _OTHER) if isinstance(language, str) else _OTHER
    return code, ordinal, version, opaque, flag, remark if isinstance(remark, str) else None, ext, None
