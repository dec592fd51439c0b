"""Deliveries to groups without order: each has a checkpoint until its messages are acknowledged (docs/wire.md 18.5).

Messages that are not acknowledged when their invisible time ends are stored again, in the group's retry topic. So the
group's offset goes on at once, and one message holds up no other.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from lockstep.broker.messages.pop.ack_bits import bit_of

__all__ = ["REVIVE_QUEUES", "Checkpoint", "CheckpointKey", "Checkpoints"]

# As many as RocketMQ's revive log has.
REVIVE_QUEUES: Final = 8
_HEAP_SLACK: Final = 64


class CheckpointKey(NamedTuple):
    """Names a delivery. `topic`: where its messages lie, which may be a retry topic."""

    topic: str
    consumer_group: str
    queue_id: int
    start_offset: int
    pop_ms: int


class Checkpoint:
    """One delivery of messages of one queue.

    Attributes:
        offsets: Of its messages, ascending.
        due_ms: When those that are not acknowledged are stored again.
        acked: Bit n: the message `offsets[n]` is acknowledged.
        saved_at: Where the revive log has it: its queue offset there; None: it is in memory alone.
    """

    __slots__ = ("acked", "due_ms", "invisible_ms", "key", "offsets", "revive_queue_id", "saved_at")

    def __init__(self, key: CheckpointKey, offsets: Sequence[int], invisible_ms: int, revive_queue_id: int) -> None:
        self.key = key
        self.offsets = offsets
        self.invisible_ms = invisible_ms
        self.revive_queue_id = revive_queue_id
        self.due_ms = key.pop_ms + invisible_ms
        self.acked = 0
        self.saved_at: int | None = None

    @property
    def is_done(self) -> bool:
        return self.acked == (1 << len(self.offsets)) - 1

    def bit_of(self, queue_offset: int) -> int:
        """Of a message in `acked`; 0: it is not of this delivery."""
        return bit_of(queue_offset, self.offsets)

    @property
    def left(self) -> list[int]:
        """Offsets that are not acknowledged."""
        return [offset for place, offset in enumerate(self.offsets) if not self.acked >> place & 1]


class _Queue:
    """The deliveries of one queue to one group.

    Attributes:
        position: Where the next delivery begins; None: there was none since the start.
        open: Their names.
        in_memory: Start offsets and names of those that the revive log does not have, the lowest first; also of
            deliveries that are over.
    """

    __slots__ = ("in_memory", "open", "position")

    def __init__(self) -> None:
        self.position: int | None = None
        self.open: dict[CheckpointKey, None] = {}
        self.in_memory: list[tuple[int, CheckpointKey]] = []


_QueueKey = tuple[str, str, int]  # topic, group, queue id


class Checkpoints:
    """The checkpoints of all groups. `next_due_ms`: epoch ms when the first may have to be revived; None: never."""

    def __init__(self) -> None:
        self._open: dict[CheckpointKey, Checkpoint] = {}
        self._queues: dict[_QueueKey, _Queue] = {}
        self._heap: list[tuple[int, CheckpointKey]] = []
        self._revive_queue_id = -1

    def has(self, topic: str, consumer_group: str) -> bool:
        """Whether the group had a delivery of the topic."""
        return any(queue[:2] == (topic, consumer_group) for queue in self._queues)

    def next_revive_queue(self) -> int:
        """The queue of the revive log for the next delivery: each in its turn."""
        self._revive_queue_id = (self._revive_queue_id + 1) % REVIVE_QUEUES
        return self._revive_queue_id

    def __len__(self) -> int:
        return len(self._open)

    def __bool__(self) -> bool:
        return bool(self._queues)

    def _queue(self, key: _QueueKey) -> _Queue:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue()
        return queue

    def position(self, topic: str, consumer_group: str, queue_id: int, committed: int) -> int:
        """Where the next delivery of a queue begins.

        Args:
            committed: The group's offset. A reset may have set it back: then the position is dropped first.
        """
        queue = self._queues.get((topic, consumer_group, queue_id))
        return committed if queue is None or queue.position is None else max(committed, queue.position)

    def read_to(self, topic: str, consumer_group: str, queue_id: int, next_offset: int) -> None:
        """A delivery read the queue up to this offset."""
        self._queue((topic, consumer_group, queue_id)).position = next_offset

    def free_key(self, key: CheckpointKey) -> CheckpointKey:
        """The key, or one of a moment later: two deliveries within one millisecond have two names."""
        while key in self._open:
            key = key._replace(pop_ms=key.pop_ms + 1)
        return key

    def add(self, checkpoint: Checkpoint) -> None:
        if len(self._heap) > 2 * len(self._open) + _HEAP_SLACK:
            # Mostly of deliveries that are over.
            self._heap = [(one.due_ms, key) for key, one in self._open.items()]
            heapq.heapify(self._heap)
        key = checkpoint.key
        queue = self._queue(key[:3])
        self._open[key] = checkpoint
        queue.open[key] = None
        heapq.heappush(self._heap, (checkpoint.due_ms, key))
        if checkpoint.saved_at is None:
            if len(queue.in_memory) > 2 * len(queue.open) + _HEAP_SLACK:
                queue.in_memory = [(one.start_offset, one) for one in queue.open if self._is_in_memory(one)]
                heapq.heapify(queue.in_memory)
            else:
                heapq.heappush(queue.in_memory, (key.start_offset, key))

    def _is_in_memory(self, key: CheckpointKey) -> bool:
        """Whether the delivery is under way, and the revive log does not have it."""
        checkpoint = self._open.get(key)
        return checkpoint is not None and checkpoint.saved_at is None

    def find(self, key: CheckpointKey) -> Checkpoint | None:
        return self._open.get(key)

    def ack(self, key: CheckpointKey, queue_offset: int) -> None:
        """A message is consumed, or stored again."""
        checkpoint = self._open.get(key)
        if checkpoint is not None:
            self.settle(checkpoint, checkpoint.bit_of(queue_offset))

    def settle(self, checkpoint: Checkpoint, bits: int) -> None:
        """As `ack`, of the messages that have these bits."""
        checkpoint.acked |= bits
        key = checkpoint.key
        if checkpoint.is_done and self._open.pop(key, None) is not None:
            del self._queues[key[:3]].open[key]

    def commit_offset(self, topic: str, consumer_group: str, queue_id: int) -> int | None:
        """After a crash the queue is read again from here: whatever is before it is consumed, or in the revive log.

        None: nothing of the queue was delivered.
        """
        queue = self._queues.get((topic, consumer_group, queue_id))
        if queue is None:
            return None
        in_memory = queue.in_memory
        while in_memory and not self._is_in_memory(in_memory[0][1]):
            heapq.heappop(in_memory)
        return in_memory[0][0] if in_memory else queue.position

    def unsaved(self, before_ms: int) -> list[Checkpoint]:
        """Checkpoints of deliveries made before a time that are in memory alone, oldest first."""
        found = [one for one in self._open.values() if one.saved_at is None and one.key.pop_ms < before_ms]
        return sorted(found, key=lambda one: one.key.pop_ms)

    def first_saved(self) -> dict[int, int]:
        """Queue id of the revive log -> its first place that an open checkpoint needs."""
        first = dict[int, int]()
        for one in self._open.values():
            if one.saved_at is not None:
                first[one.revive_queue_id] = min(one.saved_at, first.get(one.revive_queue_id, one.saved_at))
        return first

    @property
    def next_due_ms(self) -> int | None:
        while self._heap and self._heap[0][1] not in self._open:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int, count_max: int) -> list[Checkpoint]:
        """Checkpoints whose time is over, oldest first: each is closed by acknowledging its messages, or deferred."""
        found = list[Checkpoint]()
        while len(found) < count_max and (due_ms := self.next_due_ms) is not None and due_ms <= now_ms:
            found.append(self._open[heapq.heappop(self._heap)[1]])
        return found

    def defer(self, checkpoint: Checkpoint, due_ms: int) -> None:
        """Try again later: a message of it could not be stored."""
        heapq.heappush(self._heap, (due_ms, checkpoint.key))

    def reset(self, topic: str, consumer_group: str, queue_id: int) -> list[Checkpoint]:
        """The group's offset was set: deliveries of the queue are over, and nothing of them is stored again.

        Returns them.
        """
        queue = self._queues.pop((topic, consumer_group, queue_id), None)
        return [] if queue is None else [self._open.pop(key) for key in queue.open]

    def queues_of(self, is_gone: Callable[[str, str], bool]) -> list[_QueueKey]:
        """Queues of a deleted topic or group: topic, group, queue id."""
        return [queue for queue in self._queues if is_gone(*queue[:2])]
