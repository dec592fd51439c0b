"""A timer for work whose next due time is known. It is not armed while nothing is due."""

from collections.abc import Callable
from typing import Final, Protocol

from lockstep.remoting.host.runtime import Runtime, TimerHandle

__all__ = ["Due", "DueTimer"]

_AFTER_FAILURE_MS: Final = 1000


class Due(Protocol):
    @property
    def next_due_ms(self) -> int | None: ...


class DueTimer:
    """Calls `run` with the time, in epoch ms, when `due.next_due_ms` has come; call `check` after it may have changed.

    The event loop reports what `run` raises. If work is still due then, `run` is called again a second later.
    """

    def __init__(self, runtime: Runtime, due: Due, run: Callable[[int], None]) -> None:
        self._runtime = runtime
        self._due = due
        self._run = run
        self._armed_ms: int | None = None
        self._timer: TimerHandle | None = None
        self._closed = False

    def check(self) -> None:
        """Arm the timer again if the due time has changed. Cheap if it has not."""
        if self._due.next_due_ms != self._armed_ms and not self._closed:
            self._arm()

    def rearm(self) -> None:
        """Call after the machine slept: the clock counted the sleep, the timer did not."""
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
