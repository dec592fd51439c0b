"""The log event of a reached limit."""

from typing import Final

from lockstep.remoting.logs import EventLog

__all__ = ["LimitLog"]

_AGAIN_MS: Final = 10_000  # a peer that repeats its request must not fill the log


class LimitLog:
    """Logs `limit_met` at most every 10 s for each setting, with the number of times since the last event."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._logged: dict[str, tuple[int, int]] = {}  # setting -> epoch ms of its last event, times since then

    def met(self, setting: str, maximum: int, now_ms: int, peer: str = "") -> None:
        logged_ms, times = self._logged.get(setting, (now_ms - _AGAIN_MS, 0))
        if now_ms - logged_ms < _AGAIN_MS:
            self._logged[setting] = (logged_ms, times + 1)
            return
        self._logged[setting] = (now_ms, 0)
        self._log.warning("limit_met", setting=setting, maximum=maximum, peer=peer, times=times + 1)
