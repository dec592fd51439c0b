"""One end of a connection: frames, the opaque table, timeouts, the agreed encoding, back-pressure.

Both sides of a connection are the same class, because requests travel in both directions. What differs is a role:
a server stops reading, and stops working on what it has read, while its peer does not take replies; a client must
go on reading replies, or the two would wait for each other.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from lockstep.protocol.codecs.base import ExtValue
from lockstep.protocol.codes import (
    RemotingFlag,
    ResponseCode,
    SerializeType,
    request_name,
)
from lockstep.protocol.command import SERIALIZE_FIELD, RemotingCommand, decode_command, encode_command
from lockstep.protocol.errors import FrameError, HeaderError, ProtocolError, RemoteProtocolError
from lockstep.protocol.frame import FrameDecoder
from lockstep.remoting.byte_budget import ByteBudget
from lockstep.remoting.endpoint_settings import EndpointSettings
from lockstep.remoting.errors import ConnectionLost, RemotingError
from lockstep.remoting.inbound import Inbound
from lockstep.remoting.logs import EventLog
from lockstep.remoting.pending_requests import PendingRequests
from lockstep.remoting.runtime import Runtime, TimerHandle

__all__ = ["Endpoint", "EndpointSettings", "RequestHandler"]

_REPLY: Final = int(RemotingFlag.REPLY)
_ONE_WAY: Final = int(RemotingFlag.ONE_WAY)
_OPAQUE_MASK: Final = 0x7FFFFFFF
_UNREAD_BYTES_MAX: Final = 32 * 1024 * 1024
_JOIN_BYTES_MAX: Final = 16 * 1024  # below, one copy is cheaper than one more buffer in a writev
# Of one connection before the others have their turn. uvloop may bring 32 reads of 256 KiB of one at once.
_TURN_NS: Final = 1_000_000
_TURN_BYTES: Final = 512 * 1024
_AGREEABLE: Final = {serialize_type.name: serialize_type for serialize_type in SerializeType}


RequestHandler = Callable[["Endpoint", RemotingCommand], RemotingCommand | None]


class Endpoint(asyncio.Protocol):
    """`on_request` answers at once by returning a reply, or later through `reply`. `on_closed` is called once.

    `offer` is the encoding a client asks for with its first two-way requests; `agreed` says that the peer knows
    it, and then it is one of ours. `read_at_ms` is the time of the read that is being worked on.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: EndpointSettings,
        *,
        on_request: RequestHandler,
        log: EventLog,
        on_opened: Callable[["Endpoint"], None] | None = None,
        on_closed: Callable[["Endpoint"], None] | None = None,
        after_read: Callable[[], None] | None = None,
        offer: SerializeType | None = None,
        inbound: Inbound | None = None,
        outbound: ByteBudget | None = None,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._on_request = on_request
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._after_read = after_read
        self._log = log
        self._offer = offer
        self._offered_opaque = -1
        self._echo: tuple[int, str] | None = None  # an offer of the peer's that its reply must repeat
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(settings.frame_bytes_max, settings.header_bytes_max)
        self._inbound = inbound
        self._inbound_bytes = 0  # as noted last
        self._outbound = outbound
        self._pending = PendingRequests(runtime, lambda: self.address)
        self._opaque = 0
        self._idle_timer: TimerHandle | None = None
        self._last_write_ms = 0
        self._write_paused = False
        self._resumed: asyncio.Future[None] | None = None
        self._close_reason = ""
        self._closing = False
        self._working = False
        self._gave_way = False  # frames wait for the next turn of the loop
        self._turn_bytes = 0
        self.agreed = False
        # Every RocketMQ server reads binary headers; msgpack ones are for peers that agreed.
        self.serialize_type: int = offer if offer == SerializeType.ROCKETMQ else SerializeType.JSON
        self.read_at_ms = 0
        self.address = "?"

    # Calls ---------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def write_paused(self) -> bool:
        """The peer does not take what we write as fast as we write it."""
        return self._write_paused

    async def writable(self) -> None:
        """Wait until the write buffer has drained, or the connection is gone."""
        while self._write_paused and self.is_open:
            if self._resumed is None:
                self._resumed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._resumed)

    def request_nowait(self, command: RemotingCommand, timeout_ms: int) -> "asyncio.Future[RemotingCommand]":
        """Send a request; the future brings its reply, or ConnectionLost or RequestTimeout.

        Requests leave in call order. Raises ConnectionLost at once when the connection is closed, and
        LocalProtocolError for a frame over the limit; nothing was sent then.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionLost(self.address, self._close_reason or "it is closed")
        self._opaque = opaque = (self._opaque + 1) & _OPAQUE_MASK
        command.opaque = opaque
        command.serialize_type = self.serialize_type
        if self._offer is not None and self._offered_opaque not in self._pending:
            command.ext_fields = {**(command.ext_fields or {}), SERIALIZE_FIELD: self._offer.name}
            self._offered_opaque = opaque
        head = encode_command(command)
        future: asyncio.Future[RemotingCommand] = self._new_future()
        now_ms = self._last_write_ms = self._runtime.now_ms()
        self._pending.add(opaque, future, command.code, timeout_ms, now_ms)
        self._write(transport, head, command.body)
        return future

    async def request(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """As `request_nowait`, waiting for the reply."""
        return await self.request_nowait(command, timeout_ms)

    def request_then(
        self, command: RemotingCommand, timeout_ms: int, then: Callable[[RemotingCommand | RemotingError], None]
    ) -> None:
        """As `request_nowait` for who does not wait: `then` is called with the reply, or with why there is none.

        A peer that does not read what it is asked is not asked more than it may cost us in memory.
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

    def send_one_way(self, command: RemotingCommand) -> None:
        """Send a request that wants no reply; on a closed connection it is dropped, as a one-way call may be."""
        if self._transport is None or self._transport.is_closing():
            return
        self._opaque = (self._opaque + 1) & _OPAQUE_MASK
        command.opaque = self._opaque
        command.flag |= _ONE_WAY
        command.serialize_type = self.serialize_type
        self._last_write_ms = self._runtime.now_ms()
        self._write(self._transport, encode_command(command), command.body)
        self._note_outbound()

    def reply(self, reply: RemotingCommand) -> None:
        """Answer a request later than from within `on_request`; dropped when the connection is gone."""
        if self._transport is None or self._transport.is_closing():
            return
        self._last_write_ms = self._runtime.now_ms()
        self._transport.writelines(self._encode_reply(reply))
        self._note_outbound()

    def close(self, reason: str) -> None:
        """Close once what was written has left."""
        if self._transport is not None and not self._transport.is_closing():
            self._closing = True
            self._close_reason = self._close_reason or reason
            if not self._working:  # else the replies of this read leave first
                self._transport.close()

    def abort(self, reason: str) -> None:
        """Close at once, dropping what was not written yet."""
        if self._transport is not None:
            self._closing = True
            self._close_reason = self._close_reason or reason
            self._transport.abort()

    # asyncio.Protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._new_future = asyncio.get_running_loop().create_future
        high = self._settings.write_high_water_bytes
        self._transport.set_write_buffer_limits(high, high // 4)
        peer = transport.get_extra_info("peername")
        self.address = f"{peer[0]}:{peer[1]}" if peer else "?"
        self.read_at_ms = self._last_write_ms = self._runtime.now_ms()
        self._idle_timer = self._runtime.call_later_ms(self._settings.idle_close_ms, self._check_idle)
        if self._on_opened is not None:
            self._on_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        reason = self._close_reason = self._close_reason or (str(exc) if exc else "the peer closed it")
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        self.resume_writing()
        self._pending.fail_all(lambda: ConnectionLost(self.address, reason))
        self._decoder.clear()
        self._note_inbound(progress=False)
        if self._on_closed is not None:
            self._on_closed(self)

    def data_received(self, data: bytes) -> None:
        self.read_at_ms = self._runtime.now_ms()
        self._turn_bytes += len(data)
        self._decoder.feed(data)
        self._work()

    def pause_writing(self) -> None:
        self._write_paused = True
        self._note_outbound()
        if self._settings.server and self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._outbound is not None:
            self._outbound.note(self, 0)
        if self._resumed is not None:
            self._resumed.set_result(None)
            self._resumed = None
        if self._settings.server and not self._gave_way:
            self._read_on()

    def _read_on(self) -> None:
        """After a pause. Frames may have waited here for long."""
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.resume_reading()
        if not self._working:
            self.read_at_ms = self._runtime.now_ms()
            self._work()

    # One read ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Handle the whole frames that are there, for a turn's time; all replies leave with one `writelines`."""
        replies: list[bytes] = []
        reply_bytes = 0
        server = self._settings.server
        clock = self._runtime.monotonic_ns
        turn_ends_ns = clock() + _TURN_NS
        over = progress = False
        self._working = True
        try:
            for frame in () if self._closing or (server and self._write_paused) else self._decoder.frames():
                progress = True
                command = decode_command(frame)
                if command.flag & _REPLY:
                    self._on_reply(command)
                    continue
                reply = self._answer(command)
                if reply is not None and not command.flag & _ONE_WAY:
                    encoded = self._encode_reply(reply)
                    replies += encoded
                    reply_bytes += len(encoded[0]) + len(reply.body)
                    if reply_bytes > self._settings.write_high_water_bytes:  # let the transport say when it is full
                        self._flush(replies)
                        reply_bytes = 0
                over = clock() > turn_ends_ns
                if self._closing or (server and (over or self._write_paused)):
                    break
        except (FrameError, HeaderError) as error:
            self._log.warning("connection closed: unreadable frame", peer=self.address, reason=str(error))
            self._flush(replies)
            self.abort(str(error))
        else:
            self._flush(replies)
        finally:
            self._working = False
        if self._closing and self._transport is not None:
            self._transport.close()
        self._note_inbound(progress=progress)
        if server and (over or self._turn_bytes > _TURN_BYTES):
            self._give_way()
        if self._after_read is not None:
            self._after_read()

    def _note_inbound(self, *, progress: bool) -> None:
        waiting_bytes = self._decoder.buffered_bytes
        if self._inbound is not None and (waiting_bytes or self._inbound_bytes):
            self._inbound_bytes = waiting_bytes
            self._inbound.note(self, waiting_bytes, self.read_at_ms, progress=progress)

    def _note_outbound(self) -> None:
        """What a peer does not take counts, from the bytes on at which the transport says so."""
        if self._write_paused and self._outbound is not None and self._transport is not None:
            self._outbound.note(self, self._transport.get_write_buffer_size())

    def _give_way(self) -> None:
        """Read no more of this connection until every other had its turn: one peer's requests delay nobody else."""
        if self._transport is not None and not self._transport.is_closing():
            self._gave_way = True
            self._turn_bytes = 0
            self._transport.pause_reading()
            self._runtime.call_later_ms(0, self._take_turn)

    def _take_turn(self) -> None:
        self._gave_way = False
        if not self._write_paused:  # else `resume_writing` reads on
            self._read_on()

    def _flush(self, replies: list[bytes]) -> None:
        if replies and self._transport is not None and not self._transport.is_closing():
            self._last_write_ms = self.read_at_ms
            self._transport.writelines(replies)
        replies.clear()

    def _answer(self, command: RemotingCommand) -> RemotingCommand | None:
        ext_fields = command.ext_fields
        if ext_fields and SERIALIZE_FIELD in ext_fields:
            offer = ext_fields[SERIALIZE_FIELD]
            if isinstance(offer, str) and offer in _AGREEABLE and not command.flag & _ONE_WAY:
                self._echo = (command.opaque, offer)
        try:
            return self._on_request(self, command)
        except RemoteProtocolError as error:
            remark = f"{request_name(command.code)}: {error}"
            self._log.info("request refused", peer=self.address, reason=remark)
        except Exception as error:
            remark = f"{request_name(command.code)}: {type(error).__name__}: {error}"
            self._log.error("request failed", peer=self.address, reason=remark, exc_info=error)
        reply = command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        if reply.serialize_type == SerializeType.ROCKETMQ:  # RocketMQ reports failures as JSON (wire.md 1.3)
            reply.serialize_type = SerializeType.JSON
        return reply

    def _encode_reply(self, reply: RemotingCommand) -> list[bytes]:
        echo: dict[str, ExtValue] | None = None
        if self._echo is not None and reply.opaque == self._echo[0]:
            offered = self._echo[1]
            self._echo = None
            echo = {SERIALIZE_FIELD: offered}
            reply.ext_fields = {**(reply.ext_fields or {}), **echo}
            self._agree(offered)
        try:
            head = encode_command(reply)
        except ProtocolError as error:
            reply = RemotingCommand(
                ResponseCode.SYSTEM_ERROR,
                flag=_REPLY,
                opaque=reply.opaque,
                serialize_type=reply.serialize_type,
                remark=str(error),
                ext_fields=echo,
            )
            head = encode_command(reply)
        return [head, reply.body] if reply.body else [head]

    def _on_reply(self, reply: RemotingCommand) -> None:
        if self._offer is not None and reply.opaque == self._offered_opaque:
            offered, self._offer = self._offer, None
            if (reply.ext_fields or {}).get(SERIALIZE_FIELD) == offered.name:
                self._agree(offered.name)
        self._pending.finish(reply)

    def _agree(self, name: str) -> None:
        self.agreed = True
        self.serialize_type = _AGREEABLE[name]

    # Writing, and a timer --------------------------------------------------------------------------------------

    @staticmethod
    def _write(transport: asyncio.Transport, head: bytes, body: bytes) -> None:
        if len(body) <= _JOIN_BYTES_MAX:
            transport.write(head + body)
        else:
            transport.writelines((head, body))

    def _check_idle(self) -> None:
        now_ms = self._runtime.now_ms()
        idle_ms = now_ms - max(self.read_at_ms, self._last_write_ms)
        remaining_ms = self._settings.idle_close_ms - idle_ms
        if remaining_ms > 0:
            self._idle_timer = self._runtime.call_later_ms(remaining_ms, self._check_idle)
            return
        self._idle_timer = None
        self._log.info("connection closed: idle", peer=self.address, idle_ms=idle_ms)
        self.abort(f"idle for {idle_ms} ms")
