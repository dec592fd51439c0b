"""Handles, futures and tasks of the virtual loop. Futures and tasks have a number, tasks and handles a host."""

import asyncio
import contextlib
import contextvars
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar, cast

from lockstep.simulation.machine.host import HOST, Host
from lockstep.simulation.virtual_time.callers import module_of, place_of, public_name

__all__ = ["SequencedFuture", "SequencedTask", "VirtualHandle", "close_coroutine", "describe"]

T = TypeVar("T")
_CLOSE_ATTEMPTS_MAX = 100


class _Loop(Protocol):
    def timer_cancelled(self) -> None: ...
    def next_number(self) -> int: ...


class VirtualHandle(asyncio.TimerHandle):
    """A scheduled callback. The constructor of asyncio's handle is not called: its fields are not used.

    `loop` is the loop while the handle is among its timers, and None before and after.
    """

    __slots__ = ("args", "callback", "context", "host", "is_cancelled", "loop", "when_ns")

    def __init__(
        self,
        loop: _Loop | None,
        when_ns: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> None:
        self.loop = loop
        self.when_ns = when_ns
        self.callback = callback
        self.args = args
        self.context = context
        self.host: Host | None = context.get(HOST)
        self.is_cancelled = False

    def cancel(self) -> None:
        if not self.is_cancelled:
            self.is_cancelled = True
            self.args = ()
            if self.loop is not None:
                self.loop.timer_cancelled()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_ns / 1e9

    def get_context(self) -> contextvars.Context:
        return self.context

    def __repr__(self) -> str:
        name = getattr(self.callback, "__qualname__", None) or type(self.callback).__qualname__
        return f"<{name} on {self.host or 'no host'}>"

    __hash__ = object.__hash__
    __eq__ = object.__eq__


class SequencedFuture(asyncio.Future[T]):
    """Hashes by its number, so that a set of futures has the same order in every run."""

    __slots__ = ("host", "sequence")
    host: Host | None  # that failed it
    sequence: int

    def set_exception(self, exception: type | BaseException, /) -> None:
        self.host = HOST.get(None)
        super().set_exception(exception)

    def __hash__(self) -> int:
        try:
            return self.sequence
        except AttributeError:  # few futures are ever in a set, and a constructor would cost each of them 0.3 us
            self.sequence = cast("_Loop", self.get_loop()).next_number()
            return self.sequence


class SequencedTask(asyncio.Task[T]):
    """Hashes by its number, as SequencedFuture; named by it too; on the host of its context."""

    __slots__ = ("host", "sequence")

    def __init__(
        self,
        sequence: int,
        coroutine: Coroutine[Any, Any, T],
        loop: asyncio.AbstractEventLoop,
        name: str | None,
        context: contextvars.Context,
    ) -> None:
        self.sequence = sequence
        self.host: Host | None = context.get(HOST)
        super().__init__(coroutine, loop=loop, name=name or f"task-{sequence}", context=context)

    def __hash__(self) -> int:
        return self.sequence


def describe(task: SequencedTask[Any]) -> str:
    """The name of a task, its host, and the lines where it waits, outermost first.

    Of the standard library it has the function that was called, without a line: its lines, and what it calls inside,
    differ between versions of Python.
    """
    places: list[str] = []
    coroutine: Any = task.get_coro()
    inside = False
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            was_inside, inside = inside, module_of(frame).partition(".")[0] in sys.stdlib_module_names
            if not inside:
                places.append(f"{frame.f_code.co_name} ({place_of(frame)})")
            elif not was_inside:
                places.append(public_name(frame))
        coroutine = getattr(coroutine, "cr_await", None)
    paused = ", which is paused" if task.host and task.host.paused else ""
    return f"{task.get_name()} on {task.host or 'no host'}{paused}, at {' > '.join(places) or '?'}"


def close_coroutine(task: SequencedTask[Any]) -> None:
    """End a task that will not run again. Each await in its cleanup takes one more attempt."""
    coroutine: Any = task.get_coro()
    for _ in range(_CLOSE_ATTEMPTS_MAX):
        with contextlib.suppress(Exception, asyncio.CancelledError):
            coroutine.close()
        if coroutine is None or getattr(coroutine, "cr_frame", None) is None:
            return
