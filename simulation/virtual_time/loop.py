"""The event loop on virtual time: an integer clock in nanoseconds that jumps to the next timer when nothing is ready.

Two runs are equal because callbacks, and timers of one instant, run in the order in which they were scheduled; tasks
and futures hash by number, so that sets of them (in `TaskGroup`, `asyncio.wait`) have an order; tasks are named by
number and kept alive until they are done, so that the garbage collector has no influence.
"""

import asyncio
import contextvars
import gc
import itertools
import sys
import warnings
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Protocol, TypeVar, TypeVarTuple, cast

from lockstep.simulation.errors import DeadlockError, LimitError, NondeterminismError
from lockstep.simulation.machine.host import HOST, Host, host_context
from lockstep.simulation.virtual_time.forbidden import ForbiddenCalls
from lockstep.simulation.virtual_time.tasks import (
    SequencedFuture,
    SequencedTask,
    VirtualHandle,
    close_coroutine,
    describe,
)

__all__ = ["START_NS", "Order", "Timer", "VirtualLoop"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Context = contextvars.Context
Timer = tuple[int, int, VirtualHandle]  # when_ns, its number, what to run
ErrorContext = dict[str, Any]
ErrorHandler = Callable[[asyncio.AbstractEventLoop, ErrorContext], object]

START_NS = 1_000_000_000_000  # a clock that starts at 0 would hide code that reads 0 as "never"
_COLLECT_CANCELLED_MIN = 100
_FIRST = -(2**62)  # below all numbers of the shared sequence
_TASKS_MIN = 100  # so many are kept when they are done
_COLLECT_GARBAGE_STEPS = 200_000  # so that finalizers run at the same step in every run


def _nothing(_: object) -> None:
    pass


class Order(Protocol):
    """Chooses what runs next; without one callbacks run as they were scheduled."""

    def next_ns(self, when_ns: int) -> int: ...
    def turn(self, ready: deque[VirtualHandle], first_timer: int) -> deque[VirtualHandle]: ...


class VirtualLoop(ForbiddenCalls):
    """`limit_ns` limits the virtual time of `run_until_complete`, `instant_steps_max` the callbacks at one instant."""

    def __init__(self, *, limit_ns: int, instant_steps_max: int, debug: bool = False) -> None:
        self.now_ns = START_NS
        self.steps = 0
        self.violations: list[NondeterminismError] = []
        self.errors: list[ErrorContext] = []  # exceptions of callbacks, and of tasks whose exception was not read
        self.tasks: dict[int, SequencedTask[Any]] = {}  # all that are not done, and some that are
        self.ground = host_context(None)  # for the network and the scenario, which are on no host
        self.shuffle: Order | None = None
        self.clocks_off = False  # the clock of some host does not show virtual time
        self._forget_at = _TASKS_MIN
        self._end_ns = START_NS + limit_ns
        self._instant_steps_max = instant_steps_max
        self._instant_end = instant_steps_max
        self._collect_at = _COLLECT_GARBAGE_STEPS
        self._ready: deque[VirtualHandle] = deque()
        self._timers: list[Timer] = []
        self._cancelled = 0
        self._sequence = itertools.count(1)
        self._first = itertools.count(_FIRST)
        self._generators: weakref.WeakValueDictionary[int, AsyncGenerator[Any, Any]] = weakref.WeakValueDictionary()
        self._error_handler: ErrorHandler | None = None
        self._debug = debug
        self._running = False
        self._closed = False

    # Scheduling ----------------------------------------------------------------------------------------------

    def time(self) -> float:
        """The loop time of the caller's host: it does not count the sleep of its machine."""
        host = HOST.get(None)
        if host is None:
            return self.now_ns / 1e9
        now_ns = host.clock.read_ns(self.now_ns) if self.clocks_off else self.now_ns
        return (now_ns - host.slept_ns) / 1e9

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> VirtualHandle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        context = contextvars.copy_context() if context is None else context
        handle = VirtualHandle(None, self.now_ns, callback, args, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> VirtualHandle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> VirtualHandle:
        delay_ns = round(delay * 1e9)
        if delay_ns <= 0 < delay:
            delay_ns = 1  # otherwise a loop that sleeps for a rounding error would never move time
        if self.clocks_off and (host := HOST.get(None) if context is None else context.get(HOST)) is not None:
            delay_ns = host.clock.virtual_duration_ns(delay_ns)
        return self.call_at_ns(self.now_ns + delay_ns, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> VirtualHandle:
        host = HOST.get(None) if context is None else context.get(HOST)
        when_ns = round(when * 1e9)
        if host is not None:
            when_ns += host.slept_ns
            if self.clocks_off:
                when_ns = host.clock.virtual_ns(when_ns)
        return self.call_at_ns(when_ns, callback, *args, context=context)

    def call_at_ns(
        self, when_ns: int, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> VirtualHandle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        context = contextvars.copy_context() if context is None else context
        handle = VirtualHandle(self, when_ns, callback, args, context)
        heappush(self._timers, (when_ns, next(self._sequence), handle))
        return handle

    def call_first_at_ns(self, when_ns: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Call on no host, before all that is due at the same instant, in the order of these calls.

        It takes no number of the shared sequence: a run in which it is set late is the run in which it was from the
        start. It cannot be cancelled.
        """
        assert when_ns >= self.now_ns, "that moment has passed"
        heappush(self._timers, (when_ns, next(self._first), VirtualHandle(None, when_ns, callback, args, self.ground)))

    def call_often(self, callback: Callable[[], object]) -> Callable[[int], object]:
        """A function that sets a timer for `callback` on no host, which cannot be cancelled. A network sets many."""
        handle = VirtualHandle(None, 0, callback, (), self.ground)

        def set_timer(when_ns: int) -> None:
            if self._closed:
                raise RuntimeError("Event loop is closed")
            # A shuffle compares the times of handles.
            one = handle if self.shuffle is None else VirtualHandle(None, when_ns, callback, (), self.ground)
            heappush(self._timers, (when_ns, next(self._sequence), one))

        return set_timer

    def timer_cancelled(self) -> None:
        """Remove cancelled timers from the heap when they are many."""
        self._cancelled += 1
        if self._cancelled > _COLLECT_CANCELLED_MIN and self._cancelled > len(self._timers) // 2:
            self._timers = [timer for timer in self._timers if not timer[2].is_cancelled]
            heapify(self._timers)
            self._cancelled = 0

    def reschedule(self, handles: Iterable[VirtualHandle]) -> None:
        """Run the postponed callbacks of a host, before those that are newer."""
        self._ready.extendleft(reversed(list(handles)))

    def freeze(self, host: Host) -> list[Timer]:
        """Remove the timers of a host whose machine falls asleep; `thaw` sets them again."""
        frozen = [timer for timer in self._timers if timer[2].host is host and not timer[2].is_cancelled]
        for _, _, handle in frozen:
            handle.loop = None
        self._timers = [timer for timer in self._timers if timer[2].host is not host]
        heapify(self._timers)
        return frozen

    def thaw(self, frozen: list[Timer], slept_ns: int) -> None:
        """Set timers again, each later by the time that the machine slept."""
        for when_ns, sequence, handle in frozen:
            if not handle.is_cancelled:
                handle.loop = self
                handle.when_ns = when_ns + slept_ns
                heappush(self._timers, (handle.when_ns, sequence, handle))

    def create_future(self) -> SequencedFuture[Any]:
        return SequencedFuture(loop=self)

    def next_number(self) -> int:
        """The number of a future that is hashed, for the first time."""
        return next(self._sequence)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> SequencedTask[T]:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        sequence = next(self._sequence)
        context = contextvars.copy_context() if context is None else context
        task = SequencedTask(sequence, cast("Coroutine[Any, Any, T]", coro), self, name, context)
        self.tasks[sequence] = task
        if self.shuffle is not None:
            task.add_done_callback(_nothing, context=self.ground)  # seeds that shuffle drew their order with it
        if len(self.tasks) >= self._forget_at:
            self.forget_done()
        return task

    def forget_done(self) -> None:
        """Keep only the tasks that run. A callback of each task for this would be every tenth callback."""
        for sequence in [sequence for sequence, task in self.tasks.items() if task.done()]:
            del self.tasks[sequence]
        self._forget_at = 2 * len(self.tasks) + _TASKS_MIN

    def get_task_factory(self) -> None:
        return None

    # Running -------------------------------------------------------------------------------------------------

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        """Raises DeadlockError, LimitError, and NondeterminismError also for a swallowed violation."""
        waiting = asyncio.ensure_future(cast("Awaitable[T]", future), loop=self)
        self.run_up_to(waiting, self._end_ns)
        return waiting.result()

    def run_up_to(self, waiting: asyncio.Future[Any], end_ns: int, pauses: Callable[[], bool] | None = None) -> bool:
        """Run until a future is done, or all that is due up to a time has run.

        Args:
            pauses: asked before each turn whether to stop here.

        Returns:
            False: it paused.

        Raises:
            DeadlockError, LimitError: the future will not be done.
            NondeterminismError: a call bypassed the Runtime.
        """
        paused = False

        def done() -> bool:
            nonlocal paused
            assert pauses is not None
            paused = not waiting.done() and pauses()
            return paused or waiting.done()

        # A call of ours before each turn would be a part of the time of a run.
        self._drive(waiting.done if pauses is None else done, min(end_ns, self._end_ns))
        if waiting.done() or paused:
            return not paused
        if not self._timers:
            raise DeadlockError(f"no callback is ready and no timer is set{self._pending_text()}")
        if end_ns >= self._end_ns:
            limit_ms = (self._end_ns - START_NS) // 1_000_000
            raise LimitError(f"{limit_ms} ms of virtual time have passed{self._pending_text()}")
        return True

    def run_while(self, condition: Callable[[], bool], duration_ns: int) -> None:
        """Run for at most `duration_ns`, while `condition` holds."""
        self._drive(lambda: not condition(), self.now_ns + duration_ns)

    def _drive(self, done: Callable[[], bool], end_ns: int) -> None:
        if self._running or asyncio._get_running_loop() is not None:  # noqa: SLF001 - made for loops to call
            raise RuntimeError("a simulation cannot run inside a running event loop")
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._on_generator, finalizer=self._on_generator_dropped)
        self._running = True
        asyncio._set_running_loop(self)  # noqa: SLF001
        try:
            turn, violations = self._turn, self.violations
            while not done() and turn(end_ns):
                if violations:
                    raise violations[0]
                if self.steps >= self._collect_at:
                    self._collect_at = self.steps + _COLLECT_GARBAGE_STEPS
                    gc.collect()
        finally:
            asyncio._set_running_loop(None)  # noqa: SLF001
            self._running = False
            sys.set_asyncgen_hooks(*hooks)

    def _turn(self, end_ns: int) -> bool:
        """Run the ready callbacks, or jump to the next timer. Returns False when no timer is due up to `end_ns`."""
        timers, ready, shuffle = self._timers, self._ready, self.shuffle
        if not ready:
            while timers and timers[0][2].is_cancelled:
                heappop(timers)
                self._cancelled -= 1
            if not timers or timers[0][0] > end_ns:
                return False
            when_ns = timers[0][0]
            if when_ns > self.now_ns:
                self.now_ns = when_ns if shuffle is None else shuffle.next_ns(when_ns)
                self._instant_end = self.steps + self._instant_steps_max
        first_timer, now_ns = len(ready), self.now_ns
        while timers and timers[0][0] <= now_ns:
            handle = heappop(timers)[2]
            handle.loop = None
            if handle.is_cancelled:
                self._cancelled -= 1
            else:
                ready.append(handle)
        self._run_ready(ready if shuffle is None else shuffle.turn(ready, first_timer))
        if self.steps > self._instant_end:
            raise LimitError(f"{self._instant_steps_max} callbacks ran without time moving{self._pending_text()}")
        return True

    def _run_ready(self, ready: deque[VirtualHandle]) -> None:
        ground, take = self.ground, ready.popleft
        for _ in range(len(ready)):
            handle = take()
            if handle.is_cancelled:
                continue
            host = handle.host
            if host is not None and not host.running:
                host.postpone(handle)
                continue
            self.steps += 1
            try:
                if handle.context is ground:  # what runs there sets no variable of the context
                    handle.callback(*handle.args)
                else:
                    handle.context.run(handle.callback, *handle.args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self._failed(handle, error)

    def _failed(self, handle: VirtualHandle, error: BaseException) -> None:
        if handle.host is None or handle.host.alive:
            self.call_exception_handler(
                {"message": f"a callback failed: {handle!r}", "exception": error, "handle": handle}
            )

    # Errors, debugging ---------------------------------------------------------------------------------------

    def call_exception_handler(self, context: ErrorContext) -> None:
        source = context.get("task") or context.get("future")
        host = getattr(source, "host", None)
        if self._closed or (host is not None and not host.alive):  # what would have read it does not run any more
            return
        if self._error_handler is not None:
            self._error_handler(self, context)
        else:
            self.default_exception_handler(context)

    def default_exception_handler(self, context: ErrorContext) -> None:
        self.errors.append(context)

    def set_exception_handler(self, handler: ErrorHandler | None) -> None:
        self._error_handler = handler

    def get_exception_handler(self) -> ErrorHandler | None:
        return self._error_handler

    def get_debug(self) -> bool:
        return self._debug

    def set_debug(self, enabled: bool) -> None:
        self._debug = enabled

    def pending(self) -> list[SequencedTask[Any]]:
        """The unfinished tasks of live hosts and of the scenario, oldest first."""
        return [task for task in self.tasks.values() if not task.done() and (task.host is None or task.host.alive)]

    def tasks_of(self, host: Host) -> Iterator[SequencedTask[Any]]:
        """The unfinished tasks of a host."""
        return (task for task in self.tasks.values() if task.host is host and not task.done())

    def timers_of(self, host: Host) -> Iterator[tuple[Callable[..., object], Context]]:
        """What the timers of a host call, in which context."""
        timers = (timer for _, _, timer in self._timers if timer.host is host and not timer.is_cancelled)
        return ((timer.callback, timer.context) for timer in timers)

    def _pending_text(self) -> str:
        return "".join(f"\n  waits: {describe(task)}" for task in self.pending())

    # The end -------------------------------------------------------------------------------------------------

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def _on_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators[next(self._sequence)] = generator

    def _on_generator_dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._closed:
            self.create_task(generator.aclose(), name="close generator")

    async def shutdown_asyncgens(self) -> None:
        for generator in list(self._generators.values()):
            await generator.aclose()

    async def shutdown_default_executor(self) -> None:
        """Does nothing: there is no executor."""

    def close(self) -> None:
        """Close all tasks. Their cleanup code runs now, but callbacks that it schedules do not."""
        if self._running:
            raise RuntimeError("Cannot close a running event loop")
        grave = Host("closed", "0.0.0.0", 0, 0, 0, alive=False, running=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that cleanup code wanted to start
            self.forget_done()
            # Else `gather` of cleanup code makes a real loop, which the guard stops half built.
            asyncio.set_event_loop(None)
            for task in list(self.tasks.values()):
                host_context(task.host or grave).run(close_coroutine, task)
        self._closed = True
        self._ready.clear()
        self._timers.clear()
        self.tasks.clear()
