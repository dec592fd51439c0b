"""The requests that brokers and name servers received, in order, with their answers."""

from collections.abc import Callable
from copy import copy
from typing import NamedTuple

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.endpoint import Endpoint, RequestHandler
from lockstep.simulation.world import World

__all__ = ["Answered", "Request", "RequestLog"]


class Request(NamedTuple):
    at_ms: int  # virtual, since the start
    server: str
    client: str  # the address of its host
    name: str
    one_way: bool


class Answered(NamedTuple):
    """A request and its answer.

    Args:
        reply: None: it has no answer yet, or wants none.
        waited_ms: how long the server held the request; 0: it was answered at once.
    """

    request: Request
    command: RemotingCommand
    reply: RemotingCommand | None
    waited_ms: int = 0


class RequestLog:
    """`tap(server)` is the interceptor of one server; `all` has the requests of all, in order.

    `on_arrival` is called before a server handles a request, `on_request` after it, `on_late_reply` when it answers one
    that it held.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.all: list[Request] = []
        self.on_arrival: Callable[[], object] = lambda: None
        self.on_request: Callable[[Answered], object] = lambda _answered: None
        self.on_late_reply: Callable[[Answered], object] = lambda _answered: None

    def tap(self, server: str) -> "_Tap":
        return _Tap(self, server)

    def note(self, server: str, client: str, command: RemotingCommand) -> Request:
        name = RequestCode(command.code).name
        request = Request(self._world.elapsed_ms, server, client, name, command.is_one_way)
        self.all.append(request)
        return request

    def late(self, held: Answered, reply: RemotingCommand) -> None:
        waited_ms = self._world.elapsed_ms - held.request.at_ms
        self.on_late_reply(held._replace(reply=reply, waited_ms=waited_ms))

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
    def __init__(self, request_log: RequestLog, server: str) -> None:
        self._log = request_log
        self._server = server
        self._held: dict[tuple[Endpoint, int], Answered] = {}

    def intercept(self, on_request: RequestHandler) -> RequestHandler:
        def noted(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            request = self._log.note(self._server, endpoint.address.rpartition(":")[0], command)
            self._log.on_arrival()
            asked = copy(command)  # a broker strips a command that it holds
            reply = on_request(endpoint, command)
            answered = Answered(request, asked, reply)
            if reply is None and not command.is_one_way:
                self._held[endpoint, command.opaque] = answered
            self._log.on_request(answered)
            return reply

        return noted

    def delay(self, factory: Callable[[], Endpoint]) -> Callable[[], Endpoint]:
        def make() -> Endpoint:
            endpoint = factory()

            def noted(reply: RemotingCommand) -> None:
                held = self._held.pop((endpoint, reply.opaque), None)
                if held is not None:
                    self._log.late(held, reply)

            endpoint.when_replied.append(noted)
            return endpoint

        return make
