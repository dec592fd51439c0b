"""The binary header, type 1 (wire.md 1.3), which Java clients use with rocketmq.serialize.type=ROCKETMQ.

    code h | language B | version h | opaque i | flag i | remarkLength i, remark | extFieldsLength i, then entries:
    keyLength h, key, valueLength i, value

Texts are UTF-8. Java reads an empty text as absent, so empty values and an empty remark are not written. If a name
occurs more than once, the last entry counts.
"""

import struct
from typing import Final

from lockstep.protocol.codecs.base import DecodedHeader, EncodableHeader
from lockstep.protocol.codecs.json_header import to_text
from lockstep.protocol.codes import LanguageCode
from lockstep.protocol.errors import HeaderError, LocalProtocolError, short_text
from lockstep.protocol.headers.spec import spec_of

__all__ = ["decode_header", "encode_header"]

_FIXED = struct.Struct(">hBhiii")  # the fields up to remarkLength
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_KEY_BYTES_MAX: Final = 32767
_PYTHON = int(LanguageCode.PYTHON)
_OTHER = int(LanguageCode.OTHER)
_LANGUAGES = frozenset(map(int, LanguageCode))


def encode_header(command: EncodableHeader) -> bytes:
    """Encode a header. Raises LocalProtocolError for a code or version over 16 bits, or a too long name."""
    texts: dict[str, str] = {}
    if command.header is not None:
        texts = spec_of(type(command.header)).to_texts(command.header)
    if command.ext_fields:
        texts.update((name, to_text(value)) for name, value in command.ext_fields.items())
    remark = command.remark.encode("utf-8", "replace") if command.remark else b""
    parts: list[bytes] = []
    try:
        for name, text in texts.items():
            if name and text:
                key, value = name.encode("utf-8", "replace"), text.encode("utf-8", "replace")
                parts += (_SHORT.pack(len(key)), key, _INT.pack(len(value)), value)
        entries = b"".join(parts)
        fixed = _FIXED.pack(command.code, _PYTHON, command.version, command.opaque, command.flag, len(remark))
    except struct.error:
        raise LocalProtocolError(
            f"code {command.code}, version {command.version} or a name among {short_text(texts)} is too large for a "
            "binary header"
        ) from None
    return b"".join((fixed, remark, _INT.pack(len(entries)), entries))


def decode_header(data: bytes) -> DecodedHeader:
    """Decode a header. Raises HeaderError, also for a wrong length or bytes after the last entry."""
    try:
        code, language, version, opaque, flag, remark_bytes = _FIXED.unpack_from(data)
        position = _FIXED.size
        remark, position = _text(data, position, remark_bytes, len(data), "the remark")
        (entries_bytes,) = _INT.unpack_from(data, position)
        position += 4
        end = position + entries_bytes
        if entries_bytes < 0 or end != len(data):
            raise HeaderError(f"extFields of {entries_bytes} bytes do not fit a header of {len(data)}")
        ext_fields: dict[str, str] = {}
        while position < end:
            (key_bytes,) = _SHORT.unpack_from(data, position)
            key, position = _text(data, position + 2, key_bytes, end, "a field's name")
            (value_bytes,) = _INT.unpack_from(data, position)
            value, position = _text(data, position + 4, value_bytes, end, "a field's value")
            if key and value:
                ext_fields[key] = value
    except struct.error as error:
        raise HeaderError(f"the binary header is cut short: {error}") from None
    except UnicodeDecodeError as error:
        raise HeaderError(f"the binary header holds no UTF-8: {error}") from None
    if language not in _LANGUAGES:
        language = _OTHER
    return code, language, version, opaque, flag, remark or None, ext_fields or None, None


def _text(data: bytes, start: int, size: int, end_max: int, what: str) -> tuple[str, int]:
    end = start + size
    if size < 0 or end > end_max:
        raise HeaderError(f"{what} of {size} bytes does not fit the binary header")
    return data[start:end].decode(), end
