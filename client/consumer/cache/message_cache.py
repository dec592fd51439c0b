"""MessageCache: the messages of one message queue that are pulled and not handled yet (wire.md 12.5). Synchronous."""

import asyncio
from collections.abc import Sequence
from itertools import islice

from lockstep.client.consumer.cache.arrivals import Arrivals
from lockstep.client.consumer.cache.offset_map import OffsetMap
from lockstep.protocol.bodies.client import ProcessQueueInfo
from lockstep.protocol.messages.message import MessageExt

__all__ = ["MessageCache"]


class MessageCache:
    """The messages in offset order, those that a listener has taken apart from the others, and who waits for room.

    Attributes:
        next_offset: of the next pull; -1 before the first one is known.
        message_accumulation: msgAccCnt, the messages on the broker behind the last pulled one.
        queue_offset_max: of all messages that were put.
        consuming: a consume task is running or due.
        arrivals: when the messages came, for metrics; None: nobody measures.
    """

    def __init__(self) -> None:
        self.next_offset = -1
        self.message_count = 0
        self.message_bytes = 0
        self.message_accumulation = 0
        self.queue_offset_max = 0
        self.consuming = False
        self.arrivals: Arrivals | None = None
        self._messages = OffsetMap()
        self._in_hand: dict[int, MessageExt] = {}  # taken by the listener and not committed yet
        self._below: asyncio.Future[None] | None = None
        self._wanted_count = 0

    def put_messages(self, messages: Sequence[MessageExt]) -> bool:
        """Cache pulled messages. Returns True when a consume task must be started for them."""
        before = len(self._messages)
        # An offset that is cached already counts once, so the count is taken from the map.
        self.message_bytes += self._messages.put({message.queue_offset: message for message in messages})
        self.message_count += len(self._messages) - before
        if messages:
            self.queue_offset_max = messages[-1].queue_offset
        # One task consumes a queue at a time: that is what keeps its order (wire.md 12.5).
        if self._messages and not self.consuming:
            self.consuming = True
            return True
        return False

    def first_messages(self, count: int) -> list[MessageExt]:
        """The next `count` messages in offset order. They are not taken."""
        return list(islice(self._messages.by_offset.values(), count))

    def take_messages(self, count: int) -> list[MessageExt]:
        """Take the next `count` messages in offset order, until commit or rollback.

        An empty result ends the consumption: the next put starts it again.
        """
        taken = self._messages.take(count, self._in_hand)
        if not taken:
            self.consuming = False
        return taken

    def commit(self) -> int:
        """All taken messages are handled. Returns the offset to commit; -1: none was taken.

        Without a cached message all before the next pull is consumed: what followed was filtered away, or is a dead
        letter, and no later message may come to commit it.
        """
        in_hand = self._in_hand
        if not in_hand:
            return -1
        offset = max(in_hand) + 1
        if len(in_hand) == 1:  # the usual case, at half the cost
            self.message_count -= 1
            self.message_bytes -= in_hand.popitem()[1].body_bytes
        else:
            self.message_count -= len(in_hand)
            self.message_bytes -= sum([message.body_bytes for message in in_hand.values()])
            in_hand.clear()
        if self._below is not None:
            self.freed()
        return offset if self._messages.by_offset else max(offset, self.next_offset)

    def rollback(self) -> None:
        """Put all taken messages back."""
        # They go back to their own places, because the map is sorted by offset.
        self._messages.put(self._in_hand)
        self._in_hand.clear()

    def make_messages_to_consume_again(self, messages: Sequence[MessageExt]) -> None:
        """Put these taken messages back; others stay taken (manual commit)."""
        self._messages.put({message.queue_offset: self._in_hand.pop(message.queue_offset) for message in messages})

    def remove_messages(self, messages: Sequence[MessageExt]) -> int:
        """Consumption without order: these messages are handled.

        Returns:
            The offset to commit: that of the first message left, or the one behind all messages; -1: none was cached.
        """
        held = self._messages
        if not held:
            return -1
        for message in messages:
            if held.pop(message.queue_offset) is not None:
                self.message_count -= 1
                self.message_bytes -= message.body_bytes
        self.freed()
        # The lowest offset that is not handled. What was handled above it may come again after a crash, and is never
        # lost.
        return held.first if held else max(self.queue_offset_max + 1, self.next_offset)

    def first_message(self) -> MessageExt | None:
        """Return the message with the lowest offset; taken messages are left out."""
        return self._messages.first_message if self._messages else None

    def __contains__(self, message: MessageExt) -> bool:
        return message.queue_offset in self._messages

    @property
    def max_span(self) -> int:
        """The distance from the first offset to the last one; taken messages do not count."""
        held = self._messages
        return held.last - held.first if held else 0

    @property
    def position(self) -> int:
        """The first offset that is not handled; -1 before the first offset is known."""
        if self._in_hand:
            return min(self._in_hand)
        return self._messages.first if self._messages else self.next_offset

    @property
    def in_hand(self) -> list[int]:
        """The offsets of the messages that a listener has now."""
        return [*self._in_hand]

    @property
    def is_empty(self) -> bool:
        return not self._messages and not self._in_hand

    @property
    def is_full(self) -> bool:
        """Whether pulls must wait, whatever the thresholds are."""
        return False

    def info(self) -> ProcessQueueInfo:
        """The part of the cache in GET_CONSUMER_RUNNING_INFO; offsets are 0 where there is no message (wire.md 2.5)."""
        cached, in_hand = self._messages, self._in_hand
        return ProcessQueueInfo(
            cached_msg_min_offset=cached.first if cached else 0,
            cached_msg_max_offset=cached.last if cached else 0,
            cached_msg_count=len(cached),
            cached_msg_size_mib=self.message_bytes // (1024 * 1024),
            transaction_msg_min_offset=min(in_hand, default=0),
            transaction_msg_max_offset=max(in_hand, default=0),
            transaction_msg_count=len(in_hand),
        )

    def freed(self) -> None:
        """Wake who waits for room, if there is some now."""
        if self._below is not None and self.message_count < self._wanted_count and not self.is_full:
            self._below.set_result(None)
            self._below = None

    async def wait_below(self, count: int, timeout_ms: int) -> None:
        """Wait until fewer than `count` messages are cached, for `timeout_ms` at most."""
        if self._below is None:
            self._below = asyncio.get_running_loop().create_future()
        self._wanted_count = count
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.shield(self._below)
        except TimeoutError:
            pass
