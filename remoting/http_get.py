"""One HTTP GET through a Runtime: as much of HTTP as it takes to be told a few addresses."""

import asyncio
from typing import cast
from urllib.parse import urlsplit

from lockstep.remoting.errors import HttpGetFailed
from lockstep.remoting.runtime import Runtime

__all__ = ["http_get", "read_reply"]

_REPLY_BYTES_MAX = 64 * 1024
_OK = 200
_HTTP_PORT = 80


async def http_get(runtime: Runtime, url: str, timeout_ms: int) -> str:
    """The text of a reply with status 200. Redirects are not followed. Raises HttpGetFailed."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise HttpGetFailed(url, "only http://HOST[:PORT]/... is read")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # Version 1.0: no server answers it in chunks or keeps the connection.
    asked = f"GET {path} HTTP/1.0\r\nHost: {parts.netloc}\r\nAccept: text/plain, */*\r\nConnection: close\r\n\r\n"
    exchange = _Exchange(asked.encode("ascii", "replace"))
    host = parts.hostname

    async def whole_reply() -> bytes:
        await runtime.create_connection(lambda: exchange, host, parts.port or _HTTP_PORT)
        return await exchange.whole

    try:
        return read_reply(url, await asyncio.wait_for(whole_reply(), timeout_ms / 1000))
    except TimeoutError:
        raise HttpGetFailed(url, f"no answer within {timeout_ms} ms") from None
    except (OSError, ValueError) as error:  # a port or a host that is none is a ValueError
        raise HttpGetFailed(url, str(error)) from None
    finally:
        exchange.end()


class _Exchange(asyncio.Protocol):
    """Sends a request and keeps what comes until the peer closes, or until it is more than anybody needs."""

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
    """The text of a whole reply. Raises HttpGetFailed for any status but 200, and for one that is cut short."""
    head, found, body = reply.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(maxsplit=2)
    if not found or len(words) < 2 or not words[0].startswith("HTTP/1."):
        raise HttpGetFailed(url, "that is no whole HTTP reply")
    if words[1] != str(_OK):
        raise HttpGetFailed(url, f"status {' '.join(words[1:])[:80]}")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    length = fields.get("content-length", "")
    if len(reply) > _REPLY_BYTES_MAX or (length.isdecimal() and len(body) < int(length)):
        raise HttpGetFailed(url, f"{len(body)} bytes came of {length or 'too many'}")
    if fields.get("transfer-encoding", "identity").lower() != "identity":
        raise HttpGetFailed(url, "it came in an encoding that was not asked for")
    return body[: int(length)].decode("utf-8", "replace") if length.isdecimal() else body.decode("utf-8", "replace")
