"""A bound for bytes that connections keep in memory: above it, the connection with the most is closed."""

from typing import Protocol

from lockstep.remoting.logs import EventLog

__all__ = ["BudgetPeer", "ByteBudget"]


class BudgetPeer(Protocol):
    @property
    def address(self) -> str: ...
    def abort(self, reason: str) -> None: ...


class ByteBudget:
    """Bytes by connection. All of one process share it.

    Args:
        bytes_max: Of all connections together.
        event: What is logged when they are more.
        what: The bytes, for the reason that the connection is closed for.
    """

    def __init__(self, bytes_max: int, event: str, what: str, log: EventLog) -> None:
        self._bytes_max = bytes_max
        self._event = event
        self._what = what
        self._log = log
        self._bytes_of: dict[BudgetPeer, int] = {}
        self.bytes = 0

    def note(self, peer: BudgetPeer, peer_bytes: int) -> int:
        """A connection keeps so many bytes now; 0: none any more. Returns how many it kept before."""
        before = self._bytes_of.pop(peer, 0)
        self.bytes += peer_bytes - before
        if peer_bytes:
            self._bytes_of[peer] = peer_bytes
            while self.bytes > self._bytes_max:
                self._close_the_largest()
        return before

    def _close_the_largest(self) -> None:
        peer = max(self._bytes_of, key=lambda one: self._bytes_of[one])
        peer_bytes, count = self._bytes_of.pop(peer), len(self._bytes_of) + 1
        self.bytes -= peer_bytes
        facts = {"peer": peer.address, "peer_bytes": peer_bytes, "limit_bytes": self._bytes_max}
        self._log.warning(self._event, **facts, connections=count)
        peer.abort(f"{peer_bytes} bytes of {self._what} are too many beside those of other connections")
