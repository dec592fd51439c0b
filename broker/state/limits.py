"""The log event of a reached limit, and the bound of such events."""

from collections.abc import Hashable
from typing import Final

from lockstep.remoting.logs import EventLog

__all__ = ["EventThrottle", "LimitLog"]

_AGAIN_MS: Final = 10_000  # a peer that repeats its request must not fill the log


class EventThrottle:
    """Lets at most one event each 10 s pass for each key. The keys must be few."""

    def __init__(self) -> None:
        self._logged: dict[Hashable, tuple[int, int]] = {}  # key -> epoch ms of its last event, times since then

    def times(self, key: Hashable, now_ms: int) -> int:
        """Returns how many times it happened since the last event, this time included; 0: log nothing now."""
        logged_ms, times = self._logged.get(key, (now_ms - _AGAIN_MS, 0))
        if now_ms - logged_ms < _AGAIN_MS:
            self._logged[key] = (logged_ms, times + 1)
            return 0
        self._logged[key] = (now_ms, 0)
        return times + 1


class LimitLog:
    """Logs `limit_met` at most every 10 s for each setting, with the number of times since the last event."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._throttle = EventThrottle()

    def met(self, setting: str, maximum: int, now_ms: int, peer: str = "") -> None:
        times = self._throttle.times(setting, now_ms)
        if times:
            self._log.warning("limit_met", setting=setting, maximum=maximum, peer=peer, times=times)
