"""A set of queue offsets, stored as runs: any number of consecutive offsets takes two numbers."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

__all__ = ["OffsetSet"]


class OffsetSet:
    """Offsets as sorted, disjoint, half-open runs. Appending to the last run takes one comparison."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, offset: int) -> bool:
        """Add one offset. Returns whether it was new."""
        ends = self._ends
        if ends:
            if offset == ends[-1]:
                ends[-1] = offset + 1
                return True
            if self._starts[-1] <= offset < ends[-1]:
                return False
        if offset in self:
            return False
        self.add_range(offset, offset + 1)
        return True

    def add_range(self, start: int, end: int) -> None:
        """Add every offset from `start` up to, not including, `end`."""
        if start >= end:
            return
        # The first run that touches or follows the new one.
        first = bisect_left(self._ends, start)
        # One past the last run that touches it.
        last = bisect_right(self._starts, end)
        if first < last:
            start = min(start, self._starts[first])
            end = max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def cut(self, start: int) -> None:
        """Remove every offset from `start` on."""
        place = bisect_right(self._ends, start)
        if place < len(self._starts) and self._starts[place] < start:
            self._ends[place] = start
            place += 1
        del self._starts[place:], self._ends[place:]

    def __contains__(self, offset: int) -> bool:
        place = bisect_right(self._starts, offset) - 1
        return place >= 0 and offset < self._ends[place]

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)

    @property
    def start(self) -> int:
        """The lowest offset, or 0 for an empty set."""
        return self._starts[0] if self._starts else 0

    @property
    def end(self) -> int:
        """One past the highest offset, or 0 for an empty set."""
        return self._ends[-1] if self._ends else 0

    def runs(self) -> Iterator[tuple[int, int]]:
        """The runs as (start, end), lowest first."""
        return zip(self._starts, self._ends, strict=True)

    def touches(self, start: int, end: int) -> bool:
        """Whether the set has any offset from `start` up to, not including, `end`."""
        place = bisect_right(self._ends, start)
        return start < end and place < len(self._starts) and self._starts[place] < end

    def missing(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The runs of offsets from `start` up to, not including, `end` that are not in the set."""
        for place in range(bisect_right(self._ends, start), len(self._starts)):
            run_start, run_end = self._starts[place], self._ends[place]
            if run_start >= end:
                break
            if start < run_start:
                yield start, run_start
            start = run_end
        if start < end:
            yield start, end

    def minus(self, *others: "OffsetSet") -> "OffsetSet":
        """The offsets of this set that are in none of the others."""
        runs = list(self.runs())
        for other in others:
            runs = [gap for start, end in runs for gap in other.missing(start, end)]
        result = OffsetSet()
        for start, end in runs:
            result.add_range(start, end)
        return result
