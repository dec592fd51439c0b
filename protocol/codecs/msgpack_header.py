"""The MSGPACK header, type 2: ours, spoken only between peers that agreed.

A msgpack array `[code, flag, opaque, version, remark, fields, ext]`: `fields` is nil or an array of the typed
header's values in the order in which its class declares them, `ext` nil or a map of further extFields. Values are
typed: numbers are numbers, booleans booleans. A newer peer may append fields; a missing tail means "absent".
"""

from collections.abc import Mapping
from typing import Any

import msgpack

from lockstep.protocol.codecs.base import DecodedHeader, ExtValue
from lockstep.protocol.codes import LanguageCode
from lockstep.protocol.errors import HeaderError

__all__ = ["decode_header", "encode_header"]

_pack = msgpack.Packer().pack
_pack_replacing = msgpack.Packer(unicode_errors="replace").pack
_unpack = msgpack.unpackb
_PYTHON = int(LanguageCode.PYTHON)
_SHAPES = {
    (int, int, int, int, remark, fields, ext)
    for remark in (str, type(None))
    for fields in (list, type(None))
    for ext in (dict, type(None))
}


def encode_header(
    code: int,
    version: int,
    opaque: int,
    flag: int,
    remark: str | None,
    header: tuple[Any, ...] | None,
    ext_fields: Mapping[str, ExtValue] | None,
) -> bytes:
    parts = (code, flag, opaque, version, remark, header, ext_fields)
    try:
        packed: bytes = _pack(parts)
    except UnicodeEncodeError:  # lone surrogates become question marks, as in JSON
        packed = _pack_replacing(parts)
    return packed


def decode_header(data: bytes) -> DecodedHeader:
    try:
        parts = _unpack(data)
    except Exception as error:
        raise HeaderError(f"the header is not msgpack: {error}") from None
    if type(parts) is not list or tuple(map(type, parts)) not in _SHAPES:
        raise HeaderError("the header is not [code, flag, opaque, version, remark, fields, ext]")
    code, flag, opaque, version, remark, fields, ext = parts
    return code, _PYTHON, version, opaque, flag, remark, ext, fields
