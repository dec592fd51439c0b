"""Keeps full runs of Python's garbage collector short, however large the tables of a broker are.

A full run visits every object that may be part of a cycle, in one go: 150 ms with messages in 65,536 queues. What
survived a run that took long is frozen, so that later runs visit newer objects alone. A frozen object is still freed
when its last reference goes; only what becomes part of an unused cycle later stays. With uvloop a connection leaves no
cycle, with TLS or without. A transport of asyncio itself leaves one, so without uvloop the connections that are open
at that moment stay.
"""

import gc
from collections.abc import Callable
from typing import Final

__all__ = ["FullCollections"]

_FULL: Final = 2  # the generation of a full run
# Some 50,000 objects; until the next run come at least 70,000, or a quarter more.
_LONG_NS: Final = 5_000_000


class FullCollections:
    """`watch` begins. `freeze`: for tests."""

    def __init__(self, now_ns: Callable[[], int], freeze: Callable[[], None] = gc.freeze) -> None:
        self._now_ns = now_ns
        self._freeze = freeze
        self._began_ns = 0

    def watch(self) -> None:
        gc.callbacks.append(self.on_run)

    def on_run(self, phase: str, info: dict[str, int]) -> None:
        """Called by the collector when a run starts, and when it stops."""
        if info["generation"] != _FULL:
            return
        if phase == "start":
            self._began_ns = self._now_ns()
        elif self._now_ns() - self._began_ns > _LONG_NS:
            self._freeze()
