"""Send lanes: the sends of one producer to one queue are stored in the order they were numbered in, or not at all.

Many numbered sends of a lane may be in flight. One that is not stored leaves a hole, and every later number of its
generation is refused, so nothing overtakes. A producer that gives a generation up starts the next one at 0; what
still arrives of an older one is refused. This is ours: RocketMQ has no such check (docs/order.md 2).
"""

from typing import Final

from lockstep.broker.connection import Connection

__all__ = ["SendLanes"]

IDLE_LIFE_MS: Final = 600_000

LaneKey = tuple[str, str, int]  # lane id, topic, queue id as the producer named them


class _Lane:
    __slots__ = ("connection", "generation", "last_used_ms", "next_sequence")

    def __init__(self, generation: int, connection: Connection) -> None:
        self.generation = generation
        self.next_sequence = 0
        self.connection = connection
        self.last_used_ms = 0


class SendLanes:
    def __init__(self, lanes_max: int, idle_life_ms: int = IDLE_LIFE_MS) -> None:
        self._lanes: dict[LaneKey, _Lane] = {}
        self._lanes_max = lanes_max
        self._idle_life_ms = idle_life_ms

    def __len__(self) -> int:
        return len(self._lanes)

    def refusal(self, key: LaneKey, generation: int, sequence: int, connection: Connection, now_ms: int) -> str | None:
        """Why a numbered send must not be stored; None when it may. What was stored is then told to `stored`."""
        lane = self._lanes.get(key)
        if lane is None or generation > lane.generation:
            lane = self._begin(key, generation, connection)
        lane.last_used_ms = now_ms
        lane.connection = connection
        if generation < lane.generation:
            return f"generation {generation} was given up; the lane is at generation {lane.generation}"
        expected = lane.next_sequence
        if sequence == expected:
            return None
        if sequence < expected:
            return f"sequence {sequence} is stored already; the next of generation {generation} is {expected}"
        return f"sequence {sequence} would overtake {expected}, which was not stored"

    def stored(self, key: LaneKey) -> None:
        self._lanes[key].next_sequence += 1

    def failed(self, key: LaneKey) -> None:
        """What was told as stored was lost: a hole, so every later number of the generation is refused."""
        if key in self._lanes:
            self._lanes[key].next_sequence = -1

    def _begin(self, key: LaneKey, generation: int, connection: Connection) -> _Lane:
        if len(self._lanes) >= self._lanes_max:
            self._make_room()
        lane = self._lanes[key] = _Lane(generation, connection)
        return lane

    def _make_room(self) -> None:
        """Forget a tenth: lanes whose connection has gone first, then those that were not used for longest."""
        by_worth = sorted(
            self._lanes, key=lambda key: (self._lanes[key].connection.is_open, self._lanes[key].last_used_ms)
        )
        for key in by_worth[: self._lanes_max // 10 + 1]:
            del self._lanes[key]

    def expire(self, now_ms: int) -> int:
        """Forget lanes whose connection has gone and which nobody used for ten minutes. Returns how many."""
        idle = [
            key
            for key, lane in self._lanes.items()
            if now_ms - lane.last_used_ms >= self._idle_life_ms and not lane.connection.is_open
        ]
        for key in idle:
            del self._lanes[key]
        return len(idle)
