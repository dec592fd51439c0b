"""The runtime port: everything that a shell takes from the world outside its own code.

Time, chance, identity, disk, network and threads reach `broker` and `client` only through a `Runtime`, so that
`lockstep.simulation` can run the same code on virtual time. Cores do not use even this: they take `now_ms`, an `rng`
and bytes as arguments.
"""

import asyncio
import contextlib
import itertools
import os
import queue
import random
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextvars import Context
from typing import Any, NamedTuple, Protocol, TypeVar

from lockstep.remoting.host.clocks import ClockId, ClockNs, SleepWatch, boot_ns, this_clock
from lockstep.remoting.host.loop_watch import LoopKept, LoopWatch
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.remoting.host.storage import Storage
from lockstep.remoting.thread_dump import task_stacks, thread_stacks

__all__ = [
    "AsyncioRuntime",
    "Identity",
    "Listening",
    "Pending",
    "ProtocolFactory",
    "Runtime",
    "TimerHandle",
    "WorkerPool",
]

T = TypeVar("T")
# One counter of the process: two runtimes never make the same identity.
_SERIALS = itertools.count(time.monotonic_ns())
# A router may forget a connection and drop its packets. Linux repeats them for a quarter of an hour (tcp_retries2).
_UNACKNOWLEDGED_MS_MAX = 30_000
_USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
ProtocolFactory = Callable[[], asyncio.Protocol]


class Identity(NamedTuple):
    """The identity of a client. Two identities are never equal, not even in one process."""

    host: str  # IPv4 text, e.g. "127.0.0.1"
    pid: int
    serial: int  # nanoseconds at start plus a counter, as Java's `pid#nanoTime` (wire.md 12.1)


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Listening(Protocol):
    """A bound server socket."""

    @property
    def port(self) -> int: ...
    def close(self) -> None: ...
    async def wait_closed(self) -> None: ...


class WorkerPool(Protocol):
    """Daemon threads for plain (blocking) listeners; never the loop's default executor."""

    def submit(self, fn: Callable[[], T]) -> "asyncio.Future[T]":
        """Run `fn` on a thread; the future has its result or its error. Call this and the others on the loop.

        Raises RuntimeError when the pool is closed.
        """

    def resize(self, threads: int) -> None: ...
    def close(self) -> None: ...


class Pending(NamedTuple):
    """Tasks, and timers as callbacks with their contexts, to be read at once; the function that each thread runs."""

    tasks: "Iterable[asyncio.Task[Any]]"
    timers: Iterable[tuple[Callable[..., object], Context]]
    threads: Mapping[object, object]


class Runtime(Protocol):
    @property
    def rng(self) -> random.Random: ...
    @property
    def storage(self) -> Storage: ...

    def now_ms(self) -> int:
        """Epoch milliseconds: the wall clock at the start plus `monotonic_ns` since then.

        It never steps back and does not follow a wall clock that is set. It counts the time that the machine sleeps,
        which the loop's timers do not: code that guards a lease compares `now_ms`. Any thread may call it.
        """

    def monotonic_ns(self) -> int:
        """A clock for intervals that counts sleep of the machine; comparable where `clock_id` is equal."""

    def clock_id(self) -> ClockId:
        """Whose clock `monotonic_ns` is."""

    def on_wake(self, callback: Callable[[int], None]) -> Callable[[], object]:
        """Call `callback(slept_ms)` on the loop within a second after the machine wakes.

        Timers stop while the machine sleeps: without this, work that is due by `now_ms` would be late by that time.

        Returns:
            A function that ends this.
        """

    def watch_loop(self, late: Callable[[int], object]) -> LoopKept:
        """Notice from now on that a function keeps the loop; `late(kept_ms)` is called on the loop after it."""

    def new_identity(self) -> Identity: ...

    def call_later_ms(self, delay_ms: int, callback: Callable[..., object], *args: Any) -> TimerHandle: ...

    def create_task(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> "asyncio.Task[T]": ...

    async def create_connection(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Connect. Raises OSError when no server listens there."""

    async def create_server(self, factory: ProtocolFactory, host: str, port: int) -> Listening:
        """Listen; port 0 picks a free one. Raises OSError when the port is in use."""

    def new_worker_pool(self, name: str, threads: int) -> WorkerPool: ...

    def pending(self) -> Pending:
        """What will run or runs, as far as it can be seen. Called on the loop."""

    def stacks(self) -> str:
        """A dump of every thread and every task, for people. Call it on the loop."""


# The real one ------------------------------------------------------------------------------------------------


class _SocketListening:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port: int = server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._server.close()

    async def wait_closed(self) -> None:
        await self._server.wait_closed()


class _ThreadPool:
    """A pool of daemon threads: a listener that never returns cannot keep the process from exiting."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, threads: int) -> None:
        self._loop = loop
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # Only the loop changes these; threads report to it.
        self._wanted = 0
        self._alive = 0
        self._leaving = 0  # of `_alive`: they have the order to end
        self._unfinished = 0
        self._serial = 0
        self._closed = False
        self.resize(threads)

    def resize(self, threads: int) -> None:
        assert threads >= 0
        self._wanted = threads
        while self._alive - self._leaving > threads:
            self._leaving += 1
            self._jobs.put(None)
        self._start_threads()

    def submit(self, fn: Callable[[], T]) -> "asyncio.Future[T]":
        if self._closed:
            raise RuntimeError("the worker pool is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._unfinished += 1
        self._jobs.put(lambda: self._run(fn, future))
        self._start_threads()
        return future

    def _start_threads(self) -> None:
        while self._alive < self._wanted and self._alive - self._leaving < self._unfinished:
            self._alive += 1
            self._serial += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._serial}", daemon=True).start()

    def _run(self, fn: Callable[[], T], future: "asyncio.Future[T]") -> None:
        try:
            result = fn()
        except StopIteration as error:  # a future cannot carry one
            self._post(self._fail, future, RuntimeError(f"raised StopIteration: {error}"))
        except BaseException as error:
            self._post(self._fail, future, error)
        else:
            self._post(self._finish, future, result)

    def _post(self, callback: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):
            # The loop is closed, so no task waits.
            self._loop.call_soon_threadsafe(callback, *args)

    def _finish(self, future: "asyncio.Future[T]", result: T) -> None:
        self._unfinished -= 1
        if not future.done():
            future.set_result(result)

    def _fail(self, future: "asyncio.Future[T]", error: BaseException) -> None:
        self._unfinished -= 1
        if not future.done():
            future.set_exception(error)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
        self._post(self._left)

    def _left(self) -> None:
        self._alive -= 1
        self._leaving -= 1
        self._start_threads()

    def close(self) -> None:
        """Take no more work. Work that was submitted before still runs."""
        self._closed = True
        self.resize(0)


class AsyncioRuntime:
    """The runtime of a real process. Make it inside the running loop."""

    def __init__(self, *, host: str = "127.0.0.1", seed: int | None = None, clock_ns: ClockNs = boot_ns) -> None:
        """`clock_ns` is a clock that counts sleep; tests give their own."""
        self._loop = asyncio.get_running_loop()
        # Not loop.time(): it does not count sleep. And uvloop reads its clock once an iteration, so a listener that
        # blocked the loop past its lease would still see the old time.
        self._clock_ns = clock_ns
        self._epoch_ns = time.time_ns() - clock_ns()
        self._sleep_watch = SleepWatch(clock_ns, time.monotonic_ns, self.call_later_ms)
        self._host = host
        self._tasks: set[asyncio.Task[Any]] = set()
        self.rng = random.Random(seed)
        self.storage: Storage = OsStorage()

    def now_ms(self) -> int:
        return (self._epoch_ns + self._clock_ns()) // 1_000_000

    def monotonic_ns(self) -> int:
        return self._clock_ns()

    def clock_id(self) -> ClockId:
        return this_clock()

    def on_wake(self, callback: Callable[[int], None]) -> Callable[[], object]:
        return self._sleep_watch.add(callback)

    def watch_loop(self, late: Callable[[int], object]) -> LoopKept:
        return LoopWatch(time.monotonic_ns, self.call_later_ms, late)

    def new_identity(self) -> Identity:
        return Identity(self._host, os.getpid(), next(_SERIALS))

    def call_later_ms(self, delay_ms: int, callback: Callable[..., object], *args: Any) -> TimerHandle:
        return self._loop.call_later(delay_ms / 1000, callback, *args)

    def create_task(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> "asyncio.Task[T]":
        task = self._loop.create_task(coroutine, name=name)
        # The loop itself keeps only weak references.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def create_connection(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        transport, protocol = await self._loop.create_connection(factory, host, port)
        if _USER_TIMEOUT is not None:
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, _UNACKNOWLEDGED_MS_MAX)
        return transport, protocol

    async def create_server(self, factory: ProtocolFactory, host: str, port: int) -> Listening:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = await self._loop.create_server(factory, host, port, family=family, backlog=1024)
        return _SocketListening(server)

    def new_worker_pool(self, name: str, threads: int) -> WorkerPool:
        return _ThreadPool(self._loop, name, threads)

    def pending(self) -> Pending:
        """Without uvloop's timers, which it shows nobody."""
        timers = (
            (timer._callback, timer._context)  # noqa: SLF001 - no other way with Python 3.11
            for timer in getattr(self._loop, "_scheduled", ())
            if not timer.cancelled()
        )
        threads: dict[object, object] = {one: getattr(one, "_target", None) for one in threading.enumerate()}
        return Pending(asyncio.all_tasks(), timers, threads)

    def stacks(self) -> str:
        names = {thread.ident or 0: thread.name for thread in threading.enumerate()}
        return thread_stacks(names) + task_stacks(asyncio.all_tasks())
