"""Connections of browsers, with limits that uvicorn does not have: their number, times, and sizes of requests."""

import asyncio
from collections.abc import Iterable
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["BODY_BYTES_MAX", "CONNECTIONS_MAX", "HEAD_BYTES_MAX", "BoundedConnection", "has_large_body"]

CONNECTIONS_MAX: Final = 256
HEAD_BYTES_MAX: Final = 16 * 1024  # a request with its headers
BODY_BYTES_MAX: Final = 16 * 1024  # a form
_LINES_MAX: Final = 100  # of a request with its headers; a browser sends some twenty
_SLICE_BYTES: Final = 2048  # what is parsed before the limits are looked at again
_REQUEST_S: Final = 10.0  # from the first byte that may come to the last
_NEXT_REQUEST_S: Final = 30.0  # from an answer to the end of the next request
_STALLED_S: Final = 30.0  # with an answer that is not read


def has_large_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request has a body of more bytes than a form, or of unknown length, which browsers do not send."""
    for name, value in headers:
        if name == b"transfer-encoding" or (name == b"content-length" and int(value) > BODY_BYTES_MAX):
            return True
    return False


class BoundedConnection(H11Protocol):
    """One connection. If there are too many, the one that has waited longest for a request is closed."""

    _deadline: asyncio.TimerHandle | None = None  # for a whole request
    _stalled: asyncio.TimerHandle | None = None
    waiting_since: float | None = None  # on the clock of the loop; None while a request is answered
    _lines = 0
    _is_deaf = False  # what comes is not looked at any more

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_request(_REQUEST_S)
        if len(self.connections) > CONNECTIONS_MAX:
            ours = [one for one in self.connections if isinstance(one, BoundedConnection)]
            waiting = [(one.waiting_since, number) for number, one in enumerate(ours) if one.waiting_since is not None]
            ours[min(waiting)[1]].end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_deaf = True
        self._cancel_deadline()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), _SLICE_BYTES):
            if self._is_deaf or self.transport.is_closing():
                return
            part = data[start : start + _SLICE_BYTES]
            if self.conn.their_state is not h11.SEND_BODY:
                self._lines += part.count(b"\n")
                if self._lines > _LINES_MAX:
                    self.end()
                    return
            super().data_received(part)
            self._is_deaf = self.conn.their_state is h11.SEND_BODY and has_large_body(self.headers)
        self._if_request_is_whole()

    def send_400_response(self, msg: str) -> None:
        """Nothing more is sent by a page that this request asked for: uvicorn would log that it cannot."""
        if self.cycle is not None:
            self.cycle.disconnected = True
        state = self.conn.our_state
        if state is h11.IDLE or (state is h11.SEND_RESPONSE and self.cycle.scope["method"] != "HEAD"):
            super().send_400_response(msg)
        else:
            self.end()

    def on_response_complete(self) -> None:
        self._lines = 0
        self._wait_for_request(_NEXT_REQUEST_S)
        super().on_response_complete()
        self._if_request_is_whole()  # one that came before the answer

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(_STALLED_S, self.end)

    def resume_writing(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def _wait_for_request(self, timeout_s: float) -> None:
        self._cancel_deadline()
        self.waiting_since = self.loop.time()
        self._deadline = self.loop.call_later(timeout_s, self.end)

    def _if_request_is_whole(self) -> None:
        """While a request is answered nothing is waited for."""
        if self.conn.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY) and self.conn.their_state is not h11.SEND_BODY:
            self._cancel_deadline()

    def end(self) -> None:
        """At once; the peer gets no more."""
        self._cancel_deadline()
        self.transport.abort()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.waiting_since = None
