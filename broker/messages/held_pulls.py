"""Held pulls: a long poll is an entry in a table, not a task (wire.md 6.4).

Each stored message marks its queue and tag. At the end of a read the held pulls that match are taken out, each once,
however many messages were stored.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from lockstep.broker.messages.filters import Wanted
from lockstep.broker.messages.held_room import HeldRoom
from lockstep.broker.messages.pull_answers import PullAnswer
from lockstep.broker.ownership.claim import Claim
from lockstep.broker.peer import Peer
from lockstep.protocol.messages.message import text_bytes

__all__ = ["HeldPull", "PullHold", "QueueKey"]

# Of properties: to look at them for each of thousands of pulls would keep the loop.
_LONG_TEXT_BYTES: Final = 4096

QueueKey = tuple[str, int]  # topic, queue id
MessageOf = Callable[[str, int, int], bytes]  # of a topic, a queue id, a queue offset


class HeldPull(NamedTuple):
    """A pull that waits. Of its request it keeps nothing that may be long.

    Args:
        then: Called once, with its answer.
        claim: For a later check of its owner; None: there is none.
        bulk: The limit in messages does not hold.
    """

    peer: Peer
    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_messages: int
    wanted: Wanted
    deadline_ms: int
    then: Callable[[PullAnswer], None]
    claim: Claim | None = None
    bulk: bool = False


class PullHold:
    """The table of held pulls. `room`: how many are held.

    Args:
        held_per_connection_max: The limit for one connection.
        held_max: The limit for all connections; 0: none.
    """

    def __init__(self, held_per_connection_max: int, held_max: int = 0) -> None:
        self.room = HeldRoom(held_per_connection_max, held_max)
        self._held: dict[QueueKey, list[HeldPull]] = {}
        self._keys: dict[Peer, dict[QueueKey, int]] = {}  # held pulls of a connection, by queue
        self._arrived: dict[QueueKey, list[tuple[int, int]]] = {}  # (queue offset, tag hash) since take_arrived

    def __len__(self) -> int:
        return len(self.room)

    def park(self, pull: HeldPull) -> bool:
        """Hold a pull. Returns False when a limit is reached."""
        if not self.room.take(pull.peer):
            return False
        key = (pull.topic, pull.queue_id)
        keys = self._keys.setdefault(pull.peer, {})
        keys[key] = keys.get(key, 0) + 1
        self._held.setdefault(key, []).append(pull)
        return True

    def waits_for(self, topic: str, queue_id: int) -> bool:
        """Whether a pull waits for the queue, so that `on_arrival` must be called."""
        return (topic, queue_id) in self._held

    def on_arrival(self, topic: str, queue_id: int, queue_offset: int, tags_code: int) -> None:
        """A message was stored. Costs one look-up if no pull waits for the queue."""
        key = (topic, queue_id)
        if key in self._held:
            self._arrived.setdefault(key, []).append((queue_offset, tags_code))

    @property
    def has_arrivals(self) -> bool:
        return bool(self._arrived)

    def take_arrived(self, message_of: MessageOf) -> list[HeldPull]:
        """Take out the pulls that match a message stored since the last call, oldest first in each queue.

        A pull whose connection does not read its answers stays until a later sweep.

        Args:
            message_of: Reads a message, for filters that need it.
        """
        arrived, self._arrived = self._arrived, {}
        return [pull for key, messages in arrived.items() for pull in self._take(key, messages, message_of)]

    def _take(self, key: QueueKey, messages: list[tuple[int, int]], message_of: MessageOf) -> Iterator[HeldPull]:
        kept = []
        for pull in self._held.pop(key, ()):
            if not pull.peer.write_paused and _is_for(pull, key, messages, message_of):
                yield self._forget(pull)
            else:
                kept.append(pull)
        if kept:
            self._held[key] = kept

    def sweep(self, now_ms: int, max_offset_of: Callable[[str, int], int]) -> list[HeldPull]:
        """Take out the pulls with newer messages of any tag, and those past their deadline."""
        due: list[HeldPull] = []
        for key, pulls in list(self._held.items()):
            max_offset = max_offset_of(*key)
            of_queue = [pull for pull in pulls if _is_due(now_ms, max_offset, pull)]
            if not of_queue:
                continue
            if len(of_queue) == len(pulls):
                del self._held[key]
            else:
                self._held[key] = [pull for pull in pulls if not _is_due(now_ms, max_offset, pull)]
            due += map(self._forget, of_queue)
        return due

    def take(self, key: QueueKey, wanted: Callable[[HeldPull], bool]) -> list[HeldPull]:
        """Take out the pulls of a queue that are `wanted`, oldest first."""
        taken, kept = list[HeldPull](), list[HeldPull]()
        for pull in self._held.pop(key, ()):
            (taken if wanted(pull) else kept).append(pull)
        if kept:
            self._held[key] = kept
        for pull in taken:
            self._forget(pull)
        return taken

    def has(self, key: QueueKey) -> bool:
        """Whether pulls of a queue are held."""
        return key in self._held

    def keys_of(self, peer: Peer) -> list[QueueKey]:
        """The queues for which a connection has held pulls."""
        return list(self._keys.get(peer, ()))

    def on_closed(self, peer: Peer) -> None:
        """Remove the pulls of a closed connection."""
        self.room.give_back(peer, self.room.of(peer))
        for key in self._keys.pop(peer, ()):
            kept = [pull for pull in self._held[key] if pull.peer is not peer]
            if kept:
                self._held[key] = kept
            else:
                del self._held[key]

    def _forget(self, pull: HeldPull) -> HeldPull:
        peer, key = pull.peer, (pull.topic, pull.queue_id)
        keys = self._keys[peer]
        self.room.give_back(peer)
        keys[key] -= 1
        if not keys[key]:
            del keys[key]
        if not keys:
            del self._keys[peer]
        return pull


def _is_due(now_ms: int, max_offset: int, pull: HeldPull) -> bool:
    return (max_offset > pull.queue_offset or now_ms >= pull.deadline_ms) and not pull.peer.write_paused


def _is_for(pull: HeldPull, key: QueueKey, messages: list[tuple[int, int]], message_of: MessageOf) -> bool:
    new = [message for message in messages if message[0] >= pull.queue_offset]
    subscription, passes = pull.wanted
    if passes is None:
        return any(subscription.matches_code(code) for _, code in new)
    # With more new messages than one read may filter, answer the pull: the read moves its offset on.
    if len(new) > passes.entries_max:
        return True
    for at, _ in new:
        message = message_of(*key, at)
        is_long = bool(message) and text_bytes(message) > _LONG_TEXT_BYTES
        if is_long or passes.matches(message):
            return True
    return False
