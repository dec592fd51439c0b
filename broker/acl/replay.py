"""Recognizes copies of signed requests of our own clients.

Each of their requests names its time, its connection and a number that grows on that connection. All three are signed.
"""

from collections import OrderedDict
from typing import Final

from lockstep.broker.acl.errors import AccessDenied

__all__ = ["ReplayWindow"]

_SESSIONS_MAX: Final = 100_000
_PARTS: Final = 3
_TEXT_LENGTH_MAX: Final = 80


class ReplayWindow:
    """Remembers the last number of each connection for as long as its requests would be accepted.

    Args:
        window_ms: How far the time of a request may be from ours, either way.
        sessions_max: At most so many connections are remembered; more are refused.
    """

    def __init__(self, window_ms: int, sessions_max: int = _SESSIONS_MAX) -> None:
        self._window_ms = window_ms
        self._sessions_max = sessions_max
        self._last: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()  # number, until_ms

    def check(self, access_key: str, text: str, now_ms: int) -> None:
        """Take one request whose signature is right. Raises AccessDenied for a copy, and for one out of time."""
        parts = text.split("-")
        if len(parts) != _PARTS or len(text) > _TEXT_LENGTH_MAX:
            raise AccessDenied(f"Bad request number for accessKey={access_key}")
        try:
            at_ms, number = int(parts[0]), int(parts[2])
        except ValueError:
            raise AccessDenied(f"Bad request number for accessKey={access_key}") from None
        if abs(now_ms - at_ms) > self._window_ms:
            raise AccessDenied(
                f"The request of accessKey={access_key} is {abs(now_ms - at_ms)} ms from the broker's time; "
                f"at most {self._window_ms} ms are allowed"
            )
        self._forget(now_ms)
        session = (access_key, parts[1])
        last = self._last.get(session)
        if last is not None and number <= last[0]:
            raise AccessDenied(f"A copy of an earlier request of accessKey={access_key}")
        if last is None and len(self._last) >= self._sessions_max:
            raise AccessDenied(f"Too many connections with signed requests: {self._sessions_max}")
        until_ms = now_ms + 2 * self._window_ms
        self._last[session] = (number, until_ms)
        self._last.move_to_end(session)

    def _forget(self, now_ms: int) -> None:
        """No copy of what is forgotten is in time: its time lay at most one window after ours."""
        while self._last:
            session = next(iter(self._last))
            if self._last[session][1] >= now_ms:
                return
            del self._last[session]
