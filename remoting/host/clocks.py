"""The clock of a real process: it never steps back, and it counts the time that the machine sleeps.

A lease must expire while its holder sleeps. CLOCK_MONOTONIC, which `time.monotonic` reads on Linux, stops during sleep:
after five minutes of sleep a lock of 30 s would look fresh. The timers of event loops use that clock too, so
`SleepWatch` compares the two clocks once a second.
"""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from hashlib import blake2s
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

__all__ = ["ClockId", "ClockNs", "SleepWatch", "boot_clock", "boot_ns", "this_clock"]

ClockNs = Callable[[], int]
_LOOK_EVERY_MS: Final = 1000
# A busy machine may pause between the two readings.
_ASLEEP_MIN_NS: Final = 500_000_000


def boot_clock(platform: str = sys.platform) -> ClockNs:
    """The clock for leases, in nanoseconds; it counts sleep where the platform can.

    CLOCK_BOOTTIME on Linux; on macOS CLOCK_MONOTONIC, which counts sleep there. Elsewhere `time.monotonic_ns`, which
    counts sleep on Windows. No clock of a virtual machine may count the time that its host stopped it.
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
"""The clock of this machine. Processes of one machine may compare its values."""


class ClockId(NamedTuple):
    """Which machine's clock a time is of, and since which of its boots. Times are comparable where both are equal."""

    machine: str
    boot: str


@cache
def this_clock() -> ClockId:
    """That of `boot_ns`: digests of Linux' machine id, or host name, and boot id; else a random id of this process."""
    return ClockId(_digest_of("/etc/machine-id", "/etc/hostname"), _digest_of("/proc/sys/kernel/random/boot_id"))


def _digest_of(*paths: str) -> str:
    text = b""
    for path in paths:
        with suppress(OSError), Path(path).open("rb") as file:
            text = text or file.read().strip()
    return blake2s(text or uuid4().bytes, digest_size=6).hexdigest()


class _Timer(Protocol):
    def cancel(self) -> None: ...


class SleepWatch:
    """Calls back within a second after the machine wakes.

    Args:
        boot_ns: A clock that counts sleep.
        awake_ns: The clock of the loop's timers, which does not count sleep.
        call_later_ms: Sets such a timer.
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
        """Call `callback(slept_ms)` from now on; returns a function that ends that. Without callbacks no timer runs."""
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
