"""The clock of a real process: it never steps back, and it counts the time that the machine is asleep.

A lease must run out while its holder sleeps. CLOCK_MONOTONIC, which `time.monotonic` reads on Linux, stands still
meanwhile: after five minutes asleep a lock of 30 s would look fresh. The timers of event loops follow that clock too,
so `SleepWatch` looks once a second whether the two clocks have come apart.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

__all__ = ["ClockNs", "SleepWatch", "boot_clock", "boot_ns"]

ClockNs = Callable[[], int]
_LOOK_EVERY_MS: Final = 1000
_ASLEEP_MIN_NS: Final = 500_000_000  # the two clocks are read one after the other: a busy machine parts them a little


def boot_clock(platform: str = sys.platform) -> ClockNs:
    """The clock for leases: nanoseconds, sleep included where the platform can tell.

    CLOCK_BOOTTIME on Linux; on macOS CLOCK_MONOTONIC, which counts sleep there. Elsewhere `time.monotonic_ns`, which
    on Windows counts sleep as well. A virtual machine that is stopped from outside may not see it in any clock.
    """
    clock = time.CLOCK_MONOTONIC if platform == "darwin" else getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return time.monotonic_ns
    try:
        time.clock_gettime_ns(clock)
    except OSError:  # an old kernel
        return time.monotonic_ns
    return partial(time.clock_gettime_ns, clock)


boot_ns: Final = boot_clock()
"""Of this machine; comparable between its processes."""


class _Timer(Protocol):
    def cancel(self) -> None: ...


class SleepWatch:
    """Calls back after the machine slept, within a second of its waking.

    Args:
        boot_ns: A clock that counts sleep.
        awake_ns: The clock of the loop's timers, which does not.
        call_later_ms: Sets one of these timers.
    """

    def __init__(
        self, boot_ns: ClockNs, awake_ns: ClockNs, call_later_ms: Callable[[int, Callable[[], None]], _Timer]
    ) -> None:
        self._boot_ns = boot_ns
        self._awake_ns = awake_ns
        self._call_later_ms = call_later_ms
        self._callbacks: dict[object, Callable[[int], None]] = {}
        self._timer: _Timer | None = None
        self._apart_ns = 0

    def add(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """From now on call `callback(slept_ms)`; returns what ends that. No timer runs while there is no callback."""
        key = object()
        self._callbacks[key] = callback
        if self._timer is None:
            self._apart_ns = self._boot_ns() - self._awake_ns()
            self._timer = self._call_later_ms(_LOOK_EVERY_MS, self._look)
        return lambda: self._remove(key)

    def _remove(self, key: object) -> None:
        self._callbacks.pop(key, None)
        if not self._callbacks and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = self._call_later_ms(_LOOK_EVERY_MS, self._look)
        apart_ns = self._boot_ns() - self._awake_ns()
        slept_ns, self._apart_ns = apart_ns - self._apart_ns, apart_ns
        if slept_ns >= _ASLEEP_MIN_NS:
            for callback in list(self._callbacks.values()):
                callback(slept_ns // 1_000_000)
