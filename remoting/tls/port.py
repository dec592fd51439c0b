"""The server's end of TLS: one port for plain connections and for TLS, told apart by their first byte (wire.md 1.1)."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, cast

from lockstep.remoting.host.runtime import ProtocolFactory, Runtime, TimerHandle
from lockstep.remoting.logs import EventLog
from lockstep.remoting.settings import Address, SettingError
from lockstep.remoting.tls.link import TlsLink
from lockstep.remoting.tls.session import RECORD_TYPE_HANDSHAKE

__all__ = ["TlsPort"]

# A connection that sends no first byte for so long is closed.
_SILENT_MS: Final = 30_000
# Such connections at once; one more ends the oldest of them.
_SILENT_MAX: Final = 1000
# Handshakes at once. Of more, the last would take longer than a handshake may.
_HANDSHAKES_MAX: Final = 4000


class TlsPort:
    """Wraps what a port makes for its connections.

    Args:
        context: Called for each TLS connection, so that new certificates serve new connections. May raise SettingError:
            then the connection is closed.
        plain_allowed: False: a connection without TLS is closed.
        handshakes_max: The handshakes at once, which `connections_max` does not count.
    """

    def __init__(
        self,
        runtime: Runtime,
        context: Callable[[], ssl.SSLContext],
        log: EventLog,
        *,
        plain_allowed: bool,
        handshakes_max: int = _HANDSHAKES_MAX,
    ) -> None:
        self._runtime = runtime
        self._context = context
        self._log = log
        self._plain_allowed = plain_allowed
        self._handshakes_max = handshakes_max
        self._silent: dict[_FirstByte, None] = {}  # oldest first
        self._handshakes: dict[TlsLink, None] = {}  # likewise
        self._last_refused = ""

    def wrap(self, factory: ProtocolFactory) -> ProtocolFactory:
        return lambda: _FirstByte(self, factory)

    def close(self) -> None:
        """End the connections that have sent nothing yet, and those whose handshake is not done."""
        for one in list(self._silent):
            one.end()
        for link in list(self._handshakes):
            link.abort()

    # For `_FirstByte` ----------------------------------------------------------------------------------------

    def waits(self, one: "_FirstByte") -> TimerHandle:
        if len(self._silent) >= _SILENT_MAX:
            next(iter(self._silent)).end()
        self._silent[one] = None
        return self._runtime.call_later_ms(_SILENT_MS, one.end)

    def waits_no_more(self, one: "_FirstByte") -> None:
        self._silent.pop(one, None)

    def next_protocol(self, first: int, inner: ProtocolFactory, peer: str) -> asyncio.Protocol | None:
        """What goes on after the first byte of a connection; None: nothing does."""
        if first == RECORD_TYPE_HANDSHAKE:
            try:
                context = self._context()
            except SettingError as error:
                self._refused(str(error))
                return None
            link = TlsLink(
                self._runtime,
                inner(),
                context,
                server=True,
                on_failed=lambda reason: self._log.info("tls_handshake_failed", peer=peer, reason=reason),
            )
            if len(self._handshakes) >= self._handshakes_max:
                oldest = next(iter(self._handshakes))
                del self._handshakes[oldest]
                oldest.abort()
            self._handshakes[link] = None
            link.opened.add_done_callback(lambda _: self._handshakes.pop(link, None))
            return link
        if self._plain_allowed:
            return inner()
        self._log.info("tls_required", peer=peer, reason="the connection does not begin with a TLS handshake")
        return None

    def _refused(self, reason: str) -> None:
        """Once for each reason: clients try again and again."""
        if reason != self._last_refused:
            self._last_refused = reason
            self._log.warning("tls_not_served", reason=reason)


class _FirstByte(asyncio.Protocol):
    """A connection that has sent nothing yet."""

    def __init__(self, port: TlsPort, inner: ProtocolFactory) -> None:
        self._port = port
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._timer: TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._timer = self._port.waits(self)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        self._leave()
        if transport is None:
            return
        peer = transport.get_extra_info("peername")
        after = self._port.next_protocol(data[0], self._inner, str(Address(peer[0], peer[1])) if peer else "?")
        if after is None:
            transport.abort()
            return
        transport.set_protocol(after)
        after.connection_made(transport)
        after.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()

    def end(self) -> None:
        transport = self._transport
        self._leave()
        if transport is not None:
            transport.abort()

    def _leave(self) -> None:
        self._transport = None
        self._port.waits_no_more(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
