"""Tells open pages that something changed: server-sent events."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

__all__ = ["Feed", "routes"]

_CLIENTS_MAX: Final = 64
_SILENCE_S: Final = 15.0  # then a comment is sent, so that proxies keep the connection
_PAUSE_S: Final = 0.75  # between two events of one page


class Feed:
    """A version that grows with each change."""

    def __init__(self) -> None:
        self.version = 0
        self.clients_count = 0
        self.is_ended = False
        self._changed = asyncio.Event()

    def end(self) -> None:
        """End the streams: the server waits for them before it ends."""
        self.is_ended = True
        self.publish()

    def publish(self) -> None:
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_newer(self, version: int, timeout_s: float) -> bool:
        """Wait until the version is above `version`. False: nothing changed in `timeout_s`."""
        if self.version > version:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True


class _EventsResponse(StreamingResponse):
    """A stream; it counts from the request to its end, also when nothing could be sent."""

    def __init__(self, feed: Feed) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_stream(feed), media_type="text/event-stream", headers=headers)
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._feed.clients_count >= _CLIENTS_MAX:
            await PlainTextResponse(f"{_CLIENTS_MAX} pages are open already", 503)(scope, receive, send)
            return
        self._feed.clients_count += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.clients_count -= 1


async def _events(request: Request) -> Response:
    if request.method != "GET":  # the answer to HEAD would not end
        raise HTTPException(405)
    return _EventsResponse(request.app.state.console.feed)


async def _stream(feed: Feed) -> AsyncIterator[bytes]:
    version = feed.version
    yield b"retry: 1000\n\n"
    while not feed.is_ended:
        if await feed.wait_newer(version, _SILENCE_S):
            version = feed.version
            yield b"event: changed\ndata: %d\n\n" % version
            await asyncio.sleep(_PAUSE_S)
        else:
            yield b": still here\n\n"


def routes() -> list[Route]:
    return [Route("/events", _events)]
