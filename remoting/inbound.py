"""Bytes that connections have received and not handled yet: one bound for all, and a time limit for each frame.

A frame of 16 MiB is legal, so a few hundred peers that begin one each and never end it could take all memory; and a
peer that sends a byte now and then is never idle. Sources: wire.md 1.1 has neither bound; Apache's Netty buffers have
one for a frame only.
"""

from typing import Protocol

from lockstep.remoting.byte_budget import BudgetPeer, ByteBudget
from lockstep.remoting.logs import EventLog

__all__ = ["Inbound", "InboundPeer"]


class InboundPeer(BudgetPeer, Protocol):
    @property
    def write_paused(self) -> bool: ...


class Inbound:
    """The received bytes that wait, by connection. All of one process share it.

    Args:
        bytes_max: of all connections together. Above it, the connection with the most is closed.
        frame_timeout_ms: from the first read of a frame to its last.
    """

    def __init__(self, bytes_max: int, frame_timeout_ms: int, log: EventLog) -> None:
        self._frame_timeout_ms = frame_timeout_ms
        self._log = log
        self._budget = ByteBudget(bytes_max, "inbound_bytes_full", "an unfinished frame", log)
        self._since_ms: dict[InboundPeer, int] = {}

    @property
    def bytes(self) -> int:
        return self._budget.bytes

    def note(self, peer: InboundPeer, waiting_bytes: int, now_ms: int, *, progress: bool) -> None:
        """After a read: so many bytes of the connection wait.

        Args:
            progress: a whole frame was handled, so what waits now belongs to a later one.
        """
        if not waiting_bytes:
            self._since_ms.pop(peer, None)
        elif progress or peer not in self._since_ms:
            self._since_ms[peer] = now_ms
        self._budget.note(peer, waiting_bytes)

    def close_late(self, now_ms: int) -> None:
        """Close connections whose frame takes too long. One that does not read our replies is not at fault for it."""
        for peer, since_ms in list(self._since_ms.items()):
            age_ms = now_ms - since_ms
            if age_ms > self._frame_timeout_ms and not peer.write_paused:
                del self._since_ms[peer]
                facts = {"peer": peer.address, "age_ms": age_ms, "received_bytes": self._budget.note(peer, 0)}
                self._log.warning("frame_timeout", **facts, limit_ms=self._frame_timeout_ms)
                peer.abort(f"a frame was not complete after {age_ms} ms")
