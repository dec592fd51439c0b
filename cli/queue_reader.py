"""Reads queues without a group: what is stored, then what comes."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from lockstep.cli.output import note
from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.messages import QueueSlice
from lockstep.client.errors import NoRouteError
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import Runtime

__all__ = ["QueueReader"]

_WAIT_MS: Final = 15_000
_AGAIN_S: Final = 1.0
_IDLE_MS, _IDLE_S = 100, 0.2  # pause after an empty reply that came at once: such a broker does not hold pulls


class QueueReader:
    """Args:
    tags: A tag expression.
    """

    def __init__(self, admin: AdminClient, runtime: Runtime, tags: str) -> None:
        self._admin = admin
        self._runtime = runtime
        self._tags = tags
        self._is_silent = False

    async def follow(self, queue: MessageQueue, offset: int) -> AsyncIterator[QueueSlice]:
        """Each answer, some without messages, until the caller ends. A broker that stops answering is asked again."""
        while True:
            asked_ns = self._runtime.monotonic_ns()
            try:
                found = await self._admin.read_queue(queue, offset, expression=self._tags, wait_ms=_WAIT_MS)
            except (RemotingError, NoRouteError) as error:
                if not self._is_silent:  # one note for all queues
                    note(f"{error}; asking again")
                self._is_silent = True
                await asyncio.sleep(_AGAIN_S)
                continue
            self._is_silent = False
            yield found
            offset = found.next_offset
            if not found.messages and self._runtime.monotonic_ns() - asked_ns < _IDLE_MS * 1_000_000:
                await asyncio.sleep(_IDLE_S)
