"""The network between simulated hosts: listeners, connections, faults.

Faults come in pairs: `partition`/`repair` stop and start all traffic between two hosts (new connections time out),
`hold`/`release` one direction. `cut` resets connections and loses the bytes in flight.
"""

import asyncio
import errno
import random
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from lockstep.remoting.host.runtime import ProtocolFactory
from lockstep.simulation.machine.host import Host, host_context
from lockstep.simulation.network.transport import Address, Endpoint, reset_error
from lockstep.simulation.network.wire import Link, Pipe
from lockstep.simulation.options import SimulationOptions
from lockstep.simulation.trace import Trace
from lockstep.simulation.virtual_time.loop import VirtualLoop

__all__ = ["Network", "SimListening"]

_LOOPBACK = "127.0.0.1"
_ANY = "0.0.0.0"
_EPHEMERAL_PORT_MIN = 32_768
_PORTS = 65_536
_Answer: TypeAlias = "asyncio.Future[Endpoint]"


class SimListening:
    """A bound server socket. `wait_closed` waits for its connections too, as asyncio does from Python 3.12 on."""

    def __init__(self, network: "Network", host: Host, address: Address, factory: ProtocolFactory) -> None:
        self.host = host
        self.address = address
        self.closed = False
        self._network = network
        self._factory = factory
        self._context = host_context(host)
        self._open: dict[Endpoint, None] = {}
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def port(self) -> int:
        return self.address.port

    def take(self, endpoint: Endpoint) -> None:
        """The kernel has established a connection; the process accepts it when it runs."""
        self._open[endpoint] = None
        endpoint.on_end = self._on_end
        self._network.loop.call_soon(self._accept, endpoint, context=self._context)

    def _accept(self, endpoint: Endpoint) -> None:
        if self.closed:
            endpoint.abort()
        elif not endpoint.lost:
            endpoint.attach(endpoint.context.run(self._factory))

    def _on_end(self, endpoint: Endpoint) -> None:
        self._network.remove(endpoint)
        self._open.pop(endpoint, None)
        self._settle()

    def _settle(self) -> None:
        if self.closed and not self._open:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._network.unlisten(self)
            self._settle()

    async def wait_closed(self) -> None:
        if not self.closed or self._open:
            waiter = self._network.loop.create_future()
            self._waiters.append(waiter)
            await waiter


class Network:
    def __init__(self, loop: VirtualLoop, trace: Trace, seed: int, options: SimulationOptions) -> None:
        self.loop = loop
        self._trace = trace
        self._seed = seed
        self._options = options
        self._rng = random.Random(f"{seed}/network")
        self._hosts: dict[str, Host] = {}  # by address: the latest generation
        self._addresses: dict[str, str] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._listening: dict[tuple[str, int], dict[str, SimListening]] = {}  # (host's address, port) -> bound to
        self._last_port: dict[str, int] = {}
        self._endpoints: dict[Endpoint, None] = {}
        self._deaf: dict[Endpoint, None] = {}  # their peers are gone, and they did not hear of it
        self._connection_count = 0

    # Hosts and links -----------------------------------------------------------------------------------------

    def join(self, host: Host) -> None:
        self._hosts[host.address] = host
        self._addresses[host.name] = host.address

    def address_of(self, name: str) -> str:
        """The address of a host, by name. Raises LookupError."""
        if name not in self._addresses:
            raise LookupError(f"no host is named {name!r}; the hosts are {list(self._addresses)}")
        return self._addresses[name]

    def link(self, source: str, target: str) -> Link:
        """The link from one address to another."""
        if (source, target) not in self._links:
            link = self._links[source, target] = Link(self.loop, (0, 0))
            self._set_usual(link, source, target)
        return self._links[source, target]

    def blocked(self) -> list[tuple[str, str]]:
        """The links on which nothing passes now: from which address to which."""
        return [addresses for addresses, link in self._links.items() if link.blocked]

    def _set_usual(self, link: Link, source: str, target: str) -> None:
        """Give a link the latency and the bandwidth of the options."""
        options = self._options
        if source == target:
            link.latency_ns = 0, options.loopback_us_max * 1000
        else:
            link.latency_ns = options.latency_us_min * 1000, options.latency_us_max * 1000
            link.set_bandwidth(options.bytes_per_s)

    def block(self, one: str, other: str, *, partitioned: bool | None = None, held: bool | None = None) -> None:
        """Change the direction from host `one` to host `other`."""
        source, target = self.address_of(one), self.address_of(other)
        assert source != target, "a host always reaches itself"
        self.link(source, target).block(partitioned=partitioned, held=held)

    def _label(self, address: Address, host: Host) -> str:
        return f"{host}:{address.port}"

    # Listening -----------------------------------------------------------------------------------------------

    def listen(self, host: Host, factory: ProtocolFactory, name: str, port: int) -> SimListening:
        bind = name if name in (_ANY, _LOOPBACK) else self._resolve(host, name or _ANY)
        if bind not in (_ANY, _LOOPBACK, host.address):
            raise OSError(errno.EADDRNOTAVAIL, f"{name} is not an address of {host}")
        port = port or self._free_port(host)
        taken = self._listening.setdefault((host.address, port), {})
        if bind in taken or _ANY in taken or (bind == _ANY and taken):
            raise OSError(errno.EADDRINUSE, f"error while attempting to bind on address ({name!r}, {port})")
        listening = taken[bind] = SimListening(self, host, Address(bind, port), factory)
        self._trace.add("listen", f"{host}:{port}")
        return listening

    def unlisten(self, listening: SimListening) -> None:
        key = (listening.host.address, listening.port)
        if self._listening.get(key, {}).get(listening.address.host) is listening:
            del self._listening[key][listening.address.host]
            self._trace.add("unlisten", f"{listening.host}:{listening.port}")

    def listening(self) -> list[SimListening]:
        return [listening for bound in self._listening.values() for listening in bound.values()]

    def _free_port(self, host: Host) -> int:
        port = self._last_port.get(host.address, _EPHEMERAL_PORT_MIN - 1)
        while True:
            port = port + 1 if port + 1 < _PORTS else _EPHEMERAL_PORT_MIN
            if not self._listening.get((host.address, port)):
                self._last_port[host.address] = port
                return port

    # Connecting ----------------------------------------------------------------------------------------------

    def _resolve(self, host: Host, name: str) -> str:
        if name in (_LOOPBACK, "localhost"):
            return host.address
        if name in self._addresses:
            return self._addresses[name]
        if name in self._hosts or name == _ANY:
            return name
        raise OSError(errno.EHOSTUNREACH, f"no host of the simulation is {name!r}")

    async def connect(
        self, host: Host, factory: ProtocolFactory, name: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Raises ConnectionRefusedError without a listener, TimeoutError behind a partition, OSError."""
        address = self._resolve(host, name)
        loopback = name in (_LOOPBACK, "localhost")
        source = Address(_LOOPBACK if loopback else host.address, self._free_port(host))
        target = Address(_LOOPBACK if loopback else address, port)
        answer: _Answer = self.loop.create_future()
        timeout_ns = self._options.connect_timeout_ms * 1_000_000
        timer = self.loop.call_at_ns(
            self.loop.now_ns + timeout_ns, self._time_out, answer, target, context=self.loop.ground
        )
        request = partial(self._request_connection, host, self._hosts[address].address, source, target, answer)
        self.link(host.address, address).send(request, self._rng)
        try:
            endpoint = await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                answer.result().abort()
            raise
        finally:
            timer.cancel()
        return endpoint, await self._attach(endpoint, factory)

    async def _attach(self, endpoint: Endpoint, factory: ProtocolFactory) -> asyncio.Protocol:
        if endpoint.lost:
            raise reset_error()
        protocol = endpoint.context.run(factory)
        made = self.loop.create_future()
        endpoint.attach(protocol, made)
        try:
            await made
        except asyncio.CancelledError:
            endpoint.abort()
            raise
        return protocol

    def _request_connection(self, host: Host, address: str, source: Address, target: Address, answer: _Answer) -> None:
        """A connection request has reached the other host."""
        peer = self._hosts[address]
        if not host.alive or answer.done() or peer.asleep or (not peer.alive and peer.silent):
            return
        back = self.link(address, host.address)
        bound = self._listening.get((address, target.port), {}) if peer.alive else {}
        listening = bound.get(target.host) or bound.get(_ANY)
        if listening is None:
            error = ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {tuple(target)}")
            self._trace.add("refused", f"{self._label(source, host)} -> {self._label(target, peer)}")
            back.send(partial(self._answer, answer, error), self._rng)
            return
        client, server = self._make_pair(host, peer, source, target)
        self._trace.add("connect", f"{self._label(source, host)} -> {self._label(target, peer)}")
        listening.take(server)
        back.send(partial(self._answer, answer, client), self._rng)

    def _make_pair(self, host: Host, peer: Host, source: Address, target: Address) -> tuple[Endpoint, Endpoint]:
        self._connection_count += 1
        read_max = self._options.read_bytes_max
        client = Endpoint(self.loop, self._trace, host, source, target, read_max)
        server = Endpoint(self.loop, self._trace, peer, target, source, read_max)
        names = self._label(source, host), self._label(target, peer)
        client.label, server.label = f"{names[1]} -> {names[0]}", f"{names[0]} -> {names[1]}"
        for this, other, direction in ((client, server, "out"), (server, client, "back")):
            rng = random.Random(f"{self._seed}/connection {self._connection_count} {direction}")
            pipe = Pipe(self.loop, self.link(this.host.address, other.host.address), rng, self._options)
            pipe.source, pipe.sink = this, other
            this.out = other.inbound = pipe
            this.peer = other
            this.on_end = self.remove
            self._endpoints[this] = None
        client.out.twin, server.out.twin = server.out, client.out
        return client, server

    def _answer(self, answer: _Answer, outcome: Endpoint | Exception) -> None:
        if answer.done():
            if isinstance(outcome, Endpoint):
                outcome.abort()
        elif isinstance(outcome, Endpoint):
            answer.set_result(outcome)
        else:
            answer.set_exception(outcome)

    def _time_out(self, answer: _Answer, target: Address) -> None:
        if not answer.done():
            self._trace.add("timeout", f"connecting to {target.host}:{target.port}")
            answer.set_exception(TimeoutError(errno.ETIMEDOUT, f"Connect call failed {tuple(target)}"))

    # Faults --------------------------------------------------------------------------------------------------

    def endpoints(self) -> list[Endpoint]:
        """Both ends of every open connection, oldest first."""
        return list(self._endpoints)

    def remove(self, endpoint: Endpoint) -> None:
        self._endpoints.pop(endpoint, None)
        self._deaf.pop(endpoint, None)

    def cut(self, condition: Callable[[Endpoint], bool], *, one_sided: bool = False) -> int:
        """Reset the connections for which `condition` holds at either end. Returns their number.

        Args:
            one_sided: The peers of those ends do not notice: what they send from now on is lost.
        """
        chosen = [endpoint for endpoint in self.endpoints() if condition(endpoint) and not endpoint.lost]
        for endpoint in chosen:
            for end in (endpoint, endpoint.peer):
                end.out.cut()
                if end is endpoint or not one_sided:
                    end.lose(reset_error())
                else:
                    self._deaf[end] = None
        return len({frozenset((endpoint, endpoint.peer)) for endpoint in chosen})

    def forgotten(self, pipe: Pipe) -> None:
        """A NAT has forgotten the connection of this pipe."""
        assert isinstance(pipe.source, Endpoint)
        self._deaf[pipe.source] = self._deaf[pipe.source.peer] = None
        self._trace.add("forgotten", pipe.source.label)

    def heal(self) -> None:
        """Free all links, make them as the options say, and reset the ends that hear nothing any more."""
        for (source, target), link in self._links.items():
            link.set_nat(None)
            self._set_usual(link, source, target)
            link.block(partitioned=False, held=False)
        for endpoint in self._deaf:
            if not endpoint.lost and endpoint.host.alive:
                endpoint.lose(reset_error())
        self._deaf.clear()

    def crash(self, host: Host, *, silently: bool) -> None:
        for listening in self.listening():
            if listening.host is host:
                listening.close()
        for endpoint in self.endpoints():
            if endpoint.host is host:
                endpoint.kill(silently=silently)
