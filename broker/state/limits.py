"""What is logged when a table that peers fill has as much as it may have."""

from typing import Final

from lockstep.remoting.logs import EventLog

__all__ = ["LimitLog"]

_AGAIN_MS: Final = 10_000  # a peer that asks all day must not fill the log


class LimitLog:
    """One `limit_met` a setting in 10 s, with how often it was met since the last one."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._said: dict[str, tuple[int, int]] = {}  # setting -> when it was said last, times since

    def met(self, setting: str, maximum: int, now_ms: int, peer: str = "") -> None:
        said_ms, times = self._said.get(setting, (now_ms - _AGAIN_MS, 0))
        if now_ms - said_ms < _AGAIN_MS:
            self._said[setting] = (said_ms, times + 1)
            return
        self._said[setting] = (now_ms, 0)
        self._log.warning("limit_met", setting=setting, maximum=maximum, peer=peer, times=times + 1)
