"""Protects pages on loopback from other sites: names of hosts, origins of forms, and what a page may load.

A site whose name points to 127.0.0.1 (DNS rebinding) sends its own name as Host; a form of another site has another
Origin.
"""

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


class Guard:
    """ASGI middleware. 400 for a foreign Host; 403 for a POST that does not come from our own page."""

    def __init__(self, app: ASGIApp, own_name: str) -> None:
        self._app = app
        self._own_name = own_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not is_trusted_host(host, self._own_name):
            text = "The Host header must be an address, localhost, or the name given by --host.\n"
            await PlainTextResponse(text, 400)(scope, receive, send)
            return
        if scope["method"] not in _SAFE_METHODS and not _is_from(headers.get("origin", ""), host):
            await PlainTextResponse("A form must come from a page of this console.\n", 403)(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await self._app(scope, receive, with_headers)
