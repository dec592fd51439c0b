"""Which brokers to leave alone for a while after they were slow or failed (wire.md 12.11).

Only sends that may go to any queue ask, and only with `send_latency_fault_enable`. Plain and synchronous: callers
say what time it is.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lockstep.protocol.model import MessageQueue

__all__ = ["LATENCY_MAX_MS", "NOT_AVAILABLE_MS", "FaultItem", "FaultLatency"]

LATENCY_MAX_MS = (50, 100, 550, 1000, 2000, 3000, 15_000)
NOT_AVAILABLE_MS = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
_LATENCY_OF_A_FAILURE_MS = 30_000


@dataclass(slots=True)
class FaultItem:
    """What is known of a broker; it is left alone before `available_from_ms`."""

    broker_name: str
    latency_ms: int
    available_from_ms: int


class FaultLatency:
    """The n-th of `latency_max_ms` is the least latency after which a broker is left alone for the n-th of
    `not_available_ms`."""

    def __init__(
        self,
        rng: random.Random,
        *,
        latency_max_ms: Sequence[int] = LATENCY_MAX_MS,
        not_available_ms: Sequence[int] = NOT_AVAILABLE_MS,
    ) -> None:
        assert len(latency_max_ms) == len(not_available_ms)
        self._rng = rng
        self._steps = sorted(zip(latency_max_ms, not_available_ms, strict=True), reverse=True)
        self._items: dict[str, FaultItem] = {}
        self._turn = rng.randrange(1 << 16)

    def update(self, broker_name: str, latency_ms: int, now_ms: int, *, failed: bool = False) -> None:
        """A send to the broker took so long. One that failed counts as 30 s, so as ten minutes away."""
        pause_ms = self.pause_ms(_LATENCY_OF_A_FAILURE_MS if failed else latency_ms)
        self._items[broker_name] = FaultItem(broker_name, latency_ms, now_ms + pause_ms)

    def pause_ms(self, latency_ms: int) -> int:
        for least_ms, not_available_ms in self._steps:
            if latency_ms >= least_ms:
                return not_available_ms
        return 0

    def is_available(self, broker_name: str, now_ms: int) -> bool:
        item = self._items.get(broker_name)
        return item is None or now_ms >= item.available_from_ms

    def choose(self, queues: Sequence[MessageQueue], turn: Callable[[], int], now_ms: int) -> MessageQueue:
        """The next queue in turn whose broker is available; when none is, one of a broker of the better half."""
        start = turn()
        for i in range(len(queues)):
            queue = queues[(start + i) % len(queues)]
            if self.is_available(queue.broker_name, now_ms):
                return queue
        better = self.pick_one_at_least(now_ms)
        assert better is not None, "a broker that is not available is known"
        own = [queue for queue in queues if queue.broker_name == better]
        if own:
            return own[turn() % len(own)]
        self._items.pop(better)  # none of the topic's: nobody would send there, and so learn that it is well again
        return queues[turn() % len(queues)]

    def pick_one_at_least(self, now_ms: int) -> str | None:
        """In turn, a broker of the better half of those known: available ones first, then fast ones, then those
        that are back soonest."""
        items = list(self._items.values())
        self._rng.shuffle(items)  # equals take turns, too
        items.sort(key=lambda item: (now_ms < item.available_from_ms, item.latency_ms, item.available_from_ms))
        if not items:
            return None
        self._turn += 1
        return items[self._turn % max(len(items) // 2, 1)].broker_name
