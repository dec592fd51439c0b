"""The requests that brokers and name servers received, in order, for tests of sequences and periods."""

from collections.abc import Callable
from typing import NamedTuple

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.endpoint import Endpoint
from lockstep.simulation import World

__all__ = ["Heard", "Request"]

_Handler = Callable[[Endpoint, RemotingCommand], RemotingCommand | None]


class Request(NamedTuple):
    at_ms: int  # virtual, since the start
    server: str
    client: str  # the address of its host
    name: str
    one_way: bool


class Heard:
    """`tap(server)` is the interceptor of one server; `all` has the requests of all, in order."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.all: list[Request] = []

    def tap(self, server: str) -> "_Tap":
        return _Tap(self, server)

    def note(self, server: str, client: str, command: RemotingCommand) -> None:
        name = RequestCode(command.code).name
        self.all.append(Request(self._world.elapsed_ms, server, client, name, command.is_one_way))

    def of(self, host: str, name: str | None = None, *, server: str | None = None, since_ms: int = 0) -> list[Request]:
        """The requests of a host of the world."""
        address = self._world.host(host).address
        return [
            request
            for request in self.all
            if request.client == address and name in (None, request.name) and server in (None, request.server)
            and request.at_ms >= since_ms
        ]  # fmt: skip

    def times_ms(self, host: str, name: str, *, server: str | None = None) -> list[int]:
        return [request.at_ms for request in self.of(host, name, server=server)]

    def firsts(self, host: str, *, since_ms: int = 0) -> list[str]:
        """The names of a host's requests in the order in which each came for the first time."""
        return list(dict.fromkeys(request.name for request in self.of(host, since_ms=since_ms)))


class _Tap:
    def __init__(self, heard: Heard, server: str) -> None:
        self._heard = heard
        self._server = server

    def intercept(self, on_request: _Handler) -> _Handler:
        def noted(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            self._heard.note(self._server, endpoint.address.rpartition(":")[0], command)
            return on_request(endpoint, command)

        return noted

    def delay(self, factory: Callable[[], Endpoint]) -> Callable[[], Endpoint]:
        return factory
