"""The Runtime of fuzzing: a clock that only the fuzzer moves, ports and transports without sockets.

Everything is called in one thread and in an order that depends on the seed alone. What runs on the event loop is
measured by the thread's own processor time, so that a busy machine changes no result.
"""

import asyncio
import gc
import heapq
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from lockstep.remoting.host.clocks import ClockId
from lockstep.remoting.host.loop_watch import LoopKept
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.remoting.host.runtime import Identity, Listening, Pending, ProtocolFactory, WorkerPool
from lockstep.remoting.host.storage import Storage

__all__ = ["COLLECTIONS", "FakeTransport", "FuzzRuntime", "Turns"]

T = TypeVar("T")
_START_MS: Final = 1_700_000_000_000
_LOOK_NS: Final = 20_000  # each look at the clock takes so long, so that turns of a connection end
_STUCK_BYTES_MAX: Final = 64 * 1024 * 1024


class _Collections:
    """Processor time of garbage collections: most of what they look at is the fuzzer's own."""

    def __init__(self) -> None:
        self.took_ns = self._began_ns = 0

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Until the end no callback's time has that of collections, and none looks at what is there now."""
        gc.collect()
        gc.freeze()
        gc.callbacks.append(self._note)
        try:
            yield
        finally:
            gc.callbacks.remove(self._note)
            gc.unfreeze()

    def _note(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = time.thread_time_ns()
        else:
            self.took_ns += time.thread_time_ns() - self._began_ns


COLLECTIONS: Final = _Collections()


class Turns:
    """How long one callback of the loop computed, at most.

    Args:
        over_ns: Longer callbacks are counted.
    """

    def __init__(self, over_ns: int) -> None:
        self.over_ns = over_ns
        self.longest_ns = 0
        self.longest = ""
        self.over: list[tuple[int, str]] = []
        self.what = ""

    def run(self, callback: Callable[..., T], *args: Any) -> T:
        """Call and measure. What is long by chance, as a page fault is, is not told apart here."""
        return self.run_as(getattr(callback, "__qualname__", str(callback)), callback, *args)

    def run_as(self, name: str, callback: Callable[..., T], *args: Any) -> T:
        """The same under this name."""
        began_ns = time.thread_time_ns() - COLLECTIONS.took_ns
        try:
            return callback(*args)
        finally:
            took_ns = time.thread_time_ns() - COLLECTIONS.took_ns - began_ns
            if took_ns > self.longest_ns:
                what = f"{name} {self.what}"
                self.longest_ns, self.longest = took_ns, what
                if took_ns > self.over_ns:
                    self.over.append((took_ns, what))


async def _measured(coroutine: Coroutine[Any, Any, T], turns: Turns) -> T:
    """A coroutine of a task, each of whose steps is measured."""
    return await _Steps(coroutine, turns)


class _Steps(Awaitable[T]):
    def __init__(self, coroutine: Coroutine[Any, Any, T], turns: Turns) -> None:
        self._coroutine = coroutine
        self._turns = turns

    def __await__(self) -> Generator[Any, Any, T]:
        name = getattr(self._coroutine, "__qualname__", "a task")
        step: tuple[Callable[[Any], Any], Any] = self._coroutine.send, None
        while True:
            try:
                waits = self._turns.run_as(name, *step)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                step = self._coroutine.send, (yield waits)
            except BaseException as error:
                step = self._coroutine.throw, error


class _Timer:
    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None
        self.args = ()


class _Port:
    def __init__(self, number: int, ports: dict[int, ProtocolFactory]) -> None:
        self.port = number
        self._ports = ports

    def close(self) -> None:
        self._ports.pop(self.port, None)

    async def wait_closed(self) -> None:
        return


class _Pool:
    """A thread that is none: its jobs run a little later, and are not measured, for they would not be on the loop."""

    def __init__(self, runtime: "FuzzRuntime") -> None:
        self._runtime = runtime

    def submit(self, fn: Callable[[], T]) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._runtime.later(fn, future)
        return future

    def resize(self, threads: int) -> None:
        return

    def close(self) -> None:
        return


class FuzzRuntime:
    """`ports` has the factory of each port that is open.

    Args:
        rng: Of the server.
        turns: Measures what runs.
    """

    def __init__(self, rng: random.Random, turns: Turns) -> None:
        self.rng = rng
        self.turns = turns
        self.storage: Storage = OsStorage()
        self.ports: dict[int, ProtocolFactory] = {}
        self._now_ns = _START_MS * 1_000_000
        self._timers: list[tuple[int, int, _Timer]] = []
        self._serial = 0
        self._jobs: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []

    def later(self, fn: Callable[[], T], future: "asyncio.Future[T]") -> None:
        """Run a job of a thread at the next `advance`."""
        self._jobs.append((fn, future))

    def now_ms(self) -> int:
        return self._now_ns // 1_000_000

    def monotonic_ns(self) -> int:
        self._now_ns += _LOOK_NS
        return self._now_ns

    def clock_id(self) -> ClockId:
        return ClockId("fuzz", "1")

    def on_wake(self, callback: Callable[[int], None]) -> Callable[[], object]:
        return lambda: None

    def watch_loop(self, late: Callable[[int], object]) -> LoopKept:
        raise AssertionError("only consumers watch the loop")

    def new_identity(self) -> Identity:
        self._serial += 1
        return Identity("127.0.0.1", 1, self._serial)

    def call_later_ms(self, delay_ms: int, callback: Callable[..., object], *args: Any) -> _Timer:
        self._serial += 1
        timer = _Timer(callback, args)
        heapq.heappush(self._timers, (self._now_ns + delay_ms * 1_000_000, self._serial, timer))
        return timer

    def create_task(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> "asyncio.Task[T]":
        task = asyncio.get_running_loop().create_task(_measured(coroutine, self.turns), name=name)
        task.add_done_callback(lambda _: coroutine.close())  # one that was cancelled before its first step
        return task

    async def create_connection(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        raise ConnectionRefusedError(f"{host}:{port}")

    async def create_server(self, factory: ProtocolFactory, host: str, port: int) -> Listening:
        self.ports[port] = factory
        return _Port(port, self.ports)

    def new_worker_pool(self, name: str, threads: int) -> WorkerPool:
        return _Pool(self)

    def pending(self) -> Pending:
        return Pending(asyncio.all_tasks(), (), {})

    def stacks(self) -> str:
        return ""

    def advance(self, duration_ms: int) -> None:
        """Move the clock and run what is due. A timer that is set meanwhile for now runs too."""
        jobs, self._jobs = self._jobs, []
        for fn, future in jobs:
            try:
                future.set_result(fn())
            except Exception as error:
                future.set_exception(error)
        end_ns = self._now_ns + duration_ms * 1_000_000
        timers = self._timers
        while timers and timers[0][0] <= max(end_ns, self._now_ns):
            due_ns, _, timer = heapq.heappop(timers)
            if timer.callback is not None:
                self._now_ns = max(self._now_ns, due_ns)
                self.turns.run(timer.callback, *timer.args)
        self._now_ns = max(self._now_ns, end_ns)


class FakeTransport(asyncio.Transport):
    """The server's end of a connection. `sent` is what it wrote since `take`.

    Args:
        stuck: The peer reads nothing, until `unstick`.
    """

    def __init__(self, runtime: FuzzRuntime, peer: tuple[str, int], *, stuck: bool = False) -> None:
        super().__init__()
        self._runtime = runtime
        self._peer = peer
        self._stuck = stuck
        self._sent: list[bytes] = []
        self._waiting_bytes = 0
        self._high = self._low = 0
        self._arrived: list[bytes] = []
        self._reading = True
        self._closing = self._writing_paused = False
        self.protocol: asyncio.Protocol | None = None
        self.is_lost = False

    # The peer's side ----------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Bytes of the peer arrive."""
        if not self._closing and data:
            self._arrived.append(data)
            self._deliver()

    def _deliver(self) -> None:
        while self._arrived and self._reading and not self._closing:
            assert self.protocol is not None
            self._runtime.turns.run(self.protocol.data_received, self._arrived.pop(0))

    def end(self, *, reset: bool) -> None:
        """The peer ends the connection."""
        if self._closing:
            return
        if reset:
            self._lose(ConnectionResetError("the peer"))
        elif self.protocol is not None:
            self._runtime.turns.run(self.protocol.eof_received)
            self.close()

    def take(self) -> bytes:
        """What the server wrote since the last call."""
        data = b"".join(self._sent)
        self._sent.clear()
        return data

    def unstick(self) -> None:
        self._stuck = False
        self._waiting_bytes = 0
        if self._writing_paused and not self._closing and self.protocol is not None:
            self._writing_paused = False
            self._runtime.turns.run(self.protocol.resume_writing)

    # asyncio.Transport --------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._peer if name == "peername" else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            self._arrived.clear()
            self._runtime.call_later_ms(0, self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        self.is_lost = True
        if self.protocol is not None:
            self.protocol.connection_lost(error)

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        if self._arrived:
            self._runtime.call_later_ms(0, self._deliver)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high, self._low = high or 0, low or 0

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_lost, "written to a connection that is gone"
        self._sent.append(bytes(data))
        if self._stuck:
            self._waiting_bytes += len(data)
            assert self._waiting_bytes <= _STUCK_BYTES_MAX, "a peer that does not read is written to without end"
            if self._waiting_bytes > self._high and not self._writing_paused and self.protocol is not None:
                self._writing_paused = True
                self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))
