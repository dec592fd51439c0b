"""The fenced way: a delivery is a period of ownership of its keys (docs/wire.md 18.4).

It differs from RocketMQ's in this: a key waits for its own messages and not for those of its queue; what was
acknowledged does not come again; only the newest delivery of a message may answer; an attempt id is its client's.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import takewhile
from typing import Final
from zlib import crc32

from lockstep.broker.messages.pop.port import Answered, Delivered, Order, QueueReader, Replayed, UnderWay
from lockstep.broker.messages.pop.reader import split
from lockstep.broker.messages.pop.rocketmq import OFFSETS_MAX
from lockstep.protocol.bodies.order_info import OrderInfo, WaitingMessage
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.messages.properties import sharding_key_of

__all__ = ["FencedQueue", "Waiting"]

# Of messages that were answered: a zombie that answers later still learns that it is one.
_ANSWERED_MAX: Final = 256
# What one read of the store gives at most.
_READ_AGAIN: Final = 32
# Looked up once: in an enum it costs as much as a call.
_DONE: Final = Answered.DONE
_Taken = tuple[int, bytes]  # a message for a delivery: its queue offset, and its stored bytes


class Waiting:
    """A message that is read from the queue and not consumed with all before it.

    Attributes:
        key: A hash of its key. Two keys with one hash wait for each other, which harms nothing.
        pop_ms: Names its newest delivery; 0: it had none, or one that may not answer any more.
        visible_ms: When the delivery ends.
        times_before: How often it was delivered before that.
        is_acked: It is consumed; an earlier message is not.
    """

    __slots__ = ("attempt_id", "client", "is_acked", "key", "pop_ms", "times_before", "visible_ms")

    def __init__(self, key: int) -> None:
        self.key = key
        self.pop_ms = 0
        self.visible_ms = 0
        self.client = ""
        self.attempt_id: str | None = None
        self.times_before = 0
        self.is_acked = False

    def holds(self, now_ms: int) -> bool:
        """Whether its key is held by its delivery."""
        return not self.is_acked and now_ms < self.visible_ms

    def end(self) -> None:
        """No delivery of it is under way."""
        self.pop_ms, self.visible_ms = 0, 0
        self.times_before += 1

    def is_again(self, order: Order) -> bool:
        """Whether the client that holds it repeats its call."""
        return order.attempt_id is not None and (self.attempt_id, self.client) == (order.attempt_id, order.client)


class FencedQueue:
    """Deliveries of one queue under way.

    Args:
        window_max: So many messages behind the first that is not consumed are looked at: a key that waits holds up the
            others when its queue is so long.
    """

    def __init__(self, window_max: int) -> None:
        self._window_max = window_max
        self.waiting: OrderedDict[int, Waiting] = OrderedDict()  # by queue offset, ascending
        self._end: int | None = None  # behind the last message that was read
        self._answered: OrderedDict[int, int] = OrderedDict()  # queue offset -> pop_ms
        self._last_pop_ms = 0
        self._in_doubt_ms = 0  # of deliveries up to this one acknowledgements were lost

    def first_pop_ms(self, now_ms: int) -> int:
        # Each delivery has its own time, also two within one millisecond and after the clock was set back.
        return max(now_ms, self._last_pop_ms + 1)

    def pop(self, order: Order, committed: int, reader: QueueReader, now_ms: int) -> Delivered | None:
        self._begin_at(committed)
        held = {one.key for one in self.waiting.values() if one.holds(now_ms) and not one.is_again(order)}
        taken = self._read_again(order.count_max, held, reader)
        taken += self._read_on(order.count_max - len(taken), held, reader)
        self._forget_consumed()
        times: dict[int, int] = {}
        offsets = [offset for offset, _ in taken]
        if taken:
            self._deliver_all(offsets, order, now_ms)
            times = {offset: count for offset in offsets if (count := self.waiting[offset].times_before)}
        elif self.waiting:
            return None
        acked = [offset for offset, one in self.waiting.items() if one.is_acked]
        body = b"".join(message for _, message in taken)
        return Delivered(self.next_offset, offsets, body, times, self.next_offset, acked)

    def end_attempt(self, order: Order) -> bool:
        if order.attempt_id is None:
            return False
        before = [
            one
            for one in self.waiting.values()
            if one.is_again(order) and one.pop_ms not in (0, order.pop_ms) and not one.is_acked
        ]
        for one in before:
            one.end()
        return bool(before)

    def _begin_at(self, committed: int) -> None:
        """The first delivery since the start; the store dropped messages; or somebody set the group's offset back."""
        if self._end is None or committed < self.next_offset:
            self.waiting.clear()
            self._end = committed
        while self.waiting and self.next_offset < committed:
            self.waiting.popitem(last=False)
        self._end = max(self._end, committed)

    @property
    def next_offset(self) -> int:
        """Of the first message that is not consumed."""
        return next(iter(self.waiting), self._end or 0)

    def _read_again(self, count: int, held: set[int], reader: QueueReader) -> list[_Taken]:
        """Messages that were read before, and are free. What this filter hides waits for a member with another one."""
        taken, passing, read_to = list[_Taken](), dict[int, bytes](), 0
        for offset, one in self.waiting.items():
            if len(taken) == count:
                break
            if one.is_acked or one.key in held:
                continue
            if offset >= read_to:
                # Many at once: what the filter hides costs no read of its own.
                _, body, read_to = reader.read(offset, _READ_AGAIN)
                passing = dict(split(body))
            if offset in passing:
                taken.append((offset, passing[offset]))
        return taken

    def _read_on(self, count: int, held: set[int], reader: QueueReader) -> list[_Taken]:
        """New messages whose keys are not held."""
        taken = list[_Taken]()
        while len(taken) < count and (room := self._window_max - len(self.waiting)) > 0:
            assert self._end is not None
            _, body, next_offset = reader.read(self._end, min(room, count))
            for (offset, message), key in zip(split(body), _keys_of(body), strict=True):
                if len(taken) == count:
                    # Read again by the next pop.
                    next_offset = offset
                    break
                one = self.waiting[offset] = Waiting(key)
                if one.key not in held:
                    taken.append((offset, message))
            if next_offset <= self._end:
                break
            self._end = next_offset
        return taken

    def _forget_consumed(self) -> None:
        while self.waiting and self.waiting[next(iter(self.waiting))].is_acked:
            offset, one = self.waiting.popitem(last=False)
            self._answered[offset] = one.pop_ms
            if len(self._answered) > _ANSWERED_MAX:
                self._answered.popitem(last=False)

    def ack(self, queue_offset: int, pop_ms: int, committed: int) -> tuple[Answered, int]:
        one = self.waiting.get(queue_offset)
        answered = self._judged(queue_offset, one, pop_ms)
        if answered is not _DONE:
            return answered, -1
        if one is not None:
            one.is_acked = True
            self._forget_consumed()
        return answered, self.next_offset

    def _judged(self, queue_offset: int, one: Waiting | None, pop_ms: int) -> Answered:
        """Whether a delivery may answer: only the newest of its message. None: that is consumed, or not known."""
        newest_ms = self._answered.get(queue_offset) if one is None else one.pop_ms
        if one is not None and self._is_behind_lost(queue_offset, one):
            return Answered.STALE
        if newest_ms is not None:
            return _DONE if pop_ms == newest_ms != 0 else Answered.STALE
        if self._end is None:
            return Answered.STALE
        return Answered.LATE if queue_offset < self.next_offset else Answered.UNKNOWN

    def _is_behind_lost(self, queue_offset: int, one: Waiting) -> bool:
        """Whether an earlier message of the key may come again although its acknowledgement was answered."""
        if one.is_acked or one.pop_ms > self._in_doubt_ms:
            return False
        earlier = takewhile(lambda offset: offset < queue_offset, self.waiting)
        others = map(self.waiting.__getitem__, earlier)
        return any(other.key == one.key and not other.is_acked for other in others)

    def crashed(self) -> None:
        self._in_doubt_ms = self._last_pop_ms

    def change(self, queue_offset: int, pop_ms: int, visible_ms: int) -> Answered:
        one = self.waiting.get(queue_offset)
        answered = self._judged(queue_offset, one, pop_ms)
        if answered is not _DONE:
            return answered
        if one is None or one.is_acked:
            return Answered.LATE
        one.visible_ms = visible_ms
        return answered

    def next_visible_ms(self, now_ms: int) -> int | None:
        return min((one.visible_ms for one in self.waiting.values() if one.holds(now_ms)), default=None)

    def may_give(self, committed: int, max_offset: int, now_ms: int) -> bool:
        if self._end is None:
            return committed < max_offset
        if self._end < max_offset and len(self.waiting) < self._window_max:
            return True
        held = {one.key for one in self.waiting.values() if one.holds(now_ms)}
        return any(not one.is_acked and one.key not in held for one in self.waiting.values())

    def under_way(self) -> list[UnderWay]:
        return [
            UnderWay(offset, one.pop_ms, one.visible_ms, one.times_before, one.key or None, one.client)
            for offset, one in self.waiting.items()
            if one.pop_ms and not one.is_acked
        ]

    def replay(self, replayed: Replayed, reader: QueueReader) -> None:
        order, offsets, commit_offset, acked = replayed
        # Acknowledgements are not in the log. But a delivery may be of messages that waited for one, so it has them.
        if commit_offset >= 0:
            self._begin_at(commit_offset)
            # It has all of them: one that it lacks was taken back by a reset, which ended all deliveries.
            if {offset for offset, one in self.waiting.items() if one.is_acked}.difference(acked):
                self.waiting.clear()
                self._end = commit_offset
        if self._end is None:
            self._end = offsets[0]
        self._read_to(max((*offsets, *acked)), reader)
        for offset in acked:
            if offset in self.waiting:
                self.waiting[offset].is_acked = True
        there = [offset for offset in offsets if offset in self.waiting]
        if [offset for offset in there if self.waiting[offset].pop_ms == order.pop_ms]:
            for offset in there:
                # The time of a delivery was changed: it names no other one.
                self.waiting[offset].visible_ms = order.pop_ms + order.invisible_ms
        elif there:
            self._deliver_all(there, order, order.pop_ms)  # by the clock of then

    def _read_to(self, last: int, reader: QueueReader) -> None:
        """Messages up to this offset, also those that a delivery passed over: their keys were held."""
        assert self._end is not None
        while self._end <= last:
            found, body, next_offset = reader.read(self._end, last + 1 - self._end)
            for offset, key in zip(found, _keys_of(body), strict=True):
                if offset <= last:
                    self.waiting[offset] = Waiting(key)
            if next_offset <= self._end:
                break
            self._end = min(next_offset, last + 1)

    def _deliver_all(self, offsets: Sequence[int], order: Order, now_ms: int) -> None:
        first_of = dict[int, int]()
        for offset in offsets:
            one = self.waiting[offset]
            first_of.setdefault(one.key, offset)
            self._deliver(one, order, now_ms)
        self._last_pop_ms = order.pop_ms
        if len(self.waiting) == len(offsets):
            return
        # When a message comes again, what follows it comes again behind it: no older delivery of that may answer.
        for offset, one in self.waiting.items():
            if one.pop_ms not in (0, order.pop_ms) and not one.is_acked and first_of.get(one.key, offset) < offset:
                one.end()

    def _deliver(self, one: Waiting, order: Order, now_ms: int) -> None:
        if one.pop_ms and not (one.holds(now_ms) and one.is_again(order)):
            one.times_before += 1
        one.pop_ms, one.visible_ms = order.pop_ms, now_ms + order.invisible_ms
        one.client, one.attempt_id = order.client, order.attempt_id

    def saved(self) -> OrderInfo | None:
        if self._end is None:
            return None
        waiting = [
            WaitingMessage(
                offset, one.key, one.pop_ms, one.visible_ms, one.times_before, one.is_acked, one.client, one.attempt_id
            )
            for offset, one in self.waiting.items()
        ]
        # RocketMQ's fields say what a broker of RocketMQ must know: these messages are held until then.
        # Not what lies behind a message that was never delivered: that broker would take it for consumed.
        delivered = takewhile(lambda row: row.pop_ms, waiting)
        offsets = tuple(row.queue_offset for row in delivered if not row.is_acked)[:OFFSETS_MAX]
        last_ms = self._last_pop_ms
        invisible_ms = max((row.visible_ms - last_ms for row in waiting), default=0)
        return OrderInfo(
            last_ms, invisible_ms, offsets, end=self._end, waiting=tuple(waiting), in_doubt_ms=self._in_doubt_ms
        )

    @classmethod
    def restored(cls, info: OrderInfo, window_max: int) -> "FencedQueue":
        queue = cls(window_max)
        if info.end is None:
            queue._restore_rocketmq(info)
            return queue
        queue._end, queue._last_pop_ms, queue._in_doubt_ms = info.end, info.pop_ms, info.in_doubt_ms
        for row in sorted(info.waiting, key=lambda row: row.queue_offset):
            one = queue.waiting[row.queue_offset] = Waiting(row.key)
            one.pop_ms, one.visible_ms, one.times_before = row.pop_ms, row.visible_ms, row.times_before
            one.is_acked, one.client, one.attempt_id = row.is_acked, row.client, row.attempt_id
        return queue

    def _restore_rocketmq(self, info: OrderInfo) -> None:
        """The record of a broker that knew no keys: its messages have one key, until they are consumed."""
        if info.offsets:
            self._end, self._last_pop_ms = info.offsets[-1] + 1, info.pop_ms
        for offset, place in sorted((offset, place) for place, offset in enumerate(info.offsets)):
            one = self.waiting[offset] = Waiting(0)
            one.pop_ms, one.times_before = info.pop_ms, info.times_before.get(offset, 0)
            one.visible_ms = info.visible_ms.get(offset, info.pop_ms + info.invisible_ms)
            one.is_acked = bool(info.acked >> place & 1)
        self._forget_consumed()

    def client_gone(self, client: str, visible_ms: int) -> None:
        for one in self.waiting.values():
            if one.client == client:
                one.visible_ms = min(one.visible_ms, visible_ms)


def _keys_of(body: bytes) -> list[int]:
    """The hash of each message's key."""
    keys = [sharding_key_of(message.properties) for message in decode_messages(body, unzip=False)]
    # Messages without a key keep their order among themselves.
    return [0 if key is None else crc32(key.encode("utf-8", "surrogatepass")) for key in keys]
