"""When messages came into the cache of a queue. Only kept for metrics."""

from bisect import bisect_left
from typing import Final

__all__ = ["Arrivals"]

_PULLS_KEPT_MAX: Final = 4096


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
