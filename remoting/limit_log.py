"""Limits that are reached: counted each time, and logged now and then."""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final

from lockstep.remoting.logs import EventLog

__all__ = ["EventThrottle", "LimitLog", "PeerEvents"]

# A peer that repeats its request must not fill the log.
_AGAIN_MS: Final = 10_000
_LIMIT_AGAIN_MS: Final = 60_000
_SHOWN_MAX: Final = 100
_OF_PEERS: Final = frozenset({
    "call_refused",
    "connection_idle",
    "filter_compilation_throttled",
    "filter_invalid",
    "filter_version_conflict",
    "frame_timeout",
    "frame_unreadable",
    "heartbeat_expired",
    "heartbeat_group_invalid",
    "http2_failed",
    "offset_out_of_bounds",
    "pull_commit_refused",
    "request_failed",
    "request_refused",
    "send_refused",
    "settings_ignored",
    "tls_handshake_failed",
    "tls_required",
    "unlock_ignored",
    "unregister_ignored",
})  # fmt: skip


class EventThrottle:
    """Lets at most one event in `again_ms` pass for each key. The keys must be few."""

    def __init__(self, again_ms: int = _AGAIN_MS) -> None:
        self._again_ms = again_ms
        self._logged: dict[Hashable, tuple[int, int]] = {}  # key -> epoch ms of its last event, times since then

    def times(self, key: Hashable, now_ms: int) -> int:
        """Returns how many times it happened since the last event, this time included; 0: log nothing now."""
        logged_ms, times = self._logged.get(key, (now_ms - self._again_ms, 0))
        if now_ms - logged_ms < self._again_ms:
            self._logged[key] = (logged_ms, times + 1)
            return 0
        self._logged[key] = (now_ms, 0)
        return times + 1


class PeerEvents:
    """Samples the events that a peer causes at will: of each the first 100 in 10 s are logged, the others counted."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[int, int, int]] = {}  # event -> when its 10 s began (ms), logged since, left out

    def times(self, event: str, now_ms: int) -> int:
        """Returns how often it happened since it was logged, this time included; 0: log nothing now."""
        if event not in _OF_PEERS:
            return 1
        began_ms, shown_count, left_count = self._shown.get(event, (now_ms - _AGAIN_MS, 0, 0))
        if now_ms - began_ms >= _AGAIN_MS:
            self._shown[event] = (now_ms, 1, 0)
            return left_count + 1
        if shown_count < _SHOWN_MAX:
            self._shown[event] = (began_ms, shown_count + 1, 0)
            return 1
        self._shown[event] = (began_ms, shown_count, left_count + 1)
        return 0


class LimitLog:
    """Logs `limit_met` at most once a minute for each setting.

    `counts`: how often each limit was reached; `last_ms`: when last, epoch ms. `used`: functions that say how much of a
    limit is in use, by setting.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._throttle = EventThrottle(_LIMIT_AGAIN_MS)
        self.counts: Counter[str] = Counter()
        self.last_ms: dict[str, int] = {}
        self.used: dict[str, Callable[[], int]] = {}

    def met(self, setting: str, maximum: int, now_ms: int, peer: str = "", **facts: int) -> None:
        """`peer` is the address that met it, `facts` are further fields of the event."""
        self.counts[setting] += 1
        self.last_ms[setting] = now_ms
        times = self._throttle.times(setting, now_ms)
        if times:
            self._log.warning("limit_met", setting=setting, maximum=maximum, peer=peer, times=times, **facts)
