"""One HTTP GET through a Runtime: a client gets the addresses of name servers with it."""

import asyncio
from typing import cast
from urllib.parse import urlsplit

import h11

from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import Runtime

__all__ = ["HttpGetFailed", "http_get"]

_BODY_BYTES_MAX = 64 * 1024
_OK = 200
_HTTP_PORT = 80


class HttpGetFailed(RemotingError):
    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"GET {url} failed: {reason}")
        self.url = url


async def http_get(runtime: Runtime, url: str, timeout_ms: int) -> str:
    """Get a URL of the scheme http. Redirects are not followed.

    Returns:
        The body of the reply as text.

    Raises:
        HttpGetFailed: No whole reply with status 200 came within `timeout_ms`.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise HttpGetFailed(url, "the URL must be http://HOST[:PORT]/...")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    names = parts.netloc.encode("ascii", "replace")
    headers = [(b"Host", names), (b"Accept", b"text/plain, */*"), (b"Connection", b"close")]
    host = parts.hostname
    try:
        exchange = _Exchange(h11.Request(method="GET", target=path.encode("ascii", "replace"), headers=headers))
    except h11.LocalProtocolError as error:
        raise HttpGetFailed(url, str(error)) from None
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await runtime.create_connection(lambda: exchange, host, parts.port or _HTTP_PORT)
            await exchange.ended
    except TimeoutError:
        raise HttpGetFailed(url, f"no answer within {timeout_ms} ms") from None
    except (OSError, ValueError) as error:
        # ValueError: a wrong port or host.
        raise HttpGetFailed(url, str(error)) from None
    finally:
        exchange.abort()
    if exchange.failure is not None:
        raise HttpGetFailed(url, exchange.failure)
    return exchange.body.decode("utf-8", "replace")


class _Exchange(asyncio.Protocol):
    """Sends a request and reads its reply. When it has `ended`, `failure` says what is wrong; None: `body` is whole."""

    def __init__(self, request: h11.Request) -> None:
        self._http = h11.Connection(h11.CLIENT)
        self._request = request
        self._transport: asyncio.Transport | None = None
        self.body = bytearray()
        self.failure: str | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write((self._http.send(self._request) or b"") + (self._http.send(h11.EndOfMessage()) or b""))

    def data_received(self, data: bytes) -> None:
        if self.ended.done():
            return
        try:
            self._http.receive_data(data)
            while not self.ended.done() and (event := self._http.next_event()) is not h11.NEED_DATA:
                self._on_event(event)
        except h11.RemoteProtocolError as error:
            self._end(f"the reply is not a whole HTTP reply: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        # For h11, empty data is the end of the peer's bytes.
        self.data_received(b"")

    def _on_event(self, event: object) -> None:
        if isinstance(event, h11.Response) and event.status_code != _OK:
            self._end(f"status {event.status_code} {event.reason.decode('latin-1')}"[:80].rstrip())
        elif isinstance(event, h11.Data):
            self.body += event.data
            if len(self.body) > _BODY_BYTES_MAX:
                self._end(f"{len(self.body)} bytes came; expected were at most {_BODY_BYTES_MAX}")
        elif isinstance(event, h11.EndOfMessage):
            self._end(None)

    def _end(self, failure: str | None) -> None:
        self.failure = failure
        self.ended.set_result(None)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
