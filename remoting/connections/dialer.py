"""Outgoing connections, one an address: opened when it is first needed, and again after it was lost."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from lockstep.protocol.codes import SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.signature import Credentials
from lockstep.remoting.connections.endpoint import Endpoint, EndpointCallbacks, EndpointSettings, RequestHandler
from lockstep.remoting.errors import ConnectFailed, RemotingError
from lockstep.remoting.host.runtime import Runtime
from lockstep.remoting.logs import EventLog
from lockstep.remoting.settings import parse_address
from lockstep.remoting.tls.options import TlsOptions, client_context

__all__ = ["Dialer", "DialerCallbacks", "DialerSettings"]

_SHUT_DOWN: Final = "this client is shut down"


@dataclass(frozen=True, slots=True)
class DialerSettings:
    """`offer` is the header encoding to ask for. `credentials` sign each request. `tls`: None: plain connections.

    A connection without traffic for `idle_close_ms` is closed.
    """

    offer: SerializeType | None = None
    connect_timeout_ms: int = 3000
    idle_close_ms: int = 120_000
    credentials: Credentials | None = None
    tls: TlsOptions | None = None


class DialerCallbacks(NamedTuple):
    """What a dialer calls.

    Args:
        on_request: Answers requests of the peers, as `EndpointCallbacks.on_request`.
        greet: `greet(address, endpoint)` runs on a new connection before any other caller may use it. When it raises
            a RemotingError, the connection is closed.
        on_closed: `on_closed(address)` is called for every connection that ends.
    """

    on_request: RequestHandler
    greet: Callable[[str, Endpoint], Awaitable[None]] | None = None
    on_closed: Callable[[str], None] | None = None


class Dialer:
    """Raises SettingError for files of TLS that cannot be used."""

    def __init__(
        self,
        runtime: Runtime,
        callbacks: DialerCallbacks,
        log: EventLog,
        settings: DialerSettings = DialerSettings(),
    ) -> None:
        self._runtime = runtime
        self._callbacks = callbacks
        self._log = log
        self._settings = EndpointSettings(
            server=False,
            idle_close_ms=settings.idle_close_ms,
            offer=settings.offer,
            credentials=settings.credentials,
        )
        self._connect_timeout_ms = settings.connect_timeout_ms
        self._tls: ssl.SSLContext | None = None
        if settings.tls is not None:
            self._tls = client_context(settings.tls)
        self._open: dict[str, Endpoint] = {}
        self._greeting: dict[str, Endpoint] = {}
        self._connecting: dict[str, asyncio.Task[Endpoint]] = {}
        self._stopped = asyncio.Event()

    def open_endpoint(self, address: str) -> Endpoint | None:
        """The connection to `address`, if one is open now."""
        endpoint = self._open.get(address)
        return endpoint if endpoint is not None and endpoint.is_open else None

    async def endpoint(self, address: str) -> Endpoint:
        """The connection to `address`; it is made when there is none. Raises ConnectFailed."""
        endpoint = self.open_endpoint(address)
        if endpoint is not None:
            return endpoint
        # Callers at the same time share one attempt. `shield`: one that gives up must not end it for the others.
        task = self._connecting.get(address)
        if task is None:
            task = self._runtime.create_task(self._connect(address), name=f"connect {address}")
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._connected(address, done))
        return await asyncio.shield(task)

    async def call(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """One request over the connection to `address`. Returns the reply, whatever its code. Raises RemotingError."""
        return await (await self.endpoint(address)).request(command, timeout_ms)

    async def _connect(self, address: str) -> Endpoint:
        if self._stopped.is_set():
            raise ConnectFailed(address, _SHUT_DOWN)
        callbacks = EndpointCallbacks(
            self._callbacks.on_request, on_closed=lambda closed: self._forget(address, closed)
        )
        endpoint = Endpoint(self._runtime, self._settings, callbacks, self._log)
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                await self._open_socket(address, endpoint)
        except TimeoutError:
            endpoint.abort("connect timeout")
            raise ConnectFailed(address, f"no answer within {self._connect_timeout_ms} ms") from None
        except (OSError, ValueError) as error:
            # ValueError: a host that is no name, here or in the resolver.
            raise ConnectFailed(address, str(error)) from None
        # First the greeting: a broker knows the group before a pull or a lock request comes (wire.md 6.2, 9.2).
        await self._introduce(address, endpoint)
        self._open[address] = endpoint
        self._log.debug("connected", peer=address)
        return endpoint

    async def _open_socket(self, address: str, endpoint: Endpoint) -> None:
        host, port = parse_address(address)
        if self._tls is None:
            await self._runtime.create_connection(lambda: endpoint, host, port)
            return
        # Imported here, because few clients use TLS.
        from lockstep.remoting.tls.link import TlsLink
        from lockstep.remoting.tls.session import TlsError

        link = TlsLink(self._runtime, endpoint, self._tls, server=False, host=host)
        await self._runtime.create_connection(lambda: link, host, port)
        try:
            await link.opened
        except TlsError as error:  # the link closes itself
            raise ConnectFailed(address, f"TLS: {error}") from None
        except BaseException:
            link.abort()
            raise

    async def _introduce(self, address: str, endpoint: Endpoint) -> None:
        """Greet. Raises ConnectFailed when the connection cannot be used after it."""
        self._greeting[address] = endpoint
        try:
            if self._callbacks.greet is not None and not self._stopped.is_set():
                await self._callbacks.greet(address, endpoint)
        except RemotingError as error:
            endpoint.abort("the greeting failed")
            raise ConnectFailed(address, str(error)) from None
        except BaseException:
            endpoint.abort("the greeting failed")
            raise
        finally:
            del self._greeting[address]
        # Asked again, because `close` may have been called during the greeting.
        if self._stopped.is_set():
            endpoint.abort(_SHUT_DOWN)
            raise ConnectFailed(address, _SHUT_DOWN)
        if not endpoint.is_open:
            raise ConnectFailed(address, f"it closed at once: {endpoint.close_reason}")

    def _connected(self, address: str, task: asyncio.Task[Endpoint]) -> None:
        self._connecting.pop(address, None)
        if not task.cancelled():
            # The callers may have given up; then asyncio must not report it.
            task.exception()

    def _forget(self, address: str, closed: Endpoint) -> None:
        if self._open.get(address) is closed:
            del self._open[address]
        if self._callbacks.on_closed is not None:
            self._callbacks.on_closed(address)

    def close(self) -> None:
        """Close every connection; later calls raise ConnectFailed."""
        self._stopped.set()
        for endpoint in [*self._open.values(), *self._greeting.values()]:
            endpoint.close(_SHUT_DOWN)
