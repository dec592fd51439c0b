"""Parked pulls: a long poll is an entry in a table, not a task (wire.md 6.4).

Sends mark their queue and tag while a read is worked on; at its end the parked pulls that these may satisfy are
taken out, each once, however many messages came.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from lockstep.broker.connection import Connection
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.command import RemotingCommand
from lockstep.store import Passes

__all__ = ["HeldPull", "PullHold"]

QueueKey = tuple[str, int]  # topic, queue id
MessageOf = Callable[[str, int, int], bytes]  # of a topic, a queue id, a queue offset


class HeldPull(NamedTuple):
    """`passes`: what decides instead of tags, of a message in the stored layout."""

    connection: Connection
    command: RemotingCommand
    topic: str
    queue_id: int
    queue_offset: int
    max_msg_nums: int
    subscription: SubscriptionData
    deadline_ms: int
    consumer_group: str = ""
    passes: Passes | None = None


class PullHold:
    def __init__(self, held_per_connection_max: int, held_max: int = 0) -> None:
        """`held_max` is of all connections; 0 is no bound."""
        self._held_max = held_max
        self._held_count = 0
        self._held: dict[QueueKey, list[HeldPull]] = {}
        self._keys: dict[Connection, dict[QueueKey, int]] = {}  # how many pulls of a queue a connection has parked
        self._counts: dict[Connection, int] = {}
        self._held_per_connection_max = held_per_connection_max
        self._arrived: dict[QueueKey, list[tuple[int, int]]] = {}  # (queue offset, tag hash) since take_arrived

    def __len__(self) -> int:
        return self._held_count

    def park(self, pull: HeldPull) -> bool:
        """False when its connection, or all together, have too many parked already."""
        count = self._counts.get(pull.connection, 0)
        if count >= self._held_per_connection_max or 0 < self._held_max <= self._held_count:
            return False
        self._counts[pull.connection] = count + 1
        self._held_count += 1
        key = (pull.topic, pull.queue_id)
        keys = self._keys.setdefault(pull.connection, {})
        keys[key] = keys.get(key, 0) + 1
        self._held.setdefault(key, []).append(pull)
        return True

    def on_arrival(self, topic: str, queue_id: int, queue_offset: int, tags_code: int) -> None:
        """A message was stored. Costs one look-up when nobody waits for the queue."""
        key = (topic, queue_id)
        if key in self._held:
            self._arrived.setdefault(key, []).append((queue_offset, tags_code))

    @property
    def has_arrivals(self) -> bool:
        return bool(self._arrived)

    def take_arrived(self, message_of: MessageOf) -> list[HeldPull]:
        """Pulls whose filter passes a message that arrived since the last call, taken out; oldest first a queue.

        `message_of` reads one for a filter that must see it. A pull whose peer does not take what we write stays: the
        next sweep tries again.
        """
        arrived, self._arrived = self._arrived, {}
        return [pull for key, messages in arrived.items() for pull in self._take(key, messages, message_of)]

    def _take(self, key: QueueKey, messages: list[tuple[int, int]], message_of: MessageOf) -> Iterator[HeldPull]:
        kept = []
        for pull in self._held.pop(key, ()):
            if not pull.connection.write_paused and _is_for(pull, key, messages, message_of):
                yield self._forget(pull)
            else:
                kept.append(pull)
        if kept:
            self._held[key] = kept

    def sweep(self, now_ms: int, max_offset_of: Callable[[str, int], int]) -> list[HeldPull]:
        """Pulls with newer data of whatever tag, or past their deadline, taken out."""
        due = []
        for key in list(self._held):
            kept = []
            max_offset = max_offset_of(*key)
            for pull in self._held.pop(key):
                wake = max_offset > pull.queue_offset or now_ms >= pull.deadline_ms
                if wake and not pull.connection.write_paused:
                    due.append(self._forget(pull))
                else:
                    kept.append(pull)
            if kept:
                self._held[key] = kept
        return due

    def on_closed(self, connection: Connection) -> None:
        """Forget the pulls of a connection that has gone."""
        self._held_count -= self._counts.pop(connection, 0)
        for key in self._keys.pop(connection, ()):
            kept = [pull for pull in self._held[key] if pull.connection is not connection]
            if kept:
                self._held[key] = kept
            else:
                del self._held[key]

    def _forget(self, pull: HeldPull) -> HeldPull:
        connection, key = pull.connection, (pull.topic, pull.queue_id)
        keys = self._keys[connection]
        self._held_count -= 1
        self._counts[connection] -= 1
        keys[key] -= 1
        if not keys[key]:
            del keys[key]
        if not keys:
            del self._keys[connection]
            del self._counts[connection]
        return pull


def _is_for(pull: HeldPull, key: QueueKey, messages: list[tuple[int, int]], message_of: MessageOf) -> bool:
    new = [message for message in messages if message[0] >= pull.queue_offset]
    passes = pull.passes
    if passes is None:
        return any(pull.subscription.matches_code(code) for _, code in new)
    # Of more than it may be shown at once the read itself looks at the first, and moves the pull on.
    return len(new) > passes.entries_max or any(passes.matches(message_of(*key, at)) for at, _ in new)
