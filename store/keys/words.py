"""Where a word stands among the properties of messages: a plain search of bytes, as they are stored (wire.md 5)."""

from typing import Final

__all__ = ["words_in"]

_BEFORE_A_WORD: Final = (b"\x01", b" ")  # what ends a property's name, and what separates words of its value
_BEHIND_A_WORD: Final = b"\x02 \x00"  # the end of a property, of a word, and of a message: the next one's size begins


def words_in(piece: bytes, word: bytes) -> list[int]:
    """Positions, in order; bodies may hold the word too.

    Sought with what stands before it: a word of few letters would be met in every body. The first byte of a piece is
    never a word's; the last may be cut off behind one.
    """
    places = []
    for before in _BEFORE_A_WORD:
        needle = before + word
        at = piece.find(needle)
        while at >= 0:
            end = at + len(needle)
            if end == len(piece) or piece[end] in _BEHIND_A_WORD:
                places.append(at + 1)
            at = piece.find(needle, at + 1)
    return sorted(places)
