"""Repeated work of a client, at a fixed rate, on the runtime's clock.

The runtime's clock counts the time that the machine sleeps; timers do not. Work that became due during the sleep runs
when the machine wakes: a lock is renewed, and a heartbeat is sent, within a second.
"""

import asyncio
from collections.abc import Awaitable, Callable

from lockstep.client.errors import ClientError
from lockstep.protocol.errors import ProtocolError
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.logs import EventLog, log_exception
from lockstep.remoting.runtime import Runtime

__all__ = ["Schedule"]


class Schedule:
    """The repeating tasks of one client; `stop` ends them all."""

    def __init__(self, runtime: Runtime, log: EventLog) -> None:
        self._runtime = runtime
        self._log = log
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._end_of_watch: Callable[[], object] | None = None

    def every(self, interval_ms: int, work: Callable[[], Awaitable[None]], *, first_ms: int, name: str) -> None:
        """Run `work` after `first_ms` and then each `interval_ms`. An error is logged as `task_failed`."""
        if self._end_of_watch is None:
            self._end_of_watch = self._runtime.on_wake(self._woke)
        task = self._runtime.create_task(self._run(interval_ms, work, first_ms, name), name=name)
        self._tasks.append(task)

    async def _run(self, interval_ms: int, work: Callable[[], Awaitable[None]], first_ms: int, name: str) -> None:
        due_ms = self._runtime.now_ms() + first_ms
        while True:
            await self._until(due_ms)
            try:
                await work()
            except (RemotingError, ClientError, ProtocolError, OSError) as error:
                self._log.warning("task_failed", task=name, error=f"{type(error).__name__}: {error}")
            except Exception as error:
                log_exception(self._log, "task_failed", error, task=name)
            # Rounds that were missed, because the process slept, are not repeated.
            due_ms = max(due_ms + interval_ms, self._runtime.now_ms())

    async def _until(self, due_ms: int) -> None:
        """Wait until `due_ms`; other tasks run once even if that has passed."""
        delay_ms = due_ms - self._runtime.now_ms()
        if delay_ms <= 0:
            await asyncio.sleep(0)
        while delay_ms > 0:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            timer = self._runtime.call_later_ms(delay_ms, self._go_on, future)
            try:
                await future
            finally:
                timer.cancel()
                self._waiting.remove(future)
            delay_ms = due_ms - self._runtime.now_ms()

    @staticmethod
    def _go_on(future: "asyncio.Future[None]") -> None:
        if not future.done():
            future.set_result(None)

    def _woke(self, slept_ms: int) -> None:
        self._log.warning("machine_slept", slept_ms=slept_ms)
        for future in self._waiting:
            self._go_on(future)

    async def stop(self) -> None:
        if self._end_of_watch is not None:
            self._end_of_watch()
            self._end_of_watch = None
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        # Not one by one: a cancellation of the caller must not be taken for the cancellation of a task.
        await asyncio.gather(*tasks, return_exceptions=True)
