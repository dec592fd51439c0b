"""Lines of a told story, and their text: times aligned, changes of tables behind the sentences of the same instant."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from lockstep.simulation.lab.event_texts import Focus

__all__ = ["Line", "number", "text_of"]

_KEPT_FIRST: Final = 4  # of a long run of lines of one kind; and the last one
_TIME_WIDTH: Final = 10
_HOST_WIDTH: Final = 9


class Line(NamedTuple):
    """Args:
    at_ms: virtual, since the start.
    host: the one that acts; empty: a table has changed.
    kind: lines of one kind are alike, so that a long run of them may be shortened.
    """

    at_ms: int
    host: str
    focus: Focus
    kind: str
    text: str


def number(value: int) -> str:
    """With a space between thousands: 60 001."""
    return f"{value:,}".replace(",", " ")


def text_of(lines: Iterable[Line]) -> Iterator[str]:
    """One line of text each. The time is written where it changes."""
    shown_ms = -1
    for line in _shortened(lines):
        time = "" if line.at_ms == shown_ms else f"{number(line.at_ms)} ms"
        shown_ms = line.at_ms
        text = f"{line.host:<{_HOST_WIDTH}}{line.text}" if line.host else f"{'':<{_HOST_WIDTH}}| {line.text}"
        yield f"{time:>{_TIME_WIDTH}}  {text}"


def _shortened(lines: Iterable[Line]) -> Iterator[Line]:
    """Leave out the middle of long runs: of lines of one kind in an instant, then of instants of the same kinds."""
    instants = []
    for _, group in groupby(lines, key=lambda line: line.at_ms):
        runs = [list(run) for _, run in groupby(group, key=lambda line: (line.host, line.kind))]
        instants.append([line for run in runs for line in _ends([[line] for line in run])])
    for _, alike in groupby(instants, key=lambda instant: [(line.host, line.kind) for line in instant]):
        yield from _ends(list(alike))


def _ends(parts: list[list[Line]]) -> Iterator[Line]:
    left_out = parts[_KEPT_FIRST:-1]
    if len(left_out) < 2:
        left_out = []
    yield from (line for part in parts[: _KEPT_FIRST if left_out else None] for line in part)
    if left_out:
        first, last = left_out[0][0], left_out[-1][0]
        until = f", until {number(last.at_ms)} ms" if last.at_ms > first.at_ms else ""
        yield Line(first.at_ms, "...", first.focus, "...", f"{len(left_out)} more times like this{until}")
        yield from parts[-1]
