"""One HTTP GET through a Runtime: as much of HTTP as a client needs to get the addresses of name servers."""

import asyncio
from typing import cast
from urllib.parse import urlsplit

from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import Runtime

__all__ = ["HttpGetFailed", "http_get", "read_reply"]

_REPLY_BYTES_MAX = 64 * 1024
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
    # Version 1.0: no server answers it in chunks or keeps the connection.
    request = f"GET {path} HTTP/1.0\r\nHost: {parts.netloc}\r\nAccept: text/plain, */*\r\nConnection: close\r\n\r\n"
    exchange = _Exchange(request.encode("ascii", "replace"))
    host = parts.hostname

    async def whole_reply() -> bytes:
        await runtime.create_connection(lambda: exchange, host, parts.port or _HTTP_PORT)
        return await exchange.whole

    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return read_reply(url, await whole_reply())
    except TimeoutError:
        raise HttpGetFailed(url, f"no answer within {timeout_ms} ms") from None
    except (OSError, ValueError) as error:  # ValueError: a wrong port or host
        raise HttpGetFailed(url, str(error)) from None
    finally:
        exchange.end()


class _Exchange(asyncio.Protocol):
    """Sends a request and keeps the reply until the peer closes, or until the reply is over the limit."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._reply = bytearray()
        self.whole: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._reply += data
        if len(self._reply) > _REPLY_BYTES_MAX:
            self.end()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.whole.done():
            self.whole.set_result(bytes(self._reply))

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def read_reply(url: str, reply: bytes) -> str:
    """The body of a whole reply as text. Raises HttpGetFailed for a status other than 200 and for a cut reply."""
    head, found, body = reply.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(maxsplit=2)
    if not found or len(words) < 2 or not words[0].startswith("HTTP/1."):
        raise HttpGetFailed(url, "the reply is not a whole HTTP reply")
    if words[1] != str(_OK):
        raise HttpGetFailed(url, f"status {' '.join(words[1:])[:80]}")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    length = fields.get("content-length", "")
    if len(reply) > _REPLY_BYTES_MAX or (length.isdecimal() and len(body) < int(length)):
        raise HttpGetFailed(url, f"{len(body)} bytes came; expected were {length or f'at most {_REPLY_BYTES_MAX}'}")
    if fields.get("transfer-encoding", "identity").lower() != "identity":
        raise HttpGetFailed(url, "the reply has a transfer-encoding that is not supported")
    return body[: int(length)].decode("utf-8", "replace") if length.isdecimal() else body.decode("utf-8", "replace")
