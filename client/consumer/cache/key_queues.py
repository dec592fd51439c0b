"""Order by key: the messages of one message queue, sorted into one small queue for each key. Synchronous.

At most one listener call works on a key queue, so a key stays in order. Any number of key queues may be worked on at
the same time, so a slow or failing key delays only itself. Messages without a key share one key queue. RocketMQ does
not have this: its orderly consumption makes one call at a time for a message queue (docs/order.md 4).

A key queue whose listener failed is *parked*: its messages wait, and do not count in `ready_count`, until an attempt
succeeds.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from lockstep.client.callables import log_or_raise
from lockstep.client.consumer.cache.message_cache import MessageCache
from lockstep.client.errors import ConsumerError
from lockstep.protocol.bodies.client import ProcessQueueInfo
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.selector import SHARDING_KEY_OF, KeyOf
from lockstep.remoting.logs import EventLog

__all__ = ["KeyQueue", "KeyQueues", "KeyedCache", "MessageKey", "key_function"]

# Empty key queues that are kept, because most keys come again.
_EMPTY_MAX: Final = 1024


class KeyQueue:
    """The messages of one key that are not handled: `taken` by a listener call, and `waiting` behind it."""

    __slots__ = ("is_parked", "is_started", "key", "state", "taken", "waiting")

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.waiting: deque[MessageExt] = deque()  # in offset order
        self.taken: list[MessageExt] = []
        self.is_started = False  # given to a worker, or parked: it must not be started a second time
        self.is_parked = False
        self.state: Any = None  # for the consume service

    @property
    def head(self) -> MessageExt:
        """The first message that is not handled."""
        return self.taken[0] if self.taken else self.waiting[0]

    def __repr__(self) -> str:
        state = "parked" if self.is_parked else "started" if self.is_started else "idle"
        return f"<KeyQueue {self.key!r} {state} {len(self.taken)} taken, {len(self.waiting)} waiting>"


class KeyQueues:
    """The key queues of one message queue. Each operation costs O(1) for each message, amortised.

    Args:
        span_max: the largest distance from the lowest offset that is not handled to an offset that is given to a
            listener. Messages beyond it wait until the lowest offset is handled.
        key_of: returns the key of a message.
    """

    def __init__(self, span_max: int, key_of: KeyOf = SHARDING_KEY_OF) -> None:
        self.span_max = span_max
        self._key_of = key_of
        self.highest = -1  # the highest offset that was pulled
        self.ready_count = 0  # messages that are not handled and not parked
        self.message_bytes = 0  # of all messages that are not handled
        self.running = 0  # key queues with a listener call
        self._by_key: dict[str | None, KeyQueue] = {}
        self._unhandled: deque[int] = deque()  # ascending offsets; only the first is surely not handled
        self._handled: set[int] = set()  # those of _unhandled that are handled
        self._beyond: deque[MessageExt] = deque()  # beyond the span

    # Put -----------------------------------------------------------------------------------------------------

    def put(self, messages: Sequence[MessageExt]) -> list[KeyQueue]:
        """Add pulled messages, in offset order. Messages that were pulled before are skipped.

        Returns:
            The key queues that must be given to a worker now.
        """
        highest, unhandled, size = self.highest, self._unhandled, 0
        within: list[MessageExt] = []
        for message in messages:
            offset = message.queue_offset
            if offset <= highest:
                continue
            highest = offset
            unhandled.append(offset)
            size += message.body_bytes
            if offset - unhandled[0] < self.span_max:
                within.append(message)
            else:
                self._beyond.append(message)
        self.highest = highest
        self.message_bytes += size
        return self._sort_in(within)

    def _sort_in(self, messages: Sequence[MessageExt]) -> list[KeyQueue]:
        by_key, key_of, ready_count = self._by_key, self._key_of, 0
        started: list[KeyQueue] = []
        for message in messages:
            key = key_of(message)
            key_queue = by_key.get(key)
            if key_queue is None:
                key_queue = by_key[key] = KeyQueue(key)
            key_queue.waiting.append(message)
            if not key_queue.is_parked:
                ready_count += 1
            if not key_queue.is_started:
                key_queue.is_started = True
                started.append(key_queue)
        self.ready_count += ready_count
        return started

    # Handle --------------------------------------------------------------------------------------------------

    def take(self, key_queue: KeyQueue, count: int) -> list[MessageExt]:
        """Take up to `count` messages of a started key queue. They stay taken until `handled` or `failed`."""
        assert key_queue.is_started, key_queue
        assert not key_queue.taken, key_queue
        waiting = key_queue.waiting
        if count == 1:
            key_queue.taken = [waiting.popleft()]
        else:
            key_queue.taken = [waiting.popleft() for _ in range(min(count, len(waiting)))]
        self.running += 1
        return key_queue.taken

    def handled(self, key_queue: KeyQueue, messages: Sequence[MessageExt] | None = None) -> bool:
        """Mark the taken messages as handled.

        Args:
            messages: if given, only these are handled. The others go back, and a parked key queue stays parked.

        Returns:
            Whether the key queue has more messages. Then it stays started.
        """
        taken = key_queue.taken
        done = taken if messages is None else messages
        key_queue.taken = []
        self.running -= 1
        self._advance(done)
        if key_queue.is_parked:
            if len(done) == len(taken):
                key_queue.is_parked = False
                self.ready_count += len(key_queue.waiting)
        else:
            self.ready_count -= len(done)
        if len(done) != len(taken):
            gone = {message.queue_offset for message in done}
            key_queue.waiting.extendleft(message for message in reversed(taken) if message.queue_offset not in gone)
        if key_queue.waiting:
            return True
        key_queue.is_started = False
        if len(self._by_key) > _EMPTY_MAX:
            del self._by_key[key_queue.key]
        return False

    def _advance(self, done: Sequence[MessageExt]) -> None:
        unhandled, handled = self._unhandled, self._handled
        for message in done:
            offset = message.queue_offset
            self.message_bytes -= message.body_bytes
            if offset != unhandled[0]:
                handled.add(offset)
                continue
            unhandled.popleft()
            while unhandled and unhandled[0] in handled:
                handled.remove(unhandled.popleft())

    def give_back(self, key_queue: KeyQueue) -> None:
        """Put the taken messages back to the head: the listener was not called. The key queue stays started."""
        self.running -= 1
        key_queue.waiting.extendleft(reversed(key_queue.taken))
        key_queue.taken = []

    def failed(self, key_queue: KeyQueue) -> None:
        """Put the taken messages back to the head and park the key queue: the listener failed."""
        self.give_back(key_queue)
        self.park(key_queue)

    def park(self, key_queue: KeyQueue) -> None:
        """Park a key queue that has no taken messages."""
        if not key_queue.is_parked:
            key_queue.is_parked = True
            self.ready_count -= len(key_queue.waiting)

    def release(self) -> list[KeyQueue]:
        """Sort in the messages that were beyond the span and are within it now; return what `put` returns."""
        beyond, unhandled = self._beyond, self._unhandled
        within: list[MessageExt] = []
        while beyond and beyond[0].queue_offset - unhandled[0] < self.span_max:
            within.append(beyond.popleft())
        return self._sort_in(within)

    # State ---------------------------------------------------------------------------------------------------

    @property
    def commit_offset(self) -> int:
        """The lowest offset that is not handled, else the next offset to pull; -1 before the first message."""
        if self._unhandled:
            return self._unhandled[0]
        return self.highest + 1 if self.highest >= 0 else -1

    @property
    def is_empty(self) -> bool:
        return not self._unhandled

    @property
    def has_beyond(self) -> bool:
        return bool(self._beyond)

    @property
    def span(self) -> int:
        """The highest pulled offset minus the lowest offset that is not handled."""
        return self.highest - self._unhandled[0] if self._unhandled else 0

    @property
    def is_full(self) -> bool:
        """Whether pulls must wait until the lowest offset is handled."""
        return self.span >= self.span_max

    @property
    def unhandled_count(self) -> int:
        return len(self._unhandled) - len(self._handled)

    @property
    def taken(self) -> list[int]:
        """The offsets of the messages that listeners have now. O(keys)."""
        return [message.queue_offset for one in self._by_key.values() for message in one.taken] if self.running else []

    @property
    def parked(self) -> list[KeyQueue]:
        return [key_queue for key_queue in self._by_key.values() if key_queue.is_parked]

    def at_commit_offset(self) -> KeyQueue | None:
        """Return the key queue with the lowest offset that is not handled. O(keys): for logs only."""
        if not self._unhandled:
            return None
        head = self._unhandled[0]
        started = [key_queue for key_queue in self._by_key.values() if key_queue.is_started]
        return next((key_queue for key_queue in started if key_queue.head.queue_offset == head), None)


class KeyedCache(MessageCache):
    """The cache of `ordering="key"`.

    `message_count` leaves out parked messages, so that a failing key does not use up `pull_threshold_for_queue`.
    `message_bytes` includes them, because they are in memory.
    """

    def __init__(self, span_max: int, key_of: KeyOf = SHARDING_KEY_OF) -> None:
        super().__init__()
        self.key_queues = KeyQueues(span_max, key_of)

    def put_by_key(self, messages: Sequence[MessageExt]) -> list[KeyQueue]:
        """Add pulled messages; return the key queues that must be given to a worker now."""
        started = self.key_queues.put(messages)
        self.content_changed()
        return started

    def content_changed(self) -> None:
        """Count again after the key queues changed, and wake the pull loop if it may pull."""
        content = self.key_queues
        self.message_count = content.ready_count
        self.message_bytes = content.message_bytes
        self.freed()

    @property
    def position(self) -> int:
        """The lowest offset that is not handled; -1 before the first pull has its offset."""
        handled = self.key_queues.commit_offset
        return max(handled, self.next_offset) if self.key_queues.is_empty else handled

    @property
    def in_hand(self) -> list[int]:
        return self.key_queues.taken

    @property
    def is_empty(self) -> bool:
        return self.key_queues.is_empty

    @property
    def max_span(self) -> int:
        return self.key_queues.span

    @property
    def is_full(self) -> bool:
        return self.key_queues.is_full

    def info(self) -> ProcessQueueInfo:
        """As MessageCache.info. Parked messages count as cached."""
        content = self.key_queues
        low, high = (0, 0) if content.is_empty else (content.commit_offset, content.highest)
        return (
            super()
            .info()
            ._replace(cached_msg_min_offset=low, cached_msg_max_offset=high, cached_msg_count=content.unhandled_count)
        )


MessageKey = str | KeyOf


def key_function(key: MessageKey | None, log: EventLog) -> KeyOf:
    """Return the function that gives the key of a message.

    Args:
        key: a function of the message, or the name of a property whose whole text is the key (KEYS for example); None
            means the sharding key. If a function raises, the error is logged and the message has no key.

    Raises:
        ConsumerError: `key` is something else.
    """
    if key is None:
        return SHARDING_KEY_OF
    if isinstance(key, str) and key:
        return lambda message: message.properties.get(key)
    if callable(key):
        return _Guarded(key, log)
    raise ConsumerError(f"key must be a function of a message or a property's name, not {key!r}")


class _Guarded:
    """A user's function; an error of it does not stop the queue."""

    def __init__(self, function: KeyOf, log: EventLog) -> None:
        self._function = function
        self._log = log

    def __call__(self, message: MessageExt) -> str | None:
        try:
            key = self._function(message)
            if key is None or isinstance(key, str):
                return key
            raise TypeError(f"a key must be a str or None, not {type(key).__name__}")
        except BaseException as error:
            log_or_raise(
                self._log,
                "key_function_failed",
                error,
                consequence="the message has no key",
                queue=f"{message.topic}@{message.broker_name}:{message.queue_id}",
                offset=message.queue_offset,
            )
            return None
