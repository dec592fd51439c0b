"""A connection of HTTP/2 on asyncio: moves bytes and timers between a transport, h2 and the calls on it.

h2 does the protocol and no I/O, so that the simulator runs the very bytes. This shell bounds what a peer may keep or
cost, and lets other connections have their turn.
"""

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, cast

import h2.connection
import h2.errors
import h2.events
import h2.exceptions

from lockstep.broker.fronts.grpc.call import Service
from lockstep.broker.fronts.grpc.http2.frame_guard import FrameGuard
from lockstep.broker.fronts.grpc.http2.machine import new_machine
from lockstep.broker.fronts.grpc.http2.stream import Headers, Stream
from lockstep.broker.fronts.grpc.http2.turns import Turns
from lockstep.broker.fronts.grpc.http2.waiting import Waiting
from lockstep.protocol.errors import FrameError
from lockstep.protocol.grpc.wire import GrpcStatus, parse_timeout_ms
from lockstep.remoting.connections.byte_budget import ConnectionBounds
from lockstep.remoting.host.runtime import Runtime, TimerHandle
from lockstep.remoting.logs import EventLog
from lockstep.remoting.settings import Address

__all__ = ["Http2Callbacks", "Http2Connection", "Http2Settings"]

_SERVICE: Final = b"/apache.rocketmq.v2.MessagingService/"
_READ: Final = frozenset((b":path", b":method", b"content-type", b"grpc-timeout", b"authorization"))
_METADATA: Final = b"x-mq-"
_VALUE_BYTES_MAX: Final = 1024  # of a header that a session keeps
_CONNECTION_WINDOW_BYTES: Final = 8 * 1024 * 1024
_MESSAGES_AT_ONCE: Final = 16  # of a call that stays open; clients send one each 10 s
_CALL_BYTES: Final = 4096  # of a call beside what came with it
_WRITE_HIGH_WATER_BYTES: Final = 1024 * 1024
_TOO_LATE: Final = (GrpcStatus.DEADLINE_EXCEEDED, "the deadline of the call is over")
_CLOSED: Final = h2.connection.ConnectionState.CLOSED
_CALM: Final = h2.errors.ErrorCodes.ENHANCE_YOUR_CALM


class Http2Settings(NamedTuple):
    """Args:
    streams_max: Calls at once on a connection. A push consumer has one for each queue.
    idle_close_ms: A connection that sends nothing for so long is closed. Clients send heartbeats every 10 s.
    """

    streams_max: int
    idle_close_ms: int


class Http2Callbacks(NamedTuple):
    """What a connection calls when it is there, and once when it is gone."""

    on_opened: Callable[["Http2Connection"], object]
    on_closed: Callable[["Http2Connection"], object]


class Http2Connection(asyncio.Protocol):
    """A `Peer` of the broker: the connection of one client, or of several of one process."""

    def __init__(
        self,
        runtime: Runtime,
        turns: Turns,
        settings: Http2Settings,
        service: Service,
        callbacks: Http2Callbacks,
        log: EventLog,
        bounds: ConnectionBounds,
    ) -> None:
        self._runtime = runtime
        self._turns = turns
        self._settings = settings
        self._service = service
        self._callbacks = callbacks
        self._log = log
        self._bounds = bounds
        self._transport: asyncio.Transport | None = None
        self._guard = FrameGuard(runtime.now_ms())
        self._h2 = new_machine(settings.streams_max)
        self._streams: dict[int, Stream] = {}
        self._unended = Waiting()  # requests that have not ended
        self._blocked = Waiting()  # answers, which wait for the peer's window
        self._to_pump = deque[Stream]()  # of those: a window may have opened
        self._timer: TimerHandle | None = None
        self._deadlines: TimerHandle | None = None  # for the first of the calls' deadlines
        self._first_deadline_ms: int | None = None
        self._waiting_bytes = 0  # of requests that have not ended, as `_bounds` has counted them
        self._unread_bytes = 0  # of answers, likewise
        self._waits_first: Stream | None = None  # the oldest of them
        self._events = deque[Any]()  # of h2, in their order
        self._working = False
        self._waits_for_turn = False
        self._closing = False
        self._drained: list[Callable[[], None]] = []
        self._handlers: dict[type, Callable[[Any], None]] = {
            h2.events.RequestReceived: self._on_request,
            h2.events.DataReceived: self._on_data,
            h2.events.StreamEnded: self._on_ended,
            h2.events.StreamReset: self._on_reset,
            h2.events.WindowUpdated: self._on_window,
            h2.events.RemoteSettingsChanged: self._on_settings,
            h2.events.ConnectionTerminated: self._on_goaway,
        }
        self.write_paused = False
        self.ended_by_peer = False
        self.is_local = False
        self.address = self.host = "?"
        self.read_at_ms = self.late_count = 0

    # Peer ----------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and not self._closing

    def when_writable(self, then: Callable[[], None]) -> None:
        """Call `then` when a full write buffer has drained or the connection is gone."""
        if self.write_paused and self._transport is not None:
            self._drained.append(then)
        else:
            self._runtime.call_later_ms(0, then)

    def mark_active(self, now_ms: int) -> None:
        """Begin the time without traffic anew."""
        self.read_at_ms = now_ms

    def close(self, reason: str) -> None:
        """End all calls, and close when what was written has left."""
        if self._transport is None or self._closing:
            return
        now_ms = self._runtime.now_ms()
        for stream in list(self._streams.values()):
            if stream.is_open:
                stream.cut(GrpcStatus.UNAVAILABLE, reason, now_ms)
        self._end(h2.errors.ErrorCodes.NO_ERROR)

    def abort(self, reason: str) -> None:
        """Close at once, dropping what was not written yet."""
        if self._transport is not None:
            self._closing = True
            self._transport.abort()

    def _end(self, code: h2.errors.ErrorCodes) -> None:
        """Say why, and close when that has left."""
        self._closing = True
        # What is against the protocol h2 has answered itself, with a better code.
        if self._h2.state_machine.state is not h2.connection.ConnectionState.CLOSED:
            self._h2.close_connection(code)
        self._flush()
        if self._transport is not None:
            self._transport.close()

    # asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(_WRITE_HIGH_WATER_BYTES, _WRITE_HIGH_WATER_BYTES // 4)
        if peer := transport.get_extra_info("peername"):
            self.host, self.address = peer[0], str(Address(peer[0], peer[1]))
            self.is_local = (transport.get_extra_info("sockname") or ("",))[0] == self.host
        self.read_at_ms = self._runtime.now_ms()
        self._timer = self._runtime.call_later_ms(self._settings.idle_close_ms, self._on_timer)
        self._h2.initiate_connection()
        self._h2.increment_flow_control_window(_CONNECTION_WINDOW_BYTES - 65_535)
        self._callbacks.on_opened(self)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport, self._closing = None, True
        self.ended_by_peer = exc is None or isinstance(exc, ConnectionResetError | BrokenPipeError)
        if self._timer is not None:
            self._timer.cancel()
        if self._deadlines is not None:
            self._deadlines.cancel()
        self._events.clear()
        self._bounds.inbound.note(self, 0, self.read_at_ms, progress=False)
        self._bounds.outbound.note(self, 0, self.read_at_ms)
        self._wake_writers()
        # Its calls may be 2,000, which take 5 ms, and many connections may end together.
        self._turns.now_or_wait(self._end_calls)

    def _end_calls(self) -> None:
        """Those of a connection that is gone, then the connection."""
        ends_ns, now_ms = self._turns.ends_ns(), self._runtime.now_ms()
        for stream in list(self._streams.values()):
            self._forget(stream, now_ms)
            if self._turns.is_over(ends_ns):
                break
        if self._streams:
            self._turns.wait(self._end_calls)
        else:
            self._callbacks.on_closed(self)

    def data_received(self, data: bytes) -> None:
        self.read_at_ms = now_ms = self._runtime.now_ms()
        self._guard.receive(data, now_ms)
        if not self._waits_for_turn and not self._closing:
            self._work()

    def pause_writing(self) -> None:
        self.write_paused = True
        # No more calls from a peer that does not take its answers.
        if self._transport is not None:
            self._transport.pause_reading()
        self._note_outbound()

    def resume_writing(self) -> None:
        self.write_paused = False
        self._wake_writers()
        self._pump_all()
        if self.is_open and not self._waits_for_turn and self._transport is not None:
            self._transport.resume_reading()
            self._work()

    def _wake_writers(self) -> None:
        drained, self._drained = self._drained, []
        for then in drained:
            self._runtime.call_later_ms(0, then)

    def _on_timer(self) -> None:
        now_ms = self._runtime.now_ms()
        idle_ms = now_ms - self.read_at_ms
        left_ms = self._settings.idle_close_ms - idle_ms
        if left_ms > 0:
            self._timer = self._runtime.call_later_ms(left_ms, self._on_timer)
            return
        # Also one that closes, whose peer does not read what was written.
        self._log.info("connection_idle", peer=self.address, idle_ms=idle_ms)
        self.abort(f"nothing was received for {idle_ms} ms")

    # One read ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Handle the whole frames that are there, for a turn's time."""
        ends_ns, handled = self._turns.ends_ns(), False
        self._working = True
        try:
            while not self._closing:
                if self._to_pump:
                    self._pump(self._to_pump.popleft())
                elif not self._events:
                    batch = self._guard.next_batch()
                    if not batch:
                        break
                    handled = handled or not self._guard.in_headers
                    self._events.extend(self._h2.receive_data(batch))
                    continue
                else:
                    event = self._events.popleft()
                    handle = self._handlers.get(type(event))
                    if handle is not None:
                        handle(event)
                # A call may take 20 ms, and a few frames hold many.
                if self._turns.is_over(ends_ns):
                    self._wait_for_turn()
                    break
        except (FrameError, h2.exceptions.ProtocolError) as error:
            self._log.warning("http2_failed", peer=self.address, reason=str(error))
            self._end(_CALM if isinstance(error, FrameError) else h2.errors.ErrorCodes.PROTOCOL_ERROR)
        except Exception as error:
            self._log.error("read_failed", peer=self.address, exc_info=error)
            self.abort(f"{type(error).__name__}: {error}")
        finally:
            self._working = False
        self._flush()
        self._note_inbound(handled=handled)
        self._note_outbound()
        self._service.after_read()

    def _wait_for_turn(self) -> None:
        """Read no more until every other connection had its turn."""
        if self._transport is not None and (self._to_pump or self._events or self._guard.waiting_bytes):
            self._waits_for_turn = True
            self._transport.pause_reading()
            self._turns.wait(self._take_turn)

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        if self.is_open and self._transport is not None:
            if not self.write_paused:
                self._transport.resume_reading()
            self._work()

    def _note_inbound(self, *, handled: bool) -> None:
        """`handled`: a whole frame was, so one that waits is a later one."""
        waiting, first = self._guard.waiting_bytes + self._unended.bytes, self._unended.first
        if waiting or self._waiting_bytes:
            # Other calls that go on are no progress of one that waits.
            progress = handled if first is None else first is not self._waits_first
            self._waiting_bytes, self._waits_first = waiting, first
            self._bounds.inbound.note(self, waiting, self.read_at_ms, progress=progress)

    def _note(self, stream: Stream) -> None:
        """Count what waits of a call, in both directions."""
        if stream.stream_id in self._streams:
            self._unended.note(stream, self._received_bytes(stream))
            self._blocked.note(stream, stream.waiting_bytes)

    def _received_bytes(self, stream: Stream) -> int:
        """Of a request that has not ended. A stream of telemetry need not end."""
        if stream.half_closed:
            return 0
        if self._service.keeps_open(stream.method) or not stream.is_open:
            return stream.reader.waiting_bytes
        return _CALL_BYTES + stream.metadata_bytes + stream.reader.waiting_bytes + len(stream.request or b"")

    def _note_outbound(self) -> None:
        if self._transport is None:
            return
        waiting = self._blocked.bytes + (self._transport.get_write_buffer_size() if self.write_paused else 0)
        if waiting or self._unread_bytes:
            self._unread_bytes = waiting
            self._bounds.outbound.note(self, waiting, self._runtime.now_ms())

    def _flush(self) -> None:
        if self._transport is not None and not self._transport.is_closing() and (data := self._h2.data_to_send()):
            self._transport.write(data)

    # Events of h2 --------------------------------------------------------------------------------------------

    def _on_request(self, event: Any) -> None:
        stream_id, read = event.stream_id, _read_headers(event.headers)
        path = read.pop(":path", "").encode()
        if read.pop(":method", "") != "POST" or not read.pop("content-type", "").startswith("application/grpc"):
            self.headers(stream_id, [(b":status", b"415")], end=True)
            return
        timeout_ms = _timeout_ms(read.pop("grpc-timeout", ""))
        method = path.removeprefix(_SERVICE).decode("ascii", "replace")
        stream = Stream(
            self,
            self,
            stream_id,
            method,
            read,
            self.read_at_ms,
            timeout_ms,
            self._service.bytes_max(method),
        )
        self._streams[stream_id] = stream
        self._note(stream)
        self._watch_deadline(stream.deadline_ms)
        under_way = self._bounds.under_way
        has_room = under_way is None or under_way.has_room(self)
        may_begin = self._service.may_begin(stream)
        self._count(1)
        if not has_room:
            stream.finish(GrpcStatus.UNAVAILABLE, "too many calls are under way")
        elif not path.startswith(_SERVICE) or not self._service.serves(method):
            name = path.removeprefix(b"/").decode("ascii", "replace")
            stream.finish(GrpcStatus.UNIMPLEMENTED, f"Method {name} is unimplemented")
        elif not may_begin:
            self._service.refuse_busy(stream)
        elif event.stream_ended is not None and not self._service.keeps_open(method):
            stream.finish(GrpcStatus.INTERNAL, "a request has no message")

    def _on_data(self, event: Any) -> None:
        stream = self._streams.get(event.stream_id)
        if event.flow_controlled_length and self.is_open:
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        if stream is None or not stream.is_open:
            return
        try:
            messages = stream.reader.receive(event.data)
        except FrameError as error:
            stream.finish(GrpcStatus.RESOURCE_EXHAUSTED, str(error))
            return
        if self._service.keeps_open(stream.method):
            if len(messages) > _MESSAGES_AT_ONCE:
                stream.finish(GrpcStatus.RESOURCE_EXHAUSTED, f"over {_MESSAGES_AT_ONCE} messages at once")
                return
            for message in messages:
                self._service.receive(stream, message, self.read_at_ms)
        elif messages:
            if stream.request is not None or len(messages) > 1:
                stream.finish(GrpcStatus.INTERNAL, "a request has more than one message")
            else:
                stream.request = messages[0]
        self._note(stream)

    def _on_ended(self, event: Any) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return
        stream.half_closed = True
        self._note(stream)
        if not stream.is_open:
            # What waits for a window is written first.
            if stream.is_written:
                self._forget(stream, self.read_at_ms)
        elif self._service.keeps_open(stream.method):
            self._service.half_closed(stream, self.read_at_ms)
        elif stream.request is None:
            stream.finish(GrpcStatus.INTERNAL, "a request has no whole message")
        else:
            request, stream.request = stream.request, None
            if stream.is_late(self.read_at_ms):
                # Its client tries again, or has done so.
                stream.cut(*_TOO_LATE, self.read_at_ms)
            else:
                self._service.receive(stream, request, self.read_at_ms)

    def _on_reset(self, event: Any) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is not None:
            self._forget(stream, self.read_at_ms)

    def _on_window(self, event: Any) -> None:
        if not event.stream_id:
            self._pump_all()
        elif (stream := self._streams.get(event.stream_id)) is not None:
            self._pump(stream)

    def _on_settings(self, event: Any) -> None:
        self._pump_all()

    def _on_goaway(self, event: Any) -> None:
        # h2 writes no more after it.
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    # Deadlines -----------------------------------------------------------------------------------------------

    def _watch_deadline(self, deadline_ms: int | None) -> None:
        """One timer serves all calls: most are answered long before their time is over."""
        first_ms = self._first_deadline_ms
        if deadline_ms is None or (first_ms is not None and first_ms <= deadline_ms):
            return
        if self._deadlines is not None:
            self._deadlines.cancel()
        self._first_deadline_ms = deadline_ms
        self._deadlines = self._runtime.call_later_ms(max(deadline_ms - self._runtime.now_ms(), 1), self._on_deadline)

    def _on_deadline(self) -> None:
        self._deadlines = self._first_deadline_ms = None
        ends_ns, now_ms = self._turns.ends_ns(), self._runtime.now_ms()
        self._working = True
        try:
            for stream in [one for one in self._streams.values() if one.is_late(now_ms)]:
                self._end_late(stream, now_ms)
                if self._turns.is_over(ends_ns):
                    break
        finally:
            self._working = False
        if self.is_open:
            deadlines = (one.deadline_ms for one in self._streams.values())
            self._watch_deadline(min((one for one in deadlines if one is not None), default=None))
        self._flush()
        self._note_outbound()
        self._service.after_read()

    def _end_late(self, stream: Stream, now_ms: int) -> None:
        if stream.is_open:
            stream.cut(*_TOO_LATE, now_ms)
        if not stream.is_written and self.is_open:
            # Its answer waits for a window that the client opens no more.
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self._h2.reset_stream(stream.stream_id, h2.errors.ErrorCodes.CANCEL)
            self._forget(stream, now_ms)

    # Writer --------------------------------------------------------------------------------------------------

    # h2 knows the end of a call, or of the connection, before its event is handled here: a client may end a call in the
    # read that brought the request which is being answered. What is written then goes nowhere.

    def headers(self, stream_id: int, headers: Headers, *, end: bool) -> None:
        with contextlib.suppress(h2.exceptions.ProtocolError):
            self._h2.send_headers(stream_id, headers, end_stream=end)

    def data(self, stream_id: int, data: memoryview) -> None:
        with contextlib.suppress(h2.exceptions.ProtocolError):
            self._h2.send_data(stream_id, bytes(data))

    def window(self, stream_id: int) -> int:
        # What waits when the connection ends was not sent, and its service hears of it. h2 ends with a GOAWAY, before
        # its event is handled here.
        if self.write_paused or not self.is_open or self._h2.state_machine.state is _CLOSED:
            return 0
        try:
            window = self._h2.local_flow_control_window(stream_id)
        except h2.exceptions.ProtocolError:
            return 0
        return min(window, self._h2.max_outbound_frame_size)

    def changed(self, stream: Stream) -> None:
        self._note(stream)
        if stream.is_written:
            self._guard.answered()
            self._ended(stream)
        if not self._working:
            self._note_outbound()
            self._flush()

    def _pump_all(self) -> None:
        """In turns: 2,000 answers take 30 ms, and a peer can open and close their windows again and again."""
        self._to_pump = deque(self._blocked.calls())

    def _pump(self, stream: Stream) -> None:
        if stream in self._blocked:
            # Behind the others: the window of the connection may not be enough for all.
            self._blocked.note(stream, 0)
            stream.pump()
            self._note(stream)
            if stream.is_written:
                self._ended(stream)

    def _count(self, more: int) -> None:
        """So many calls began; below 0: they ended."""
        if self._bounds.under_way is not None:
            self._bounds.under_way.add(self, more)

    def _ended(self, stream: Stream) -> None:
        """All of the answer is written."""
        if stream.half_closed:
            self._forget(stream, self.read_at_ms)
        elif self.is_open:
            # The peer need not send the rest of its request.
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self._h2.reset_stream(stream.stream_id, h2.errors.ErrorCodes.NO_ERROR)
            self._forget(stream, self.read_at_ms)

    def _forget(self, stream: Stream, now_ms: int) -> None:
        if self._streams.pop(stream.stream_id, None) is not None:
            self._count(-1)
            self._unended.note(stream, 0)
            self._blocked.note(stream, 0)
            stream.gone(now_ms)


def _read_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Those that the front reads; of equal names the last."""
    return {
        known: value[:_VALUE_BYTES_MAX].decode("utf-8", "replace")
        for name, value in headers
        if (known := _name_of(name))
    }


@functools.lru_cache(256)
def _name_of(name: bytes) -> str:
    """Empty: the front does not read it. Clients send the same few names in each call."""
    return name.decode("ascii", "replace") if name in _READ or name.startswith(_METADATA) else ""


def _timeout_ms(text: str) -> int | None:
    """None: the client waits for ever. What cannot be read is a call that waits no more."""
    if not text:
        return None
    try:
        return parse_timeout_ms(text)
    except FrameError:
        return 0
