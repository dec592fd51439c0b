"""Tasks that are kept for the next piece of work: making one for each would cost more than most pieces."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from lockstep.remoting.runtime import Runtime

__all__ = ["LaneWorkers"]

T = TypeVar("T")


class LaneWorkers(Generic[T]):
    """Up to `limit` tasks that do `work(item)`, which must not raise. Items beyond that wait, first come first served.

    `crowded`: others wait for a worker; a piece of work that is long should come to an end and be started anew.
    """

    def __init__(self, runtime: Runtime, name: str, limit: int, work: Callable[[T], Awaitable[None]]) -> None:
        self.limit = limit
        self._runtime = runtime
        self._name = name
        self._work = work
        self._waiting: deque[T] = deque()
        self._idle: list[asyncio.Future[T | None]] = []  # the last one to rest is the first to work again
        self._count = 0
        self._stopped = False

    @property
    def crowded(self) -> bool:
        return bool(self._waiting)

    def start(self, item: T) -> None:
        """Do it as soon as a worker is free. After `stop` nothing is done."""
        if self._stopped:
            return
        if self._count - len(self._idle) >= self.limit:
            self._waiting.append(item)
        elif self._idle:
            self._idle.pop().set_result(item)
        else:
            self._count += 1
            self._runtime.create_task(self._run(item), name=f"{self._name} {self._count}")

    def set_limit(self, limit: int) -> None:
        """What is at work ends first."""
        self.limit = limit
        while self._waiting and self._count - len(self._idle) < limit:
            self.start(self._waiting.popleft())

    def stop(self) -> None:
        """What waits is forgotten, what is at work comes to its end."""
        self._stopped = True
        self._waiting.clear()
        for future in self._idle:
            future.set_result(None)
        self._idle.clear()

    async def _run(self, first: T) -> None:
        item: T | None = first
        try:
            while item is not None:
                await self._work(item)
                if self._count - len(self._idle) > self.limit or self._stopped:
                    return
                item = self._waiting.popleft() if self._waiting else await self._rest()
        finally:
            self._count -= 1

    async def _rest(self) -> T | None:
        future: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        self._idle.append(future)
        try:
            return await future
        except asyncio.CancelledError:
            if future in self._idle:  # this client is taken down
                self._idle.remove(future)
            raise
