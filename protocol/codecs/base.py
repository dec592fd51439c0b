"""What every header codec is: two functions between a header's bytes and its parts."""

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
    list[Any] | None,  # MSGPACK: the typed header's values in the order of its fields
]
"""A header with its fields still untyped. A plain tuple: one is made for every command that arrives."""


class EncodableHeader(Protocol):
    """What a codec needs of a command: its header's parts, `header` typed and `ext_fields` beside it."""

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
        """Raises HeaderError."""
