"""Counts over time, for an hour: each two seconds at first, each ten when they are older than 15 minutes."""

from array import array
from collections.abc import Iterator
from math import inf
from typing import Final, NamedTuple

from lockstep.console.model import HISTORY_MS

__all__ = ["History", "Point"]

_NEAR_MS: Final = 900_000
_NEAR_EVERY_MS: Final = 1900  # a round of questions takes two seconds and a little less or more
_FAR_EVERY_MS: Final = 10_000
_COLUMNS: Final = 4
_GAP: Final = -1  # in place of a lag
_MOST: Final = 2**62  # brokers may name any number


class Point(NamedTuple):
    """What was known at a time.

    Args:
        came, gone: Messages in and out since the first point; they only grow, so that points between two others may
            be left out.
        lag: None: from the point before to the one after, nothing is known.
    """

    at_ms: int
    came: int
    gone: int
    lag: int | None


class History:
    """Points in the order of their times. An array has a tenth of the memory of tuples."""

    __slots__ = ("_far", "_near")

    def __init__(self) -> None:
        self._near = array("q")
        self._far = array("q")

    def note(self, at_ms: int, came: int, gone: int, lag: int) -> None:
        """Add a point, unless one is as new as that. A clock that was put back begins anew."""
        near = self._near
        if near and at_ms < near[-_COLUMNS]:
            del near[:], self._far[:]
        if at_ms - _last_ms(near) < _NEAR_EVERY_MS:
            return
        near.extend((at_ms, min(came, _MOST), min(gone, _MOST), min(lag, _MOST)))
        self._thin(at_ms)

    def gap(self, at_ms: int) -> None:
        """No answer came: the next point does not follow the last one."""
        last = self._near or self._far
        if last and last[-1] != _GAP:
            self._near.extend((at_ms, 0, 0, _GAP))

    def _thin(self, now_ms: int) -> None:
        near, far = self._near, self._far
        while near[0] < now_ms - _NEAR_MS:
            row = near[:_COLUMNS]
            del near[:_COLUMNS]
            if row[-1] == _GAP:
                if far and far[-1] != _GAP:
                    far.extend(row)
            elif row[0] - _last_ms(far) < _FAR_EVERY_MS:
                if far[-1] != _GAP:
                    far[-1] = max(far[-1], row[-1])  # the highest lag stays to be seen
            else:
                far.extend(row)
        while far and far[0] < now_ms - HISTORY_MS:
            del far[:_COLUMNS]

    def points(self, begin_ms: int = 0) -> Iterator[Point]:
        """From a time on, oldest first; and the gap before them, if there is one."""
        before = None
        for rows in (self._far, self._near):
            for at in range(0, len(rows), _COLUMNS):
                if rows[at] < begin_ms:
                    before = rows, at
                    continue
                if before is not None and _is_gap(*before):
                    yield _point(*before)
                before = None
                yield _point(rows, at)
        if before is not None and _is_gap(*before):
            yield _point(*before)

    def __len__(self) -> int:
        return (len(self._far) + len(self._near)) // _COLUMNS


def _last_ms(rows: "array[int]") -> float:
    """When the last point is, also before a gap: gaps and points that come in turn are as few as points."""
    at = len(rows) - _COLUMNS
    if at >= 0 and _is_gap(rows, at):
        at -= _COLUMNS
    return rows[at] if at >= 0 else -inf


def _is_gap(rows: "array[int]", at: int) -> bool:
    return rows[at + _COLUMNS - 1] == _GAP


def _point(rows: "array[int]", at: int) -> Point:
    at_ms, came, gone, lag = rows[at : at + _COLUMNS]
    return Point(at_ms, came, gone, None if lag == _GAP else lag)
