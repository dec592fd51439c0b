"""LoopWatch: notices that a function kept the event loop, so that no timer ran and no answer was read."""

from collections.abc import Callable
from typing import Final, Protocol

from lockstep.remoting.host.clocks import ClockNs

__all__ = ["LOOP_KEPT_MS", "LoopKept", "LoopWatch"]

LOOP_KEPT_MS: Final = 1000
"""Who keeps the loop for less is not named: a lock, the shortest of the lives that depend on it, lasts far longer."""
_TICK_MS: Final = 500  # half of it, so that a gap without a tick is never the watch's own
_NS_PER_MS: Final = 1_000_000


class _Timer(Protocol):
    def cancel(self) -> None: ...


class LoopKept(Protocol):
    """What a Runtime gives who asks about its loop."""

    def kept_ms(self) -> int:
        """Return for how long the loop has run no timer, in ms; 0: one ran a moment ago."""

    def close(self) -> None: ...


class LoopWatch:
    """A timer twice a second. While it is late, a function keeps the loop: the hot path pays nothing.

    Args:
        awake_ns: a clock that does not count the sleep of the machine.
        late: called with the ms when the timer was so late.
    """

    def __init__(
        self,
        awake_ns: ClockNs,
        call_later_ms: Callable[[int, Callable[[], None]], _Timer],
        late: Callable[[int], object],
    ) -> None:
        self._awake_ns = awake_ns
        self._call_later_ms = call_later_ms
        self._late = late
        self._seen_ns = awake_ns()
        self._timer = call_later_ms(_TICK_MS, self._tick)

    def _tick(self) -> None:
        kept_ms, self._seen_ns = self.kept_ms(), self._awake_ns()
        self._timer = self._call_later_ms(_TICK_MS, self._tick)
        if kept_ms:
            self._late(kept_ms)

    def kept_ms(self) -> int:
        since_ms = (self._awake_ns() - self._seen_ns) // _NS_PER_MS
        return since_ms if since_ms >= LOOP_KEPT_MS else 0

    def close(self) -> None:
        self._timer.cancel()
