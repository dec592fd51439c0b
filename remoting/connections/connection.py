"""One end of a connection without its socket: bytes in, events out, bytes to send.

No asyncio, no log and no clock but `now_ms`. The states and their transitions are the tables of `connection_states.py`.
Both ends are the same class, because requests travel in both directions; only their flow of back-pressure differs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from lockstep.protocol.codes import FRAME_BYTES_MAX, RemotingFlag, ResponseCode, SerializeType, request_name
from lockstep.protocol.command import SERIALIZE_FIELD, RemotingCommand, decode_command, encode_command
from lockstep.protocol.errors import FrameError, HeaderError, ProtocolError
from lockstep.protocol.frame import FrameDecoder
from lockstep.protocol.signature import ONCE, Credentials, sign
from lockstep.protocol.tuples import new_tuple
from lockstep.remoting.connections.agreement import Agreement
from lockstep.remoting.connections.connection_states import (
    CLIENT_FLOW,
    LIFE,
    REQUEST,
    SERVER_FLOW,
    Event,
    Flow,
    Life,
    OurOffer,
    Request,
)
from lockstep.remoting.errors import ConnectionLost, RemotingError, RequestTimeout

__all__ = ["BackPressure", "Ended", "EndpointSettings", "RemotingConnection"]

W = TypeVar("W")  # what the caller keeps for a request until it ends

_REPLY: Final = int(RemotingFlag.REPLY)
_ONE_WAY: Final = int(RemotingFlag.ONE_WAY)
# Java reads an opaque as a signed int.
_OPAQUE_MASK: Final = 0x7FFFFFFF
# Up to this size, one copy is cheaper than one more buffer in a writev.
_JOIN_BYTES_MAX: Final = 16 * 1024
# Looked up once: a look-up in an enum costs as much as a call, and these are needed for every request.
_OPEN: Final = Life.OPEN
_OFFER_DUE: Final = OurOffer.DUE
_ANSWERED: Final = REQUEST[Request.WAITING][Event.REPLY]
_WRITE_PAUSED: Final = (Flow.WAITING_FOR_PEER, Flow.WAITING_FOR_BOTH, Flow.READING_ONLY)
_WAITING_FOR_TURN: Final = (Flow.WAITING_FOR_TURN, Flow.WAITING_FOR_BOTH)
_HANDLING: Final = (Flow.READING, Flow.READING_ONLY)


class _Signer:
    """Numbers and signs requests.

    Args:
        credentials: The account.
        session: A text that no other connection has; with the number of a request it makes copies recognizable.
    """

    def __init__(self, credentials: Credentials, session: str) -> None:
        self._credentials = credentials
        self._session = session
        self._count = 0

    def sign(self, command: RemotingCommand, now_ms: int, *, once: bool) -> None:
        """Sign a request just before it is encoded.

        Args:
            command: The request, complete.
            now_ms: The time that the request names.
            once: Add the number, for a broker of ours that then handles no copy of the request.
        """
        if once:
            self._count += 1
            command.ext_fields = {**(command.ext_fields or {}), ONCE: f"{now_ms}-{self._session}-{self._count}"}
        sign(command, self._credentials)


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """The role and the limits of one end.

    Args:
        server: It stops reading while its peer does not take replies, and it lets other connections have their turn.
        idle_close_ms: A connection without traffic either way for so long is closed (wire.md 1.1).
        write_high_water_bytes: From so many unsent bytes on, writing counts as paused.
        frame_bytes_max: The longest frame that is read.
        header_bytes_max: The longest header that is read.
        offer: The header encoding that a client asks for with its first request.
        credentials: The account that signs the requests.
        together: A server says, when it accepts an offer, that it takes many sends or commits in one frame.
        run: A server says, when it accepts an offer, which run of its log this is; 0: it does not say.
    """

    server: bool
    idle_close_ms: int = 120_000
    write_high_water_bytes: int = 1024 * 1024
    frame_bytes_max: int = FRAME_BYTES_MAX
    header_bytes_max: int = FRAME_BYTES_MAX
    offer: SerializeType | None = None
    credentials: Credentials | None = None
    together: bool = False
    run: int = 0


class Ended(NamedTuple, Generic[W]):
    """A request of ours ended: `outcome` is its reply when `state` is ANSWERED, or else the error to raise."""

    state: Request
    waiter: W
    outcome: RemotingCommand | RemotingError


def _joined(head: bytes, body: bytes) -> tuple[bytes, ...]:
    return (head + body,) if len(body) <= _JOIN_BYTES_MAX else (head, body)


class BackPressure:
    """What a connection waits for before it handles more frames: for the peer to read, for its turn, or for both.

    Args:
        server: a client goes on, or the two would wait for each other.
    """

    def __init__(self, *, server: bool) -> None:
        self._table = SERVER_FLOW if server else CLIENT_FLOW
        self.flow = Flow.READING
        self.write_paused = False
        self.waits_for_turn = False

    def change(self, event: Event) -> None:
        self.flow = flow = self._table[self.flow][event]
        self.write_paused = flow in _WRITE_PAUSED
        self.waits_for_turn = flow in _WAITING_FOR_TURN


class RemotingConnection(Generic[W]):
    """The frames, the requests that wait for replies, and the life of one connection.

    Attributes:
        agreement: what both ends agreed on.
        pressure: what it waits for.
        ended_by_peer: the peer ended or reset the connection, before this end closed it or the network gave it up.
        handling: `events` hands out what arrived.
        decoder: it holds the bytes that wait.
    """

    def __init__(self, settings: EndpointSettings, session: str = "") -> None:
        """`session` names this connection in signed requests."""
        self._signer = _Signer(settings.credentials, session) if settings.credentials is not None else None
        self._idle_close_ms = settings.idle_close_ms
        self.agreement = Agreement(settings.offer, together=settings.together, run=settings.run)
        self.pressure = BackPressure(server=settings.server)
        self._waiting: dict[int, tuple[W, int, int, int]] = {}  # waiter, deadline_ms, code, timeout_ms; by opaque
        self._opaque = 0
        self._traffic_ms = 0
        self.decoder = FrameDecoder(settings.frame_bytes_max, settings.header_bytes_max)
        self.life = Life.NEW
        self.frames_handled = 0
        self.handling = False
        self.close_reason = ""
        self.address = "?"
        self.ended_by_peer = False

    # Bytes in, events out ------------------------------------------------------------------------------------

    def receive(self, data: bytes, now_ms: int) -> None:
        self._traffic_ms = now_ms
        self.decoder.feed(data)

    def events(self) -> Iterator[RemotingCommand | Ended[W]]:
        """What the received bytes hold: requests of the peer, and requests of ours that have their reply.

        A reply to no request that waits is dropped.

        The iteration stops while `handling` is false; the frames that are left wait for the next call.

        Raises:
            FrameError: The bytes can never be a frame. The connection is aborted then.
            HeaderError: A header cannot be read. Likewise.
        """
        agreement = self.agreement
        try:
            for frame in self.decoder.frames() if self.handling else ():
                self.frames_handled += 1
                command = decode_command(frame)
                if command.flag & _REPLY:
                    if command.opaque == agreement.offered_opaque:
                        agreement.settle(command)
                    entry = self._waiting.pop(command.opaque, None)
                    if entry is not None:
                        yield new_tuple(Ended, (_ANSWERED, entry[0], command))
                else:
                    if command.ext_fields and SERIALIZE_FIELD in command.ext_fields:
                        agreement.take(command)
                    yield command
                if not self.handling:
                    return
        except (FrameError, HeaderError) as error:
            self._change_life(Event.UNREADABLE, str(error))
            raise

    # Bytes to send -------------------------------------------------------------------------------------------

    def request(self, command: RemotingCommand, timeout_ms: int, now_ms: int, waiter: W) -> tuple[bytes, ...]:
        """The bytes of a request. It ends with one `Ended` that carries `waiter`.

        Raises:
            ConnectionLost: The connection takes no more requests.
            LocalProtocolError: The frame is over the limit. Nothing waits for a reply then.
        """
        if self.life is not _OPEN:
            raise self.lost_error()
        self._opaque = opaque = (self._opaque + 1) & _OPAQUE_MASK
        agreement = self.agreement
        offering = agreement.ours is _OFFER_DUE and agreement.offer_in(command)
        command.opaque = opaque
        command.serialize_type = agreement.serialize_type
        if self._signer is not None:
            self._signer.sign(command, now_ms, once=agreement.may_be_ours)
        head = encode_command(command)
        if offering:
            agreement.offer_sent(opaque)
        self._waiting[opaque] = (waiter, now_ms + timeout_ms, command.code, timeout_ms)
        self._traffic_ms = now_ms
        return _joined(head, command.body)

    def one_way(self, command: RemotingCommand, now_ms: int) -> tuple[bytes, ...]:
        """The bytes of a request that wants no reply. Raises LocalProtocolError for a frame over the limit."""
        command.flag |= _ONE_WAY
        self._opaque = command.opaque = (self._opaque + 1) & _OPAQUE_MASK
        command.serialize_type = self.agreement.serialize_type
        self._traffic_ms = now_ms
        if self._signer is not None:
            self._signer.sign(command, now_ms, once=self.agreement.may_be_ours)
        return _joined(encode_command(command), command.body)

    def reply(self, reply: RemotingCommand, now_ms: int) -> tuple[bytes, ...]:
        """The bytes of a reply; those of an error reply when it cannot be encoded."""
        self._traffic_ms = now_ms
        agreement = self.agreement
        echo = agreement.echo_in(reply) if agreement.owed_echo is not None else None
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
        return (head, reply.body) if reply.body else (head,)

    # Deadlines -----------------------------------------------------------------------------------------------

    def mark_active(self, now_ms: int) -> None:
        """Begin the time without traffic anew."""
        self._traffic_ms = now_ms

    @property
    def waiting_count(self) -> int:
        """Requests that have not ended."""
        return len(self._waiting)

    def idle_ms(self, now_ms: int) -> int:
        """How long there was no traffic either way."""
        return now_ms - self._traffic_ms

    def next_deadline_ms(self) -> int:
        """When a request times out or the connection becomes idle, whichever is first."""
        return min(
            [deadline_ms for _, deadline_ms, _, _ in self._waiting.values()] + [self._traffic_ms + self._idle_close_ms]
        )

    def on_time(self, now_ms: int) -> list[Ended[W]]:
        """The requests that have timed out by now."""
        expired = [opaque for opaque, (_, deadline_ms, _, _) in self._waiting.items() if deadline_ms <= now_ms]
        ended: list[Ended[W]] = []
        for opaque in expired:
            waiter, _, code, timeout_ms = self._waiting.pop(opaque)
            error = RequestTimeout(self.address, request_name(code), timeout_ms)
            ended.append(Ended(REQUEST[Request.WAITING][Event.DEADLINE], waiter, error))
            self.agreement.not_answered(opaque)
        return ended

    def abort_if_idle(self, now_ms: int) -> bool:
        """Abort a connection without traffic for too long. Returns whether it was aborted."""
        idle = self.idle_ms(now_ms) >= self._idle_close_ms and Event.IDLE in LIFE[self.life]
        if idle:
            self._change_life(Event.IDLE, f"idle for {self.idle_ms(now_ms)} ms")
        return idle

    # Life ----------------------------------------------------------------------------------------------------

    def connected(self, address: str, now_ms: int) -> None:
        self.address = address
        self._traffic_ms = now_ms
        self._change_life(Event.CONNECTED)

    def close(self, reason: str) -> None:
        """Handle nothing more; what was written leaves. The first reason that is given counts."""
        self._change_life(Event.CLOSE, reason)

    def abort(self, reason: str) -> None:
        """Handle and send nothing more."""
        self._change_life(Event.ABORT, reason)

    def peer_ended(self) -> None:
        """The peer sends nothing more."""
        self.ended_by_peer |= self.life is Life.OPEN
        self._change_life(Event.PEER_END, "the peer closed it")

    def lost(self, reason: str, *, by_peer: bool = True) -> list[Ended[W]]:
        """The transport is gone: every request that waits has ended, and received bytes are dropped."""
        self.ended_by_peer |= by_peer and self.life is Life.OPEN
        self._change_life(Event.LOST, reason)
        self.decoder.clear()
        waiting, self._waiting = self._waiting, {}
        return [
            Ended(REQUEST[Request.WAITING][Event.LOST], waiter, self.lost_error()) for waiter, *_ in waiting.values()
        ]

    def lost_error(self) -> ConnectionLost:
        return ConnectionLost(self.address, self.close_reason or "it is closed")

    def _change_life(self, event: Event, reason: str = "") -> None:
        before, self.life = self.life, LIFE[self.life][event]
        if before is not Life.NEW:
            self.close_reason = self.close_reason or reason
        self.handling = self.life is Life.OPEN and self.pressure.flow in _HANDLING

    # Back-pressure -------------------------------------------------------------------------------------------

    def turn_ended(self) -> None:
        """This connection used its share of the loop's time; it waits until `turn_came`."""
        self._change_flow(Event.TURN_ENDED)

    def turn_came(self) -> None:
        self._change_flow(Event.TURN_CAME)

    def writes_full(self) -> None:
        """More bytes than the high-water mark wait to be sent."""
        self._change_flow(Event.WRITES_FULL)

    def writes_drained(self) -> None:
        self._change_flow(Event.WRITES_DRAINED)

    def _change_flow(self, event: Event) -> None:
        self.pressure.change(event)
        self.handling = self.life is Life.OPEN and self.pressure.flow in _HANDLING
