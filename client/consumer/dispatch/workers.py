"""Tasks that are kept for the next piece of work: making one for each would cost more than most pieces."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from lockstep.remoting.runtime import Runtime

__all__ = ["LaneWorkers"]

T = TypeVar("T")


class LaneWorkers(Generic[T]):
    """Up to `limit` tasks that work on items; those beyond that wait, first come first served.

    A worker is `work(item)`, which goes on with what `next_now` gives it, rests when that is None, and says `left` at
    its end. `crowded`: others wait for a worker, or there is one too many; what takes long should come to an end and
    be started anew.
    """

    def __init__(self, runtime: Runtime, name: str, limit: int, work: Callable[[T], Coroutine[Any, Any, None]]) -> None:
        self.limit = limit
        self._runtime = runtime
        self._name = name
        self._work = work
        self._waiting: deque[T] = deque()
        self._resting: list[asyncio.Future[T | None]] = []  # the last one to rest is the first to work again
        self._count = 0
        self._stopped = False

    @property
    def crowded(self) -> bool:
        return bool(self._waiting) or self._count - len(self._resting) > self.limit

    def start(self, item: T) -> None:
        """Do it as soon as a worker is free. After `stop` nothing is done."""
        if self._stopped:
            return
        if self._count - len(self._resting) >= self.limit:
            self._waiting.append(item)
        elif self._resting:
            self._resting.pop().set_result(item)
        else:
            self._count += 1
            self._runtime.create_task(self._work(item), name=f"{self._name} {self._count}")

    def set_limit(self, limit: int) -> None:
        """What is at work ends first."""
        self.limit = limit
        while self._waiting and self._count - len(self._resting) < limit:
            self.start(self._waiting.popleft())

    def stop(self) -> None:
        """What waits is forgotten, what is at work comes to its end."""
        self._stopped = True
        self._waiting.clear()
        for future in self._resting:
            future.set_result(None)
        self._resting.clear()

    # Of workers ----------------------------------------------------------------------------------------------

    def next_now(self) -> T | None:
        """What waits for a worker, if this one is not one too many."""
        return self._waiting.popleft() if self._waiting and self._count - len(self._resting) <= self.limit else None

    def rest(self) -> "asyncio.Future[T | None]":
        """What comes; None when the worker shall leave."""
        future: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        if self._stopped or self._count - len(self._resting) > self.limit:
            future.set_result(None)
        else:
            self._resting.append(future)
        return future

    def left(self) -> None:
        self._count -= 1
        self._resting = [future for future in self._resting if not future.done()]  # its own, if it was cancelled
