"""Repeated work of a client, at a fixed rate, on the runtime's clock.

The runtime's clock counts the time that the machine sleeps; timers do not. Work that became due during the sleep runs
when the machine wakes: a lock is renewed, and a heartbeat is sent, within a second.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any

from lockstep.client.callables import log_or_raise
from lockstep.client.errors import ClientError
from lockstep.remoting.host.runtime import Runtime, TimerHandle
from lockstep.remoting.logs import EventLog

__all__ = ["Schedule"]

Work = Callable[[], Coroutine[Any, Any, None] | None]


@dataclass(slots=True, eq=False)
class _Repeated:
    """Work that is waited for: it has a timer, or while it runs a task."""

    name: str
    work: Work
    is_async: bool
    interval_ms: int
    due_ms: int
    timer: TimerHandle | None = None
    task: asyncio.Task[None] | None = None


class Schedule:
    """The repeated work of one client; `stop` ends it."""

    def __init__(self, runtime: Runtime, log: EventLog) -> None:
        self._runtime = runtime
        self._log = log
        self._repeated: list[_Repeated] = []
        self._end_of_watch: Callable[[], object] | None = None

    def every(self, interval_ms: int, work: Work, *, first_ms: int, name: str) -> None:
        """Run `work` after `first_ms` and then each `interval_ms`. An error is logged as `task_failed`.

        Args:
            work: An `async def` function gets a task for each round; a plain one needs none.
        """
        if self._end_of_watch is None:
            self._end_of_watch = self._runtime.on_wake(self._woke)
        one = _Repeated(name, work, iscoroutinefunction(work), interval_ms, self._runtime.now_ms() + first_ms)
        self._repeated.append(one)
        self._set_timer(one)

    def _set_timer(self, one: _Repeated) -> None:
        if self._end_of_watch is not None:  # not stopped
            delay_ms = max(one.due_ms - self._runtime.now_ms(), 0)
            one.timer = self._runtime.call_later_ms(delay_ms, self._fire, one)

    def _fire(self, one: _Repeated) -> None:
        one.timer = None
        if one.due_ms > self._runtime.now_ms():
            self._set_timer(one)
        elif one.is_async:
            one.task = self._runtime.create_task(self._run(one), name=one.name)
        else:
            try:
                one.work()
            except BaseException as error:
                self._failed(one, error)
            self._set_next(one)

    async def _run(self, one: _Repeated) -> None:
        try:
            work = one.work()
            assert work is not None
            await work
        except BaseException as error:
            self._failed(one, error)
        one.task = None
        self._set_next(one)

    def _failed(self, one: _Repeated, error: BaseException) -> None:
        """Raises the error again if it ends the program or this task."""
        if isinstance(error, ClientError | OSError):
            self._log.warning("task_failed", task=one.name, error=f"{type(error).__name__}: {error}")
        else:
            log_or_raise(self._log, "task_failed", error, task=one.name)

    def _set_next(self, one: _Repeated) -> None:
        """Rounds that were missed, because the process was stopped, are not repeated."""
        one.due_ms = max(one.due_ms + one.interval_ms, self._runtime.now_ms())
        self._set_timer(one)

    def _woke(self, slept_ms: int) -> None:
        self._log.warning("machine_slept", slept_ms=slept_ms)
        for one in self._repeated:
            if one.timer is not None:
                one.timer.cancel()
                self._set_timer(one)

    async def stop(self) -> None:
        if self._end_of_watch is not None:
            self._end_of_watch()
            self._end_of_watch = None
        repeated, self._repeated = self._repeated, []
        for one in repeated:
            if one.timer is not None:
                one.timer.cancel()
            if one.task is not None:
                one.task.cancel()
        # Not one by one: a cancellation of the caller must not be taken for the cancellation of a task.
        await asyncio.gather(*[one.task for one in repeated if one.task is not None], return_exceptions=True)
