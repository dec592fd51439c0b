"""Protects pages on loopback from other sites: names of hosts, origins of forms, and what a page may load.

A site whose name points to 127.0.0.1 (DNS rebinding) sends its own name as Host; a form of another site has another
Origin. A page of another site may lead here by a link, but it may not load anything from here.
"""

import asyncio
import ipaddress
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockstep.console.connections import BODY_BYTES_MAX, has_large_body

__all__ = ["Guard", "is_trusted_host"]

_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_SAFE_METHODS: Final = ("GET", "HEAD")
_UNDER_WAY_MAX: Final = 16  # requests; others wait until these are answered
_FIELDS_MAX: Final = 64  # of a query; a page reads fewer than ten
_UNLIMITED: Final = ("/events", "/static/style.css", "/static/console.js")


def is_trusted_host(host: str, own_name: str) -> bool:
    """Whether a Host header names this server: an address, localhost, or the name that the user gave.

    Args:
        host: With or without a port; an IPv6 address in brackets.
    """
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in ("localhost", own_name.lower()):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_from(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc == host


def _is_loaded_by_another_site(headers: Headers) -> bool:
    """As a browser says it, also of another port of this machine. To follow a link is no load."""
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return False
    return headers.get("sec-fetch-mode") != "navigate" or headers.get("sec-fetch-dest") != "document"


class Guard:
    """ASGI middleware. 400 for a foreign Host; 403 for what does not come from our own page; 413 for a large body.

    Args:
        bases: Where the addresses of the clusters begin.
    """

    def __init__(self, app: ASGIApp, own_name: str, bases: Iterable[str] = ("",)) -> None:
        self._app = app
        self._own_name = own_name
        self._unlimited = frozenset(base + path for base in bases for path in _UNLIMITED)
        self._under_way = asyncio.Semaphore(_UNDER_WAY_MAX)
        self._next = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
        elif scope["path"] in self._unlimited:
            await self._app(scope, receive, _with_headers(send))
        else:
            if scope["method"] not in _SAFE_METHODS:
                arrived = await _with_body(receive)
                if arrived is None:
                    return
                receive = arrived
            await self._in_turn(scope, receive, send)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if has_large_body(scope["headers"]):
            text = f"A request may have at most {BODY_BYTES_MAX} bytes, and has to say how many.\n"
            return PlainTextResponse(text, 413, {"Connection": "close"})
        if not is_trusted_host(host, self._own_name):
            text = "The Host header must be an address, localhost, or the name given by --host.\n"
            return PlainTextResponse(text, 400)
        if scope["query_string"].count(b"&") >= _FIELDS_MAX:
            return PlainTextResponse(f"An address may have at most {_FIELDS_MAX} fields.\n", 400)
        if scope["method"] not in _SAFE_METHODS and not _is_from(headers.get("origin", ""), host):
            return PlainTextResponse("A form must come from a page of this console.\n", 403)
        if _is_loaded_by_another_site(headers):
            return PlainTextResponse("Another site may not load this.\n", 403)
        return None

    async def _in_turn(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The turn ends when the answer begins: a peer that does not read it holds up nobody.

        In each turn of the loop only one answer is begun, so that a page does not wait for many others.
        """
        waiting = self._under_way
        async with self._next:
            await asyncio.sleep(0)
            await waiting.acquire()
        has_turn = True

        async def end_turn(message: Message) -> None:
            nonlocal has_turn
            if has_turn:
                has_turn = False
                waiting.release()
            await send(message)

        try:
            await self._app(scope, receive, _with_headers(end_turn))
        finally:
            if has_turn:
                waiting.release()


async def _with_body(receive: Receive) -> Receive | None:
    """Reads a body, so that a slow form takes no turn. Gives what hands it on; None: the peer has left.

    Of a body that is too large the rest stays unread: the page refuses it.
    """
    body, has_more = b"", True
    while has_more and len(body) <= BODY_BYTES_MAX:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        has_more = message.get("more_body", False)
    whole: list[Message] = [{"type": "http.request", "body": body, "more_body": has_more}]

    async def with_body() -> Message:
        return whole.pop() if whole else await receive()

    return with_body


def _with_headers(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(_HEADERS)
        await send(message)

    return with_headers
