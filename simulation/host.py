"""A simulated host, and the context variable by which every callback knows on whose host it runs.

A Runtime sees only what is asked of it; `asyncio.sleep` in a listener asks the loop. So the host travels in the
context, which tasks and callbacks inherit, and the loop consults it: a callback of a crashed host is dropped, one of
a paused host is put off. A host stands for one process: after a crash a new one, of the next generation, takes its
name and address.
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
    slept_ns: int = 0  # how far its timers' clock is behind virtual time, which counts sleep
    running: bool = True  # alive, not paused and not asleep: the one fact the loop looks at
    silent: bool = False  # crashed with its machine: what is sent to it gets no answer at all
    postponed: list[Any] = field(default_factory=list)  # callbacks, in the order they would have run
    on_wake: dict[object, Callable[[int], object]] = field(default_factory=dict)  # called with slept_ms
    waiters: dict[int, "asyncio.Future[None]"] = field(default_factory=dict)  # failed when this host crashes

    def __str__(self) -> str:
        return self.name if self.generation == 1 else f"{self.name}#{self.generation}"

    def pause(self) -> None:
        self.paused, self.running = True, False

    def resume(self) -> list[Any]:
        """Run on, unless the machine sleeps; returns what was put off."""
        self.paused = False
        return self._run_on()

    def fall_asleep(self) -> None:
        self.asleep, self.running = True, False

    def wake(self, slept_ns: int) -> list[Any]:
        """Run on, unless the process is paused; returns what was put off."""
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
    """A copy of the current context, moved to `host`."""
    context = contextvars.copy_context()
    context.run(HOST.set, host)
    return context
