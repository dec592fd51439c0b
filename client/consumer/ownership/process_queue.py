"""ProcessQueue: the cache and the state of one message queue that a consumer owns (wire.md 12.5). Synchronous.

Three facts are independent: the lock (`locked`, `last_lock_ms`), consumption (`consuming`, `listener_running`) and
`dropped`. Each ownership period has a new ProcessQueue. A dropped one is never used again and commits nothing. One that
outlived its lock is dropped too, because another client may have owned the queue meanwhile.

Under a fenced lock a period has an epoch and a lease. It ends in two steps: first it is `draining`, and nothing is
taken any more; when its calls have ended and its offset is stored, it is `dropped`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from lockstep.client.consumer.cache.arrivals import Arrivals
from lockstep.client.consumer.cache.offset_map import OffsetMap
from lockstep.protocol.bodies.client import ProcessQueueInfo
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue

__all__ = ["ProcessQueue"]

# No call begins in the last twentieth of a lease.
_MARGIN_PARTS: Final = 20


class ProcessQueue:
    """One ownership period of a message queue. Times are epoch milliseconds.

    Args:
        period: the number of the period, counted by the client.
        locked_ms: when the lock was requested; None: it is not locked.
        needs_lock: False: the queue is consumed without a lock, which then counts as held.
    """

    def __init__(
        self,
        queue: MessageQueue,
        period: int,
        now_ms: int,
        *,
        locked_ms: int | None = None,
        needs_lock: bool = True,
    ) -> None:
        self.queue = queue
        self.period = period
        self.epoch = 0  # of the fenced lock; 0: its broker has none
        self.lease_ms = 0  # the life of that lock, from `last_lock_ms` on
        self.trace_fields: dict[str, Any] = {"period": period}
        self.on_locked: Callable[[], object] | None = None  # called once, when the fenced lock is trusted again
        self.draining = False  # nothing is taken any more; the offset of handled messages may still be stored
        self.lost = False  # the fenced lock is lost, or its lease has ended
        self.dropped = False
        self.resetting = False  # an offset reset removes it from the table
        self.outlived_lock = False  # the lock was lost, or may have been, and was granted again
        self.needs_lock = needs_lock
        self.locked = locked_ms is not None and needs_lock
        self.last_lock_ms = now_ms if locked_ms is None else locked_ms
        self._trusted_ms = 0  # of a fenced lock, from `last_lock_ms` on; 0: the consumer's setting counts
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.consuming = False  # a consume task is running or due
        self.listener_running = False
        self.positioned = False  # its first offset was read under the lock
        self.next_offset = -1  # of the next pull
        self.log_run = 0  # of the broker's log, when that pull's offset was known to be in it; 0: the broker has none
        self.try_unlock_times = 0
        self.message_count = 0
        self.message_bytes = 0
        self.message_accumulation = 0  # msgAccCnt: messages on the broker behind the last pulled one
        self.queue_offset_max = 0  # of all messages that were put
        self.arrivals: Arrivals | None = None  # of its messages, for metrics
        self._messages = OffsetMap()
        self._in_hand: dict[int, MessageExt] = {}  # taken by the listener and not committed yet
        self._idle: asyncio.Future[None] | None = None
        self._below: asyncio.Future[None] | None = None
        self._wanted_count = 0

    # Content -------------------------------------------------------------------------------------------------

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
        self.message_count -= len(in_hand)
        for message in in_hand.values():
            self.message_bytes -= message.body_bytes
        in_hand.clear()
        if self._below is not None:
            self._freed()
        return offset if self._messages else max(offset, self.next_offset)

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
        self._freed()
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
    def is_empty(self) -> bool:
        return not self._messages and not self._in_hand

    @property
    def is_full(self) -> bool:
        """Whether pulls must wait, whatever the thresholds are."""
        return False

    def info(self, commit_offset: int) -> ProcessQueueInfo:
        """For GET_CONSUMER_RUNNING_INFO; offsets are 0 where there is no message (wire.md 2.5)."""
        cached, in_hand = self._messages, self._in_hand
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=cached.first if cached else 0,
            cached_msg_max_offset=cached.last if cached else 0,
            cached_msg_count=len(cached),
            cached_msg_size_mib=self.message_bytes // (1024 * 1024),
            transaction_msg_min_offset=min(in_hand, default=0),
            transaction_msg_max_offset=max(in_hand, default=0),
            transaction_msg_count=len(in_hand),
            locked=self.locked,
            try_unlock_times=self.try_unlock_times,
            last_lock_timestamp=self.last_lock_ms,
            dropped=self.dropped,
            last_pull_timestamp=self.last_pull_ms,
            last_consume_timestamp=self.last_consume_ms,
        )

    # State ---------------------------------------------------------------------------------------------------

    def granted(self, asked_ms: int, lease_ms: int = 0) -> None:
        """The broker granted the lock that was requested at `asked_ms`; `lease_ms`: its life if it is fenced."""
        self.locked = True
        # Trust counts from the request, not from the answer: the broker's clock began between the two.
        self.last_lock_ms = max(self.last_lock_ms, asked_ms)
        if lease_ms:
            self.lease_ms = lease_ms
            # The margin is for clocks that run at different speed, and for a call that was let in just before.
            self._trusted_ms = lease_ms - lease_ms // _MARGIN_PARTS
            if self.on_locked is not None:
                on_locked, self.on_locked = self.on_locked, None
                on_locked()

    def set_epoch(self, epoch: int, text: str) -> None:
        """Begin the period under a fenced lock."""
        self.epoch = epoch
        self.trace_fields = {"period": self.period, "epoch": text}

    @property
    def lease_end_ms(self) -> int:
        """When the lease ends, counted from the time of the request. Only for a fenced lock."""
        return self.last_lock_ms + self.lease_ms

    @property
    def is_over(self) -> bool:
        """Whether no call may begin any more in this period."""
        return self.dropped or self.draining

    def holds_lock(self, now_ms: int, lock_max_live_time_ms: int) -> bool:
        """Whether this client may still trust its lock: it must stop before the broker gives the queue away.

        A fenced lock is trusted for its lease less a margin, and not while its connection is cut.
        """
        return not self.needs_lock or (
            self.locked and now_ms - self.last_lock_ms <= (self._trusted_ms or lock_max_live_time_ms)
        )

    def pull_expired(self, now_ms: int, pull_max_idle_ms: int) -> bool:
        return now_ms - self.last_pull_ms > pull_max_idle_ms

    # Waiting -------------------------------------------------------------------------------------------------

    def listener_returned(self) -> None:
        self.listener_running = False
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    async def listener_idle(self, timeout_ms: int) -> bool:
        """Wait up to `timeout_ms` for the running listener: the consume lock, as a rebalance tries it.

        Returns:
            Whether no listener runs.
        """
        if not self.listener_running:
            return True
        # Several callers may wait, so none may cancel the future of the others.
        if self._idle is None:
            self._idle = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await asyncio.shield(self._idle)
        except TimeoutError:
            return False
        return not self.listener_running

    def _freed(self) -> None:
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
