"""`remoting.runtime.Runtime` for one simulated host."""

import asyncio
import contextvars
import random
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import PurePath
from types import FrameType
from typing import Any, Final, Protocol, TypeVar

from lockstep.remoting.host.clocks import ClockId
from lockstep.remoting.host.loop_watch import LOOP_KEPT_MS, LoopKept
from lockstep.remoting.host.runtime import (
    Identity,
    Listening,
    Pending,
    ProtocolFactory,
    TimerHandle,
    WorkerPool,
)
from lockstep.remoting.host.storage import Storage
from lockstep.remoting.thread_dump import frame_lines, task_stacks
from lockstep.simulation.errors import HostCrashedError
from lockstep.simulation.machine.disk import Disk
from lockstep.simulation.machine.host import HOST, Host, host_context
from lockstep.simulation.machine.storage import SimStorage
from lockstep.simulation.network.network import Network
from lockstep.simulation.virtual_time.loop import START_NS, VirtualLoop
from lockstep.simulation.virtual_time.tasks import SequencedTask

__all__ = ["SimRuntime"]

T = TypeVar("T")
_WAKE_SEEN_MS: Final = 1000


def _equal_lines(frame: FrameType) -> str:
    """A frame as it is on every machine: without its folder, and nothing of Python's library, which has other lines in
    each version. A consumer sends them, so they are a part of the run.
    """
    module, path = frame.f_globals.get("__name__", ""), frame.f_code.co_filename
    if module.partition(".")[0] in sys.stdlib_module_names:
        return ""
    return frame_lines(frame).replace(path, PurePath(path).name)


class _JobTime(Protocol):
    def take_job_ms(self) -> int: ...

    def half_work_ms(self, pool: str) -> int: ...


class _SimWorkerPool:
    """Jobs run on the loop, in order. Each occupies a thread of the pool for the runtime's `job_ms` and for the time of
    its disk operations; in the pool of a listener it runs in the middle of its `listener_work_ms`.
    """

    def __init__(self, loop: VirtualLoop, host: Host, disk: Disk, pace: _JobTime, name: str, threads: int) -> None:
        assert threads >= 0
        self._name = name
        self._loop = loop
        self._host = host
        self._context = host_context(host)
        self._disk = disk
        self._pace = pace
        self._threads = threads
        self._busy = 0
        self._closed = False
        self._jobs: deque[Callable[[], None]] = deque()

    def submit(self, fn: Callable[[], T]) -> "asyncio.Future[T]":
        if self._closed:
            raise RuntimeError("the worker pool is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.append(lambda: self._run(fn, future))
        self._start_jobs()
        return future

    def _start_jobs(self) -> None:
        while self._jobs and self._busy < self._threads:
            self._busy += 1
            if before_ms := self._pace.half_work_ms(self._name):
                due_ns = self._loop.now_ns + self._virtual_ns(before_ms)
                self._loop.call_at_ns(due_ns, self._jobs.popleft(), context=self._context)
            else:
                self._loop.call_soon(self._jobs.popleft(), context=self._context)

    def _run(self, fn: Callable[[], T], future: "asyncio.Future[T]") -> None:
        result: T | None = None
        error: BaseException | None = None
        asyncio._set_running_loop(None)  # noqa: SLF001 - a real pool's thread has no running loop either
        self._disk.begin_job()
        try:
            result = fn()
        except BaseException as raised:
            error = raised
        finally:
            asyncio._set_running_loop(self._loop)  # noqa: SLF001
            after_ms = self._pace.take_job_ms() + self._pace.half_work_ms(self._name)
            due_ns = self._loop.now_ns + self._disk.end_job() + self._virtual_ns(after_ms)
        self._disk.at_end(due_ns, partial(self._finish_at, future, result, error))

    def _virtual_ns(self, duration_ms: int) -> int:
        """Of a duration by the clock of the host: a thread that sleeps looks at that."""
        duration_ns = duration_ms * 1_000_000
        return self._host.clock.virtual_duration_ns(duration_ns) if self._loop.clocks_off else duration_ns

    def _finish_at(self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None, due_ns: int) -> None:
        self._loop.call_at_ns(due_ns, self._finish, future, result, error, context=self._context)

    def _finish(self, future: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        self._busy -= 1
        if future.done():
            pass  # its waiter was cancelled
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)
        self._start_jobs()

    def resize(self, threads: int) -> None:
        assert threads >= 0
        self._threads = threads
        self._start_jobs()

    def close(self) -> None:
        """Accept no more jobs; those that were submitted still run."""
        self._closed = True


class _LoopWatch:
    def __init__(self, loop: VirtualLoop, host: Host, late: Callable[[int], object]) -> None:
        self._loop, self._host, self._late = loop, host, late
        self._kept_ns = (0, 0)
        self._closed = False

    def kept(self, began_ns: int, end_ns: int) -> None:
        """After the code that was interrupted goes on."""
        if not self._closed:
            self._kept_ns = began_ns, end_ns
            self._loop.call_soon(self._late, self.kept_ms(), context=host_context(self._host))

    def kept_ms(self) -> int:
        began_ns, end_ns = self._kept_ns
        kept_ms = (end_ns - began_ns) // 1_000_000
        return kept_ms if end_ns == self._loop.now_ns and kept_ms >= LOOP_KEPT_MS else 0

    def close(self) -> None:
        self._closed = True


class SimRuntime:
    """The Runtime of one host; everything created through it belongs to that host. `World.host` creates it."""

    def __init__(
        self, loop: VirtualLoop, network: Network, host: Host, disk: Disk, rng: random.Random, epoch_ms: int
    ) -> None:
        self.host = host
        self.disk = disk
        self.rng = rng
        self.storage: Storage = SimStorage(host, disk)
        self.job_ms = 0  # the duration of each job of a worker pool
        self.listener_work_ms = 0  # of a plain listener, whose code itself takes no time
        self._blocked_ms = 0
        self._loop_watches: list[_LoopWatch] = []
        self._loop = loop
        self._network = network
        self._epoch_ns = (epoch_ms + host.clock_offset_ms) * 1_000_000 - START_NS  # when the loop's clock was 0
        self._serial = loop.now_ns

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def address(self) -> str:
        """IPv4 text, to listen on and to connect to; the host name works too."""
        return self.host.address

    def now_ms(self) -> int:
        """Virtual time, unless the clock drifts. It counts the sleep of the machine, as the real clock does."""
        now_ns = self.host.clock.read_ns(self._loop.now_ns) if self._loop.clocks_off else self._loop.now_ns
        return (self._epoch_ns + now_ns) // 1_000_000

    def monotonic_ns(self) -> int:
        return self.host.clock.read_ns(self._loop.now_ns) if self._loop.clocks_off else self._loop.now_ns

    def clock_id(self) -> ClockId:
        """Of each host for itself, although all of them show virtual time unless they drift."""
        return ClockId(self.host.name, "1")

    def on_wake(self, callback: Callable[[int], None]) -> Callable[[], object]:
        """Call `callback` a second after the machine woke, the longest delay of the real Runtime."""
        key = object()
        self.host.on_wake[key] = lambda slept_ms: self.call_later_ms(_WAKE_SEEN_MS, callback, slept_ms)
        return partial(self.host.on_wake.pop, key, None)

    def watch_loop(self, late: Callable[[int], object]) -> LoopKept:
        """Only `keep_loop_ms` keeps it: code takes no virtual time."""
        watch = _LoopWatch(self._loop, self.host, late)
        self._loop_watches.append(watch)
        return watch

    def keep_loop_ms(self, duration_ms: int) -> None:
        """Like `time.sleep` on the event loop: this host runs nothing else for so long.

        What its caller does before its next await is still done at once.
        """
        began_ns, host = self._loop.now_ns, self.host
        host.pause()
        due_ns = began_ns + duration_ms * 1_000_000

        def free() -> None:
            if not host.alive:
                return
            self._loop.reschedule(host.resume())
            for watch in self._loop_watches:
                watch.kept(began_ns, due_ns)

        self._loop.call_at_ns(due_ns, free, context=self._loop.ground)

    def new_identity(self) -> Identity:
        self._serial += 1
        return Identity(self.host.address, self.host.pid, self._serial)

    def call_later_ms(self, delay_ms: int, callback: Callable[..., object], *args: Any) -> TimerHandle:
        loop, delay_ns = self._loop, delay_ms * 1_000_000
        if loop.clocks_off:
            delay_ns = self.host.clock.virtual_duration_ns(delay_ns)
        return loop.call_at_ns(loop.now_ns + delay_ns, callback, *args, context=self._context())

    def create_task(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> "asyncio.Task[T]":
        return self._create_task(coroutine, name)

    def _create_task(self, coroutine: Coroutine[Any, Any, T], name: str) -> SequencedTask[T]:
        if not self.host.alive:
            coroutine.close()
        return self._loop.create_task(coroutine, name=name, context=self._context())

    async def create_connection(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        self._check_alive()
        return await self._network.connect(self.host, factory, host, port)

    async def create_server(self, factory: ProtocolFactory, host: str, port: int) -> Listening:
        self._check_alive()
        return self._network.listen(self.host, factory, host, port)

    def new_worker_pool(self, name: str, threads: int) -> WorkerPool:
        return _SimWorkerPool(self._loop, self.host, self.disk, self, name, threads)

    def pending(self) -> Pending:
        """Of this host. Threads do not exist here."""
        return Pending(self._loop.tasks_of(self.host), self._loop.timers_of(self.host), {})

    def stacks(self) -> str:
        return task_stacks([task for task in self._loop.pending() if task.host is self.host], _equal_lines)

    def block_ms(self, duration_ms: int) -> None:
        """Like `time.sleep` in a job of a worker pool: its thread is busy for longer."""
        self._blocked_ms += duration_ms

    def take_job_ms(self) -> int:
        """How long the last job keeps its thread."""
        blocked_ms, self._blocked_ms = self._blocked_ms, 0
        return self.job_ms + blocked_ms

    def half_work_ms(self, pool: str) -> int:
        """Half of the time that a job of a pool works."""
        return self.listener_work_ms // 2 if pool.endswith(" listener") else 0

    async def run(self, coroutine: Coroutine[Any, Any, T], *, name: str = "scenario") -> T:
        """Await `coroutine` on this host, with its tasks and sleeps.

        Raises HostCrashedError as soon as the host crashes.
        """
        task = self._create_task(coroutine, name)
        key, waiters = hash(task), self.host.waiters

        def wake(_: object) -> None:
            waiter = waiters.get(key)
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

        task.add_done_callback(wake, context=self._loop.ground)
        while not task.done():
            waiters[key] = self._loop.create_future()
            try:
                await waiters[key]
            except asyncio.CancelledError:
                task.cancel()
            finally:
                del waiters[key]
        return task.result()

    def _context(self) -> contextvars.Context:
        host = self.host
        if not host.alive:
            self._check_alive()
        if HOST.get(None) is host:  # nearly always; it costs a third
            return contextvars.copy_context()
        return host_context(host)

    def _check_alive(self) -> None:
        if not self.host.alive:
            raise HostCrashedError(f"{self.host} has crashed; World.host({self.name!r}) starts it again")
