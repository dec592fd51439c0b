"""Searches stored messages for a key, without an index: a plain search of bytes in their properties (wire.md 5)."""

from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["find_key"]

_BEFORE_A_KEY: Final = (b"\x01", b" ")  # ends the name of a property; separates the keys in its value
_BEHIND_A_KEY: Final = b"\x02 \x00"  # ends a property, a key, and a message, behind which the next one's size begins
# A piece that is full of keys takes some 10 ms.
_PIECE_BYTES: Final = 256 * 1024


def find_key(read: Callable[[int, int], bytes], key: bytes, start: int, end: int) -> Iterator[int | None]:
    """Positions in [start, end) of one file that may hold `key` as a whole key, newest first. Bodies may match too.

    A None comes after each piece, for a caller that works in steps.

    `read` gets a position and a size. Raises OSError when it does.
    """
    high = end
    while high > start:
        low = max(start, high - _PIECE_BYTES)
        # One byte more: the delimiter behind a key.
        piece = read(low, min(high + len(key), end) - low)
        yield from (low + at for at in reversed(_keys_in(piece, key)))
        yield None
        # The next piece reads this byte again, with the delimiter before it.
        high = low + 1 if low > start else low


def _keys_in(piece: bytes, key: bytes) -> list[int]:
    """Positions, ascending.

    The delimiter is part of the pattern; otherwise short keys match inside bodies. So a key is not found at the first
    byte of a piece; at the end of a piece the delimiter behind a key may be cut off.
    """
    places = []
    for before in _BEFORE_A_KEY:
        needle = before + key
        at = piece.find(needle)
        while at >= 0:
            end = at + len(needle)
            if end == len(piece) or piece[end] in _BEHIND_A_KEY:
                places.append(at + 1)
            at = piece.find(needle, at + 1)
    return sorted(places)
