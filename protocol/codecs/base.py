"""What every header codec is: two functions between a header's bytes and its parts."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

__all__ = ["DecodedHeader", "ExtValue", "HeaderCodec"]

ExtValue = str | int | bool


class DecodedHeader(NamedTuple):
    """A header with its extFields still untyped: by name, by position, or both."""

    code: int
    language: int  # ordinal of LanguageCode; unknown names become OTHER
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext_fields: Mapping[str, ExtValue] | None
    positional: list[Any] | None  # MSGPACK: the typed header's values in the order of its fields


class HeaderCodec(Protocol):
    def encode_header(
        self,
        code: int,
        version: int,
        opaque: int,
        flag: int,
        remark: str | None,
        header: tuple[Any, ...] | None,
        ext_fields: Mapping[str, ExtValue] | None,
    ) -> bytes: ...

    def decode_header(self, data: bytes) -> DecodedHeader:
        """Raises HeaderError."""
