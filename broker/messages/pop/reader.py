"""Reads a queue of the store for a pop, with the pop's filter."""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from lockstep.broker.messages.pop.port import Found, Taken
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.store import GetResult, GetStatus, MessageStore, Passes

__all__ = ["StoreReader"]

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
            result = self._get(result.next_begin_offset, count_max)
        return Found(list(_split(result.body)), result.next_begin_offset)

    def _get(self, queue_offset: int, count_max: int) -> GetResult:
        return self._store.get(self._topic, self._queue_id, queue_offset, count_max, self._subscription, self._passes)

    def at(self, queue_offsets: Sequence[int]) -> list[Taken]:
        taken = list[Taken]()
        for offset in queue_offsets:
            # A message that does not exist, or does not pass, is not the one that is found.
            taken += [one for one in _split(self._get(offset, 1).body) if one.queue_offset == offset]
        return taken


def _split(body: bytes) -> Iterator[Taken]:
    at = 0
    while at < len(body):
        size, queue_offset = _SIZE_AND_OFFSET.unpack_from(body, at)
        yield Taken(queue_offset, body[at : at + size])
        at += size
