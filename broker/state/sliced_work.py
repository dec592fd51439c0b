"""Long work of the event loop, cut into steps: others have their turn between them.

A job is a generator. It takes at most about a millisecond from one `yield` to the next; `yield wait` puts it aside
until what `wait` was given is called. Jobs of one key, a connection, are done in the order in which they came; the
keys take turns, and all together have few steps a turn of the loop. What a job raises ends that job alone: the loop
reports it, or `start` raises it when it was the first step.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Final

__all__ = ["STEPS_A_TURN", "SlicedWork", "Steps", "Wait"]

STEPS_A_TURN: Final = 10

Wait = Callable[[Callable[[], None]], None]
Steps = Generator[Wait | None, None, None]


class SlicedWork:
    """`soon` calls what it is given in the next turn of the loop. Without a loop all is done at once."""

    def __init__(self) -> None:
        self.soon: Callable[[Callable[[], None]], None] | None = None
        self._ready: dict[object, deque[Steps]] = {}  # in the order of their turns
        self._waiting: dict[object, deque[Steps]] = {}  # whose first job is put aside
        self._left = STEPS_A_TURN
        self._armed = False

    def count_of(self, key: object) -> int:
        """Jobs of a key that are not done yet."""
        return len(self._ready.get(key) or self._waiting.get(key) or ())

    def start(self, key: object, steps: Steps) -> None:
        """Do a job: its first step now, if nothing stands before it and this turn has room for it."""
        known = self._ready.get(key) or self._waiting.get(key)
        if known is not None:
            known.append(steps)
            return
        self._ready[key] = deque([steps])
        if self.soon is None:
            while key in self._ready:
                self._step(key)
            return
        try:
            if self._left:
                self._step(key)
        finally:
            self._arm()

    def _step(self, key: object) -> None:
        """One step of the first job of a key; the key is the last to have its next turn."""
        self._left -= 1
        jobs = self._ready.pop(key)
        wait, ended = None, True
        try:
            wait = next(jobs[0])
            ended = False
        except StopIteration:
            pass
        finally:  # a job that fails is done too; those behind it are not at fault
            if ended:
                jobs.popleft()
            if wait is not None:
                self._waiting[key] = jobs
            elif jobs:
                self._ready[key] = jobs
        if wait is not None:
            wait(lambda: self._resume(key))

    def _resume(self, key: object) -> None:
        jobs = self._waiting.pop(key, None)
        if jobs is not None:
            self._ready[key] = jobs
            self._arm()

    def _arm(self) -> None:
        if self.soon is not None and not self._armed:
            self._armed = True
            self.soon(self._turn)

    def _turn(self) -> None:
        self._armed = False
        self._left = STEPS_A_TURN
        try:
            while self._left and self._ready:
                self._step(next(iter(self._ready)))
        finally:
            if self._ready:
                self._arm()
