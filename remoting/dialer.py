"""Outgoing connections by address: one at a time each, opened when first needed and again after they were lost."""

import asyncio
from collections.abc import Awaitable, Callable

from lockstep.protocol.codes import SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.endpoint import Endpoint, EndpointSettings, RequestHandler
from lockstep.remoting.errors import ConnectFailed, RemotingError
from lockstep.remoting.logs import EventLog
from lockstep.remoting.runtime import Runtime
from lockstep.remoting.settings import parse_address

__all__ = ["Dialer"]

_SHUT_DOWN = "this client is shut down"


class Dialer:
    """`greet(address, endpoint)` runs on a new connection before anybody else may use it; its failure is the
    connection's. `on_closed(address)` is told of every connection that ends.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        on_request: RequestHandler,
        log: EventLog,
        offer: SerializeType | None = None,
        connect_timeout_ms: int = 3000,
        idle_close_ms: int = 120_000,
        greet: Callable[[str, Endpoint], Awaitable[None]] | None = None,
        on_closed: Callable[[str], None] | None = None,
    ) -> None:
        self._runtime = runtime
        self._settings = EndpointSettings(server=False, idle_close_ms=idle_close_ms)
        self._on_request = on_request
        self._log = log
        self._offer = offer
        self._connect_timeout_ms = connect_timeout_ms
        self._greet = greet
        self._on_closed = on_closed
        self._open: dict[str, Endpoint] = {}
        self._greeting: dict[str, Endpoint] = {}
        self._connecting: dict[str, asyncio.Task[Endpoint]] = {}
        self._stopped = asyncio.Event()

    def open_endpoint(self, address: str) -> Endpoint | None:
        """The connection to `address` if there is one now that takes requests."""
        endpoint = self._open.get(address)
        return endpoint if endpoint is not None and endpoint.is_open else None

    async def endpoint(self, address: str) -> Endpoint:
        """The connection to `address`, made if need be. Raises ConnectFailed."""
        endpoint = self.open_endpoint(address)
        if endpoint is not None:
            return endpoint
        task = self._connecting.get(address)
        if task is None:
            task = self._runtime.create_task(self._connect(address), name=f"connect {address}")
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._connected(address, done))
        return await asyncio.shield(task)

    async def call(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """One request over the connection to `address`. Raises RemotingError; an error code is a reply, not raised."""
        return await (await self.endpoint(address)).request(command, timeout_ms)

    async def _connect(self, address: str) -> Endpoint:
        if self._stopped.is_set():
            raise ConnectFailed(address, _SHUT_DOWN)
        endpoint = Endpoint(
            self._runtime,
            self._settings,
            on_request=self._on_request,
            log=self._log,
            on_closed=lambda closed: self._forget(address, closed),
            offer=self._offer,
        )
        try:
            host, port = parse_address(address)
            connecting = self._runtime.create_connection(lambda: endpoint, host, port)
            await asyncio.wait_for(connecting, self._connect_timeout_ms / 1000)
        except TimeoutError:
            endpoint.abort("it came too late")
            raise ConnectFailed(address, f"no answer within {self._connect_timeout_ms} ms") from None
        except (OSError, ValueError) as error:  # a host that is no name is a ValueError, here or in the resolver
            raise ConnectFailed(address, str(error)) from None
        await self._introduce(address, endpoint)
        self._open[address] = endpoint
        self._log.debug("connected", peer=address)
        return endpoint

    async def _introduce(self, address: str, endpoint: Endpoint) -> None:
        """Greet. Raises ConnectFailed when the connection is of no use after it."""
        self._greeting[address] = endpoint
        try:
            if self._greet is not None and not self._stopped.is_set():
                await self._greet(address, endpoint)
        except RemotingError as error:
            endpoint.abort("its greeting failed")
            raise ConnectFailed(address, str(error)) from None
        except BaseException:
            endpoint.abort("its greeting failed")
            raise
        finally:
            del self._greeting[address]
        if self._stopped.is_set():
            endpoint.abort(_SHUT_DOWN)
            raise ConnectFailed(address, _SHUT_DOWN)
        if not endpoint.is_open:
            raise ConnectFailed(address, "it closed at once")

    def _connected(self, address: str, task: asyncio.Task[Endpoint]) -> None:
        self._connecting.pop(address, None)
        if not task.cancelled():
            task.exception()  # whoever asked may have gone; then the failure is nobody's concern

    def _forget(self, address: str, closed: Endpoint) -> None:
        if self._open.get(address) is closed:
            del self._open[address]
        if self._on_closed is not None:
            self._on_closed(address)

    def close(self) -> None:
        """Close every connection; later calls raise ConnectFailed."""
        self._stopped.set()
        for endpoint in [*self._open.values(), *self._greeting.values()]:
            endpoint.close(_SHUT_DOWN)
