"""Send sequences: numbered sends of one producer to one queue are stored in the order of their numbers, or refused.

Many sends of a sequence may be in flight. A send that is not stored leaves a gap, and every later number of its
generation is refused, so that no send overtakes another. To go on, the producer starts the next generation at
number 0; sends of an older generation are refused. RocketMQ has no such check (docs/order.md 2).
"""

from typing import Final

from lockstep.broker.connection import Connection

__all__ = ["SendSequences"]

IDLE_LIFE_MS: Final = 600_000

SequenceKey = tuple[str, str, int]  # the request's lane id, topic and queue id


class _Sequence:
    __slots__ = ("connection", "generation", "last_used_ms", "next_sequence")

    def __init__(self, generation: int, connection: Connection) -> None:
        self.generation = generation
        self.next_sequence = 0
        self.connection = connection
        self.last_used_ms = 0


class SendSequences:
    """A table of at most `count_max` sequences."""

    def __init__(self, count_max: int, idle_life_ms: int = IDLE_LIFE_MS) -> None:
        self._sequences: dict[SequenceKey, _Sequence] = {}
        self._count_max = count_max
        self._idle_life_ms = idle_life_ms

    def __len__(self) -> int:
        return len(self._sequences)

    def refusal(
        self, key: SequenceKey, generation: int, sequence: int, connection: Connection, now_ms: int
    ) -> str | None:
        """The reason why a numbered send must not be stored; None when it may. Call `stored` after storing it."""
        entry = self._sequences.get(key)
        if entry is None or generation > entry.generation:
            entry = self._begin(key, generation, connection)
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

    def stored(self, key: SequenceKey) -> None:
        self._sequences[key].next_sequence += 1

    def failed(self, key: SequenceKey) -> None:
        """A stored send was lost: refuse every later number of its generation."""
        if key in self._sequences:
            self._sequences[key].next_sequence = -1

    def _begin(self, key: SequenceKey, generation: int, connection: Connection) -> _Sequence:
        if len(self._sequences) >= self._count_max:
            self._evict()
        entry = self._sequences[key] = _Sequence(generation, connection)
        return entry

    def _evict(self) -> None:
        """Remove a tenth: sequences of closed connections first, then those that were unused for the longest time."""
        entries = self._sequences
        candidates = sorted(entries, key=lambda key: (entries[key].connection.is_open, entries[key].last_used_ms))
        for key in candidates[: self._count_max // 10 + 1]:
            del entries[key]

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
