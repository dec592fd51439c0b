"""What connections may keep in memory: bounds for all connections of a process together.

Above a bound the connection that keeps the most is closed. A frame of 16 MiB is legal, so a few hundred peers that
begin one each and never end it could take all memory; and a peer that sends a byte now and then is never idle.
wire.md 1.1 has no such bounds; Apache's Netty buffers have one for a frame only.
"""

from typing import NamedTuple, Protocol

from lockstep.remoting.logs import EventLog

__all__ = ["BudgetPeer", "ByteBudget", "ConnectionBounds", "Inbound", "InboundPeer"]


class BudgetPeer(Protocol):
    @property
    def address(self) -> str: ...
    def abort(self, reason: str) -> None: ...


class ByteBudget:
    """Bytes by connection.

    Args:
        bytes_max: Of all connections together.
        event: The log event when a connection is closed.
        what: A name of the bytes, for the reason that the connection is closed for.
        log: Where to write the event.
    """

    def __init__(self, bytes_max: int, event: str, what: str, log: EventLog) -> None:
        self._bytes_max = bytes_max
        self._event = event
        self._what = what
        self._log = log
        self._bytes_of: dict[BudgetPeer, int] = {}
        self.bytes = 0

    def note(self, peer: BudgetPeer, peer_bytes: int) -> int:
        """Note that a connection keeps `peer_bytes` now, 0 for none. Returns how many it kept before."""
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


class InboundPeer(BudgetPeer, Protocol):
    @property
    def write_paused(self) -> bool: ...


class Inbound:
    """Received bytes that are not handled yet, by connection, and a time limit for each frame.

    Args:
        bytes_max: Of all connections together.
        frame_timeout_ms: From the first read of a frame to its last.
        log: Where to write `inbound_bytes_full` and `frame_timeout`.
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
        """Note that `waiting_bytes` of a connection wait after a read.

        Args:
            progress: A whole frame was handled, so the bytes that wait belong to a later one.
        """
        if not waiting_bytes:
            self._since_ms.pop(peer, None)
        elif progress or peer not in self._since_ms:
            self._since_ms[peer] = now_ms
        self._budget.note(peer, waiting_bytes)

    def close_late(self, now_ms: int) -> None:
        """Close connections whose frame takes too long, unless the frame waits because replies are not read."""
        for peer, since_ms in list(self._since_ms.items()):
            age_ms = now_ms - since_ms
            if age_ms > self._frame_timeout_ms and not peer.write_paused:
                del self._since_ms[peer]
                facts = {"peer": peer.address, "age_ms": age_ms, "received_bytes": self._budget.note(peer, 0)}
                self._log.warning("frame_timeout", **facts, limit_ms=self._frame_timeout_ms)
                peer.abort(f"a frame was not complete after {age_ms} ms")


class ConnectionBounds(NamedTuple):
    """The bounds that all connections of a process share.

    Args:
        inbound: Bytes that were received and not handled yet.
        outbound: Bytes that were written and that the peer does not read.
    """

    inbound: Inbound
    outbound: ByteBudget
