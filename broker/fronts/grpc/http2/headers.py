"""hpack's two sides of a connection, which do less for headers that come in each call.

A call has some fifteen headers, and nearly all of them are the number of an entry in a table: a byte or two.
"""

from collections.abc import Iterable
from typing import Any, Final

import hpack
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

__all__ = ["Decoder", "Encoder"]

_Header = tuple[bytes, bytes]

_STATIC: Final = HeaderTable.STATIC_TABLE
_ENTRY_BYTES: Final = 32  # of each header beside its name and value (RFC 7541, 4.1)
_INDEXED, _LITERAL, _RESIZED = 0x80, 0x40, 0x20  # bits of the first byte of a header
_HUFFMAN: Final = 0x80
# All bits of a number: it goes on in the next byte. More than two are rare.
_INDEX_BITS: Final = 0x7F
_NAME_BITS: Final = 0x3F
_SIZE_BITS: Final = 0x7F
_MORE: Final = 0x80


class Decoder(hpack.Decoder):
    """Reads the usual headers itself; the first unusual one of a call, and all behind it, goes to hpack."""

    def decode(self, data: bytes, raw: bool = False) -> Iterable[Any]:
        """See `hpack.Decoder.decode`. Headers that may not be indexed are not told apart."""
        table, max_bytes = self.header_table, self.max_header_list_size
        if not raw or not data or _is_resize(data[0]) or table.maxsize > self.max_allowed_table_size:
            return super().decode(data, raw)
        found, size, at, end = list[_Header](), 0, 0, len(data)
        while at < end:
            header, behind = self._indexed(data, at) if data[at] & _INDEXED else self._literal(data, at)
            if header is None:
                break
            at = behind
            size += _ENTRY_BYTES + len(header[0]) + len(header[1])
            if size > max_bytes:
                raise hpack.OversizedHeaderListError(f"over {max_bytes} bytes of headers")
            found.append(header)
        if at < end:
            if _is_resize(data[at]):
                raise hpack.HPACKDecodingError("the size of the table changes behind a header")
            for name, value in super().decode(data[at:], raw=True):
                size += _ENTRY_BYTES + len(name) + len(value)
                found.append((name, value))
            if size > max_bytes:
                raise hpack.OversizedHeaderListError(f"over {max_bytes} bytes of headers")
        return found

    def _indexed(self, data: bytes, at: int) -> tuple[_Header | None, int]:
        """A header that is in the table, and where it ends; None: it is unusual."""
        index, at = data[at] & _INDEX_BITS, at + 1
        if index == _INDEX_BITS:
            if at >= len(data) or data[at] & _MORE:
                return None, at
            index, at = index + data[at], at + 1
        if index <= len(_STATIC):
            return (_STATIC[index - 1] if index else None), at
        index, entries = index - len(_STATIC) - 1, self.header_table.dynamic_entries
        return (entries[index] if index < len(entries) else None), at

    def _literal(self, data: bytes, at: int) -> tuple[_Header | None, int]:
        """A header whose value stands there and which goes to the table, and where it ends; None: it is unusual."""
        if data[at] & (_INDEXED | _LITERAL) != _LITERAL:
            return None, at
        index, at = data[at] & _NAME_BITS, at + 1
        if not index:
            name, at = _text(data, at)
        else:
            if index == _NAME_BITS:
                if at >= len(data) or data[at] & _MORE:
                    return None, at
                index, at = index + data[at], at + 1
            name = self.header_table.get_by_index(index)[0]
        if name is None:
            return None, at
        value, at = _text(data, at)
        if value is None:
            return None, at
        self.header_table.add(name, value)
        return (name, value), at


def _is_resize(first: int) -> bool:
    """Whether a new size of the table stands there, and no header."""
    return first & (_INDEXED | _LITERAL | _RESIZED) == _RESIZED


def _text(data: bytes, at: int) -> tuple[bytes | None, int]:
    """A name or a value, and where it ends; None: it is unusual, or not whole."""
    if at >= len(data):
        return None, at
    is_huffman, size, at = data[at] & _HUFFMAN, data[at] & _SIZE_BITS, at + 1
    if size == _SIZE_BITS:
        if at >= len(data) or data[at] & _MORE:
            return None, at
        size, at = size + data[at], at + 1
    text = data[at : at + size]
    if len(text) < size:
        return None, at
    return decode_huffman(text) if is_huffman else text, at + size


class Encoder(hpack.Encoder):
    """Of all sizes that a peer gives the table between two answers, two are kept.

    Headers that are all in the table are a byte each, and the same bytes until the table changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tuple[_Header, ...], bytes] = {}

    def encode(self, headers: Iterable[Any], huffman: bool = True) -> bytes:
        """See `hpack.Encoder.encode`."""
        wanted = tuple(headers)
        known = None if self.header_table.resized else self._known.get(wanted)
        if known is not None:
            return known
        made = super().encode(wanted, huffman)
        if len(made) == len(wanted) and min(made) >= _INDEXED:
            self._known[wanted] = made
        else:
            self._known.clear()
        return made

    @property
    def header_table_size(self) -> int:
        return self.header_table.maxsize

    @header_table_size.setter
    def header_table_size(self, value: int) -> None:
        """The next answer tells the smallest since the one before, and the last (RFC 7541, 4.2)."""
        table, changes = self.header_table, self.table_size_changes
        untold = table.resized
        table.maxsize = value
        if table.resized:
            changes[:] = [min([*changes, value]), value] if changes else [value]
        table.resized = table.resized or untold
