"""Long work on the event loop, in steps, so that other work runs between them.

A job is a generator. A step, from one `yield` to the next, takes at most about a millisecond. `yield wait` suspends
the job until the callback that `wait` received is called. Jobs of one key, such as a connection, run in order; keys
take turns, with few steps in each turn of the loop. An exception ends only its job: the loop reports it, or `start`
raises it if it was the first step.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Final

__all__ = ["STEPS_A_TURN", "SlicedWork", "Steps", "Wait"]

STEPS_A_TURN: Final = 10

Wait = Callable[[Callable[[], None]], None]
Steps = Generator[Wait | None, None, None]


class SlicedWork:
    """Runs jobs. `soon` schedules a callback for the next turn of the loop; without it jobs run at once."""

    def __init__(self) -> None:
        self.soon: Callable[[Callable[[], None]], None] | None = None
        self._ready: dict[object, deque[Steps]] = {}  # in the order of their turns
        self._waiting: dict[object, deque[Steps]] = {}  # whose first job is suspended
        self._left = STEPS_A_TURN
        self._armed = False

    def count_of(self, key: object) -> int:
        """The number of unfinished jobs of a key."""
        return len(self._ready.get(key) or self._waiting.get(key) or ())

    def start(self, key: object, steps: Steps) -> None:
        """Add a job. Its first step runs now if its key has no other job and this turn has steps left."""
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
        """Run one step of the first job of a key, and move the key to the end of the line."""
        self._left -= 1
        jobs = self._ready.pop(key)
        wait, ended = None, True
        try:
            wait = next(jobs[0])
            ended = False
        except StopIteration:
            pass
        finally:
            # A failed job is finished too; later jobs of its key go on.
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
