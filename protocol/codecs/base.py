"""The interface of a header codec: two functions that encode and decode a header."""

from collections.abc import Mapping
from typing import Any, Protocol

__all__ = ["DecodedHeader", "EncodableHeader", "ExtValue", "HeaderCodec"]

ExtValue = str | int | bool


DecodedHeader = tuple[
    int,  # code
    int,  # language: ordinal of LanguageCode; unknown names are OTHER
    int,  # version
    int,  # opaque
    int,  # flag
    str | None,  # remark
    Mapping[str, Any] | None,  # ext_fields, untyped, by name
    list[Any] | None,  # MSGPACK: the values of the typed header, in field order
]
"""A header with untyped fields. It is a plain tuple for speed: every received command has one."""


class EncodableHeader(Protocol):
    """The parts of a command that a codec encodes. `header` is typed; `ext_fields` has more fields by name."""

    code: int
    version: int
    opaque: int
    flag: int
    remark: str | None
    header: tuple[Any, ...] | None
    ext_fields: Mapping[str, ExtValue] | None


class HeaderCodec(Protocol):
    def encode_header(self, command: EncodableHeader) -> bytes: ...

    def decode_header(self, data: bytes) -> DecodedHeader:
        """Decode a header. Raises HeaderError."""
