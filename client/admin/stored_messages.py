"""Reads stored messages of queues, without a group: a range of one queue, and the last messages of several."""

from collections import deque
from collections.abc import AsyncIterator, Mapping

from lockstep.client.admin.client import AdminClient
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import MessageQueue

__all__ = ["Bounds", "last_messages", "read_range"]

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


async def last_messages(admin: AdminClient, bounds: Bounds, count: int, *, tags: str = "*") -> list[MessageExt]:
    """The last `count` messages by store time. Each queue is read backwards in growing steps."""
    found: list[MessageExt] = []
    for queue, (low, end) in bounds.items():
        of_queue: list[MessageExt] = []
        window, high = count, end
        while high > low and len(of_queue) < count:
            start = max(low, high - window)
            of_queue = [message async for message in read_range(admin, queue, start, high, tags=tags)] + of_queue
            high, window = start, window * 2
        found += of_queue[-count:]
    return sorted(found, key=_by_time)[-count:]


def _by_time(message: MessageExt) -> tuple[int, str, int, int]:
    return message.store_timestamp, message.broker_name, message.queue_id, message.queue_offset
