"""What a scenario may do to the network: stop, slow and cut what goes between hosts, by their names."""

import asyncio

from lockstep.simulation.network.network import Network
from lockstep.simulation.network.transport import Endpoint
from lockstep.simulation.network.wire import Link, Nat
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.trace import Trace

__all__ = ["NetworkFaults"]


class NetworkFaults:
    """Each of these can be undone; all of them leave a line in the trace."""

    def __init__(self, network: Network, trace: Trace, options: SimulationOptions) -> None:
        self.network = network
        self.trace = trace
        self.options = options

    def partition(self, one: str, other: str) -> None:
        """Stop all bytes between two hosts until `repair`; new connections time out."""
        self._block("partition", one, other, partitioned=True)
        self.network.block(other, one, partitioned=True)

    def repair(self, one: str, other: str) -> None:
        """End a partition. Bytes that were sent arrive, as TCP would send them again."""
        self._block("repair", one, other, partitioned=False)
        self.network.block(other, one, partitioned=False)

    def hold(self, source: str, target: str) -> None:
        """Stop all bytes from `source` to `target` until `release`; the other direction is free."""
        self._block("hold", source, target, held=True)

    def release(self, source: str, target: str) -> None:
        self._block("release", source, target, held=False)

    def set_latency(self, source: str, target: str, low_us: int | None = None, high_us: int | None = None) -> None:
        """Change the latency of what leaves from now on, one way; without numbers to that of the options."""
        options = self.options
        low_us = options.latency_us_min if low_us is None else low_us
        high_us = options.latency_us_max if high_us is None else high_us
        assert 0 <= low_us <= high_us
        self.trace.add("latency", f"{source} {target} {low_us} {high_us}")
        self._link(source, target).latency_ns = (low_us * 1000, high_us * 1000)

    def set_bandwidth(self, source: str, target: str, bytes_per_s: int | None = None) -> None:
        """Change the bandwidth, one way, also for what waits now; without a number to that of the options.

        What two hosts write to each other shares it: each write waits until those before it have left.
        """
        bytes_per_s = self.options.bytes_per_s if bytes_per_s is None else bytes_per_s
        assert bytes_per_s is None or bytes_per_s > 0
        self.trace.add("bandwidth", f"{source} {target} {bytes_per_s}")
        self._link(source, target).set_bandwidth(bytes_per_s)

    def forget_idle(self, one: str, other: str, idle_ms: int | None, *, answers: bool = False) -> None:
        """Put a NAT between two hosts: it forgets connections on which nothing was sent for `idle_ms`; None ends that.

        What is sent on a forgotten connection is lost. Neither side hears of it until TCP gives up.

        Args:
            answers: The next sender gets a reset; the other side alone does not hear of it.
        """
        assert idle_ms is None or idle_ms > 0
        self.trace.add("nat", f"{one} {other} {idle_ms} {'answers' if answers else 'silent'}")
        nat = None if idle_ms is None else Nat(idle_ms * 1_000_000, answers, self.network.forgotten)
        for link in (self._link(one, other), self._link(other, one)):
            link.set_nat(nat)

    def _link(self, source: str, target: str) -> Link:
        return self.network.link(self.network.address_of(source), self.network.address_of(target))

    def _block(
        self, verb: str, one: str, other: str, *, partitioned: bool | None = None, held: bool | None = None
    ) -> None:
        self.network.block(one, other, partitioned=partitioned, held=held)
        self.trace.add(verb, f"{one} {other}")

    def cut(self, one: str | asyncio.BaseTransport, other: str | None = None) -> int:
        """Reset connections at both ends; bytes in flight are lost. Returns the number of connections.

        Args:
            one: A transport, or the name of a host.
            other: Only the connections between the two hosts; None: all of host `one`.
        """
        for name in (one, other):
            if isinstance(name, str):
                self.network.address_of(name)  # raises LookupError for an unknown name
        self.trace.add("cut", one.label if isinstance(one, Endpoint) else f"{one} {other or ''}".rstrip())

        def chosen(endpoint: Endpoint) -> bool:
            if not isinstance(one, str):
                return endpoint is one
            return endpoint.host.name == one and other in (None, endpoint.peer.host.name)

        return self.network.cut(chosen)

    def cut_one_side(self, one: str, other: str) -> int:
        """Reset the connections of two hosts at host `one` alone. Returns the number of connections.

        Host `other` does not hear of it, as behind a firewall that forgot its connections: its ends stay open, nothing
        arrives on them any more, and what it sends is lost.
        """
        self.trace.add("one side", f"{one} {other}")
        return self.network.cut(lambda end: (end.host.name, end.peer.host.name) == (one, other), one_sided=True)

    def connections(self, one: str, other: str) -> list[asyncio.Transport]:
        """The open transports on host `one` with peers on host `other`, oldest first."""
        ends = [end for end in self.network.endpoints() if end.host.name == one and end.peer.host.name == other]
        return [end for end in ends if not end.lost]
