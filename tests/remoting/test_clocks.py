"""The clock that counts sleep, and who hears that the machine slept."""

import time
from collections.abc import Callable
from inspect import signature

import pytest

from lockstep.remoting.host.clocks import SleepWatch, boot_clock, boot_ns
from lockstep.remoting.host.manual_clock import ManualClockRuntime
from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.remoting.helpers import until

SECOND_NS = 1_000_000_000


class Machine:
    """Two clocks and one timer, by hand."""

    def __init__(self) -> None:
        self.boot_ns, self.awake_ns = 70 * SECOND_NS, 50 * SECOND_NS  # it slept 20 s before
        self.timer: Callable[[], None] | None = None
        self.watch = SleepWatch(lambda: self.boot_ns, lambda: self.awake_ns, self.call_later_ms)

    def call_later_ms(self, delay_ms: int, callback: Callable[[], None]) -> "Machine":
        assert (delay_ms, self.timer) == (1000, None)
        self.timer = callback
        return self

    def cancel(self) -> None:
        self.timer = None

    def run(self, *, asleep_ns: int = 0) -> None:
        """A second awake, and before it some sleep; the timer runs at its end."""
        self.boot_ns += SECOND_NS + asleep_ns
        self.awake_ns += SECOND_NS
        timer, self.timer = self.timer, None
        assert timer is not None
        timer()


def test_the_clock_counts_sleep_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLOCK_BOOTTIME on Linux, CLOCK_MONOTONIC on macOS; without either, or when the kernel refuses, the monotonic."""
    asked: list[int] = []

    def read(clock: int) -> int:
        asked.append(clock)
        if clock == 99:
            raise OSError("Invalid argument")
        return 5

    monkeypatch.setattr(time, "clock_gettime_ns", read)
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    assert boot_clock("linux")() == 5
    assert set(asked) == {7}
    assert boot_clock("darwin")() == 5
    assert asked[-1] == time.CLOCK_MONOTONIC
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 99)
    assert boot_clock("linux") is time.monotonic_ns
    monkeypatch.delattr(time, "CLOCK_BOOTTIME")
    assert boot_clock("linux") is time.monotonic_ns


async def test_a_process_reads_the_machine_s_boot_clock() -> None:
    """Both clocks of its Runtime, and of one whose clock was moved."""
    runtime = AsyncioRuntime()
    assert signature(AsyncioRuntime).parameters["clock_ns"].default is boot_ns  # which may show the time of another
    for clocks in (runtime, ManualClockRuntime(runtime)):
        earliest_ns = boot_ns()
        now_ns = clocks.monotonic_ns()
        assert earliest_ns <= now_ns <= boot_ns()
    wall_ms = runtime.now_ms() - runtime.monotonic_ns() // 1_000_000
    assert abs(wall_ms - (time.time_ns() - boot_ns()) // 1_000_000) < 10_000


def test_a_sleep_is_told_of_once() -> None:
    """By its length, whatever the machine slept before; a busy second is no sleep, and the watch ends with its last
    listener."""
    machine, heard, others = Machine(), list[int](), list[int]()
    assert machine.timer is None
    end, end_other = machine.watch.add(heard.append), machine.watch.add(others.append)
    machine.run()
    machine.run(asleep_ns=SECOND_NS // 10)
    assert heard == []
    machine.run(asleep_ns=300 * SECOND_NS)
    machine.run()
    assert heard == others == [300_000]
    end()
    machine.run(asleep_ns=2 * SECOND_NS)
    assert (heard, others) == ([300_000], [300_000, 2_000])
    end_other()
    assert machine.timer is None
    machine.boot_ns += 500 * SECOND_NS
    machine.watch.add(heard.append)
    machine.run()
    assert heard == [300_000]


async def test_a_process_hears_of_its_machine_s_sleep() -> None:
    """Its boot clock is ahead of the clock of its timers: it is told within a second."""
    asleep_ns = 0
    runtime, heard = AsyncioRuntime(clock_ns=lambda: time.monotonic_ns() + asleep_ns), list[int]()
    end = ManualClockRuntime(runtime).on_wake(heard.append)
    asleep_ns = 300 * SECOND_NS
    await until(lambda: heard)
    assert heard[0] > 200_000  # a busy machine reads the two clocks at different times
    end()
