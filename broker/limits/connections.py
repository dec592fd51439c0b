"""All connections of a process, and the limits that they share (docs/hostile.md)."""

from collections import Counter
from collections.abc import Iterator
from typing import Final, Protocol

from lockstep.broker.acl.addresses import address_pattern
from lockstep.broker.config import BrokerConfig
from lockstep.broker.limits.rates import SPARED, RequestRates
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.byte_budget import ByteBudget, ConnectionBounds, Inbound
from lockstep.remoting.connections.endpoint import Endpoint, RequestHandler
from lockstep.remoting.connections.under_way import UnderWay, busy
from lockstep.remoting.host.runtime import Runtime, TimerHandle
from lockstep.remoting.limit_log import LimitLog
from lockstep.remoting.logs import EventLog

__all__ = ["Connections", "OpenConnection"]

# Connections for operators, at most a tenth of all.
_RESERVED_MAX: Final = 16
# So many peers have a bucket of their own; all others share one.
_PEERS_MAX: Final = 10_000
_SECOND_MS: Final = 1000


class OpenConnection(Protocol):
    """A connection of a peer, of either front."""

    host: str
    address: str
    is_local: bool

    def mark_active(self, now_ms: int) -> None: ...
    def close(self, reason: str) -> None: ...
    def abort(self, reason: str) -> None: ...


class Connections:
    """The open connections, in order of arrival. Their endpoints share `bounds`.

    `watch` begins to look for slow senders, `stop` ends it.

    Args:
        config: Has the limits.
        limits: Counts and logs reached ones.
        log: Where to write `frame_timeout`.
    """

    def __init__(self, config: BrokerConfig, limits: LimitLog, log: EventLog) -> None:
        self._connections_max = config.connections_max
        self._per_peer_max = config.connections_per_peer_max
        self._limits = limits
        self._runtime: Runtime | None = None
        self._timer: TimerHandle | None = None
        self._is_operator = address_pattern(config.operator_addresses)
        self._open: dict[OpenConnection, None] = {}
        self._operators: set[OpenConnection] = set()
        self._of_peer: Counter[str] = Counter()
        per_second = config.requests_per_second_max
        self._rates = RequestRates(per_second, _PEERS_MAX) if per_second else None
        all_max, one_max = config.requests_under_way_max, config.requests_under_way_per_connection_max
        inbound = ByteBudget(
            "inbound_bytes",
            config.inbound_bytes_limit,
            "an unfinished frame",
            limits,
            config.inbound_bytes_per_connection_max,
        )
        outbound = ByteBudget(
            "outbound_bytes",
            config.outbound_bytes_limit,
            "answers that it does not read",
            limits,
            config.outbound_bytes_per_connection_max,
        )
        under_way = UnderWay(all_max, one_max, SPARED, limits) if all_max or one_max else None
        self.bounds = ConnectionBounds(Inbound(inbound, config.frame_timeout_ms, log), outbound, under_way)
        limits.used["connections_max"] = self._open.__len__
        limits.used["inbound_bytes_max"] = lambda: inbound.bytes
        limits.used["outbound_bytes_max"] = lambda: outbound.bytes
        if under_way is not None:
            limits.used["requests_under_way_max"] = lambda: under_way.count

    def __iter__(self) -> Iterator[OpenConnection]:
        return iter(list(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def add(self, endpoint: OpenConnection, now_ms: int) -> None:
        """A connection was accepted. Above a limit it is closed at once."""
        self._open[endpoint] = None
        self._of_peer[endpoint.host] += 1
        is_operator = self._is_operator(endpoint.host)
        if is_operator:
            self._operators.add(endpoint)
        maximum = self._connections_max
        if not (is_operator or endpoint.is_local):
            maximum -= min(_RESERVED_MAX, maximum // 10)
        if len(self._open) > maximum:
            self._refuse(endpoint, "connections_max", maximum, now_ms)
        elif not is_operator and 0 < self._per_peer_max < self._of_peer[endpoint.host]:
            self._refuse(endpoint, "connections_per_peer_max", self._per_peer_max, now_ms)

    def _refuse(self, endpoint: OpenConnection, setting: str, maximum: int, now_ms: int) -> None:
        self._limits.met(setting, maximum, now_ms, endpoint.address, open=len(self._open))
        endpoint.abort(f"{maximum} connections are open, the maximum ({setting})")

    def remove(self, endpoint: OpenConnection) -> None:
        if endpoint in self._open:
            del self._open[endpoint]
            self._operators.discard(endpoint)
            self._of_peer[endpoint.host] -= 1
            if not self._of_peer[endpoint.host]:
                del self._of_peer[endpoint.host]

    def before(self, on_request: RequestHandler) -> RequestHandler:
        """The handler of requests behind the limit of requests a second; itself if there is none."""
        rates = self._rates
        if rates is None:
            return on_request

        def limited(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            if self.may_request(endpoint, endpoint.read_at_ms, command.code in SPARED):
                return on_request(endpoint, command)
            return busy(command, "REJECTREQUEST", "requests_per_second_max", rates.per_second)

        return limited

    def may_request(self, peer: OpenConnection, now_ms: int, is_spared: bool) -> bool:
        """Whether a request that arrives now may be served. A refusal is counted."""
        rates = self._rates
        if rates is None or rates.take(peer.host, now_ms, spared=is_spared) or peer in self._operators:
            return True
        self._limits.met("requests_per_second_max", rates.per_second, now_ms, peer.address)
        return False

    def watch(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._sweep_in(1)

    def stop(self) -> None:
        self._runtime = None
        if self._timer is not None:
            self._timer.cancel()

    def sweep_soon(self) -> None:
        """Call it when the machine has slept."""
        if self._runtime is not None:
            self._sweep_in(1)

    def _sweep_in(self, seconds: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._runtime is not None:
            self._timer = self._runtime.call_later_ms(seconds * _SECOND_MS, self._sweep, self._runtime)

    def _sweep(self, runtime: Runtime) -> None:
        seconds = 1
        try:
            seconds = self.sweep(runtime.now_ms())
        finally:
            self._sweep_in(seconds)

    def sweep(self, now_ms: int) -> int:
        """Close slow senders, and forget idle peers.

        Returns:
            In how many seconds to do it again: when the next frame may be late, or 1 while requests are counted.
        """
        late_ms = self.bounds.inbound.close_late(now_ms)
        if self._rates is None:
            return max(1, (late_ms - now_ms) // _SECOND_MS + 1)
        self._rates.forget_idle(now_ms)
        return 1
