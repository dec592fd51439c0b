"""The MSGPACK header, type 2: a Lockstep extension, used only between peers that agreed on it.

A msgpack array `[code, flag, opaque, version, remark, fields, ext]`: `fields` is nil or an array of the typed
header's values in the order of its class, `ext` is nil or a map of more extFields. Values keep their types. A newer
peer may append fields; missing fields at the end are absent.
"""

import msgpack

from lockstep.protocol.codecs.base import DecodedHeader, EncodableHeader
from lockstep.protocol.codes import LanguageCode
from lockstep.protocol.errors import HeaderError

__all__ = ["decode_header", "encode_header"]

_pack = msgpack.Packer().pack
_pack_replacing = msgpack.Packer(unicode_errors="replace").pack
_unpack = msgpack.unpackb
_PYTHON = int(LanguageCode.PYTHON)


def encode_header(command: EncodableHeader) -> bytes:
    parts = (
        command.code,
        command.flag,
        command.opaque,
        command.version,
        command.remark,
        command.header,
        command.ext_fields,
    )
    try:
        packed: bytes = _pack(parts)
    except UnicodeEncodeError:
        # Lone surrogates become question marks, like in JSON.
        packed = _pack_replacing(parts)
    return packed


def decode_header(data: bytes) -> DecodedHeader:
    try:
        parts = _unpack(data)
    except Exception as error:
        raise HeaderError(f"the header is not msgpack: {error}") from None
    try:
        code, flag, opaque, version, remark, fields, ext = parts
        if ext:
            # Raises TypeError for a name that is no text.
            "".join(ext)
        right = (
            type(code) is int
            and type(flag) is int
            and type(opaque) is int
            and type(version) is int
            and (remark is None or type(remark) is str)
            and (fields is None or type(fields) is list)
            and (ext is None or type(ext) is dict)
            and type(parts) is list
        )
    except (TypeError, ValueError):
        # Not seven parts, or not an array.
        right = False
    if not right:
        raise HeaderError("the header is not [code, flag, opaque, version, remark, fields, ext]")
    return code, _PYTHON, version, opaque, flag, remark, ext, fields
