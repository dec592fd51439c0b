"""A simulated host, and the context variable with the host of each callback.

Not every call goes through a Runtime: `asyncio.sleep` in a listener calls the loop. So the host is in the context,
which tasks and callbacks inherit. The loop drops callbacks of a crashed host and postpones those of a paused one. A
host is one process: after a crash a new host, of the next generation, has its name and address.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from lockstep.simulation.machine.clock import Clock

__all__ = ["HOST", "Host", "HostEvent", "host_context"]


class HostEvent(StrEnum):
    """What happened to a process or its machine."""

    STARTED = "started"
    CRASHED = "crashed"  # SIGKILL
    POWERED_OFF = "powered off"  # the machine: its peers get no answer
    LOST_POWER = "lost power"  # and its disk what was not synced
    LEFT = "left"  # a clean shutdown
    STOPPED = "stopped"  # SIGSTOP
    CONTINUED = "continued"
    SLEPT = "slept"  # the machine
    WOKE = "woke"
    CLOCK_SET = "clock set"


class _Cpu(Protocol):
    def wake(self) -> None: ...
    def stop(self) -> None: ...
    def keep_busy(self, duration_ns: int) -> None: ...


@dataclass(eq=False)
class Host:
    name: str
    address: str  # IPv4 text
    generation: int
    pid: int
    clock_offset_ms: int
    alive: bool = True
    paused: bool = False  # its process: SIGSTOP
    asleep: bool = False  # its machine
    stalled_until_ns: int = 0  # by the longest `World.stall`
    asleep_until_ns: int = 0  # by the longest `World.suspend_for`
    slept_ns: int = 0  # how far the clock of its timers, which does not count sleep, is behind that of its machine
    running: bool = True  # the loop runs its callbacks; it reads only this
    silent: bool = False  # crashed with its machine: peers get no answer at all
    clock: Clock = field(default_factory=Clock)  # of its machine
    cpu: _Cpu | None = None  # a slow one, which runs all that is postponed
    postponed: deque[Any] = field(default_factory=deque)  # callbacks, in the order in which they would have run
    on_wake: dict[object, Callable[[int], object]] = field(default_factory=dict)  # called with slept_ms
    waiters: dict[int, "asyncio.Future[None]"] = field(default_factory=dict)  # failed when this host crashes

    def __str__(self) -> str:
        return self.name if self.generation == 1 else f"{self.name}#{self.generation}"

    @property
    def can_run(self) -> bool:
        """Whether it is alive, not paused and not asleep."""
        return self.alive and not self.paused and not self.asleep

    def postpone(self, handle: Any) -> None:
        """Keep a callback that the loop would run now."""
        if self.alive:
            self.postponed.append(handle)
            if self.cpu is not None and self.can_run:
                self.cpu.wake()

    def set_cpu(self, cpu: _Cpu | None) -> Iterable[Any]:
        """None: a fast one. Returns the callbacks to run."""
        if self.cpu is not None:
            self.cpu.stop()
        self.cpu = cpu
        return self._run_on()

    def pause(self) -> None:
        self.paused, self.running = True, False

    def resume(self) -> Iterable[Any]:
        """Continue, unless the machine sleeps. Returns the callbacks to run."""
        self.paused = False
        return self._run_on()

    def fall_asleep(self) -> None:
        self.asleep, self.running = True, False

    def wake(self, slept_ns: int) -> Iterable[Any]:
        """Continue, unless the process is paused. Returns the callbacks to run."""
        self.asleep = False
        self.slept_ns += slept_ns
        return self._run_on()

    def _run_on(self) -> Iterable[Any]:
        self.running = self.can_run and self.cpu is None
        if self.running:
            postponed, self.postponed = self.postponed, deque()
            return postponed
        if self.cpu is not None and self.can_run:
            self.cpu.wake()
        return ()

    def crash(self, *, silently: bool) -> None:
        self.silent = silently
        self.alive = self.running = self.paused = self.asleep = False
        self.postponed.clear()
        if self.cpu is not None:
            self.cpu.stop()


HOST: "contextvars.ContextVar[Host | None]" = contextvars.ContextVar("lockstep_simulation_host")


def host_context(host: Host | None) -> contextvars.Context:
    """A copy of the current context, on `host`."""
    context = contextvars.copy_context()
    context.run(HOST.set, host)
    return context
