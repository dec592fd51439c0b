"""A Runtime with a manual clock, so that a test need not wait 60 s for a lock to expire.

Timers are kept in a heap; one timer of the inner runtime stands for the earliest. `advance` runs the timers that become
due in their order, and moves the clock to each one first: a timer sees, and sets, times as if the time had passed.
Anything outside the Runtime keeps real time: asyncio's own sleeps, and the peers.
"""

import asyncio
import heapq
import random
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from lockstep.remoting.host.clocks import ClockId
from lockstep.remoting.host.loop_watch import LoopKept
from lockstep.remoting.host.runtime import (
    Identity,
    Listening,
    Pending,
    ProtocolFactory,
    Runtime,
    TimerHandle,
    WorkerPool,
)
from lockstep.remoting.host.storage import Storage

__all__ = ["HeldPort", "ManualClockRuntime"]

T = TypeVar("T")
_NS_PER_MS: Final = 1_000_000
# Above this, cancelled timers are removed from the heap before they are due.
_CANCELLED_KEPT_MAX: Final = 1000


class _Timer:
    """An entry of the heap. A cancelled one drops its callback and stays in the heap until it is popped."""

    __slots__ = ("_arguments", "_callback", "_on_cancel")

    def __init__(
        self, callback: Callable[..., object], arguments: tuple[Any, ...], on_cancel: Callable[[], None]
    ) -> None:
        self._callback: Callable[..., object] | None = callback
        self._arguments = arguments
        self._on_cancel = on_cancel

    @property
    def alive(self) -> bool:
        return self._callback is not None

    def cancel(self) -> None:
        if self._callback is not None:
            self._callback = None
            self._arguments = ()
            self._on_cancel()

    def run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(*self._arguments)


class HeldPort:
    """A port that is kept while the broker is down: connections are refused, and no other process gets it."""

    def __init__(self, host: str, port: int) -> None:
        """Raises OSError when the port is in use."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()


class ManualClockRuntime:
    def __init__(self, inner: Runtime) -> None:
        self._inner = inner
        self._offset_ms = 0
        self._heap: list[tuple[int, int, _Timer]] = []  # due_ms on the moved clock, serial, timer
        self._serial = 0
        self._cancelled = 0
        self._alarm: TimerHandle | None = None
        self._alarm_ms = 0
        self._running = False

    @property
    def rng(self) -> random.Random:
        return self._inner.rng

    @property
    def storage(self) -> Storage:
        return self._inner.storage

    @property
    def inner(self) -> Runtime:
        """The inner runtime, whose clock is not moved."""
        return self._inner

    @property
    def advanced_ms(self) -> int:
        """By how much the clock is ahead of the inner runtime's."""
        return self._offset_ms

    def now_ms(self) -> int:
        return self._inner.now_ms() + self._offset_ms

    def monotonic_ns(self) -> int:
        return self._inner.monotonic_ns() + self._offset_ms * _NS_PER_MS

    def clock_id(self) -> ClockId:
        machine, boot = self._inner.clock_id()
        return ClockId(machine, f"{boot}-moved")

    def on_wake(self, callback: Callable[[int], None]) -> Callable[[], object]:
        return self._inner.on_wake(callback)

    def watch_loop(self, late: Callable[[int], object]) -> LoopKept:
        return self._inner.watch_loop(late)

    def new_identity(self) -> Identity:
        return self._inner.new_identity()

    def create_task(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> "asyncio.Task[T]":
        return self._inner.create_task(coroutine, name=name)

    async def create_connection(
        self, factory: ProtocolFactory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        return await self._inner.create_connection(factory, host, port)

    async def create_server(self, factory: ProtocolFactory, host: str, port: int) -> Listening:
        return await self._inner.create_server(factory, host, port)

    def new_worker_pool(self, name: str, threads: int) -> WorkerPool:
        return self._inner.new_worker_pool(name, threads)

    def pending(self) -> Pending:
        return self._inner.pending()

    def stacks(self) -> str:
        return self._inner.stacks()

    def call_later_ms(self, delay_ms: int, callback: Callable[..., object], *args: Any) -> TimerHandle:
        timer = _Timer(callback, args, self._on_cancel)
        self._serial += 1
        heapq.heappush(self._heap, (self.now_ms() + delay_ms, self._serial, timer))
        if not self._running:
            self._arm()
        return timer

    def advance(self, delta_ms: int) -> None:
        """Move the clock forward and run the timers that become due, also those that a timer sets."""
        assert delta_ms >= 0
        assert not self._running, "a timer must not move the clock"
        until_ms = self._offset_ms + delta_ms
        try:
            self._run_due(until_ms, None)
        finally:
            self._offset_ms = until_ms
            self._arm()

    def _run_due(self, offset_max_ms: int, serial_max: int | None) -> None:
        """Run every timer that is due with an offset of at most `offset_max_ms`, moving the clock to each.

        Args:
            serial_max: Only while the earliest is not newer; None: also those that a timer sets.
        """
        self._running = True
        try:
            while self._heap and self._heap[0][0] <= self._inner.now_ms() + offset_max_ms:
                if serial_max is not None and self._heap[0][1] > serial_max:
                    break
                due_ms, _, timer = heapq.heappop(self._heap)
                if not timer.alive:
                    self._cancelled -= 1
                    continue
                self._offset_ms = min(max(self._offset_ms, due_ms - self._inner.now_ms()), offset_max_ms)
                self._run(timer)
        finally:
            self._running = False

    @staticmethod
    def _run(timer: _Timer) -> None:
        try:
            timer.run()
        except Exception as error:
            # As a loop does: one bad timer must not stop the others.
            context = {"message": f"Exception in a timer: {error!r}", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def _arm(self) -> None:
        """Keep one timer of the inner runtime set to the earliest of ours."""
        due_ms = self._heap[0][0] - self._offset_ms if self._heap else None
        if self._alarm is not None and due_ms == self._alarm_ms:
            return
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if due_ms is not None:
            self._alarm_ms = due_ms
            self._alarm = self._inner.call_later_ms(max(due_ms - self._inner.now_ms(), 0), self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        try:
            # What a timer sets for now has its turn after the loop's other callbacks: work in steps stays in steps.
            self._run_due(self._offset_ms, self._serial)
        finally:
            self._arm()

    def _on_cancel(self) -> None:
        self._cancelled += 1
        if self._cancelled > _CANCELLED_KEPT_MAX and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].alive]
            heapq.heapify(self._heap)
            self._cancelled = 0
