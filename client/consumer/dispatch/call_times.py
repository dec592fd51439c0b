"""How long calls of a listener take, and how long messages wait for them. Only kept for metrics."""

from bisect import bisect_left
from typing import Final

from lockstep.client.histogram import Histogram

__all__ = ["Arrivals", "CallTimes"]

# Those of RocketMQ 5's clients, in ms.
_PROCESS_MS: Final = (1.0, 5.0, 10.0, 100.0, 1000.0, 10_000.0, 60_000.0)
_AWAIT_MS: Final = (1.0, 5.0, 20.0, 100.0, 1000.0, 5000.0, 10_000.0)
_PULLS_KEPT_MAX: Final = 4096


class CallTimes:
    """The calls of one topic since the start.

    Attributes:
        handled, failed: how long they took, by their result.
        waits: from the arrival of a call's first message to the begin of the call.
    """

    __slots__ = ("failed", "handled", "waits")

    def __init__(self) -> None:
        self.handled = Histogram(_PROCESS_MS)
        self.failed = Histogram(_PROCESS_MS)
        self.waits = Histogram(_AWAIT_MS)


class Arrivals:
    """When the cached messages of a queue arrived: an entry a pull, in order of offsets."""

    __slots__ = ("_last_offsets", "_times")

    def __init__(self) -> None:
        self._last_offsets: list[int] = []
        self._times: list[int] = []

    def pulled(self, last_offset: int, now_ms: int) -> None:
        if len(self._times) == _PULLS_KEPT_MAX:
            # Those of the first half were handled long ago.
            del self._last_offsets[: _PULLS_KEPT_MAX // 2], self._times[: _PULLS_KEPT_MAX // 2]
        self._last_offsets.append(last_offset)
        self._times.append(now_ms)

    def waited_ms(self, offset: int, now_ms: int) -> int:
        place = bisect_left(self._last_offsets, offset)
        return max(now_ms - self._times[place], 0) if place < len(self._times) else 0
