"""The World: what a scenario controls while `simulate` runs it on virtual time.

async def scenario(world: World) -> int:
    broker, consumer = world.host("broker"), world.host("c1")
    await broker.run(serve(broker))             # code under test, on its host
    ...
    world.stall("c1", 70_000)
    await world.sleep_ms(70_000)

outcome = simulate(scenario, seed=7)
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from lockstep.simulation.disk import Disk
from lockstep.simulation.errors import HostCrashedError, LimitError
from lockstep.simulation.host import Host
from lockstep.simulation.loop import START_NS, Timer, VirtualLoop
from lockstep.simulation.network import Network
from lockstep.simulation.network_faults import NetworkFaults
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.runtime import SimRuntime
from lockstep.simulation.tasks import describe
from lockstep.simulation.trace import Event, Trace, line_of

__all__ = ["Outcome", "World"]

T = TypeVar("T")
_FIRST_PID = 1001
_ADDRESSES_PER_NET = 250


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The result of a simulation; equal for equal seeds, options and code."""

    value: T
    trace_hash: str
    elapsed_ms: int
    steps: int  # callbacks that ran
    events: tuple[Event, ...] = field(repr=False)

    @property
    def trace(self) -> list[str]:
        """The latest lines of the trace."""
        return [line_of(event) for event in self.events]


class World(NetworkFaults):
    """Hosts by name, faults, and the trace; for scenarios."""

    def __init__(self, loop: VirtualLoop, seed: int, options: SimulationOptions) -> None:
        trace = Trace(lambda: loop.now_ns - START_NS, options.trace_lines_max)
        super().__init__(Network(loop, trace, seed, options), trace, options)
        self.loop = loop
        self.seed = seed
        self.rng = random.Random(f"{seed}/scenario")  # for the scenario's own choices
        self._runtimes: dict[str, SimRuntime] = {}
        self._disks: dict[str, Disk] = {}
        self._clock_offsets_ms: dict[str, int] = {}
        self._asleep: dict[Host, tuple[int, list[Timer]]] = {}  # since when, in ns, and its timers
        self._started = 0
        self._cuts = 0

    # Hosts ---------------------------------------------------------------------------------------------------

    def host(self, name: str, *, clock_offset_ms: int | None = None) -> SimRuntime:
        """The runtime of a live host. A new or crashed host is started; it has the same address and disk each time.

        Args:
            clock_offset_ms: How far its wall clock is ahead of virtual time, also after later starts.
        """
        runtime = self._runtimes.get(name)
        if runtime is not None and runtime.host.alive:
            return runtime
        self._started += 1
        if runtime is None:
            net, number = divmod(len(self._runtimes), _ADDRESSES_PER_NET)
            address, generation = f"10.0.{net}.{number + 1}", 1
        else:
            address, generation = runtime.address, runtime.host.generation + 1
            runtime.host.silent = False  # the machine is up again, and resets connections that it does not know
        if clock_offset_ms is not None:
            self._clock_offsets_ms[name] = clock_offset_ms
        offset_ms = self._clock_offsets_ms.get(name, 0)
        host = Host(name, address, generation, _FIRST_PID + self._started - 1, offset_ms)
        rng = random.Random(f"{self.seed}/host {name}#{generation}")
        self.network.join(host)
        self.trace.add("start", f"{host} {address}")
        runtime = SimRuntime(self.loop, self.network, host, self.disk(name), rng, self.options.epoch_ms)
        self._runtimes[name] = runtime
        return runtime

    def disk(self, name: str) -> Disk:
        """The disk of a host; it survives crashes."""
        return self._disks.setdefault(name, Disk(lambda: self.loop.now_ns))

    def crash(self, name: str, *, silently: bool = False) -> None:
        """SIGKILL: the host stops, and its connections are reset.

        With `silently` the machine stops too: peers get no answer until they time out or it starts again.
        """
        host = self._living(name)
        self.trace.add("crash", f"{host}{' silently' if silently else ''}")
        host.crash(silently=silently)
        self._asleep.pop(host, None)
        self.network.crash(host, silently=silently)
        self.disk(name).killed()
        for waiter in host.waiters.values():
            if not waiter.done():
                waiter.set_exception(HostCrashedError(f"{host} has crashed"))

    def power_cut(self, name: str) -> None:
        """The machine stops silently, and its disk loses what was not synced (see `Disk`)."""
        self.crash(name, silently=True)
        self._cuts += 1
        left = self.disk(name).power_cut(random.Random(f"{self.seed}/power cut {self._cuts} of {name}"))
        self.trace.add("power cut", f"{name} {left}")

    def pause(self, name: str) -> None:
        """SIGSTOP: no callback of the host runs until `resume`; its kernel still accepts connections and bytes."""
        self.trace.add("pause", str(self._living(name)))
        self._living(name).pause()

    def resume(self, name: str) -> None:
        host = self._living(name)
        if host.paused:
            self.trace.add("resume", str(host))
            self.loop.reschedule(host.resume())

    def stall(self, name: str, duration_ms: int) -> None:
        """Pause now and resume after `duration_ms`; a restart in between ends the pause."""
        self.pause(name)
        host = self._living(name)
        due_ns = self.loop.now_ns + duration_ms * 1_000_000
        self.loop.call_at_ns(due_ns, self._end_stall, host, context=self.loop.ground)

    def _end_stall(self, host: Host) -> None:
        if host.alive:
            self.resume(host.name)

    def suspend(self, name: str) -> None:
        """The machine sleeps: nothing runs, and its timers stop until `wake`.

        The clocks of its Runtime go on, because they count sleep. The network keeps the bytes of open connections; new
        connections time out.
        """
        host = self._living(name)
        if not host.asleep:
            self.trace.add("suspend", str(host))
            host.fall_asleep()
            self._asleep[host] = (self.loop.now_ns, self.loop.freeze(host))

    def wake(self, name: str) -> None:
        host = self._living(name)
        if host.asleep:
            self.trace.add("wake", str(host))
            began_ns, timers = self._asleep.pop(host)
            slept_ns = self.loop.now_ns - began_ns
            self.loop.thaw(timers, slept_ns)
            self.loop.reschedule(host.wake(slept_ns))
            for callback in list(host.on_wake.values()):
                callback(slept_ns // 1_000_000)

    def suspend_for(self, name: str, duration_ms: int) -> None:
        """Suspend now and wake after `duration_ms`; a restart in between ends the sleep."""
        self.suspend(name)
        host = self._living(name)
        due_ns = self.loop.now_ns + duration_ms * 1_000_000
        self.loop.call_at_ns(due_ns, self._end_suspension, host, context=self.loop.ground)

    def _end_suspension(self, host: Host) -> None:
        if host.alive:
            self.wake(host.name)

    def set_clock(self, name: str, offset_ms: int) -> None:
        """Set the wall clock of a machine, `offset_ms` ahead of virtual time.

        A running process does not notice that (`Runtime.now_ms`); the next process on the host does.
        """
        self.trace.add("clock", f"{name} {offset_ms:+d} ms")
        self._clock_offsets_ms[name] = offset_ms

    def power_off(self) -> None:
        """Crash every host, for a scenario that ends while clients run."""
        for runtime in list(self._runtimes.values()):
            if runtime.host.alive:
                self.crash(runtime.name)

    def _living(self, name: str) -> Host:
        if name not in self._runtimes:
            raise LookupError(f"no host is named {name!r}; the hosts are {list(self._runtimes)}")
        host = self._runtimes[name].host
        if not host.alive:
            raise HostCrashedError(f"{host} has crashed")
        return host

    # Time, waiting, trace ------------------------------------------------------------------------------------

    @property
    def elapsed_ms(self) -> int:
        """Virtual time since the start."""
        return (self.loop.now_ns - START_NS) // 1_000_000

    @property
    def now_ms(self) -> int:
        """The wall clock of a host without an offset."""
        return self.options.epoch_ms + self.elapsed_ms

    async def sleep_ms(self, duration_ms: int) -> None:
        await asyncio.sleep(duration_ms / 1000)

    async def until(self, condition: Callable[[], object], *, timeout_ms: int = 60_000, poll_ms: int = 10) -> None:
        """Wait for a condition, tested every `poll_ms`. Raises LimitError with its name after `timeout_ms`."""
        end_ms = self.elapsed_ms + timeout_ms
        while not condition():
            if self.elapsed_ms >= end_ms:
                name = getattr(condition, "__qualname__", repr(condition))
                line = getattr(getattr(condition, "__code__", None), "co_firstlineno", "?")
                raise LimitError(f"after {timeout_ms} ms still false: {name} (line {line})")
            await self.sleep_ms(poll_ms)

    def start(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> "asyncio.Task[T]":
        """Start a task of the scenario, on no host."""
        return self.loop.create_task(coroutine, name=name, context=self.loop.ground.copy())

    def record(self, text: str) -> None:
        """Add a line to the trace, and so to its hash."""
        self.trace.add("record", text)

    def leaks(self) -> list[str]:
        """Tasks, connections and listeners that live hosts and the scenario have not ended."""
        return [
            *(f"task {describe(task)}" for task in self.loop.pending()),
            *(f"connection {end.label}" for end in self.network.endpoints() if end.host.alive),
            *(f"listener {at.host}:{at.port}" for at in self.network.listening()),
        ]
