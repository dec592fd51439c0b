"""How much of a broker's time the index of keys takes (docs/store.md)."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from lockstep.remoting.host.runtime import Runtime
from lockstep.store.durability.indexer import KeyIndexer
from lockstep.store.file.store import FileStore

INTERVAL_MS = 500


class Parts:
    """A clock, a store and its index in one: a message takes `message_us`.

    `grows` says whether messages come, `asks` whether other requests do.
    """

    refusal = ""
    events = None

    def __init__(self, message_us: int, *, grows: bool = False, asks: bool = False) -> None:
        self.now_us = 0
        self.visible_end = 1
        self.counts: list[int] = []
        self.waits_ms: list[int] = []
        self.keys = self
        self._message_us, self.grows, self.asks = message_us, grows, asks
        self._next: Callable[[], None] = lambda: None
        self._indexer = KeyIndexer(cast("Runtime", self), cast("FileStore", self), INTERVAL_MS)
        self._indexer.start()

    def monotonic_ns(self) -> int:
        return self.now_us * 1000

    def call_later_ms(self, wait_ms: int, call: Callable[[], None]) -> Any:
        self.waits_ms.append(wait_ms)
        self._next = call

    def catch_up(self, _end: int, count_max: int) -> bool:
        self.counts.append(count_max)
        self.now_us += self._message_us * count_max
        return True

    def run(self, ticks: int) -> None:
        """So many pieces."""
        for _ in range(ticks):
            self.now_us += self.waits_ms[-1] * 1000
            self.visible_end += self.grows
            if self.asks:
                self._indexer.asked()
            self._next()

    def longest_ms(self, first: int) -> float:
        """Of the pieces from the number `first` on."""
        return max(self.counts[first:]) * self._message_us / 1000


@pytest.mark.parametrize("busy", [{"grows": True}, {"asks": True}])
def test_a_busy_broker_gives_it_a_twentieth_of_its_time(busy: dict[str, bool]) -> None:
    """Sends and other requests make it busy; however slow a shared machine is, pieces are short."""
    for message_us in (1, 10, 60, 1000):
        parts = Parts(message_us, **busy)
        parts.run(5)
        began_us, spent = parts.now_us, len(parts.counts)
        parts.run(200)
        share = sum(parts.counts[spent:]) * message_us / (parts.now_us - began_us)
        assert share <= 1 / 20
        assert parts.longest_ms(spent) <= max(2, 10 * message_us / 1000)


def test_pieces_of_a_busy_broker_have_a_maximum() -> None:
    """Where messages cost nothing, as on virtual time, and the pause has a minimum then."""
    parts = Parts(0, grows=True)
    parts.run(5)
    assert parts.counts == [100] * 5
    assert parts.waits_ms == [INTERVAL_MS, *[20] * 5]


def test_a_broker_is_idle_when_nothing_came_for_a_while() -> None:
    """On a busy machine a sender may be silent for some pieces: large pieces begin later, and end with a request."""
    parts = Parts(10, grows=True)
    parts.run(3)
    parts.grows = False
    parts.run(20)
    assert max(parts.counts[:8]) <= 100
    assert parts.counts[-3:] == [1000] * 3
    assert parts.waits_ms[-3:] == [20] * 3
    parts.asks = True
    parts.run(1)
    assert parts.counts[-1] <= 200


def test_a_piece_of_an_idle_broker_is_short_enough_for_the_next_request() -> None:
    """A request that comes in its midst waits some 10 ms, also where each message takes long."""
    parts = Parts(60)
    parts.run(50)
    assert parts.longest_ms(10) <= 10
    assert sum(parts.counts[10:]) * 60 / 1000 >= 5 * 40, "it uses the time that nobody needs"
