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
from functools import partial
from typing import Any, Generic, TypeVar

from lockstep.simulation.errors import HostCrashedError, LimitError
from lockstep.simulation.machine.clock import Clock
from lockstep.simulation.machine.disk import Disk
from lockstep.simulation.machine.host import Host, HostEvent
from lockstep.simulation.network.faults import NetworkFaults
from lockstep.simulation.network.network import Network
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.runtime import SimRuntime
from lockstep.simulation.shuffle import Shuffle
from lockstep.simulation.trace import Event, Trace, line_of
from lockstep.simulation.virtual_time.cpu import SlowCpu
from lockstep.simulation.virtual_time.loop import START_NS, Timer, VirtualLoop
from lockstep.simulation.virtual_time.tasks import describe

__all__ = ["Outcome", "World"]

T = TypeVar("T")
_FIRST_PID = 1001
_MILLION = 1_000_000
_NEVER_NS = 1 << 63
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


@dataclass
class _Machine:
    """What a host keeps over crashes."""

    disk: Disk
    clock: Clock = field(default_factory=Clock)
    clock_offset_ms: int = 0
    callback_us: int = 0  # how long each callback takes on its processor


class World(NetworkFaults):
    """Hosts by name, faults, and the trace; for scenarios."""

    def __init__(self, loop: VirtualLoop, seed: int, options: SimulationOptions) -> None:
        trace = Trace(loop, options.trace_lines_max)
        super().__init__(Network(loop, trace, seed, options), trace, options)
        self.loop = loop
        self.seed = seed
        self.rng = random.Random(f"{seed}/scenario")  # for the scenario's own choices
        if options.shuffle_us:
            rng = random.Random(f"{seed}/order")
            loop.shuffle = Shuffle(rng, options.shuffle_us * 1000, partial(self.trace.add, "last"))
        self._runtimes: dict[str, SimRuntime] = {}
        self._machines: dict[str, _Machine] = {}
        self._asleep: dict[Host, tuple[int, list[Timer]]] = {}  # since when, in ns, and its timers
        self._started = 0
        self._cuts = 0
        # Each is called with the name of a host, what happens to it, and a text about it.
        self.when_changed: list[Callable[[str, HostEvent, str], object]] = []
        self.healed = False  # a fault of several steps takes no further one

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
        machine = self._machine(name)
        if clock_offset_ms is not None:
            machine.clock_offset_ms = clock_offset_ms
        pid = _FIRST_PID + self._started - 1
        host = Host(name, address, generation, pid, machine.clock_offset_ms, clock=machine.clock)
        self._set_cpu(host)
        rng = random.Random(f"{self.seed}/host {name}#{generation}")
        self.network.join(host)
        self.trace.add("start", f"{host} {address}")
        runtime = SimRuntime(self.loop, self.network, host, machine.disk, rng, self.options.epoch_ms)
        self._runtimes[name] = runtime
        self.tell(name, HostEvent.STARTED)
        return runtime

    @property
    def addresses(self) -> dict[str, str]:
        """address -> name, of all hosts that have started."""
        return {runtime.address: name for name, runtime in self._runtimes.items()}

    def process(self, name: str) -> Host | None:
        """The newest process of a host, also a dead one; None: none has started. It starts nothing."""
        runtime = self._runtimes.get(name)
        return runtime.host if runtime is not None else None

    def blocked(self) -> list[tuple[str, str]]:
        """Where nothing passes now: from which host to which."""
        names = self.addresses
        return [(names[source], names[target]) for source, target in self.network.blocked()]

    def tell(self, name: str, event: HostEvent, text: str = "") -> None:
        """Tell the observers what happens to a host."""
        for callback in self.when_changed:
            callback(name, event, text)

    def disk(self, name: str) -> Disk:
        """The disk of a host; it survives crashes."""
        return self._machine(name).disk

    def _machine(self, name: str) -> _Machine:
        if name not in self._machines:
            self._machines[name] = _Machine(Disk(lambda: self.loop.now_ns))
        return self._machines[name]

    def crash(self, name: str, *, silently: bool = False) -> None:
        """SIGKILL: the host stops, and its connections are reset.

        With `silently` the machine stops too: peers get no answer until they time out or it starts again.
        """
        host = self._living(name)
        self.trace.add("crash", f"{host}{' silently' if silently else ''}")
        self.tell(name, HostEvent.POWERED_OFF if silently else HostEvent.CRASHED)
        host.crash(silently=silently)
        self._asleep.pop(host, None)
        self.network.crash(host, silently=silently)
        self.disk(name).killed()
        for waiter in host.waiters.values():
            if not waiter.done():
                waiter.set_exception(HostCrashedError(f"{host} has crashed"))

    def power_cut(self, name: str) -> None:
        """The machine stops silently, and its disk loses what was not synced (see `Disk`)."""
        self.tell(name, HostEvent.LOST_POWER)
        self.crash(name, silently=True)
        self._cuts += 1
        left = self.disk(name).power_cut(random.Random(f"{self.seed}/power cut {self._cuts} of {name}"))
        self.trace.add("power cut", f"{name} {left}")

    def pause(self, name: str) -> None:
        """SIGSTOP: no callback of the host runs until `resume`; its kernel still accepts connections and bytes."""
        self.trace.add("pause", str(self._living(name)))
        self._living(name).pause()
        self.tell(name, HostEvent.STOPPED)

    def resume(self, name: str) -> None:
        host = self._living(name)
        if host.paused:
            host.stalled_until_ns = 0
            self.trace.add("resume", str(host))
            self.tell(name, HostEvent.CONTINUED)
            self.loop.reschedule(host.resume())

    def stall(self, name: str, duration_ms: int | None) -> None:
        """Pause now and resume after `duration_ms`, or when an earlier stall ends, if that is later.

        A restart in between ends the pause. None: until `resume`.
        """
        self.pause(name)
        host = self._living(name)
        if duration_ms is None:
            host.stalled_until_ns = _NEVER_NS
            return
        due_ns = self.loop.now_ns + duration_ms * 1_000_000
        host.stalled_until_ns = max(host.stalled_until_ns, due_ns)
        self.loop.call_at_ns(due_ns, self._end_stall, host, context=self.loop.ground)

    def _end_stall(self, host: Host) -> None:
        if host.alive and self.loop.now_ns >= host.stalled_until_ns:
            self.resume(host.name)

    def suspend(self, name: str) -> None:
        """The machine sleeps: nothing runs, and its timers stop until `wake`.

        The clocks of its Runtime go on, because they count sleep. The network keeps the bytes of open connections; new
        connections time out.
        """
        host = self._living(name)
        if not host.asleep:
            self.trace.add("suspend", str(host))
            self.tell(name, HostEvent.SLEPT)
            host.fall_asleep()
            self._asleep[host] = (self.loop.now_ns, self.loop.freeze(host))

    def wake(self, name: str) -> None:
        host = self._living(name)
        if host.asleep:
            host.asleep_until_ns = 0
            self.trace.add("wake", str(host))
            self.tell(name, HostEvent.WOKE)
            began_ns, timers = self._asleep.pop(host)
            self.loop.thaw(timers, self.loop.now_ns - began_ns)
            slept_ns = host.clock.read_ns(self.loop.now_ns) - host.clock.read_ns(began_ns)
            self.loop.reschedule(host.wake(slept_ns))
            for callback in list(host.on_wake.values()):
                callback(slept_ns // 1_000_000)

    def suspend_for(self, name: str, duration_ms: int | None) -> None:
        """Suspend now and wake after `duration_ms`, or when an earlier sleep ends, if that is later.

        A restart in between ends the sleep. None: until `wake`.
        """
        self.suspend(name)
        host = self._living(name)
        if duration_ms is None:
            host.asleep_until_ns = _NEVER_NS
            return
        due_ns = self.loop.now_ns + duration_ms * 1_000_000
        host.asleep_until_ns = max(host.asleep_until_ns, due_ns)
        self.loop.call_at_ns(due_ns, self._end_suspension, host, context=self.loop.ground)

    def _end_suspension(self, host: Host) -> None:
        if host.alive and self.loop.now_ns >= host.asleep_until_ns:
            self.wake(host.name)

    def set_clock(self, name: str, offset_ms: int) -> None:
        """Set the wall clock of a machine, `offset_ms` ahead of virtual time if the clock does not drift.

        A running process does not notice that (`Runtime.now_ms`); the next process on the host does.
        """
        self.trace.add("clock", f"{name} {offset_ms:+d} ms")
        self.tell(name, HostEvent.CLOCK_SET, f"{offset_ms:+,} ms")
        self._machine(name).clock_offset_ms = offset_ms

    def set_drift(self, name: str, ppm: int) -> None:
        """Let the clocks and timers of a machine run faster than virtual time by `ppm` millionths, or slower.

        0 ends that; what the clock has gained or lost until then stays. Later processes on the machine have the same
        clock. The time of disk operations does not change.
        """
        self.trace.add("drift", f"{name} {ppm:+d} ppm")
        clock, host = self._machine(name).clock, self._runtimes[name].host if name in self._runtimes else None
        self.loop.clocks_off = True
        if host is not None and host.asleep:
            began_ns, timers = self._asleep[host]
            self._asleep[host] = began_ns, _retimed(timers, began_ns, clock.ppm, ppm)
        elif host is not None:
            self.loop.thaw(_retimed(self.loop.freeze(host), self.loop.now_ns, clock.ppm, ppm), 0)
        clock.set_ppm(ppm, self.loop.now_ns)

    def clock(self, name: str) -> Clock:
        """The clock of a machine, as `Runtime.monotonic_ns` shows it."""
        return self._machine(name).clock

    def clock_ms(self, name: str) -> int:
        """The wall clock of a machine, if it was never set."""
        return self.options.epoch_ms + (self.clock(name).read_ns(self.loop.now_ns) - START_NS) // 1_000_000

    def slow_cpu(self, name: str, callback_us: int) -> None:
        """Let each callback of a host take virtual time, until it is 0 again; later callbacks wait meanwhile.

        Later processes on the host are as slow. Jobs of worker pools run beside the callbacks, as on another core.
        """
        assert callback_us >= 0
        self.trace.add("cpu", f"{name} {callback_us} us")
        self._machine(name).callback_us = callback_us
        if name in self._runtimes and self._runtimes[name].host.alive:
            self._set_cpu(self._runtimes[name].host)

    def _set_cpu(self, host: Host) -> None:
        machine = self._machine(host.name)
        is_slow = machine.callback_us or machine.disk.slow_read_ms
        cpu = SlowCpu(self.loop, host, machine.callback_us * 1000) if is_slow else None
        if cpu is not None or host.cpu is not None:
            self.loop.reschedule(host.set_cpu(cpu))

    def slow_disk(self, name: str, *, sync_ms: int, read_ms: int = 0) -> None:
        """Let each sync and each read take so much longer; 0 ends it. A read on the loop stops the process for it."""
        self.trace.add("disk", f"{name} sync {sync_ms} ms, read {read_ms} ms")
        disk = self.disk(name)
        disk.slow_sync_ms, disk.slow_read_ms = sync_ms, read_ms
        if name in self._runtimes and self._runtimes[name].host.alive:
            self._set_cpu(self._runtimes[name].host)

    def hang_disk(self, name: str) -> None:
        """Until `release_disk` no sync returns, and no read of a worker pool's job. It survives crashes of the host."""
        self.trace.add("disk", f"{name} hangs")
        self.disk(name).hang()

    def release_disk(self, name: str) -> None:
        self.trace.add("disk", f"{name} answers")
        self.disk(name).release()

    def heal(self) -> None:
        """End every fault that lasts: hosts run, clocks, disks and links work, ends that hear nothing are reset.

        A host that crashed stays down until it is started.
        """
        self.trace.add("heal", "")
        self.healed = True
        for name, runtime in self._runtimes.items():
            machine = self._machine(name)
            machine.disk.heal()
            machine.disk.slow_sync_ms = machine.disk.slow_read_ms = machine.callback_us = 0
            self._set_cpu(runtime.host)
            if machine.clock.ppm:
                self.set_drift(name, 0)
            if runtime.host.asleep:
                self.wake(name)
            if runtime.host.paused:
                self.resume(name)
        self.network.heal()

    def power_off(self) -> None:
        """Crash every host, for a scenario that ends while clients run."""
        # The scenario is over: this is no fault that an observer shall hear of.
        self.when_changed.clear()
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


def _retimed(timers: list[Timer], now_ns: int, ppm: int, new_ppm: int) -> list[Timer]:
    """The timers of a machine whose clock gets another rate: what is left of each is that much of its time."""
    return [
        (now_ns + -(-(when_ns - now_ns) * (_MILLION + ppm) // (_MILLION + new_ppm)), sequence, handle)
        for when_ns, sequence, handle in timers
    ]
