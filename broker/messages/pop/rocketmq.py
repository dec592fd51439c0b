"""RocketMQ's way: one record a queue, of the last delivery alone (docs/wire.md 18.3).

The whole queue waits while one message of the delivery is not acknowledged. When its invisible time is over the queue
is given again from the first such message on, together with messages behind it that were acknowledged.
"""

from collections.abc import Sequence
from typing import Final

from lockstep.broker.messages.pop.ack_bits import bit_of, first_open
from lockstep.broker.messages.pop.port import Answered, Delivered, Order, QueueReader, Replayed, UnderWay
from lockstep.protocol.bodies.order_info import OrderInfo

__all__ = ["OFFSETS_MAX", "OrderRecord", "RocketMqQueue"]

# The acknowledgements of a delivery are bits of one number of 64 bits.
OFFSETS_MAX: Final = 32


class OrderRecord:
    """The last delivery of a queue.

    Attributes:
        pop_ms: When, in epoch ms; it names the delivery.
        invisible_ms: For how long.
        offsets: Of its messages, ascending.
        visible_ms: When single messages become visible, where a client changed it.
        times_before: How often each message had been delivered before, without those that were new.
        acked: Bit n: the message `offsets[n]` is acknowledged.
        used_ms: When the record was made, or read from the file.
        attempt_id: Of the call.
        client: Who made it, to show it; RocketMQ's file does not keep it. None: it is not known since a restart.
    """

    __slots__ = (
        "acked", "attempt_id", "client", "invisible_ms", "offsets", "pop_ms", "times_before", "used_ms", "visible_ms",
    )  # fmt: skip

    def __init__(
        self,
        pop_ms: int,
        invisible_ms: int,
        offsets: Sequence[int],
        attempt_id: str | None,
        times_before: dict[int, int],
        used_ms: int,
    ) -> None:
        self.pop_ms = pop_ms
        self.invisible_ms = invisible_ms
        self.offsets = offsets
        self.attempt_id = attempt_id
        self.times_before = times_before
        self.used_ms = used_ms
        self.client: str | None = None
        self.visible_ms: dict[int, int] = {}
        self.acked = 0

    def free_ms(self, now_ms: int) -> int | None:
        """When the last message that is held now becomes visible. None: none is held."""
        end_ms = self.pop_ms + self.invisible_ms
        open_offsets = [offset for place, offset in enumerate(self.offsets) if not self.acked >> place & 1]
        visible_ms = max((self.visible_ms.get(offset, end_ms) for offset in open_offsets), default=now_ms)
        return visible_ms if now_ms < visible_ms else None

    @property
    def next_offset(self) -> int:
        """Of the first message that is not acknowledged, or behind the last."""
        first = first_open(self.acked, self.offsets)
        return self.offsets[-1] + 1 if first is None else first


class RocketMqQueue:
    """A queue with its record, if it has one."""

    def __init__(self, record: OrderRecord | None = None) -> None:
        self.record = record

    def first_pop_ms(self, now_ms: int) -> int:
        return now_ms

    def pop(self, order: Order, committed: int, reader: QueueReader, now_ms: int) -> Delivered | None:
        before = self.record
        # Any client that knows the attempt id enters, and gets the same messages again under a new time.
        again = before is not None and before.attempt_id is not None and before.attempt_id == order.attempt_id
        if before is not None and not again and before.free_ms(now_ms) is not None:
            return None
        offsets, body, next_offset = reader.read(committed, min(order.count_max, OFFSETS_MAX))
        if not offsets:
            # What does not pass the filter is consumed.
            return Delivered(committed, (), b"", {}, max(committed, next_offset))
        times: dict[int, int] = {}
        if before is not None:
            times = before.times_before if again else _times_after(before, offsets)
        self.record = OrderRecord(order.pop_ms, order.invisible_ms, offsets, order.attempt_id, times, now_ms)
        self.record.client = order.client
        return Delivered(committed, offsets, body, times, committed)

    def ack(self, queue_offset: int, pop_ms: int, committed: int) -> tuple[Answered, int]:
        if queue_offset < committed:
            return Answered.LATE, -1
        record = self.record
        # As RocketMQ's commitAndNext: without a record, after a crash or a reset, any acknowledgement is taken.
        if record is None:
            return Answered.DONE, queue_offset + 1
        if pop_ms != record.pop_ms:
            return Answered.LATE, -1
        bit = bit_of(queue_offset, record.offsets)
        if not bit:
            return Answered.UNKNOWN, -1
        record.acked |= bit
        return Answered.DONE, record.next_offset

    def change(self, queue_offset: int, pop_ms: int, visible_ms: int) -> Answered:
        record = self.record
        if record is None or pop_ms != record.pop_ms:
            return Answered.LATE
        record.visible_ms[queue_offset] = visible_ms
        return Answered.DONE

    def next_visible_ms(self, now_ms: int) -> int | None:
        return None if self.record is None else self.record.free_ms(now_ms)

    def may_give(self, committed: int, max_offset: int, now_ms: int) -> bool:
        return committed < max_offset and self.next_visible_ms(now_ms) is None

    def under_way(self) -> list[UnderWay]:
        one = self.record
        if one is None:
            return []
        end_ms = one.pop_ms + one.invisible_ms
        visible_ms, times = one.visible_ms, one.times_before
        return [
            UnderWay(offset, one.pop_ms, visible_ms.get(offset, end_ms), times.get(offset, 0), client=one.client)
            for place, offset in enumerate(one.offsets)
            if not one.acked >> place & 1
        ]

    def replay(self, replayed: Replayed, reader: QueueReader) -> None:
        """RocketMQ's deliveries are in the file alone."""

    def crashed(self) -> None:
        """What was lost comes again, also behind what follows it."""

    def saved(self) -> OrderInfo | None:
        one = self.record
        if one is None:
            return None
        times = (one.visible_ms, one.times_before, one.used_ms)
        return OrderInfo(one.pop_ms, one.invisible_ms, tuple(one.offsets), one.acked, *times, one.attempt_id)

    @classmethod
    def restored(cls, info: OrderInfo) -> "RocketMqQueue":
        if not info.offsets:
            return cls()
        times = dict(info.times_before)
        record = OrderRecord(info.pop_ms, info.invisible_ms, info.offsets, info.attempt_id, times, info.used_ms)
        record.visible_ms, record.acked = dict(info.visible_ms), info.acked
        return cls(record)

    def end_attempt(self, order: Order) -> bool:
        """A repeat begins with the first message that is not acknowledged; another queue's record stays."""
        return False

    def client_gone(self, client: str, visible_ms: int) -> None:
        """The record does not know its client."""


def _times_after(before: OrderRecord, offsets: Sequence[int]) -> dict[int, int]:
    """How often messages had been delivered by the end of the last delivery."""
    known = set(before.offsets)
    return {offset: before.times_before.get(offset, 0) + 1 for offset in offsets if offset in known}
