"""How much of a broker's time the index of keys takes (docs/store.md)."""

from collections.abc import Callable
from typing import Any, cast

from lockstep.remoting.host.runtime import Runtime
from lockstep.store.file.store import FileStore
from lockstep.store.keys.indexer import KeyIndexer

INTERVAL_MS = 500


class Parts:
    """A clock, a store and its index in one: each piece takes `piece_ms`; `grows` says whether messages come."""

    refusal = ""
    events = None

    def __init__(self, piece_ms: int, *, grows: bool = True) -> None:
        self.now_ms = 0
        self.visible_end = 1
        self.counts: list[int] = []
        self.waits_ms: list[int] = []
        self.keys = self
        self._piece_ms, self._grows = piece_ms, grows
        self._next: Callable[[], None] = lambda: None

    def monotonic_ns(self) -> int:
        return self.now_ms * 1_000_000

    def call_later_ms(self, wait_ms: int, call: Callable[[], None]) -> Any:
        self.waits_ms.append(wait_ms)
        self._next = call

    def catch_up(self, _end: int, count_max: int) -> bool:
        self.counts.append(count_max)
        self.now_ms += self._piece_ms
        return True

    def run(self, ticks: int) -> None:
        """So many pieces."""
        KeyIndexer(cast("Runtime", self), cast("FileStore", self), INTERVAL_MS).start()
        for _ in range(ticks):
            self.now_ms += self.waits_ms[-1]
            self.visible_end += self._grows
            self._next()


def test_a_busy_broker_gives_it_a_twentieth_of_its_time() -> None:
    """However long a piece takes on a shared machine; the pause has a maximum."""
    for piece_ms, pause_ms in ((0, 20), (1, 20), (2, 38), (10, 190), (100, INTERVAL_MS)):
        parts = Parts(piece_ms)
        parts.run(5)
        assert parts.waits_ms == [INTERVAL_MS, *[pause_ms] * 5]
        assert parts.counts == [100] * 5


def test_a_broker_is_idle_when_nothing_came_for_a_while() -> None:
    """On a busy machine a sender may be silent for some pieces: large pieces begin later."""
    parts = Parts(2, grows=False)
    parts.run(9)
    assert parts.counts == [100] * 5 + [1000] * 4
    assert parts.waits_ms[-3:] == [20] * 3
