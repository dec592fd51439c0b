"""A connection of HTTP/2 on asyncio: moves bytes and timers between a transport, h2 and the calls on it.

h2 does the protocol and no I/O, so that the simulator runs the very bytes. This shell bounds what a peer may keep or
cost, and lets other connections have their turn.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, cast

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from lockstep.broker.fronts.grpc.call import Service
from lockstep.broker.fronts.grpc.http2.frame_guard import FrameGuard
from lockstep.broker.fronts.grpc.http2.stream import Headers, Stream
from lockstep.protocol.errors import FrameError
from lockstep.protocol.grpc.wire import GrpcStatus, parse_timeout_ms
from lockstep.remoting.connections.byte_budget import ConnectionBounds
from lockstep.remoting.host.runtime import Runtime, TimerHandle
from lockstep.remoting.logs import EventLog
from lockstep.remoting.settings import Address

__all__ = ["Http2Callbacks", "Http2Connection", "Http2Settings"]

_SERVICE: Final = b"/apache.rocketmq.v2.MessagingService/"
_READ_HEADERS: Final = frozenset((b":path", b":method", b"content-type", b"grpc-timeout", b"authorization"))
_METADATA: Final = b"x-mq-"
_VALUE_BYTES_MAX: Final = 1024  # of a header that a session keeps
# What the peer may send before it is acknowledged: a message of 4 MiB comes in one go.
_STREAM_WINDOW_BYTES: Final = 1024 * 1024
_CONNECTION_WINDOW_BYTES: Final = 8 * 1024 * 1024
_HEADER_LIST_BYTES_MAX: Final = 16_384
_MESSAGES_AT_ONCE: Final = 16  # of a call that stays open; clients send one each 10 s
_TURN_NS: Final = 1_000_000
_WRITE_HIGH_WATER_BYTES: Final = 1024 * 1024
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
        settings: Http2Settings,
        service: Service,
        callbacks: Http2Callbacks,
        log: EventLog,
        bounds: ConnectionBounds,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._service = service
        self._callbacks = callbacks
        self._log = log
        self._bounds = bounds
        self._transport: asyncio.Transport | None = None
        self._guard = FrameGuard(runtime.now_ms())
        self._h2 = _new_h2(settings)
        self._streams: dict[int, Stream] = {}
        self._blocked: dict[int, Stream] = {}
        self._timer: TimerHandle | None = None
        self._waiting_bytes = 0  # of requests that have not ended, as `_bounds` has counted them
        self._waits_first: Stream | None = None  # the oldest of them
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
        for stream in list(self._streams.values()):
            stream.finish(GrpcStatus.UNAVAILABLE, reason)
        self._end(h2.errors.ErrorCodes.NO_ERROR)

    def abort(self, reason: str) -> None:
        """Close at once, dropping what was not written yet."""
        if self._transport is not None:
            self._closing = True
            self._transport.abort()

    def _end(self, code: h2.errors.ErrorCodes) -> None:
        """Say why, and close when that has left."""
        self._closing = True
        try:
            self._h2.close_connection(code)
        except h2.exceptions.ProtocolError:
            pass  # it is closed
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
        streams, self._streams, self._blocked = self._streams, {}, {}
        self._count(-len(streams))
        now_ms = self._runtime.now_ms()
        for stream in streams.values():
            stream.gone(now_ms)
        self._wake_writers()
        self._bounds.inbound.note(self, 0, self.read_at_ms, progress=False)
        self._bounds.outbound.note(self, 0, self.read_at_ms)
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
        self._pump(list(self._blocked.values()))
        self._flush()
        if self.is_open and not self._waits_for_turn and self._transport is not None:
            self._transport.resume_reading()

    def _wake_writers(self) -> None:
        drained, self._drained = self._drained, []
        for then in drained:
            self._runtime.call_later_ms(0, then)

    def _on_timer(self) -> None:
        now_ms = self._runtime.now_ms()
        idle_ms = now_ms - self.read_at_ms
        left_ms = self._settings.idle_close_ms - idle_ms
        if left_ms <= 0 and self.is_open:
            self._log.info("connection_idle", peer=self.address, idle_ms=idle_ms)
            self.abort(f"nothing was received for {idle_ms} ms")
        elif self._transport is not None:
            self._timer = self._runtime.call_later_ms(max(left_ms, 1), self._on_timer)

    # One read ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Handle the whole frames that are there, for a turn's time."""
        ends_ns, handled = self._runtime.monotonic_ns() + _TURN_NS, False
        self._working = True
        try:
            for batch in self._guard.batches():
                handled = True
                for event in self._h2.receive_data(batch):
                    handle = self._handlers.get(type(event))
                    if handle is not None:
                        handle(event)
                if self._closing:
                    break
                if self._runtime.monotonic_ns() > ends_ns:
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
        self._service.after_read()

    def _wait_for_turn(self) -> None:
        """Read no more until every other connection had its turn."""
        if self._transport is not None and self._guard.waiting_bytes:
            self._waits_for_turn = True
            self._transport.pause_reading()
            self._runtime.call_later_ms(0, self._take_turn)

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        if self.is_open and self._transport is not None:
            if not self.write_paused:
                self._transport.resume_reading()
            self._work()

    def _note_inbound(self, *, handled: bool) -> None:
        """`handled`: a whole frame was, so one that waits is a later one."""
        waiting, first = self._guard.waiting_bytes, None
        for stream in self._streams.values():
            if of_stream := stream.reader.waiting_bytes + len(stream.request or b""):
                waiting += of_stream
                first = first or stream
        if waiting or self._waiting_bytes:
            # Other calls that go on are no progress of one that waits.
            progress = handled if first is None else first is not self._waits_first
            self._waiting_bytes, self._waits_first = waiting, first
            self._bounds.inbound.note(self, waiting, self.read_at_ms, progress=progress)

    def _note_outbound(self) -> None:
        waiting = sum(one.waiting_bytes for one in self._blocked.values())
        if self.write_paused and self._transport is not None:
            waiting += self._transport.get_write_buffer_size()
        self._bounds.outbound.note(self, waiting, self._runtime.now_ms())

    def _flush(self) -> None:
        if self._transport is not None and not self._transport.is_closing() and (data := self._h2.data_to_send()):
            self._transport.write(data)

    # Events of h2 --------------------------------------------------------------------------------------------

    def _on_request(self, event: Any) -> None:
        stream_id, read = event.stream_id, _read_headers(event.headers)
        path = read.pop(":path", "").encode()
        if read.pop(":method", "") != "POST" or not read.pop("content-type", "").startswith("application/grpc"):
            self.headers(stream_id, [(":status", "415")], end=True)
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

    def _on_ended(self, event: Any) -> None:
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return
        stream.half_closed = True
        if not stream.is_open:
            # What waits for a window is written first.
            if stream.is_written:
                self._forget(stream)
        elif self._service.keeps_open(stream.method):
            self._service.half_closed(stream, self.read_at_ms)
        elif stream.request is None:
            stream.finish(GrpcStatus.INTERNAL, "a request has no whole message")
        else:
            request, stream.request = stream.request, None
            self._service.receive(stream, request, self.read_at_ms)

    def _on_reset(self, event: Any) -> None:
        stream = self._streams.pop(event.stream_id, None)
        if stream is not None:
            self._count(-1)
            self._blocked.pop(event.stream_id, None)
            stream.gone(self.read_at_ms)

    def _on_window(self, event: Any) -> None:
        one = self._blocked.get(event.stream_id)
        self._pump([one] if one is not None else list(self._blocked.values()) if not event.stream_id else ())

    def _on_settings(self, event: Any) -> None:
        self._pump(list(self._blocked.values()))

    def _on_goaway(self, event: Any) -> None:
        # h2 writes no more after it.
        self._closing = True
        if self._transport is not None:
            self._transport.close()

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
        try:
            window = self._h2.local_flow_control_window(stream_id)
        except h2.exceptions.ProtocolError:
            return 0
        return 0 if self.write_paused else min(window, self._h2.max_outbound_frame_size)

    def blocked(self, stream: Stream) -> None:
        self._blocked[stream.stream_id] = stream

    def changed(self, stream: Stream) -> None:
        if stream.is_written:
            self._guard.answered()
            self._ended(stream)
        if self._blocked:
            self._note_outbound()
        if not self._working:
            self._flush()

    def _pump(self, streams: Iterable[Stream]) -> None:
        for stream in streams:
            del self._blocked[stream.stream_id]
            stream.pump()
            if stream.is_written:
                self._ended(stream)
        if streams:
            self._note_outbound()
            if not self._working:
                self._flush()

    def _count(self, more: int) -> None:
        """So many calls began; below 0: they ended."""
        if self._bounds.under_way is not None:
            self._bounds.under_way.add(self, more)

    def _ended(self, stream: Stream) -> None:
        """All of the answer is written."""
        if stream.half_closed:
            self._forget(stream)
        elif self.is_open:
            # The peer need not send the rest of its request.
            with contextlib.suppress(h2.exceptions.ProtocolError):
                self._h2.reset_stream(stream.stream_id, h2.errors.ErrorCodes.NO_ERROR)
            self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        if self._streams.pop(stream.stream_id, None) is not None:
            self._count(-1)
        stream.gone(self.read_at_ms)


def _new_h2(settings: Http2Settings) -> h2.connection.H2Connection:
    config = h2.config.H2Configuration(
        client_side=False,
        header_encoding=None,
        # What this process writes is right, and each check costs a look at every header.
        validate_outbound_headers=False,
        normalize_outbound_headers=False,
    )
    made = h2.connection.H2Connection(config)
    codes = h2.settings.SettingCodes
    made.local_settings = h2.settings.Settings(
        client=False,
        initial_values={
            codes.INITIAL_WINDOW_SIZE: _STREAM_WINDOW_BYTES,
            codes.MAX_CONCURRENT_STREAMS: settings.streams_max,
            codes.MAX_HEADER_LIST_SIZE: _HEADER_LIST_BYTES_MAX,
        },
    )
    made.decoder.max_header_list_size = _HEADER_LIST_BYTES_MAX
    return made


def _read_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Those that the front reads; of equal names the last."""
    return {
        name.decode("ascii", "replace"): value[:_VALUE_BYTES_MAX].decode("utf-8", "replace")
        for name, value in headers
        if name in _READ_HEADERS or name.startswith(_METADATA)
    }


def _timeout_ms(text: str) -> int | None:
    """None: the client waits for ever. What cannot be read is a call that waits no more."""
    if not text:
        return None
    try:
        return parse_timeout_ms(text)
    except FrameError:
        return 0
