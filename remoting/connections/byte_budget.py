"""What connections may keep in memory: bounds for one connection, and for all connections of a process together.

Above a bound of all the connection that keeps the most is closed. A frame of 16 MiB is legal, so a few hundred peers
that begin one each and never end it could take all memory; and a peer that sends a byte now and then is never idle.
wire.md 1.1 has no such bounds; Apache's Netty buffers have one for a frame only.
"""

from typing import NamedTuple, Protocol

from lockstep.remoting.connections.under_way import UnderWay
from lockstep.remoting.limit_log import LimitLog
from lockstep.remoting.logs import EventLog

__all__ = ["BudgetPeer", "ByteBudget", "ConnectionBounds", "Inbound", "InboundPeer"]


class BudgetPeer(Protocol):
    @property
    def address(self) -> str: ...
    def abort(self, reason: str) -> None: ...


class ByteBudget:
    """Bytes by connection.

    Args:
        name: The setting with the limit of all connections is `name` and `_max`, of one `name` and
            `_per_connection_max`.
        bytes_max: Of all connections together.
        what: A name of the bytes, for the reason that a connection is closed for.
        limits: Counts and logs closed connections.
        connection_bytes_max: Of one connection; 0: no limit.
    """

    def __init__(self, name: str, bytes_max: int, what: str, limits: LimitLog, connection_bytes_max: int = 0) -> None:
        self._setting_all = f"{name}_max"
        self._setting_one = f"{name}_per_connection_max"
        self._bytes_max = bytes_max
        self._connection_bytes_max = connection_bytes_max
        self._what = what
        self._limits = limits
        self._bytes_of: dict[BudgetPeer, int] = {}
        self.bytes = 0

    def note(self, peer: BudgetPeer, peer_bytes: int, now_ms: int) -> int:
        """Note that a connection keeps `peer_bytes` now, 0 for none. Returns how many it kept before."""
        before = self._bytes_of.pop(peer, 0)
        self.bytes += peer_bytes - before
        if peer_bytes:
            self._bytes_of[peer] = peer_bytes
            if 0 < self._connection_bytes_max < peer_bytes:
                self._close(peer, self._setting_one, self._connection_bytes_max, now_ms)
            while self.bytes > self._bytes_max:
                largest = max(self._bytes_of, key=lambda one: self._bytes_of[one])
                self._close(largest, self._setting_all, self._bytes_max, now_ms)
        return before

    def _close(self, peer: BudgetPeer, setting: str, maximum: int, now_ms: int) -> None:
        peer_bytes, count = self._bytes_of.pop(peer), len(self._bytes_of) + 1
        self.bytes -= peer_bytes
        self._limits.met(setting, maximum, now_ms, peer.address, peer_bytes=peer_bytes, connections=count)
        peer.abort(f"{peer_bytes} bytes of {self._what} are too many: {setting} is {maximum}")


class InboundPeer(BudgetPeer, Protocol):
    @property
    def write_paused(self) -> bool: ...


class Inbound:
    """Received bytes that are not handled yet, by connection, and a time limit for each frame.

    Args:
        budget: Their bounds.
        frame_timeout_ms: From the first read of a frame to its last.
        log: Where to write `frame_timeout`.
    """

    def __init__(self, budget: ByteBudget, frame_timeout_ms: int, log: EventLog) -> None:
        self._budget = budget
        self._frame_timeout_ms = frame_timeout_ms
        self._log = log
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
        self._budget.note(peer, waiting_bytes, now_ms)

    def close_late(self, now_ms: int) -> int:
        """Close connections whose frame takes too long, unless the frame waits because replies are not read.

        Returns:
            When the next frame may take too long, in epoch ms.
        """
        for peer, since_ms in list(self._since_ms.items()):
            age_ms = now_ms - since_ms
            if age_ms > self._frame_timeout_ms and not peer.write_paused:
                del self._since_ms[peer]
                facts = {"peer": peer.address, "age_ms": age_ms, "received_bytes": self._budget.note(peer, 0, now_ms)}
                self._log.warning("frame_timeout", **facts, limit_ms=self._frame_timeout_ms)
                peer.abort(f"a frame was not complete after {age_ms} ms")
        return min(self._since_ms.values(), default=now_ms) + self._frame_timeout_ms


class ConnectionBounds(NamedTuple):
    """The bounds that all connections of a process share.

    Args:
        inbound: Bytes that were received and not handled yet.
        outbound: Bytes that were written and that the peer does not read.
        under_way: Requests that are answered later; None: they are not counted.
    """

    inbound: Inbound
    outbound: ByteBudget
    under_way: UnderWay | None = None
