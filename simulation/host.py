"""A simulated host, and the context variable with the host of each callback.

Not every call goes through a Runtime: `asyncio.sleep` in a listener calls the loop. So the host is in the context,
which tasks and callbacks inherit. The loop drops callbacks of a crashed host and postpones those of a paused one. A
host is one process: after a crash a new host, of the next generation, has its name and address.
"""

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["HOST", "Host", "host_context"]


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
    slept_ns: int = 0  # how far the clock of its timers, which does not count sleep, is behind virtual time
    running: bool = True  # alive, not paused and not asleep; the loop reads only this
    silent: bool = False  # crashed with its machine: peers get no answer at all
    postponed: list[Any] = field(default_factory=list)  # callbacks, in the order in which they would have run
    on_wake: dict[object, Callable[[int], object]] = field(default_factory=dict)  # called with slept_ms
    waiters: dict[int, "asyncio.Future[None]"] = field(default_factory=dict)  # failed when this host crashes

    def __str__(self) -> str:
        return self.name if self.generation == 1 else f"{self.name}#{self.generation}"

    def pause(self) -> None:
        self.paused, self.running = True, False

    def resume(self) -> list[Any]:
        """Continue, unless the machine sleeps. Returns the postponed callbacks."""
        self.paused = False
        return self._run_on()

    def fall_asleep(self) -> None:
        self.asleep, self.running = True, False

    def wake(self, slept_ns: int) -> list[Any]:
        """Continue, unless the process is paused. Returns the postponed callbacks."""
        self.asleep = False
        self.slept_ns += slept_ns
        return self._run_on()

    def _run_on(self) -> list[Any]:
        self.running = self.alive and not self.paused and not self.asleep
        if not self.running:
            return []
        postponed, self.postponed = self.postponed, []
        return postponed

    def crash(self, *, silently: bool) -> None:
        self.silent = silently
        self.alive = self.running = self.paused = self.asleep = False
        self.postponed.clear()


HOST: "contextvars.ContextVar[Host | None]" = contextvars.ContextVar("lockstep_simulation_host")


def host_context(host: Host | None) -> contextvars.Context:
    """A copy of the current context, on `host`."""
    context = contextvars.copy_context()
    context.run(HOST.set, host)
    return context
