"""Messages of a topic that a page looks for in its queues, within a time: a broker may name any number of queues."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.stored_messages import Bounds, last_messages_so_far, read_range
from lockstep.console.bounds import MESSAGE_BYTES_MAX
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue

__all__ = ["SearchResult", "first_from", "has_key", "newest"]

_LOOK_S: Final = 5.0


class SearchResult(NamedTuple):
    """What was found, oldest first, and how many queues were left out because time was over."""

    messages: Sequence[MessageExt]
    queues_left_out: int = 0


async def newest(admin: AdminClient, topic: str, count: int, queue: MessageQueue | None = None) -> SearchResult:
    """The last messages of a topic, or of one queue of it. Raises TopicNotFoundError."""
    bounds = await _bounds(admin, topic, queue)
    return await _in_time(last_messages_so_far(admin, bounds, count, bytes_max=MESSAGE_BYTES_MAX), len(bounds))


async def first_from(
    admin: AdminClient, topic: str, from_ms: int, count: int, queue: MessageQueue | None = None
) -> SearchResult:
    """The first messages that were stored at `from_ms` or later. Raises TopicNotFoundError."""
    bounds = await _bounds(admin, topic, queue)
    return await _in_time(_first_so_far(admin, bounds, from_ms, count), len(bounds))


async def _bounds(admin: AdminClient, topic: str, queue: MessageQueue | None) -> Bounds:
    """Of each queue; those with the newest messages come first, for the time may not be enough for all."""
    stats = await admin.topic_stats(topic)
    in_turn = sorted(stats.items(), key=lambda item: -item[1].last_update_timestamp)
    return {one: (max(of.min_offset, 0), of.max_offset) for one, of in in_turn if queue in (None, one)}


async def _in_time(found_so_far: AsyncIterator[list[MessageExt]], queues_count: int) -> SearchResult:
    found, left = list[MessageExt](), queues_count
    try:
        async with asyncio.timeout(_LOOK_S):
            async for so_far in found_so_far:
                found, left = so_far, left - 1
    except TimeoutError:
        pass  # the page says how many are left
    return SearchResult(found, left)


async def _first_so_far(
    admin: AdminClient, bounds: Bounds, from_ms: int, count: int
) -> AsyncIterator[list[MessageExt]]:
    found: list[MessageExt] = []
    for queue, (low, end) in bounds.items():
        if end > low:
            begin = max(await admin.search_offset(queue, from_ms), low)
            read = [one async for one in read_range(admin, queue, begin, min(begin + count, end))]
            found += [one for one in read if one.store_timestamp >= from_ms]
            in_order = sorted(found, key=lambda one: (one.store_timestamp, one.queue_id, one.queue_offset))
            found = _first(in_order[:count])
        yield found


def _first(messages: Sequence[MessageExt]) -> list[MessageExt]:
    """Of large ones fewer."""
    kept, size = list[MessageExt](), 0
    for message in messages:
        size += len(message.body)
        if kept and size > MESSAGE_BYTES_MAX:
            break
        kept.append(message)
    return kept


def has_key(message: MessageExt, key: str) -> bool:
    """Whether it is the sharding key of the message, or a word of its KEYS."""
    return key == message.sharding_key or key in (message.keys or "").split(" ")
