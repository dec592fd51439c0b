"""The queues of a LitePullConsumer, the messages that wait in them, and their offsets. Synchronous (wire.md 12.10).

A queue has three offsets: the next pull begins at `process_queue.next_offset`; messages below `position` were handed
out (RocketMQ's consume offset); messages below `handled` are handled: all but those that the last call handed out.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue

__all__ = ["NOT_KNOWN", "LiteQueue", "LiteQueues"]

NOT_KNOWN: Final = -1


class LiteQueue:
    """One queue while it is assigned. It is not used any more once its process queue is dropped."""

    __slots__ = ("committed", "handled", "paused", "position", "process_queue")

    def __init__(self, process_queue: ProcessQueue) -> None:
        self.process_queue = process_queue
        self.paused = False
        self.position = NOT_KNOWN
        self.handled = NOT_KNOWN
        self.committed = NOT_KNOWN  # the last offset given to the offset store

    @property
    def queue(self) -> MessageQueue:
        return self.process_queue.queue


class _Batch:
    """The messages of one pull that are not handed out yet."""

    __slots__ = ("count", "lite_queue")

    def __init__(self, lite_queue: LiteQueue, count: int) -> None:
        self.lite_queue = lite_queue
        self.count = count


class LiteQueues:
    """All queues of one consumer, and the line in which pulled messages wait to be handed out."""

    def __init__(self) -> None:
        self._by_queue: dict[MessageQueue, LiteQueue] = {}
        self._line: deque[_Batch] = deque()
        self._in_hand: LiteQueue | None = None  # the queue that the last call handed out messages of

    def add(self, process_queue: ProcessQueue) -> LiteQueue:
        lite_queue = self._by_queue[process_queue.queue] = LiteQueue(process_queue)
        return lite_queue

    def remove(self, queue: MessageQueue) -> LiteQueue | None:
        """Unassign the queue and discard its waiting messages."""
        lite_queue = self._by_queue.pop(queue, None)
        if lite_queue is not None:
            self._leave_line(lite_queue)
        return lite_queue

    def get(self, queue: MessageQueue) -> LiteQueue | None:
        return self._by_queue.get(queue)

    def of(self, process_queue: ProcessQueue) -> LiteQueue:
        """Return the one of a process queue that is not dropped."""
        return self._by_queue[process_queue.queue]

    def all(self) -> list[LiteQueue]:
        return list(self._by_queue.values())

    @property
    def queues(self) -> list[MessageQueue]:
        return sorted(self._by_queue)

    @property
    def waiting_pulls(self) -> int:
        """How many pulls have messages that wait to be handed out."""
        return len(self._line)

    # Messages ------------------------------------------------------------------------------------------------

    def put(self, lite_queue: LiteQueue, messages: Sequence[MessageExt]) -> None:
        """Add the messages of one pull, in offset order, behind all that wait."""
        process_queue = lite_queue.process_queue
        known = process_queue.cache.message_count
        process_queue.cache.put_messages(messages)
        # An offset that was cached before counts once.
        added = process_queue.cache.message_count - known
        if added:
            self._line.append(_Batch(lite_queue, added))

    def nothing_until(self, lite_queue: LiteQueue, offset: int) -> None:
        """A pull found no message below `offset`: if no message waits, this is the queue's position.

        RocketMQ sets positions by messages alone: a consumer that got none has no offset at its next start, and under
        CONSUME_FROM_LAST_OFFSET it misses the messages sent in between.
        """
        if lite_queue.process_queue.cache.is_empty and offset > lite_queue.position:
            lite_queue.position = offset
            if self._in_hand is not lite_queue:
                lite_queue.handled = offset

    def take(self, now_ms: int, count_max: int | None = None) -> list[MessageExt]:
        """Return the next messages of one pull, `count_max` at most; empty when none wait.

        The messages of earlier calls count as handled from now on.
        """
        self.settle()
        if not self._line:
            return []
        batch = self._line[0]
        lite_queue = batch.lite_queue
        count = batch.count if count_max is None else min(batch.count, count_max)
        batch.count -= count
        if not batch.count:
            self._line.popleft()
        messages = lite_queue.process_queue.cache.take_messages(count)
        if lite_queue.handled == NOT_KNOWN:
            lite_queue.handled = messages[0].queue_offset
        lite_queue.position = lite_queue.process_queue.cache.commit()
        lite_queue.process_queue.last_consume_ms = now_ms
        self._in_hand = lite_queue
        return messages

    def settle(self) -> None:
        """All messages handed out so far are handled."""
        if self._in_hand is not None:
            self._in_hand.handled = self._in_hand.position
            self._in_hand = None

    def seek(self, lite_queue: LiteQueue, offset: int) -> None:
        """Continue at `offset`: discard waiting messages, and forget which ones were handed out."""
        self._leave_line(lite_queue)
        if self._in_hand is lite_queue:
            self._in_hand = None
        process_queue = lite_queue.process_queue
        process_queue.cache.take_messages(process_queue.cache.message_count)
        process_queue.cache.commit()
        process_queue.positioned = True
        process_queue.cache.next_offset = lite_queue.position = lite_queue.handled = offset

    def _leave_line(self, lite_queue: LiteQueue) -> None:
        self._line = deque(batch for batch in self._line if batch.lite_queue is not lite_queue)
