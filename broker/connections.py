"""All connections of a process: their number, and the bytes that are buffered for all of them, have limits."""

from collections.abc import Iterator

from lockstep.remoting.byte_budget import ByteBudget, ConnectionBounds, Inbound
from lockstep.remoting.endpoint import Endpoint
from lockstep.remoting.logs import EventLog

__all__ = ["Connections"]


class Connections:
    """The open connections, in order of arrival. Their endpoints share `bounds`."""

    def __init__(
        self,
        connections_max: int,
        inbound_bytes_max: int,
        outbound_bytes_max: int,
        frame_timeout_ms: int,
        log: EventLog,
    ) -> None:
        self._connections_max = connections_max
        self._log = log
        self._open: dict[Endpoint, None] = {}
        self._refused_count = 0  # since the last log event
        self._full = False
        self.bounds = ConnectionBounds(
            Inbound(inbound_bytes_max, frame_timeout_ms, log),
            ByteBudget(outbound_bytes_max, "outbound_bytes_full", "answers that it does not read", log),
        )

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(list(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def add(self, endpoint: Endpoint) -> None:
        """A connection was accepted. Above the limit it is closed at once."""
        self._open[endpoint] = None
        if len(self._open) <= self._connections_max:
            return
        if not self._full:
            self._full = True
            self._log.warning("connections_full", limit=self._connections_max, peer=endpoint.address)
        self._refused_count += 1
        endpoint.abort(f"{self._connections_max} connections are open, the maximum (connections_max)")

    def remove(self, endpoint: Endpoint) -> None:
        self._open.pop(endpoint, None)

    def sweep(self, now_ms: int) -> None:
        """Called every second: close slow senders, and log the number of refused connections once."""
        self.bounds.inbound.close_late(now_ms)
        if self._refused_count:
            facts = {"limit": self._connections_max, "open": len(self._open)}
            self._log.warning("connections_refused", count=self._refused_count, **facts)
            self._refused_count = 0
        self._full = len(self._open) >= self._connections_max
