"""Who may call the listener for one message queue: one generation of its process queue, or an administrator."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from lockstep.client.consumer.process_queue import ProcessQueue

__all__ = ["QueueGate"]

T = TypeVar("T")


class QueueGate(Generic[T]):
    """A process queue `enter`s it with its first call at work and `leave`s it with its last.

    What may not enter is kept in `held`, and given to `start` again when the gate is open.
    """

    __slots__ = ("_free", "_start", "_turn", "held", "user", "wanted")

    def __init__(self, start: Callable[[T], None]) -> None:
        self.user: ProcessQueue | None = None
        self.wanted = 0  # by how many administrators' messages
        self.held: list[T] = []
        self._start = start
        self._turn = asyncio.Lock()  # among administrators
        self._free: asyncio.Future[None] | None = None

    def is_open_to(self, process_queue: ProcessQueue) -> bool:
        return not self.wanted and (self.user is process_queue or self.user is None)

    def leave(self) -> None:
        """The user has no call at work any more."""
        self.user = None
        if self._free is not None and not self._free.done():  # whoever waited may have been cancelled
            self._free.set_result(None)
        self._open()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        """In it nobody calls the listener; calls at work end first, and no other begins."""
        self.wanted += 1
        try:
            async with self._turn:
                while self.user is not None:
                    self._free = asyncio.get_running_loop().create_future()
                    await self._free
                yield
        finally:
            self.wanted -= 1
            self._open()

    def _open(self) -> None:
        if self.held and not self.wanted:
            held, self.held = self.held, []
            for item in held:
                self._start(item)
