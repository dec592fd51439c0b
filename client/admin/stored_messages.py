"""Reads stored messages of queues, without a group: a range of one queue, and the last messages of several."""

from collections import deque
from collections.abc import AsyncIterator, Mapping

from lockstep.client.admin.client import AdminClient
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue

__all__ = ["Bounds", "last_messages", "last_messages_so_far", "read_range"]

Bounds = Mapping[MessageQueue, tuple[int, int]]
"""The first and the next offset of each queue."""


async def read_range(
    admin: AdminClient, queue: MessageQueue, offset: int, end: int, *, tags: str = "*"
) -> AsyncIterator[MessageExt]:
    """The messages from `offset` to before `end`."""
    while offset < end:
        found = await admin.read_queue(queue, offset, expression=tags)
        messages = deque(found.messages)
        while messages and messages[0].queue_offset < end:
            yield messages.popleft()
        if found.next_offset <= offset:
            return
        offset = found.next_offset


async def last_messages(
    admin: AdminClient, bounds: Bounds, count: int, *, tags: str = "*", bytes_max: int | None = None
) -> list[MessageExt]:
    """The last `count` messages by store time. Each queue is read backwards in growing steps.

    Args:
        bytes_max: Of the bodies that are kept of a queue, and of all queues: beyond it older messages are left out.
    """
    found: list[MessageExt] = []
    async for newest in last_messages_so_far(admin, bounds, count, tags=tags, bytes_max=bytes_max):
        found = newest
    return found


async def last_messages_so_far(
    admin: AdminClient, bounds: Bounds, count: int, *, tags: str = "*", bytes_max: int | None = None
) -> AsyncIterator[list[MessageExt]]:
    """As `last_messages`: after each queue the last messages of those that were read, in the order of `bounds`."""
    found: list[MessageExt] = []
    for queue, (low, end) in bounds.items():
        of_queue = _Newest(count, bytes_max)
        window, high = count, end
        while high > low and len(of_queue.messages) < count and not of_queue.is_cut:
            start = max(low, high - window)
            newer, of_queue = of_queue, _Newest(count, bytes_max)
            async for message in read_range(admin, queue, start, high, tags=tags):
                of_queue.add(message)
            for message in newer.messages:
                of_queue.add(message)
            high, window = start, window * 2
        newest = _Newest(count, bytes_max)
        for message in sorted((*found, *of_queue.messages), key=_by_time):
            newest.add(message)
        found = list(newest.messages)
        yield found


class _Newest:
    """The last messages that were added. `is_cut`: some were left out for their size."""

    def __init__(self, count: int, bytes_max: int | None) -> None:
        self.messages: deque[MessageExt] = deque()
        self.is_cut = False
        self._count = count
        self._bytes_max = bytes_max
        self._bytes = 0

    def add(self, message: MessageExt) -> None:
        self.messages.append(message)
        self._bytes += len(message.body)
        too_large = self._bytes_max is not None and self._bytes > self._bytes_max
        while len(self.messages) > 1 and (len(self.messages) > self._count or too_large):
            self._bytes -= len(self.messages.popleft().body)
            self.is_cut |= too_large
            too_large = self._bytes_max is not None and self._bytes > self._bytes_max


def _by_time(message: MessageExt) -> tuple[int, str, int, int]:
    return message.store_timestamp, message.broker_name, message.queue_id, message.queue_offset
