"""The time axis that all plots of a run share: places in milliseconds, long empty stretches left out, and its ticks."""

from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

__all__ = ["Axis", "Cut", "Segment", "Tick", "length_text", "time_text"]

_CUTS_MAX: Final = 8
# A stretch is left out if it is longer than so many times all that remains.
_CUT_FACTOR: Final = 3
_CUT_WIDTH: Final = 0.04  # of all that remains
_STEPS_S: Final = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
TICKS: Final = 7


class Segment(NamedTuple):
    """A stretch of the axis without a cut: places `begin` to `end` are the times from `time_ms` on."""

    begin: float
    end: float
    time_ms: float


class Cut(NamedTuple):
    """A stretch without any record that is drawn narrow: from place `begin` to `end` instead of `left_out_ms`."""

    begin: float
    end: float
    left_out_ms: float


class Tick(NamedTuple):
    """A mark of the axis."""

    place: float
    text: str


class Axis:
    """Maps times to places. A place is in milliseconds from the first record, without what the cuts leave out."""

    def __init__(self, spans_ns: Iterable[tuple[int, int]]) -> None:
        islands = _islands(spans_ns)
        self.begin_ns = islands[0][0] if islands else 0
        self.end_ns = islands[-1][1] if islands else 0
        gaps = [(one[1], other[0]) for one, other in pairwise(islands)]
        left_out = _left_out(gaps, self.end_ns - self.begin_ns)
        kept_ns = self.end_ns - self.begin_ns - sum(end - begin for begin, end in left_out)
        width = max(kept_ns / 1e6, 0.001) * _CUT_WIDTH
        self.segments: list[Segment] = []
        self.cuts: list[Cut] = []
        place, from_ns = 0.0, self.begin_ns
        for begin, end in left_out:
            self._add(place, from_ns, begin)
            place = self.segments[-1].end
            self.cuts.append(Cut(place, place + width, (end - begin) / 1e6))
            place, from_ns = place + width, end
        self._add(place, from_ns, self.end_ns)
        self.length = max(self.segments[-1].end, 0.001)

    def _add(self, place: float, from_ns: int, to_ns: int) -> None:
        self.segments.append(Segment(place, place + (to_ns - from_ns) / 1e6, (from_ns - self.begin_ns) / 1e6))

    def place(self, time_ns: int) -> float:
        """The place of a time. Inside a cut it is proportional."""
        time_ms = (time_ns - self.begin_ns) / 1e6
        for segment, cut in zip(self.segments, self.cuts, strict=False):
            end_ms = segment.time_ms + segment.end - segment.begin
            if time_ms <= end_ms:
                return segment.begin + time_ms - segment.time_ms
            if time_ms < end_ms + cut.left_out_ms:
                return cut.begin + (cut.end - cut.begin) * (time_ms - end_ms) / cut.left_out_ms
        last = self.segments[-1]
        return last.begin + time_ms - last.time_ms

    def ticks(self, begin: float = 0, end: float | None = None, count: int = TICKS) -> list[Tick]:
        """About `count` ticks from one place to another, at round times. page.js has the same for a zoomed axis."""
        end = self.length if end is None else end
        step = _step((end - begin) / count)
        found = []
        for segment in self.segments:
            shift = segment.time_ms - segment.begin
            first = max(begin, segment.begin) + shift
            number = -int(-first // step)
            while number * step <= min(end, segment.end) + shift + step * 1e-9:
                found.append(Tick(number * step - shift, time_text(number * step, step)))
                number += 1
        return found


def _islands(spans_ns: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that touch each other as one, in time order."""
    islands: list[tuple[int, int]] = []
    for begin, end in sorted(spans_ns):
        if islands and begin <= islands[-1][1]:
            islands[-1] = (islands[-1][0], max(end, islands[-1][1]))
        else:
            islands.append((begin, end))
    return islands


def _left_out(gaps: list[tuple[int, int]], whole_ns: int) -> list[tuple[int, int]]:
    """The gaps to cut, in time order: as many as are each much longer than all that remains without them."""
    longest = sorted(gaps, key=lambda gap: gap[0] - gap[1])[:_CUTS_MAX]
    sums = list(accumulate(end - begin for begin, end in longest))
    for count in range(len(longest), 0, -1):
        begin, end = longest[count - 1]
        if end - begin > _CUT_FACTOR * (whole_ns - sums[count - 1]):
            return sorted(longest[:count])
    return []


def _step(least_ms: float) -> float:
    """The smallest round step that is not below `least_ms`."""
    for seconds in _STEPS_S:
        if 30_000 < least_ms <= seconds * 1000:
            return seconds * 1000.0
    if least_ms > _STEPS_S[-1] * 1000:
        return -(-least_ms // 86_400_000) * 86_400_000
    power = 1e-6
    while True:
        for digit in (1, 2, 5):
            if least_ms <= digit * power * (1 + 1e-9):
                return digit * power
        power *= 10


def time_text(time_ms: float, step_ms: float) -> str:
    """A time since the first record, as exact as the step needs: "250 ms", "12.5 s", "3:20", "2:05:00"."""
    if step_ms >= 1000 and time_ms >= 120_000:
        whole = round(time_ms / 1000)
        minutes, seconds = divmod(whole, 60)
        return f"{minutes}:{seconds:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    unit, name = (1000.0, "s") if time_ms >= 1000 or step_ms >= 1000 else (1.0, "ms")
    digits = 0
    while digits < 9 and step_ms / unit * 10**digits < 0.999:
        digits += 1
    return f"{time_ms / unit:.{digits}f} {name}"


def length_text(length_ms: float) -> str:
    """A length of time: "0.42 ms", "12 ms", "3.4 s", "5 min", "3.1 h"."""
    for unit, name in ((3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if length_ms >= 2 * unit or (name == "s" and length_ms >= unit):
            return f"{length_ms / unit:,.1f} {name}"
    digits = 0 if length_ms >= 10 else 2 if length_ms >= 0.01 else 6
    text = f"{length_ms:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits else text} ms"
