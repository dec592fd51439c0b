"""A timer for work whose next due time is known: set to that moment, and to none while nothing waits."""

from collections.abc import Callable
from typing import Final, Protocol

from lockstep.remoting.runtime import Runtime, TimerHandle

__all__ = ["Due", "DueTimer"]

_AFTER_FAILURE_MS: Final = 1000


class Due(Protocol):
    @property
    def next_due_ms(self) -> int | None: ...


class DueTimer:
    """`run` is called with the time when `due` says so; it may say anew whenever `check` is called.

    A `run` that raises is for the loop to report; it is tried again a second later, when anything is still due.
    """

    def __init__(self, runtime: Runtime, due: Due, run: Callable[[int], None]) -> None:
        self._runtime = runtime
        self._due = due
        self._run = run
        self._armed_ms: int | None = None
        self._timer: TimerHandle | None = None
        self._closed = False

    def check(self) -> None:
        """After whatever may have changed what is due first; costs a comparison when it did not."""
        if self._due.next_due_ms != self._armed_ms and not self._closed:
            self._arm()

    def look_again(self) -> None:
        """The machine slept: timers did not count that, and the clock did."""
        if not self._closed:
            self._arm()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self, delay_ms_min: int = 0) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._armed_ms = due_ms = self._due.next_due_ms
        if due_ms is not None:
            delay_ms = max(delay_ms_min, due_ms - self._runtime.now_ms())
            self._timer = self._runtime.call_later_ms(delay_ms, self._fire)

    def _fire(self) -> None:
        self._timer = None
        delay_ms_min = _AFTER_FAILURE_MS
        try:
            self._run(self._runtime.now_ms())
            delay_ms_min = 0
        finally:
            if not self._closed:
                self._arm(delay_ms_min)
