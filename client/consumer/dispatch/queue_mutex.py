"""QueueMutex: at most one user of a message queue calls the listener at a time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

__all__ = ["QueueMutex"]

T = TypeVar("T")


class QueueMutex(Generic[T]):
    """Excludes process queues of one message queue from each other, and from administrators' messages.

    The consume service sets `user` when the first listener call of a process queue begins, and calls `release` when
    the last one ended. Work that must wait is put into `waiting`; it is given to `start` when the mutex is free.
    """

    __slots__ = ("_released", "_start", "_turn", "reserved", "user", "waiting")

    def __init__(self, start: Callable[[T], None]) -> None:
        self.user: object | None = None  # a process queue, or a service without any
        self.reserved = 0  # number of administrators' messages that hold the mutex or wait for it
        self.waiting: list[T] = []
        self._start = start
        self._turn = asyncio.Lock()  # between administrators' messages
        self._released: asyncio.Future[None] | None = None

    def is_free_for(self, user: object) -> bool:
        return not self.reserved and (self.user is user or self.user is None)

    def release(self) -> None:
        self.user = None
        if self._released is not None and not self._released.done():
            # The waiter may have been cancelled.
            self._released.set_result(None)
        self._start_waiting()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold the mutex for one administrator's message: running calls end first, and no other call begins."""
        self.reserved += 1
        try:
            async with self._turn:
                while self.user is not None:
                    self._released = asyncio.get_running_loop().create_future()
                    await self._released
                yield
        finally:
            self.reserved -= 1
            self._start_waiting()

    def _start_waiting(self) -> None:
        if self.waiting and not self.reserved:
            waiting, self.waiting = self.waiting, []
            for item in waiting:
                self._start(item)
