"""Turns of the connections that have more to do: one in each round of the loop, however many wait."""

from collections import deque
from collections.abc import Callable
from typing import Final

from lockstep.remoting.host.runtime import Runtime

__all__ = ["Turns"]

_TURN_NS: Final = 1_000_000


class Turns:
    """All connections of a port share it.

    Without it each would have its turn in the same round, and twenty that flood would keep the loop for 20 ms.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting = deque[Callable[[], None]]()

    def ends_ns(self) -> int:
        """When a turn that begins now is over, by the monotonic clock."""
        return self._runtime.monotonic_ns() + _TURN_NS

    def is_over(self, ends_ns: int) -> bool:
        return self._runtime.monotonic_ns() > ends_ns

    def wait(self, then: Callable[[], None]) -> None:
        """Call `then` when those that came before have had their turns."""
        self._waiting.append(then)
        if len(self._waiting) == 1:
            self._runtime.call_later_ms(0, self._next)

    def now_or_wait(self, then: Callable[[], None]) -> None:
        """Call it at once if nobody waits."""
        if self._waiting:
            self.wait(then)
        else:
            then()

    def _next(self) -> None:
        then = self._waiting.popleft()
        if self._waiting:
            self._runtime.call_later_ms(0, self._next)
        then()
