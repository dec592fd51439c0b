"""A simulated host, and the context variable by which every callback knows on whose host it runs.

A Runtime sees only what is asked of it; `asyncio.sleep` in a listener asks the loop. So the host travels in the
context, which tasks and callbacks inherit, and the loop consults it: a callback of a crashed host is dropped, one of
a paused host is put off. A host stands for one process: after a crash a new one, of the next generation, takes its
name and address.
"""

import asyncio
import contextvars
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
    paused: bool = False
    running: bool = True  # alive and not paused: the one fact the loop looks at
    silent: bool = False  # crashed with its machine: what is sent to it gets no answer at all
    postponed: list[Any] = field(default_factory=list)  # callbacks, in the order they would have run
    waiters: dict[int, "asyncio.Future[None]"] = field(default_factory=dict)  # failed when this host crashes

    def __str__(self) -> str:
        return self.name if self.generation == 1 else f"{self.name}#{self.generation}"

    def pause(self) -> None:
        self.paused, self.running = True, False

    def resume(self) -> list[Any]:
        """Run on; returns what was put off."""
        self.paused, self.running = False, self.alive
        postponed, self.postponed = self.postponed, []
        return postponed

    def crash(self, *, silently: bool) -> None:
        self.silent = silently
        self.alive = self.running = self.paused = False
        self.postponed.clear()


HOST: "contextvars.ContextVar[Host | None]" = contextvars.ContextVar("lockstep_simulation_host")


def host_context(host: Host | None) -> contextvars.Context:
    """A copy of the current context, moved to `host`."""
    context = contextvars.copy_context()
    context.run(HOST.set, host)
    return context
