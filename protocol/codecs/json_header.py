"""The JSON header, type 0 (wire.md 1.2), which every RocketMQ client and broker supports.

The values of extFields are written as strings, which Go and C++ require; numbers and booleans are read too. Lone
surrogates have no UTF-8 form: they are written as question marks, like in Java, and refused on receipt.
"""

import json
from typing import Any

from lockstep.protocol.codecs.base import DecodedHeader, EncodableHeader, ExtValue
from lockstep.protocol.codes import LanguageCode
from lockstep.protocol.errors import HeaderError, shown
from lockstep.protocol.headers.spec import spec_of

__all__ = ["decode_header", "encode_header", "loads_text", "to_text"]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
_decode = json.JSONDecoder().decode
_LANGUAGES = {language.name: int(language) for language in LanguageCode}


def encode_header(command: EncodableHeader) -> bytes:
    header, ext_fields = command.header, command.ext_fields
    parts: dict[str, Any] = {"code": command.code}
    if header is not None or ext_fields is not None:
        texts: dict[str, str] = {} if header is None else spec_of(type(header)).to_texts(header)
        if ext_fields:
            texts.update((name, to_text(value)) for name, value in ext_fields.items())
        parts["extFields"] = texts
    parts["flag"] = command.flag
    parts["language"] = "PYTHON"
    parts["opaque"] = command.opaque
    if command.remark is not None:
        parts["remark"] = command.remark
    parts["serializeTypeCurrentRPC"] = "JSON"
    parts["version"] = command.version
    return _encode(parts).encode("utf-8", "replace")


def to_text(value: ExtValue) -> str:
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)


def loads_text(data: bytes) -> Any:
    """Parse JSON in UTF-8. Raises ValueError, also for lone surrogates in escapes, and RecursionError."""
    value = _decode(data.decode())
    if b"\\ud" in data or b"\\uD" in data:  # it may be a lone surrogate
        _encode(value).encode()
    return value


def decode_header(data: bytes) -> DecodedHeader:
    try:
        parts = loads_text(data)
    except (ValueError, RecursionError) as error:
        raise HeaderError(f"the header is not JSON: {error}") from None
    if not isinstance(parts, dict):
        raise HeaderError("the header is not a JSON object")
    get = parts.get
    code, language, remark, ext = get("code"), get("language"), get("remark"), get("extFields")
    if type(code) is not int:
        raise HeaderError(f"code must be a number, not {shown(code)}")
    version, opaque, flag = get("version", 0), get("opaque"), get("flag", 0)
    if not (type(version) is type(opaque) is type(flag) is int):
        found = ", ".join(map(shown, (version, opaque, flag)))
        raise HeaderError(f"version, opaque and flag must be numbers, not {found}")
    if ext is not None and not isinstance(ext, dict):
        raise HeaderError("extFields must be an object")
    ordinal = _LANGUAGES.get(language, LanguageCode.OTHER) if isinstance(language, str) else LanguageCode.OTHER
    text = remark if isinstance(remark, str) else None
    return code, int(ordinal), version, opaque, flag, text, ext, None
