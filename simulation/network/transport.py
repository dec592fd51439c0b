"""One end of a simulated connection: an asyncio transport that behaves like asyncio's own.

`connection_made` is called before any data, and `connection_lost` once, at the end, from the loop. Nothing is
received while reading is paused. `close` sends the written bytes first. A pipe holds `window_bytes` that the reader
has not read; further bytes stay in the write buffer, whose high-water mark pauses the protocol.
"""

import asyncio
import errno
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from zlib import crc32

from lockstep.simulation.machine.host import Host, host_context
from lockstep.simulation.network.wire import Ending, Pipe
from lockstep.simulation.trace import Trace
from lockstep.simulation.virtual_time.loop import VirtualLoop

__all__ = ["Address", "Endpoint", "reset_error"]

Bytes = bytes | bytearray | memoryview
_HIGH_WATER_BYTES = 65_536
_FAILED: Final = "Fatal error: the protocol failed to handle received bytes."


class Address(NamedTuple):
    host: str  # IPv4 text
    port: int


def reset_error() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


class Endpoint(asyncio.Transport):
    """Created by the network, in pairs. `out` carries bytes to the peer, `inbound` bytes from the peer."""

    def __init__(
        self,
        loop: VirtualLoop,
        trace: Trace,
        host: Host,
        local: Address,
        remote: Address,
        read_bytes_max: int,
    ) -> None:
        super().__init__({"sockname": tuple(local), "peername": tuple(remote)})
        self.host = host
        self.context = host_context(host)
        self.label = ""
        self.peer: Endpoint
        self.out: Pipe
        self.inbound: Pipe
        self.on_end: Callable[[Endpoint], None] = lambda _: None
        self._loop = loop
        self._trace = trace
        self._read_bytes_max = read_bytes_max
        self._protocol: asyncio.Protocol | None = None
        self._made = False
        self._closing = False  # no more reading; only bytes that were written before are sent
        self._lost = False  # connection_lost is scheduled or done
        self._reset_by_peer = False
        # reading
        self._received = bytearray()
        self._eof_arrived = False
        self._reading_paused = False
        self._read_scheduled = False
        # writing
        self.unsent = bytearray()  # written, and more than the pipe takes
        self._high_bytes = _HIGH_WATER_BYTES
        self._low_bytes = _HIGH_WATER_BYTES // 4
        self._writing_paused = False
        self._pump_scheduled = False
        self._eof_written = False
        self._eof_sent = False

    def __repr__(self) -> str:
        return f"<connection {self.label}>"

    # Called by the network -----------------------------------------------------------------------------------

    @property
    def lost(self) -> bool:
        return self._lost

    def attach(self, protocol: asyncio.Protocol, waiter: "asyncio.Future[None] | None" = None) -> None:
        """Pass the connection to a protocol; `waiter` is done when connection_made has run."""
        self._protocol = protocol
        self._loop.call_soon(self._call_made, waiter, context=self.context)

    def _call_made(self, waiter: "asyncio.Future[None] | None") -> None:
        assert self._protocol is not None
        try:
            self._protocol.connection_made(self)
        finally:
            self._made = True
            self._schedule_read()
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def lose(self, error: Exception | None) -> None:
        """End the connection on this side without notifying the peer."""
        if self._lost:
            return
        self._lost = self._closing = True
        self.unsent.clear()
        self._loop.call_soon(self._call_lost, error, context=self.context)

    def _call_lost(self, error: Exception | None) -> None:
        self._trace.add("lost", f"{self.label} {type(error).__name__ if error else 'closed'}")
        try:
            if self._protocol is not None:
                self._protocol.connection_lost(error)
        finally:
            self.on_end(self)

    def kill(self, *, silently: bool) -> None:
        """The host crashed: nothing runs here any more. The peer gets a reset unless `silently`."""
        if not self._lost:
            self._lost = self._closing = True
            self.unsent.clear()
            if not silently:
                self.out.put(Ending.RESET)
        self.on_end(self)

    def _fail(self, error: Exception, message: str) -> None:
        if not isinstance(error, OSError):
            self._loop.call_exception_handler(
                {"message": message, "exception": error, "transport": self, "protocol": self._protocol}
            )
        if not self._lost:
            self.unsent.clear()
            self._shut(error)

    # Reading -------------------------------------------------------------------------------------------------

    def on_bytes(self, data: bytes) -> None:
        if self._lost:
            if not self.host.silent:
                self.out.put(Ending.RESET)  # as a kernel answers bytes for a closed socket
            else:
                self.inbound.never_acknowledged()
        elif self._closing:
            self._take(len(data))
        else:
            # At once, not with call_soon: a quarter of all callbacks less.
            at_once = self._made and not self._read_scheduled and self._loop.shuffle is None and self.host.running
            if at_once and not (self._received or self._reading_paused) and len(data) <= self._read_bytes_max:
                self.context.run(self._pass_bytes, data)
                return
            self._received += data
            if at_once:
                self.context.run(self.on_readable)
            elif not self._read_scheduled:
                self._schedule_read()

    def on_ending(self, ending: Ending) -> None:
        if ending is Ending.EOF:
            self._eof_arrived = True
        else:
            self._reset_by_peer = True
            self.unsent.clear()
            if self._closing:
                self.lose(reset_error())
        self._schedule_read()

    def give_up(self, error: OSError) -> None:
        """The kernel ends the connection: the peer's kernel does not answer."""
        if not self._lost and self.host.alive:
            self.lose(error)

    def _take(self, size: int) -> None:
        self.inbound.unread_bytes -= size
        self.peer.on_read()

    def _schedule_read(self) -> None:
        something = self._received or self._eof_arrived or self._reset_by_peer
        if something and self._made and not (self._read_scheduled or self._reading_paused or self._closing):
            self._read_scheduled = True
            self._loop.call_soon(self.on_readable, context=self.context)

    def on_readable(self) -> None:
        """The event loop of the host sees that there is something to read."""
        self._read_scheduled = False
        if self._reading_paused or self._closing:
            return
        assert self._protocol is not None
        if self._received:
            data = bytes(self._received[: self._read_bytes_max])
            del self._received[: self._read_bytes_max]
            self._pass_bytes(data)
            return
        try:
            if self._reset_by_peer:
                self.lose(reset_error())
            elif self._eof_arrived:
                self._eof_arrived = False
                self._trace.add("eof", self.label)
                if not self._protocol.eof_received():
                    self.close()
        except Exception as error:
            self._fail(error, _FAILED)

    def _pass_bytes(self, data: bytes) -> None:
        size = len(data)
        self.inbound.unread_bytes -= size
        if self.peer.unsent:
            self.peer.on_read()
        self._trace.add("data", self.label, size, crc32(data))
        protocol = self._protocol
        assert protocol is not None
        try:
            protocol.data_received(data)
        except Exception as error:
            self._fail(error, _FAILED)
            return
        if self._received or self._eof_arrived or self._reset_by_peer:
            self._schedule_read()

    def is_reading(self) -> bool:
        return not self._closing and not self._reading_paused

    def pause_reading(self) -> None:
        if not self._closing:
            self._reading_paused = True

    def resume_reading(self) -> None:
        if not self._closing:
            self._reading_paused = False
            self._schedule_read()

    # Writing -------------------------------------------------------------------------------------------------

    def write(self, data: Bytes) -> None:
        if type(data) is not bytes and not isinstance(data, Bytes):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data or self._closing:
            return
        if self._reset_by_peer:
            self.lose(reset_error())
            return
        out = self.out
        if not self.unsent and len(data) <= out.free_bytes:
            out.put(bytes(data))
            return
        self.unsent += data
        self._pump()
        if len(self.unsent) > self._high_bytes and not self._writing_paused:
            self._writing_paused = True
            self._call_protocol("pause_writing")

    def writelines(self, list_of_data: Iterable[Bytes]) -> None:
        self.write(b"".join(list_of_data))

    def on_read(self) -> None:
        """The peer has read: fill the window again when this host runs."""
        if self.unsent and not self._pump_scheduled:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump_later, context=self.context)

    def _pump_later(self) -> None:
        self._pump_scheduled = False
        self._pump()
        if self._writing_paused and not self._lost and len(self.unsent) <= self._low_bytes:
            self._writing_paused = False
            self._call_protocol("resume_writing")
        if not self.unsent and not self._lost:
            if self._closing:
                self._shut()
            elif self._eof_written:
                self._send_eof()

    def _pump(self) -> None:
        size = min(len(self.unsent), self.out.free_bytes)
        if size > 0:
            self.out.put(bytes(self.unsent[:size]))
            del self.unsent[:size]

    def _call_protocol(self, method: str) -> None:
        try:
            getattr(self._protocol, method)()
        except Exception as error:
            self._loop.call_exception_handler(
                {"message": f"protocol.{method}() failed", "exception": error, "transport": self}
            )

    def write_eof(self) -> None:
        if not self._closing and not self._eof_written:
            self._eof_written = True
            if not self.unsent:
                self._send_eof()

    def _send_eof(self) -> None:
        if not self._eof_sent:
            self._eof_sent = True
            self.out.put(Ending.EOF)

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return len(self.unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        high = (_HIGH_WATER_BYTES if low is None else 4 * low) if high is None else high
        low = high // 4 if low is None else low
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high_bytes, self._low_bytes = high, low

    # The end -------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self.unsent:
            self._shut()

    def abort(self) -> None:
        if not self._lost:
            self._closing = True
            self.unsent.clear()
            self._shut()

    def _shut(self, error: Exception | None = None) -> None:
        """Close the socket. As in a kernel, unread bytes turn the end into a reset."""
        if self._received:
            self.out.put(Ending.RESET)
        else:
            self._send_eof()
        self.lose(error)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        if not isinstance(protocol, asyncio.Protocol):
            raise TypeError(f"only asyncio.Protocol is simulated, not {type(protocol).__name__}")
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol
