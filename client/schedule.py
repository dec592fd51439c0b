"""Repeated work of a client, at a fixed rate, on the runtime's clock."""

import asyncio
from collections.abc import Awaitable, Callable

from lockstep.remoting.logs import EventLog
from lockstep.remoting.runtime import Runtime

__all__ = ["Schedule"]


class Schedule:
    """The repeating tasks of one client; `stop` ends them all."""

    def __init__(self, runtime: Runtime, log: EventLog) -> None:
        self._runtime = runtime
        self._log = log
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, interval_ms: int, work: Callable[[], Awaitable[None]], *, first_ms: int, name: str) -> None:
        """Run `work` after `first_ms` and then each `interval_ms`; an error is logged and the next round comes."""
        task = self._runtime.create_task(self._run(interval_ms, work, first_ms, name), name=name)
        self._tasks.append(task)

    async def _run(self, interval_ms: int, work: Callable[[], Awaitable[None]], first_ms: int, name: str) -> None:
        due_ms = self._runtime.now_ms() + first_ms
        while True:
            await asyncio.sleep(max(due_ms - self._runtime.now_ms(), 0) / 1000)
            try:
                await work()
            except Exception as error:
                self._log.warning(f"{name} failed", error=f"{type(error).__name__}: {error}")
            # Rounds that were missed, because the process slept, are not made up for.
            due_ms = max(due_ms + interval_ms, self._runtime.now_ms())

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        # Not one by one: a cancellation of the caller's must not pass for one of theirs.
        await asyncio.gather(*tasks, return_exceptions=True)
