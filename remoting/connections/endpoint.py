"""A connection on asyncio: moves bytes and timers between a transport and a `RemotingConnection`.

The connection decides; this shell calls the handler of requests, writes all replies of a read at once, and lets other
connections have their turn.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, cast

from lockstep.protocol.codes import RemotingFlag
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import FrameError, HeaderError
from lockstep.remoting.connections.byte_budget import ConnectionBounds, Inbound
from lockstep.remoting.connections.connection import Ended, EndpointSettings, RemotingConnection
from lockstep.remoting.connections.connection_states import Life, Request
from lockstep.remoting.connections.failed_request import reply_to_failed
from lockstep.remoting.errors import ConnectionLost, RemotingError
from lockstep.remoting.host.runtime import Runtime, TimerHandle
from lockstep.remoting.logs import EventLog
from lockstep.remoting.settings import Address

__all__ = ["Endpoint", "EndpointCallbacks", "EndpointSettings", "RequestHandler", "Taken", "TakesBytes", "Waiter"]

_ONE_WAY: Final = int(RemotingFlag.ONE_WAY)
_SESSION_BITS: Final = 96
# A peer that does not read gets no more requests when so many bytes wait to be sent.
_UNREAD_BYTES_MAX: Final = 32 * 1024 * 1024
# A turn of one connection: so long its requests are handled, and so many bytes are read, before the others have
# theirs. uvloop may bring 32 reads of 256 KiB of one connection at once.
_TURN_NS: Final = 1_000_000
_TURN_BYTES: Final = 512 * 1024
# When a look at the bytes of a read was for nothing, the next read is not looked at; then three, seven and so on. For a
# peer whose requests are never taken, a look at each would cost a third of a send.
_REST_READS_MAX: Final = 63
# A reply without its body has about so many bytes.
_HEAD_BYTES: Final = 256
# A shorter read is the last one before other connections are polled.
_LARGE_READ_BYTES: Final = 64 * 1024

_OPEN: Final = Life.OPEN
_ANSWERED: Final = Request.ANSWERED

_Future = asyncio.Future[RemotingCommand]
RequestHandler = Callable[["Endpoint", RemotingCommand], RemotingCommand | None]


class Taken(NamedTuple):
    """Requests that were handled from their bytes.

    Attributes:
        end: Where the first frame begins that was not taken.
        request_count: How many were taken; 0: the first frame was looked at for nothing.
        answers: The frames of their answers.
        more: Those that follow may be taken too.
    """

    end: int
    request_count: int
    answers: bytes
    more: bool


TakesBytes = Callable[["Endpoint", bytes, int], Taken | None]


class Waiter(Protocol):
    """As a Future: it gets the reply or the error, unless it is `done` by then because its caller gave up."""

    def done(self) -> bool: ...
    def set_result(self, reply: Any, /) -> None: ...
    def set_exception(self, error: Any, /) -> None: ...


def _finish(ended: Ended[Waiter]) -> None:
    """Give a request's end to its waiter, unless the caller gave up."""
    state, waiter, outcome = ended
    if waiter.done():
        return
    if state is _ANSWERED:
        waiter.set_result(outcome)
    else:
        waiter.set_exception(outcome)


class EndpointCallbacks(NamedTuple):
    """What an endpoint calls.

    Args:
        on_request: Answers a request of the peer: returns a reply, or None to reply later through `Endpoint.reply`.
        on_opened: The connection is there.
        on_closed: The connection is gone. It is called once.
        after_read: The requests of one read were handled and their replies written.
        on_bytes: Handles requests from their bytes, some at the front of what was read. None: they are not such ones.
    """

    on_request: RequestHandler
    on_opened: Callable[["Endpoint"], object] | None = None
    on_closed: Callable[["Endpoint"], object] | None = None
    after_read: Callable[[], object] | None = None
    on_bytes: TakesBytes | None = None


class Endpoint(asyncio.Protocol):
    """`read_at_ms` is the time of the read whose requests are being handled, `host` the peer's address alone.

    `is_local`: the peer is on this machine. `when_lost`: called once, when the connection is gone and its requests have
    failed. `when_replied`: called with each answer that `reply` gets, before it leaves. `late_count`: its requests that
    are answered later, if `bounds` count them.

    Args:
        runtime: Its clock, timers and event loop.
        settings: The role and the limits of this end.
        callbacks: What to call.
        log: For connections that are closed, and requests that fail.
        bounds: The bytes that all connections of the process may keep in memory.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: EndpointSettings,
        callbacks: EndpointCallbacks,
        log: EventLog,
        bounds: ConnectionBounds | None = None,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._callbacks = callbacks
        self._log = log
        self._bounds = bounds
        self._under_way = bounds.under_way if bounds is not None else None
        session = f"{runtime.rng.getrandbits(_SESSION_BITS):x}" if settings.credentials is not None else ""
        self._connection: RemotingConnection[Waiter] = RemotingConnection(settings, session)
        self._transport: asyncio.Transport | None = None
        self._timer: TimerHandle | None = None
        self._timer_at_ms = 0  # when the timer is due
        self._turn_bytes = 0  # read since the last turn of the loop
        self._resting = 0  # so many reads are not looked at ...
        self._rest_reads = 0  # ... of this many
        # Bytes of a frame that is not whole yet, as `_bounds` has counted them.
        self._inbound_bytes = 0
        self._drained: asyncio.Future[None] | None = None
        self.when_lost: list[Callable[[], object]] = []
        self.when_replied: list[Callable[[RemotingCommand], object]] = []
        # The requests of a read are being handled. Their replies leave together, with one write.
        self._working = False
        self.is_local = False
        self.read_at_ms = 0
        self.late_count = 0
        self.address = "?"
        self.host = "?"

    # Calls ---------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        transport = self._transport
        return transport is not None and not transport.is_closing() and self._connection.life is _OPEN

    @property
    def agreed(self) -> bool:
        """The peer agreed on an encoding, so it is one of ours."""
        return self._connection.agreement.agreed

    @property
    def together(self) -> bool:
        """The peer agreed, and said that it takes many sends or commits in one frame."""
        return self._connection.agreement.peer_together

    @property
    def peer_run(self) -> int:
        """Which run of its log the peer said that this is; 0: it did not say."""
        return self._connection.agreement.peer_run

    @property
    def ended_by_peer(self) -> bool:
        """The peer ended or reset the connection, before this end closed it or the network gave it up."""
        return self._connection.ended_by_peer

    @property
    def close_reason(self) -> str:
        """Why it ended; empty while it is open."""
        return self._connection.close_reason

    @property
    def serialize_type(self) -> int:
        """The header encoding of the next request."""
        return self._connection.agreement.serialize_type

    @property
    def write_paused(self) -> bool:
        """The peer does not take what we write as fast as we write it."""
        return self._connection.pressure.write_paused

    async def writable(self) -> None:
        """Wait until the write buffer has drained, or the connection is gone."""
        while self._connection.pressure.write_paused and self.is_open:
            await asyncio.shield(self._until_drained())

    def when_writable(self, then: Callable[[], None]) -> None:
        """Call `then` in a later turn of the loop, when a full write buffer has drained or the connection is gone."""
        self._until_drained().add_done_callback(lambda _: then())

    def _until_drained(self) -> asyncio.Future[None]:
        if self._drained is None:
            self._drained = asyncio.get_running_loop().create_future()
        return self._drained

    def request_nowait(self, command: RemotingCommand, timeout_ms: int) -> _Future:
        """Send a request. Requests leave in call order.

        Returns:
            A future of its reply; it fails with ConnectionLost or RequestTimeout.

        Raises:
            ConnectionLost: The connection is closed. Nothing was sent.
            LocalProtocolError: The frame is over the limit. Nothing was sent.
        """
        future: _Future = asyncio.get_running_loop().create_future()
        self.request_for(future, command, timeout_ms)
        return future

    def request_for(self, waiter: Waiter, command: RemotingCommand, timeout_ms: int) -> None:
        """As `request_nowait`, for a waiter of the caller's."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise self._connection.lost_error()
        now_ms = self._runtime.now_ms()
        data = self._connection.request(command, timeout_ms, now_ms, waiter)
        if now_ms + timeout_ms < self._timer_at_ms:
            self._set_timer(now_ms)
        transport.writelines(data)

    async def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """As `request_nowait`, waiting for the reply."""
        return await self.request_nowait(command, timeout_ms)

    def request_then(
        self, command: RemotingCommand, timeout_ms: int, then: Callable[[RemotingCommand | RemotingError], None]
    ) -> None:
        """As `request_nowait`, for a caller that does not wait: `then` is called with the reply or with the error.

        A peer that does not read gets no more requests while 32 MiB wait to be sent.
        """
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() > _UNREAD_BYTES_MAX:
            then(ConnectionLost(self.address, "it does not read what it is sent"))
            return
        try:
            future = self.request_nowait(command, timeout_ms)
        except ConnectionLost as error:
            then(error)
            return
        future.add_done_callback(lambda done: then(cast("RemotingError | None", done.exception()) or done.result()))

    def send_one_way(self, *commands: RemotingCommand) -> None:
        """Send requests that want no reply, with one write. On a closed connection they are dropped."""
        if self._transport is not None and not self._transport.is_closing():
            now_ms = self._runtime.now_ms()
            parts = [part for command in commands for part in self._connection.one_way(command, now_ms)]
            self._transport.writelines(parts)
            self._note_outbound()

    def reply(self, reply: RemotingCommand) -> None:
        """Answer a request after `on_request` returned None. On a closed connection the reply is dropped."""
        for callback in self.when_replied:
            callback(reply)
        if self._transport is not None and not self._transport.is_closing():
            if self._under_way is not None:
                self._under_way.add(self, -1)
            self._transport.writelines(self._connection.reply(reply, self._runtime.now_ms()))
            self._note_outbound()

    def mark_active(self, now_ms: int) -> None:
        """Begin the time without traffic anew, as if the peer had sent a heartbeat."""
        self.read_at_ms = now_ms
        self._connection.mark_active(now_ms)

    def close(self, reason: str) -> None:
        """Close once what was written has left."""
        if self._transport is not None and not self._transport.is_closing():
            self._connection.close(reason)
            if not self._working:
                # While a read is handled, its replies leave first: `_work` closes the transport then.
                self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once, dropping what was not written yet."""
        if self._transport is not None:
            self._connection.abort(reason)
            self._transport.abort()

    # asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # Writing goes on when a quarter is left, so that it does not stop and go on with each reply.
        high = self._settings.write_high_water_bytes
        self._transport.set_write_buffer_limits(high, high // 4)
        if peer := transport.get_extra_info("peername"):
            self.host, self.address = peer[0], str(Address(peer[0], peer[1]))
            self.is_local = (transport.get_extra_info("sockname") or ("",))[0] == self.host
        self.read_at_ms = now_ms = self._runtime.now_ms()
        self._connection.connected(self.address, now_ms)
        self._set_timer(now_ms)
        if self._callbacks.on_opened is not None:
            self._callbacks.on_opened(self)

    def eof_received(self) -> None:
        # The transport closes itself once what was written has left.
        self._connection.peer_ended()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        by_peer = exc is None or isinstance(exc, ConnectionResetError | BrokenPipeError)
        ended = self._connection.lost(str(exc) if exc else "the peer closed it", by_peer=by_peer)
        # First the callers that wait, then `on_closed`: when the connection is forgotten, none of its requests waits.
        self._wake_writers()
        for one in ended:
            _finish(one)
        for callback in self.when_lost:
            callback()
        if self._bounds is not None:
            self._note_inbound(self._bounds.inbound, progress=False)
        if self._under_way is not None:
            self._under_way.add(self, -self.late_count)
        if self._callbacks.on_closed is not None:
            self._callbacks.on_closed(self)

    def data_received(self, data: bytes) -> None:
        self.read_at_ms = now_ms = self._runtime.now_ms()
        self._turn_bytes += len(data)
        self._connection.receive(data, now_ms)
        self._work(len(data))

    def pause_writing(self) -> None:
        self._connection.writes_full()
        self._note_outbound()
        # A server reads no more requests from a peer that does not take its replies. A client must read on: the replies
        # that it waits for may be what its peer cannot write.
        if self._settings.server and self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._connection.writes_drained()
        self._wake_writers()
        self._read_on()

    def _wake_writers(self) -> None:
        if self._bounds is not None:
            self._bounds.outbound.note(self, 0, self.read_at_ms)
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def _read_on(self) -> None:
        """After a pause of a server. Frames may have waited in the decoder for long."""
        transport = self._transport
        if self._settings.server and self._connection.handling and transport is not None and not transport.is_closing():
            transport.resume_reading()
            if not self._working:
                self.mark_active(self._runtime.now_ms())
                self._work(0)

    # One read ------------------------------------------------------------------------------------------------

    def _work(self, read_bytes: int) -> None:
        """Handle the whole frames that are there, for a turn's time."""
        connection, over = self._connection, False
        frames_handled = connection.frames_handled
        replies: list[bytes] = []
        self._working = True
        try:
            over = self._handle_frames(replies, large=read_bytes > _LARGE_READ_BYTES)
        except (FrameError, HeaderError) as error:
            # As in RocketMQ the connection closes without an error reply (wire.md 1.1). The requests before the bad
            # frame were handled, so their replies leave first.
            self._log.warning("frame_unreadable", peer=self.address, reason=str(error))
            self._flush(replies)
            self.abort(str(error))
        except Exception as error:
            # A fault of this process: the peer must take the outcome of its requests for unknown.
            self._log.error("read_failed", peer=self.address, exc_info=error)
            self._flush(replies)
            self.abort(f"{type(error).__name__}: {error}")
        else:
            self._flush(replies)
        finally:
            self._working = False
        if connection.life is not _OPEN and self._transport is not None:
            self._transport.close()
        if self._bounds is not None and (connection.decoder.buffered_bytes or self._inbound_bytes):
            self._note_inbound(self._bounds.inbound, progress=connection.frames_handled != frames_handled)
        if over or (self._turn_bytes > _TURN_BYTES and self._settings.server):
            self._end_turn()
        if self._callbacks.after_read is not None:
            self._callbacks.after_read()

    def _handle_frames(self, replies: list[bytes], *, large: bool) -> bool:
        """Put the replies of a read into `replies`, which leave with one write. Returns whether the turn is over.

        The clock is read only where a turn can become too long: after the last request of a read that is not `large`
        the other connections come first anyway.
        """
        connection, decoder, clock = self._connection, self._connection.decoder, self._runtime.monotonic_ns
        callbacks, server, under_way = self._callbacks, self._settings.server, self._under_way
        on_request = callbacks.on_request if under_way is None else under_way.handler(self, callbacks.on_request)
        if self._resting:
            self._resting -= 1
        # A peer that agreed on an encoding has headers that no handler of bytes reads. Near the limit of requests under
        # way each request is looked at.
        elif (
            callbacks.on_bytes is not None
            and not connection.agreement.agreed
            and on_request is callbacks.on_request
            and (self._take(callbacks.on_bytes, replies) or not decoder.buffered_bytes)
        ):
            return decoder.buffered_bytes > 0
        reply_bytes = turn_ends_ns = 0
        for event in connection.events():
            if not isinstance(event, RemotingCommand):
                _finish(event)
                continue
            more = server and (large or decoder.buffered_bytes > 0)
            if more and not turn_ends_ns:
                turn_ends_ns = clock() + _TURN_NS
            try:
                reply = on_request(self, event)
            except Exception as error:
                reply = reply_to_failed(self.address, self._log, event, error)
            if reply is None:
                if under_way is not None and not event.flag & _ONE_WAY:
                    under_way.add(self, 1)
                    on_request = under_way.handler(self, callbacks.on_request)
            # A one-way request has no reply, whatever its handler returned (wire.md 16).
            elif not event.flag & _ONE_WAY:
                reply_bytes += _HEAD_BYTES + len(reply.body)
                replies += connection.reply(reply, self.read_at_ms)
                # Write what there is, so that the transport can say that it is full.
                if reply_bytes > self._settings.write_high_water_bytes:
                    self._flush(replies)
                    reply_bytes = 0
            if more and clock() > turn_ends_ns:
                return True
        return False

    def _take(self, on_bytes: TakesBytes, replies: list[bytes]) -> bool:
        """Let requests be handled from their bytes, some at a time. Returns whether the turn is over."""
        connection, decoder, clock = self._connection, self._connection.decoder, self._runtime.monotonic_ns
        turn_ends_ns = reply_bytes = 0
        while connection.handling and connection.agreement.owed_echo is None:
            taken = on_bytes(self, *decoder.unread())
            if taken is None:
                break
            if not taken.request_count:
                if not turn_ends_ns:
                    self._rest_reads = self._resting = min(2 * self._rest_reads + 1, _REST_READS_MAX)
                break
            self._rest_reads = 0
            decoder.skip_to(taken.end)
            connection.frames_handled += taken.request_count
            replies.append(taken.answers)
            reply_bytes += len(taken.answers)
            if reply_bytes > self._settings.write_high_water_bytes:
                self._flush(replies)
                reply_bytes = 0
            if not taken.more:
                break
            now_ns = clock()
            turn_ends_ns = turn_ends_ns or now_ns + _TURN_NS
            if now_ns > turn_ends_ns:
                return True
        return False

    def _flush(self, replies: list[bytes]) -> None:
        if replies and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(replies)
        replies.clear()

    def _note_inbound(self, inbound: Inbound, *, progress: bool) -> None:
        self._inbound_bytes = waiting_bytes = self._connection.decoder.buffered_bytes
        inbound.note(self, waiting_bytes, self.read_at_ms, progress=progress)

    def _note_outbound(self) -> None:
        """What a peer does not take counts, from the bytes on at which the transport says so."""
        if self._connection.pressure.write_paused and self._bounds is not None and self._transport is not None:
            self._bounds.outbound.note(self, self._transport.get_write_buffer_size(), self._runtime.now_ms())

    # Turns and timers ----------------------------------------------------------------------------------------

    def _end_turn(self) -> None:
        """Read no more of this connection until every other had its turn: one peer's requests delay no other peer."""
        transport = self._transport
        if transport is not None and not transport.is_closing() and not self._connection.pressure.waits_for_turn:
            self._turn_bytes = 0
            self._connection.turn_ended()
            transport.pause_reading()
            self._runtime.call_later_ms(0, self._take_turn)

    def _take_turn(self) -> None:
        self._connection.turn_came()
        self._read_on()

    def _set_timer(self, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = self._connection.next_deadline_ms()
        self._timer = self._runtime.call_later_ms(max(self._timer_at_ms - now_ms, 0), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._runtime.now_ms()
        if self._connection.life is Life.ABORTED:
            return
        for one in self._connection.on_time(now_ms):
            _finish(one)
        if self._connection.abort_if_idle(now_ms):
            self._log.info("connection_idle", peer=self.address, idle_ms=self._connection.idle_ms(now_ms))
            self.abort(self._connection.close_reason)
        else:
            self._set_timer(now_ms)
