"""Held pops: calls that wait for a message, or for a queue that becomes free (docs/wire.md 18.1)."""

import heapq
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

from lockstep.broker.messages.held_room import HeldRoom
from lockstep.broker.peer import Peer
from lockstep.protocol.names import pop_retry_topic
from lockstep.remoting.logs import EventLog

__all__ = ["HeldCall", "HeldCalls"]

TopicOfGroup = tuple[str, str]  # topic, consumer group
# A call whose peer does not take its answers is tried again after so long.
_NOT_READ_RETRY_MS: Final = 1000
_HEAP_SLACK: Final = 64


def _stays() -> bool:
    return False


class HeldCall(NamedTuple):
    """A call that waits.

    Args:
        queue_id: -1: any.
        wants: What it asks for: of equal calls one that finds nothing speaks for all.
        answer: Tries again at a time in epoch ms; must answer if the last argument says that the wait is over. Returns
            whether it has answered.
        end: Ends the call at a time in epoch ms, whatever there is: its client wants no messages any more.
        is_gone: Whether nobody waits any more.
    """

    peer: Peer
    topic: str
    consumer_group: str
    queue_id: int
    deadline_ms: int
    wants: Hashable
    answer: Callable[[int, bool], bool]
    end: Callable[[int], None]
    is_gone: Callable[[], bool] = _stays


class HeldCalls:
    """The table of held calls.

    Attributes:
        room: How many are held.
        waiting: Topic that calls read, which may be a group's retry topic -> whose calls.
        woken: (topic, group) of calls that are to be tried now.
        next_due_ms: Epoch ms when one must be tried again; None: never.

    Args:
        per_peer_max: The limit for one connection.
        held_max: The limit for all; 0: none.
        next_visible_ms: When something that is held in a topic of a group becomes visible; None: nothing is held.
    """

    def __init__(
        self, per_peer_max: int, held_max: int, next_visible_ms: Callable[[str, str, int], int | None], log: EventLog
    ) -> None:
        self._log = log
        self.room = HeldRoom(per_peer_max, held_max)
        self._next_visible_ms = next_visible_ms
        self._held: dict[TopicOfGroup, list[HeldCall]] = {}
        self.waiting: dict[str, set[TopicOfGroup]] = {}
        self._due_ms: dict[TopicOfGroup, int] = {}
        self._heap: list[tuple[int, TopicOfGroup]] = []  # also with times that hold no more
        self.woken: dict[TopicOfGroup, None] = {}

    def __len__(self) -> int:
        return len(self.room)

    def count_of(self, topic: str, consumer_group: str, queue_id: int) -> int:
        """How many calls wait for a queue; for -1 those that wait for any."""
        return sum(call.queue_id == queue_id for call in self._held.get((topic, consumer_group), ()))

    def park(self, call: HeldCall, now_ms: int) -> bool:
        """Hold a call. Returns False when a limit is reached."""
        if not self.room.take(call.peer):
            return False
        key = (call.topic, call.consumer_group)
        self._held.setdefault(key, []).append(call)
        for topic in _read_topics(key):
            self.waiting.setdefault(topic, set()).add(key)
        self.wake_at(*key, call.deadline_ms)
        self._wake_when_visible(key, now_ms)
        return True

    def wake_at(self, topic: str, consumer_group: str, at_ms: int) -> None:
        """Try the calls for a topic of a group again at this time, or earlier."""
        key = (topic, consumer_group)
        if key in self._held and at_ms < self._due_ms.get(key, at_ms + 1):
            self._due_ms[key] = at_ms
            if len(self._heap) > 2 * len(self._due_ms) + _HEAP_SLACK:
                # Mostly times that hold no more.
                self._heap = [(due_ms, one) for one, due_ms in self._due_ms.items() if one != key]
                heapq.heapify(self._heap)
            heapq.heappush(self._heap, (at_ms, key))

    def _wake_when_visible(self, key: TopicOfGroup, now_ms: int) -> None:
        visible_ms = self._next_visible_ms(*key, now_ms)
        if visible_ms is not None:
            self.wake_at(*key, visible_ms)

    @property
    def next_due_ms(self) -> int | None:
        while self._heap and self._due_ms.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def on_stored(self, topic: str) -> None:
        """A message can be read. Costs one look-up if no call waits for the topic."""
        for key in self.waiting.get(topic, ()):
            self.woken[key] = None

    def on_free(self, topic: str, consumer_group: str) -> None:
        """Something that held up a queue has ended."""
        if (topic, consumer_group) in self._held:
            self.woken[topic, consumer_group] = None

    def run(self, now_ms: int) -> None:
        """Try again the calls that were woken, or are due, oldest first."""
        while (due_ms := self.next_due_ms) is not None and due_ms <= now_ms:
            key = heapq.heappop(self._heap)[1]
            del self._due_ms[key]
            self.woken[key] = None
        woken, self.woken = self.woken, {}
        for key in woken:
            self._keep(key, self._tried(self._held.get(key, []), now_ms))
            for call in self._held.get(key, ()):
                self.wake_at(*key, max(call.deadline_ms, now_ms + _NOT_READ_RETRY_MS))
            self._wake_when_visible(key, now_ms)

    def _tried(self, calls: list[HeldCall], now_ms: int) -> list[HeldCall]:
        """Calls that wait on. A peer that does not take its answers gets no more of them."""
        kept, found_nothing = list[HeldCall](), set[Hashable]()
        for call in calls:
            # A call that nobody waits for takes no room until its deadline, and says nothing for the others.
            is_over = now_ms >= call.deadline_ms or call.is_gone()
            wants = (call.queue_id, call.wants)
            if call.peer.write_paused:
                kept.append(call)
            elif (wants in found_nothing and not is_over) or not self._is_answered(call, now_ms, is_over):
                kept.append(call)
                found_nothing.add(wants)
        return kept

    def _is_answered(self, call: HeldCall, now_ms: int, is_over: bool) -> bool:
        try:
            if call.is_gone():
                call.end(now_ms)
                return True
            return call.answer(now_ms, is_over)
        # A fault of ours in one call ends that client's connection, and no other call.
        except Exception as error:
            self._log.error("held_call_failed", peer=call.peer.address, exc_info=error)
            call.peer.abort("a fault of the broker")
            return True

    def _keep(self, key: TopicOfGroup, kept: list[HeldCall]) -> None:
        left = set(map(id, kept))
        for call in self._held.pop(key, ()):
            if id(call) not in left:
                self.room.give_back(call.peer)
        if kept:
            self._held[key] = kept
            return
        self._due_ms.pop(key, None)
        for topic in _read_topics(key):
            keys = self.waiting.get(topic, set())
            keys.discard(key)
            if not keys:
                self.waiting.pop(topic, None)

    def on_left(self, peer: Peer, consumer_group: str, now_ms: int) -> None:
        """A client left the group: its calls end, because what they would get, nobody would handle."""
        for call in self._taken(peer, consumer_group):
            call.end(now_ms)

    def on_closed(self, peer: Peer) -> None:
        """Remove the calls of a closed connection."""
        self._taken(peer)

    def _taken(self, peer: Peer, consumer_group: str | None = None) -> list[HeldCall]:
        """Remove the calls of a connection, for one group or for all. Returns them."""
        taken = list[HeldCall]()
        if self.room.of(peer):
            for key, calls in list(self._held.items()):
                if consumer_group in (None, key[1]) and (of_peer := [call for call in calls if call.peer is peer]):
                    self._keep(key, [call for call in calls if call.peer is not peer])
                    taken += of_peer
        return taken


def _read_topics(key: TopicOfGroup) -> tuple[str, str]:
    """A pop reads the topic, and what was not acknowledged of it."""
    topic, consumer_group = key
    return topic, pop_retry_topic(consumer_group, topic)
