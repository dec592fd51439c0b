"""Bytes that connections have received and not handled yet: one bound for all, and a time limit for each frame.

A frame of 16 MiB is legal, so a few hundred peers that begin one each and never end it could take all memory; and a
peer that sends a byte now and then is never idle. Sources: wire.md 1.1 has neither bound; Apache's Netty buffers have
one for a frame only.
"""

from dataclasses import dataclass
from typing import Protocol

from lockstep.remoting.logs import EventLog

__all__ = ["Inbound", "InboundPeer"]


class InboundPeer(Protocol):
    @property
    def address(self) -> str: ...
    @property
    def write_paused(self) -> bool: ...
    def abort(self, reason: str) -> None: ...


@dataclass(slots=True)
class _Waiting:
    bytes: int
    since_ms: int


class Inbound:
    """The received bytes that wait, by connection. All of one process share it.

    Args:
        bytes_max: of all connections together. Above it, the connection with the most is closed.
        frame_timeout_ms: from the first read of a frame to its last.
    """

    def __init__(self, bytes_max: int, frame_timeout_ms: int, log: EventLog) -> None:
        self._bytes_max = bytes_max
        self._frame_timeout_ms = frame_timeout_ms
        self._log = log
        self._waiting: dict[InboundPeer, _Waiting] = {}
        self.bytes = 0

    def note(self, peer: InboundPeer, waiting_bytes: int, now_ms: int, *, progress: bool) -> None:
        """After a read: so many bytes of the connection wait.

        Args:
            progress: a whole frame was handled, so what waits now belongs to a later one.
        """
        known = self._waiting.get(peer)
        if known is not None:
            self.bytes -= known.bytes
        if not waiting_bytes:
            self._waiting.pop(peer, None)
            return
        self.bytes += waiting_bytes
        if known is None:
            self._waiting[peer] = _Waiting(waiting_bytes, now_ms)
        else:
            known.bytes = waiting_bytes
            known.since_ms = now_ms if progress else known.since_ms
        while self.bytes > self._bytes_max:
            self._close_the_largest()

    def _close_the_largest(self) -> None:
        peer = max(self._waiting, key=lambda one: self._waiting[one].bytes)
        unfinished_bytes = self._waiting.pop(peer).bytes
        self.bytes -= unfinished_bytes
        facts = {"peer": peer.address, "unfinished_bytes": unfinished_bytes, "limit_bytes": self._bytes_max}
        self._log.warning("inbound_bytes_full", **facts, connections=len(self._waiting) + 1)
        peer.abort(f"{unfinished_bytes} bytes of an unfinished frame are too many beside those of other connections")

    def close_late(self, now_ms: int) -> None:
        """Close connections whose frame takes too long. One that does not read our replies is not at fault for it."""
        for peer, waiting in list(self._waiting.items()):
            age_ms = now_ms - waiting.since_ms
            if age_ms > self._frame_timeout_ms and not peer.write_paused:
                self.bytes -= self._waiting.pop(peer).bytes
                facts = {"peer": peer.address, "age_ms": age_ms, "received_bytes": waiting.bytes}
                self._log.warning("frame_timeout", **facts, limit_ms=self._frame_timeout_ms)
                peer.abort(f"a frame was not complete after {age_ms} ms")
