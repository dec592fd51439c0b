"""TLS between a transport and the protocol that uses it, usually an `Endpoint`, which notices nothing."""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from lockstep.remoting.host.runtime import Runtime, TimerHandle
from lockstep.remoting.tls.session import ENDED_EARLY, TlsError, TlsSession

__all__ = ["HANDSHAKE_TIMEOUT_MS", "TlsLink"]

HANDSHAKE_TIMEOUT_MS: Final = 10_000
# As much as a read of a plain connection brings.
_TURN_BYTES: Final = 256 * 1024
# Bytes that are encrypted before the loop has its turn: they take about 1 ms.
_SEALED_A_TURN: Final = 1024 * 1024
_Bytes = bytes | bytearray | memoryview


class _Unsealed:
    """What is to be encrypted, in order.

    Attributes:
        size: In bytes.
    """

    def __init__(self) -> None:
        self._parts: deque[memoryview] = deque()
        self.size = 0

    def add(self, data: Iterable[_Bytes]) -> None:
        for part in data:
            self._parts.append(memoryview(part))
            self.size += len(part)

    def take(self, size: int) -> bytes:
        """The next bytes: so many, or all that are left."""
        taken = []
        while size > 0 and self._parts:
            part = self._parts.popleft()
            if len(part) > size:
                self._parts.appendleft(part[size:])
                part = part[:size]
            taken.append(part)
            size -= len(part)
        data = b"".join(taken)
        self.size -= len(data)
        return data

    def clear(self) -> None:
        self._parts.clear()
        self.size = 0


class TlsLink(asyncio.Protocol):
    """`inner` sees a connection when the handshake is done.

    A long answer is encrypted in parts, one in each turn of the loop. What waits for that counts as written and not
    sent yet, and leaves before an orderly end.

    Args:
        runtime: Its timers.
        inner: The protocol above.
        context: For `TlsSession`, as `host`.
        on_failed: Called with the reason, in one line, when there is no connection for `inner`.
    """

    def __init__(
        self,
        runtime: Runtime,
        inner: asyncio.Protocol,
        context: ssl.SSLContext,
        *,
        server: bool,
        host: str | None = None,
        on_failed: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._runtime = runtime
        self._inner = inner
        self._session = TlsSession(context, server=server, host=host)
        self._on_failed = on_failed
        self._transport: asyncio.Transport | None = None
        self._timer: TimerHandle | None = None
        self._unsealed = _Unsealed()
        # `inner` wants nothing more for now.
        self._paused = False
        # `_deliver` is on the stack: `inner` may pause or close while it gets data.
        self._delivering = False
        # The handshake failed, and `on_failed` was called.
        self._failed = False
        # The next part is encrypted in the next turn of the loop.
        self._sealing = False
        # The transport below has asked to write no more.
        self._below_full = False
        # `inner` was asked to write no more.
        self._inner_full = False
        # `inner` closed the connection. It ends when all that waits is encrypted and written.
        self._ending = False
        # The session is over, and `inner` was told why.
        self._broken = False
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.opened.add_done_callback(lambda done: done.cancelled() or done.exception())  # it need not be awaited

    # asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._timer = self._runtime.call_later_ms(HANDSHAKE_TIMEOUT_MS, self._too_late)
        self._go_on()

    def data_received(self, data: bytes) -> None:
        if not self._ending:
            # A transport that closes reads no more, either: nothing would read what piles up.
            self._session.receive(data)
            self._go_on()

    def eof_received(self) -> bool:
        """Returns whether the transport stays open: it may end when all is sent."""
        if not self._session.is_open:
            self._fail(ENDED_EARLY)
            return False
        self._inner.eof_received()
        if self._unsealed.size:
            self.close()
        return self._ending

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._unsealed.clear()
        if self._broken:
            return
        if self._session.is_open:
            self._inner.connection_lost(exc)
        else:
            self._fail(f"the connection ended in the handshake: {exc}" if exc else "the peer closed the connection")

    def pause_writing(self) -> None:
        self._below_full = True
        self._tell_inner()

    def resume_writing(self) -> None:
        self._below_full = False
        self._seal()

    # Handshake -----------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        try:
            if not self._session.is_open:
                done = self._session.shake_hands()
                self._flush()
                if not done:
                    return
                self._open()
            self._deliver()
        except TlsError as error:
            self._flush()  # the alert
            if self._session.is_open:
                self._broken = True
                self.abort()
                # Now, and not when the transport is gone: what `inner` begins until then fails with the reason.
                self._inner.connection_lost(ConnectionResetError(f"TLS: {error}"))
            else:
                self._fail(str(error))

    def _open(self) -> None:
        self._stop_timer()
        if self._transport is not None:
            self._inner.connection_made(_TlsTransport(self, self._transport))
            if not self.opened.done():
                self.opened.set_result(None)

    def _too_late(self) -> None:
        self._timer = None
        self._fail(f"no TLS handshake within {HANDSHAKE_TIMEOUT_MS} ms")

    def _fail(self, reason: str) -> None:
        self._stop_timer()
        if self._transport is not None:
            # Not abort: the alert leaves first.
            self._transport.close()
        if not self._failed:
            self._failed = True
            if not self.opened.done():
                self.opened.set_exception(TlsError(reason))
            self._on_failed(reason)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # Reading -------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Give what was decrypted to `inner`, until that pauses."""
        if self._delivering:
            return
        self._delivering = True
        try:
            while not self._paused and not self.is_closing():
                data = self._session.read(_TURN_BYTES)
                if data:
                    self._inner.data_received(data)
                if self._session.is_ended and not self._paused:
                    # Else `inner` has not handled all of `data` yet.
                    self._inner.eof_received()
                    self.close()
                if not data:
                    break
        finally:
            self._delivering = False
            self._flush()

    def _flush(self) -> None:
        data = self._session.outgoing()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    # Writing -------------------------------------------------------------------------------------------------

    def write(self, parts: list[_Bytes]) -> None:
        transport = self._transport
        if transport is None or self.is_closing():
            return
        if self._is_full or sum(map(len, parts)) > _SEALED_A_TURN:
            self._unsealed.add(parts)
            self._seal()
        else:
            self._session.write(b"".join(parts))
            transport.write(self._session.outgoing())

    @property
    def _is_full(self) -> bool:
        return self._below_full or self._unsealed.size > 0

    def _seal(self) -> None:
        """Encrypt a part of what waits, unless one is due in the next turn of the loop or the transport is full."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._unsealed.size and not (self._below_full or self._sealing):
            self._session.write(self._unsealed.take(_SEALED_A_TURN))
            transport.write(self._session.outgoing())
            if self._unsealed.size:
                self._sealing = True
                self._runtime.call_later_ms(0, self._seal_on)
        if self._ending and not self._unsealed.size:
            self._end(transport)
        else:
            self._tell_inner()

    def _seal_on(self) -> None:
        self._sealing = False
        self._seal()

    def _tell_inner(self) -> None:
        """`inner` writes no more until all that waits is encrypted, and the transport has room."""
        if self._is_full != self._inner_full and self._session.is_open and not self.is_closing():
            self._inner_full = not self._inner_full
            (self._inner.pause_writing if self._inner_full else self._inner.resume_writing)()

    @property
    def unsealed_bytes(self) -> int:
        return self._unsealed.size

    # For `_TlsTransport` -------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._ending or self._transport is None or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._paused = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            if not self._delivering:
                # What is decrypted already is read without a sign of the transport.
                self._runtime.call_later_ms(0, self._go_on)

    def close(self) -> None:
        if self._transport is not None and not self.is_closing():
            if self._unsealed.size:
                self._ending = True
            else:
                self._end(self._transport)

    def _end(self, transport: asyncio.Transport) -> None:
        self._session.end()
        self._flush()
        transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def describe(self) -> str:
        return self._session.describe()


class _TlsTransport(asyncio.Transport):
    """What `inner` writes to. The limits are those of the transport below."""

    def __init__(self, link: TlsLink, below: asyncio.Transport) -> None:
        super().__init__()
        self._link = link
        self._below = below

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._link.describe() if name == "tls" else self._below.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._link.is_closing()

    def close(self) -> None:
        self._link.close()

    def abort(self) -> None:
        self._link.abort()

    def is_reading(self) -> bool:
        return self._below.is_reading()

    def pause_reading(self) -> None:
        self._link.pause_reading()

    def resume_reading(self) -> None:
        self._link.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._below.get_write_buffer_size() + self._link.unsealed_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._below.get_write_buffer_limits()

    def write(self, data: _Bytes) -> None:
        self._link.write([bytes(data)])

    def writelines(self, list_of_data: Iterable[_Bytes]) -> None:
        self._link.write(list(list_of_data))
