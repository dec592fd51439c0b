"""Send sequences: numbered sends of one producer to one queue are stored in the order of their numbers, or refused.

Many sends of a sequence may be in flight. A send that is not stored leaves a gap, and every later number of its
generation is refused, so that no send overtakes another. To go on, the producer starts the next generation at
number 0; sends of an older generation are refused. RocketMQ has no such check (docs/order.md 2).
"""

from itertools import islice
from typing import Final

from lockstep.broker.peer import Peer

__all__ = ["SendSequences", "Sequence", "SequenceKey"]

IDLE_LIFE_MS: Final = 600_000
_LOOKED_AT_MAX: Final = 1000
# Of a sender id and a topic: a header of 256 KiB must not stay in the table.
_NAMES_LENGTH_MAX: Final = 1024

SequenceKey = tuple[str, str, int]  # the request's sender id, topic and queue id


class Sequence:
    """The sends of one producer to one queue. Of `generation` the send with `next_sequence` may be stored next."""

    __slots__ = ("connection", "generation", "last_used_ms", "next_sequence")

    def __init__(self, generation: int, connection: Peer) -> None:
        self.generation = generation
        self.next_sequence = 0
        self.connection = connection
        self.last_used_ms = 0

    def took(self, count: int, connection: Peer, now_ms: int) -> None:
        """So many sends of a connection were stored in their turn."""
        self.next_sequence += count
        self.connection = connection
        self.last_used_ms = now_ms


class SendSequences:
    """A table of at most `count_max` sequences."""

    def __init__(self, count_max: int, idle_life_ms: int = IDLE_LIFE_MS) -> None:
        self._sequences: dict[SequenceKey, Sequence] = {}
        self._count_max = count_max
        self._idle_life_ms = idle_life_ms

    def __len__(self) -> int:
        return len(self._sequences)

    def refusal(self, key: SequenceKey, generation: int, sequence: int, connection: Peer, now_ms: int) -> str | None:
        """The reason why a numbered send must not be stored; None when it may. Call `stored` after storing it."""
        entry = self._sequences.get(key)
        if entry is None:
            if len(key[0]) + len(key[1]) > _NAMES_LENGTH_MAX:
                return f"a sender id and a topic may have {_NAMES_LENGTH_MAX} characters together"
            entry = self._begin(key, generation, connection)
        elif generation > entry.generation:
            # Change the object that is there: a frame of sends keeps it.
            entry.generation, entry.next_sequence = generation, 0
        entry.last_used_ms = now_ms
        entry.connection = connection
        if generation < entry.generation:
            return f"generation {generation} has ended; the sequence is at generation {entry.generation}"
        expected = entry.next_sequence
        if sequence == expected:
            return None
        if sequence < expected:
            return f"number {sequence} is stored already; the next of generation {generation} is {expected}"
        return f"number {sequence} would overtake {expected}, which was not stored"

    def of(self, key: SequenceKey) -> Sequence:
        """The sequence for which `refusal` returned None. Increase its `next_sequence` for each send that is stored."""
        return self._sequences[key]

    def find(self, key: SequenceKey, generation: int) -> Sequence | None:
        """The sequence if it is at this generation, and no send of it was lost."""
        entry = self._sequences.get(key)
        is_there = entry is not None and entry.generation == generation and entry.next_sequence >= 0
        return entry if is_there else None

    def stored(self, key: SequenceKey) -> None:
        self._sequences[key].next_sequence += 1

    def failed(self, key: SequenceKey, generation: int) -> None:
        """A stored send was lost: refuse every later number of its generation."""
        entry = self._sequences.get(key)
        if entry is not None and entry.generation == generation:
            entry.next_sequence = -1

    def _begin(self, key: SequenceKey, generation: int, connection: Peer) -> Sequence:
        if len(self._sequences) >= self._count_max:
            self._evict()
        entry = self._sequences[key] = Sequence(generation, connection)
        return entry

    def _evict(self) -> None:
        """Look at the next thousand and remove a tenth of them, or of a smaller table a tenth.

        Those of closed connections go first, then those that were unused for the longest time. The others are looked
        at again after all the rest. To sort a whole table of 100,000 would keep the loop for 70 ms.
        """
        entries = self._sequences
        seen = [(key, entries[key]) for key in islice(entries, _LOOKED_AT_MAX)]
        seen.sort(key=lambda one: (one[1].connection.is_open, one[1].last_used_ms))
        kept_from = min(len(seen), self._count_max) // 10 + 1
        for key, _ in seen:
            del entries[key]
        entries.update(seen[kept_from:])

    def expire(self, now_ms: int) -> int:
        """Remove sequences of closed connections that were unused for ten minutes. Returns how many."""
        idle = [
            key
            for key, entry in self._sequences.items()
            if now_ms - entry.last_used_ms >= self._idle_life_ms and not entry.connection.is_open
        ]
        for key in idle:
            del self._sequences[key]
        return len(idle)
