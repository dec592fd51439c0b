"""Who sent the request that a broker handles now."""

from collections.abc import Callable
from typing import Any

from lockstep.broker.server import Interceptor
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.endpoint import Endpoint, RequestHandler

__all__ = ["Sender"]


class Sender:
    """An Interceptor around another one. `peer` is the address whose request is handled now; empty: none is.

    Args:
        inner: None: there is no other one.
    """

    def __init__(self, inner: Interceptor | None) -> None:
        self._inner = inner
        self.peer = ""

    def intercept(self, on_request: RequestHandler) -> RequestHandler:
        handle = on_request if self._inner is None else self._inner.intercept(on_request)

        def noted(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            self.peer = endpoint.address
            try:
                return handle(endpoint, command)
            finally:
                self.peer = ""

        return noted

    def delay(self, factory: Callable[[], Endpoint]) -> Callable[[], Any]:
        return factory if self._inner is None else self._inner.delay(factory)
