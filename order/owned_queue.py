"""A queue in a consumer group, with one history for each store of its broker; and the counts of lost messages."""

from dataclasses import dataclass

from lockstep.order.across import QueueSeen
from lockstep.order.history import QueueHistory, Shared
from lockstep.order.offset_set import OffsetSet
from lockstep.order.sent import SentQueue
from lockstep.protocol.model import MessageQueue

__all__ = ["Losses", "OwnedQueue"]


class OwnedQueue:
    """The histories of a queue by store. `homes` maps each ownership period to its history."""

    def __init__(self, group: str, queue: MessageQueue, shared: Shared, first_wall_ms: int) -> None:
        self.histories: dict[int, QueueHistory] = {}
        self.homes: dict[tuple[str, int], QueueHistory] = {}
        self._group = group
        self._queue = queue
        self._shared = shared
        self._first_wall_ms = first_wall_ms

    def history(self, generation: int, sent: SentQueue) -> QueueHistory:
        """The history in one store, created on first use. `generation` is the number of earlier stores."""
        history = self.histories.get(generation)
        if history is None:
            queue = self._queue
            topic = self._shared.across.topics[self._group, queue.topic]
            seen = QueueSeen(
                len(topic.queues), queue.queue_id, queue.broker_name, str(queue), sent, self._first_wall_ms
            )  # fmt: skip
            topic.queues.append(seen)
            sent.compares = not generation  # after a restart only the time says to which store a send belongs
            history = self.histories[generation] = QueueHistory(self._group, queue, self._shared, topic, seen)
        return history

    def key_count(self) -> int:
        """The number of keys in the queue."""
        return len({key for history in self.histories.values() for key in history.last_of_key if key is not None})


@dataclass(slots=True)
class Losses:
    """Counts of messages that were sent but not handled, by reason (see OrderReport)."""

    lost: int = 0
    before_start: int = 0
    skipped: int = 0
    emptied: int = 0

    def weigh(self, sent: OffsetSet, history: QueueHistory | None, emptied: bool) -> None:
        """Add the messages of one queue in one store. `history` is None if the group never used the queue."""
        if history is None:
            if emptied:
                self.emptied += len(sent)
            else:
                self.lost += len(sent)
            return
        unhandled = sent.minus(history.done)
        open_ends = unhandled.minus(history.skipped)
        self.skipped += len(unhandled) - len(open_ends)
        early = OffsetSet()
        early.add_range(0, history.start)
        late = open_ends.minus(early)
        self.before_start += len(open_ends) - len(late)
        below_commit = history.lost_below_commit(sent)
        self.lost += len(below_commit)
        rest = len(late.minus(below_commit))
        if emptied:
            self.emptied += rest
        else:
            self.lost += rest
