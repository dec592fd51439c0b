"""The messages of one owned queue, parted by key: each key in order, one key not behind another. Synchronous.

A *lane* is what is in hand of one key. At most one call of the listener works on a lane, so a key stays in order; any
number of lanes may be at work, so a slow or failing key holds up itself alone. Messages without a key share a lane of
their own. Beyond RocketMQ, whose orderly consumption is one call at a time per queue (docs/order.md 4).

A lane whose listener failed is *parked*: what is in it waits, and does not count in `ready_count`, until an attempt
succeeds.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from lockstep.protocol.message import MessageExt
from lockstep.protocol.selector import SHARDING_KEY_OF, KeyOf

__all__ = ["KeyLanes", "Lane"]

_EMPTY_LANES_MAX: Final = 1024  # so many lanes are kept when they are empty: most keys come again


class Lane:
    """What is in hand of one key. `taken` is at work; `waiting`, in offset order, lies behind it.

    `work` is whatever the one who starts it keeps with it.
    """

    __slots__ = ("is_parked", "is_started", "key", "taken", "waiting", "work")

    def __init__(self, key: str | None) -> None:
        self.key = key
        self.waiting: deque[MessageExt] = deque()
        self.taken: list[MessageExt] = []
        self.is_started = False  # on its way to a listener, in one, or parked: nobody else may start it
        self.is_parked = False
        self.work: Any = None

    @property
    def head(self) -> MessageExt:
        """The next message of the key, or the one that is at work."""
        return self.taken[0] if self.taken else self.waiting[0]

    def __repr__(self) -> str:
        state = "parked" if self.is_parked else "started" if self.is_started else "idle"
        return f"<Lane {self.key!r} {state} {len(self.taken)} taken, {len(self.waiting)} waiting>"


class KeyLanes:
    """`key_of` names the lane of a message. `span_max`: the highest pulled offset may lie that far above the lowest
    that is not handled, and no further.

    What was pulled beyond it waits until the lowest is handled. Everything costs O(1) per message, amortised.
    """

    def __init__(self, span_max: int, key_of: KeyOf = SHARDING_KEY_OF) -> None:
        self.span_max = span_max
        self._key_of = key_of
        self.highest = -1  # pulled
        self.ready_count = 0  # messages not handled and not in a parked lane
        self.message_bytes = 0  # of all that are not handled
        self.running = 0  # lanes with messages at work
        self._lanes: dict[str | None, Lane] = {}
        self._unhandled: deque[int] = deque()  # ascending; its first is not handled, others may be
        self._handled: set[int] = set()  # of those in _unhandled
        self._beyond: deque[MessageExt] = deque()  # over the span

    # In ------------------------------------------------------------------------------------------------------

    def put(self, messages: Sequence[MessageExt]) -> list[Lane]:
        """Take pulled messages in, in offset order; the lanes that may be started for them.

        Offsets that were pulled before are passed over.
        """
        highest, unhandled, size = self.highest, self._unhandled, 0
        within: list[MessageExt] = []
        for message in messages:
            offset = message.queue_offset
            if offset <= highest:
                continue
            highest = offset
            unhandled.append(offset)
            size += len(message.body)
            if offset - unhandled[0] < self.span_max:
                within.append(message)
            else:
                self._beyond.append(message)
        self.highest = highest
        self.message_bytes += size
        return self._put_in_lanes(within)

    def _put_in_lanes(self, messages: Sequence[MessageExt]) -> list[Lane]:
        lanes, key_of, ready_count = self._lanes, self._key_of, 0
        started: list[Lane] = []
        for message in messages:
            key = key_of(message)
            lane = lanes.get(key)
            if lane is None:
                lane = lanes[key] = Lane(key)
            lane.waiting.append(message)
            if not lane.is_parked:
                ready_count += 1
            if not lane.is_started:
                lane.is_started = True
                started.append(lane)
        self.ready_count += ready_count
        return started

    # Work ----------------------------------------------------------------------------------------------------

    def take(self, lane: Lane, count: int) -> list[MessageExt]:
        """The next messages of a started lane, `count` at most. They are at work until `handled` or `failed`."""
        assert lane.is_started, lane
        assert not lane.taken, lane
        waiting = lane.waiting
        if count == 1:
            lane.taken = [waiting.popleft()]
        else:
            lane.taken = [waiting.popleft() for _ in range(min(count, len(waiting)))]
        self.running += 1
        return lane.taken

    def handled(self, lane: Lane, messages: Sequence[MessageExt] | None = None) -> bool:
        """What was taken is done, or these of it; the rest goes back. Whether the lane has more: it stays started.

        A parked lane is one no more, unless something went back.
        """
        taken = lane.taken
        done = taken if messages is None else messages
        lane.taken = []
        self.running -= 1
        self._advance(done)
        if lane.is_parked:
            if len(done) == len(taken):
                lane.is_parked = False
                self.ready_count += len(lane.waiting)
        else:
            self.ready_count -= len(done)
        if len(done) != len(taken):
            gone = {message.queue_offset for message in done}
            lane.waiting.extendleft(message for message in reversed(taken) if message.queue_offset not in gone)
        if lane.waiting:
            return True
        lane.is_started = False
        if len(self._lanes) > _EMPTY_LANES_MAX:
            del self._lanes[lane.key]
        return False

    def _advance(self, done: Sequence[MessageExt]) -> None:
        unhandled, handled = self._unhandled, self._handled
        for message in done:
            offset = message.queue_offset
            self.message_bytes -= len(message.body)
            if offset != unhandled[0]:
                handled.add(offset)
                continue
            unhandled.popleft()
            while unhandled and unhandled[0] in handled:
                handled.remove(unhandled.popleft())

    def give_back(self, lane: Lane) -> None:
        """What was taken goes back to the head of its lane, which stays started: nothing was done with it."""
        self.running -= 1
        lane.waiting.extendleft(reversed(lane.taken))
        lane.taken = []

    def failed(self, lane: Lane) -> None:
        """What was taken goes back to the head of its lane, which is parked: `retry` it after a while."""
        self.give_back(lane)
        self.park(lane)

    def park(self, lane: Lane) -> None:
        """A lane with nothing taken waits."""
        if not lane.is_parked:
            lane.is_parked = True
            self.ready_count -= len(lane.waiting)

    def release(self) -> list[Lane]:
        """The lanes that may be started for what was beyond the span and is within it now."""
        beyond, unhandled = self._beyond, self._unhandled
        within: list[MessageExt] = []
        while beyond and beyond[0].queue_offset - unhandled[0] < self.span_max:
            within.append(beyond.popleft())
        return self._put_in_lanes(within)

    # State ---------------------------------------------------------------------------------------------------

    @property
    def commit_offset(self) -> int:
        """The lowest offset that is not handled, or the next to come; -1 before the first message."""
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
        """The highest pulled offset minus the lowest that is not handled."""
        return self.highest - self._unhandled[0] if self._unhandled else 0

    @property
    def is_full(self) -> bool:
        """Nothing more may be pulled until the lowest offset is handled."""
        return self.span >= self.span_max

    @property
    def unhandled_count(self) -> int:
        """All messages in hand, parked or not."""
        return len(self._unhandled) - len(self._handled)

    @property
    def parked(self) -> list[Lane]:
        return [lane for lane in self._lanes.values() if lane.is_parked]

    def lane_at_head(self) -> Lane | None:
        """Whose message is the lowest that is not handled. O(lanes): for people, not for work."""
        if not self._unhandled:
            return None
        head = self._unhandled[0]
        started = [lane for lane in self._lanes.values() if lane.is_started]
        return next((lane for lane in started if lane.head.queue_offset == head), None)
