"""The stretch of time that a page shows: the last minute, the last 15 or the last 60, up to now."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from lockstep.console.formats import clock

__all__ = ["RANGES", "Window", "window_of"]

RANGES: Final = (1, 15, 60)  # minutes
_USUAL: Final = 15
_STEPS_MS: Final[Mapping[int, int]] = {1: 15_000, 15: 300_000, 60: 900_000}  # between two ticks
_FIRST: Final = 0.06  # from there on the text of a tick has room
_LAST: Final[Mapping[int, float]] = {1: 0.78, 15: 0.82, 60: 0.82}  # beyond it meets "now" in the narrowest chart


class Window(NamedTuple):
    """`minutes`: one of RANGES."""

    now_ms: int
    minutes: int = _USUAL

    @property
    def ranges(self) -> tuple[int, ...]:
        return RANGES

    @property
    def length_ms(self) -> int:
        return self.minutes * 60_000

    @property
    def begin_ms(self) -> int:
        return self.now_ms - self.length_ms

    def place(self, at_ms: int) -> float:
        """0: where it begins, 1: now."""
        return (at_ms - self.begin_ms) / self.length_ms

    def ticks(self) -> list[tuple[float, str]]:
        """Round times with their places. Those of the last minute have seconds."""
        step_ms = _STEPS_MS[self.minutes]
        first_ms = -(-self.begin_ms // step_ms) * step_ms
        times_ms = range(first_ms, self.now_ms, step_ms)
        texts = [(self.place(at_ms), clock(at_ms) if self.minutes == 1 else clock(at_ms)[:5]) for at_ms in times_ms]
        return [(place, text) for place, text in texts if _FIRST <= place <= _LAST[self.minutes]]


def window_of(values: Mapping[str, str], now_ms: int) -> Window:
    """What an address says by `minutes`; 15 for anything else than one of the ranges."""
    return Window(now_ms, next((one for one in RANGES if values.get("minutes") == str(one)), _USUAL))
