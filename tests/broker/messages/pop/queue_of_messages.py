"""A queue of messages with keys, as a pop reads it."""

from collections.abc import Sequence
from typing import Generic, TypeVar

from lockstep.broker.messages.pop.port import Delivered, FifoQueue, Found, Order
from lockstep.protocol.messages.message import Record, encode_stored_message
from lockstep.protocol.messages.properties import SHARDING_KEY, encode_properties

HOST = bytes((127, 0, 0, 1))


class Messages:
    """Message n has the key `keys[n]`; "" means none. Numbers in `unwanted` do not pass the filter.

    `reads`: how often it was read.
    """

    def __init__(self, keys: str, unwanted: Sequence[int] = ()) -> None:
        self.keys = list(keys)
        self.unwanted = set(unwanted)
        self.reads = 0

    def read(self, queue_offset: int, count_max: int) -> Found:
        self.reads += 1
        offsets = list[int]()
        while len(offsets) < count_max and queue_offset < len(self.keys):
            if queue_offset not in self.unwanted:
                offsets.append(queue_offset)
            queue_offset += 1
        return Found(offsets, b"".join(map(self._message, offsets)), queue_offset)

    def _message(self, offset: int) -> bytes:
        key = self.keys[offset].strip()
        properties = encode_properties({SHARDING_KEY: key} if key else {}).encode()
        record = Record("T", 0, 0, 0, 0, HOST, 1, 0, 0, 0, b"", properties, 0)
        return encode_stored_message(record, b"T", offset, 0, HOST, 1)


Q = TypeVar("Q", bound=FifoQueue)


class Group(Generic[Q]):
    """A group that reads a queue in order. Its clock stands until it is moved."""

    def __init__(self, queue: Q, messages: Messages) -> None:
        self.queue = queue
        self.messages = messages
        self.committed = 0
        self.now_ms = 1_000_000

    def pop(
        self, count: int = 32, client: str = "c1", attempt: str | None = None, invisible_ms: int = 10_000
    ) -> tuple[list[int] | None, int]:
        """The offsets that are delivered, None while all are held up; and the name of the delivery."""
        pop_ms = self.queue.first_pop_ms(self.now_ms)
        order = Order(client, attempt, count, pop_ms, invisible_ms)
        given: Delivered | None = self.queue.pop(order, self.committed, self.messages, self.now_ms)
        if given is None:
            return None, pop_ms
        self.committed = given.commit_offset
        return list(given.offsets), pop_ms

    def ack(self, offset: int, pop_ms: int) -> str:
        answered, next_offset = self.queue.ack(offset, pop_ms, self.committed)
        if next_offset >= 0:
            self.committed = next_offset
        return answered.name
