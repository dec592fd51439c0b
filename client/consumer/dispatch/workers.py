"""A pool of tasks that are reused: one new task for each piece of work would cost more than most pieces."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from lockstep.remoting.host.runtime import Runtime

__all__ = ["Workers"]

T = TypeVar("T")


class Workers(Generic[T]):
    """Up to `limit` tasks that work on items; further items wait, first in, first out.

    A worker is the coroutine `work(item)`. It gets its next item from `next_now`, or from `rest` when that returned
    None, and calls `left` when it ends. While `crowded` is True, other items wait, or there are more workers than the
    limit: a long piece of work should then stop and be started again.
    """

    def __init__(self, runtime: Runtime, name: str, limit: int, work: Callable[[T], Coroutine[Any, Any, None]]) -> None:
        self.limit = limit
        self._runtime = runtime
        self._name = name
        self._work = work
        self._waiting: deque[T] = deque()
        # Last in, first out: the others may stay idle.
        self._resting: list[asyncio.Future[T | None]] = []
        self._count = 0
        self._stopped = False

    @property
    def crowded(self) -> bool:
        return bool(self._waiting) or self._count - len(self._resting) > self.limit

    def start(self, item: T) -> None:
        """Give the item to a worker as soon as one is free. After `stop` it is ignored."""
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
        """Change the limit. Workers beyond a lower limit end with their present work."""
        self.limit = limit
        while self._waiting and self._count - len(self._resting) < limit:
            self.start(self._waiting.popleft())

    def stop(self) -> None:
        """Forget the items that wait. Running work goes on to its end."""
        self._stopped = True
        self._waiting.clear()
        for future in self._resting:
            future.set_result(None)
        self._resting.clear()

    # For workers ---------------------------------------------------------------------------------------------

    def next_now(self) -> T | None:
        """Return the next item that waits; None when there is none, or when there are more workers than the limit."""
        return self._waiting.popleft() if self._waiting and self._count - len(self._resting) <= self.limit else None

    def rest(self) -> "asyncio.Future[T | None]":
        """Return a future of the next item. Its result is None when the worker must end."""
        future: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
        if self._stopped or self._count - len(self._resting) > self.limit:
            future.set_result(None)
        else:
            self._resting.append(future)
        return future

    def left(self) -> None:
        self._count -= 1
        self._resting = [future for future in self._resting if not future.done()]  # a cancelled worker's own future
