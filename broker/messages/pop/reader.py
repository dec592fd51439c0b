"""Reads a queue of the store for a pop, with the pop's filter."""

import struct
from collections.abc import Iterator
from typing import Final

from lockstep.broker.messages.pop.port import Found
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.store import GetResult, GetStatus, MessageStore, Passes

__all__ = ["StoreReader", "split"]

_SIZE_AND_OFFSET: Final = struct.Struct(">i16xq")  # of a stored message: its size, its queue offset
# Offsets that the queue does not have: the store names the nearest that it has.
_MISPLACED: Final = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY)


class StoreReader:
    """See `QueueReader`."""

    def __init__(
        self,
        store: MessageStore,
        topic: str,
        queue_id: int,
        subscription: SubscriptionData | None,
        passes: Passes | None = None,
    ) -> None:
        self._store = store
        self._topic = topic
        self._queue_id = queue_id
        self._subscription = subscription
        self._passes = passes

    def read(self, queue_offset: int, count_max: int) -> Found:
        result = self._get(queue_offset, count_max)
        if result.status in _MISPLACED:
            queue_offset = result.next_begin_offset
            result = self._get(queue_offset, count_max)
        next_offset, body = result.next_begin_offset, result.body
        # Mostly there is no filter, and no look at the messages is needed.
        are_all = result.message_count == next_offset - queue_offset
        offsets = list(range(queue_offset, next_offset)) if are_all else [offset for offset, _ in split(body)]
        return Found(offsets, body, next_offset)

    def _get(self, queue_offset: int, count_max: int) -> GetResult:
        return self._store.get(self._topic, self._queue_id, queue_offset, count_max, self._subscription, self._passes)

    def at(self, queue_offset: int) -> bytes:
        """This message; b"": it does not exist, or does not pass the filter."""
        found = self._get(queue_offset, 1)
        # What is found may be the next one that exists and passes.
        return b"".join(message for offset, message in split(found.body) if offset == queue_offset)


def split(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Stored messages, each with its queue offset."""
    at = 0
    while at < len(body):
        size, queue_offset = _SIZE_AND_OFFSET.unpack_from(body, at)
        yield queue_offset, body[at : at + size]
        at += size
