"""Names in their order, in chunks: to add or remove one among 200,000 moves a thousand references, not all of them."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import chain
from typing import Final

__all__ = ["SortedNames"]

_CHUNK_MAX: Final = 1024


class SortedNames:
    """Each name once."""

    def __init__(self) -> None:
        self._chunks: list[list[str]] = []  # none is empty
        self._firsts: list[str] = []  # the first name of each chunk, or one before it

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._chunks)

    def add(self, name: str) -> None:
        """Add a name that is not there."""
        if not self._chunks:
            self._chunks, self._firsts = [[name]], [name]
            return
        number = max(bisect_right(self._firsts, name) - 1, 0)
        chunk = self._chunks[number]
        insort(chunk, name)
        if number == 0:
            self._firsts[0] = chunk[0]
        if len(chunk) > _CHUNK_MAX:
            half = len(chunk) // 2
            self._chunks[number : number + 1] = [chunk[:half], chunk[half:]]
            self._firsts.insert(number + 1, chunk[half])

    def remove(self, name: str) -> None:
        """Remove a name that is there."""
        number = bisect_right(self._firsts, name) - 1
        chunk = self._chunks[number]
        del chunk[bisect_left(chunk, name)]
        if not chunk:
            del self._chunks[number], self._firsts[number]
