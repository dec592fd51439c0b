"""One end of a connection without its socket: bytes in, events out, bytes to send.

No asyncio, no log and no clock but `now_ms`. The states and their transitions are the tables of `connection_states.py`.
Both ends are the same class, because requests travel in both directions; only their flow of back-pressure differs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from lockstep.protocol.codecs.base import ExtValue
from lockstep.protocol.codes import FRAME_BYTES_MAX, RemotingFlag, ResponseCode, SerializeType, request_name
from lockstep.protocol.command import RUN_FIELD, SERIALIZE_FIELD, RemotingCommand, decode_command, encode_command
from lockstep.protocol.errors import FrameError, HeaderError, ProtocolError
from lockstep.protocol.frame import FrameDecoder
from lockstep.protocol.signature import ONCE, Credentials, sign
from lockstep.remoting.connections.connection_states import (
    CLIENT_FLOW,
    LIFE,
    OUR_OFFER,
    PEER_OFFER,
    REQUEST,
    SERVER_FLOW,
    Event,
    Flow,
    Life,
    OurOffer,
    PeerOffer,
    Request,
)
from lockstep.remoting.errors import ConnectionLost, RemotingError, RequestTimeout

__all__ = ["Ended", "EndpointSettings", "RemotingConnection"]

W = TypeVar("W")  # what the caller keeps for a request until it ends

_REPLY: Final = int(RemotingFlag.REPLY)
_TOGETHER: Final = int(RemotingFlag.TOGETHER)
_ONE_WAY: Final = int(RemotingFlag.ONE_WAY)
# Java reads an opaque as a signed int.
_OPAQUE_MASK: Final = 0x7FFFFFFF
# Up to this size, one copy is cheaper than one more buffer in a writev.
_JOIN_BYTES_MAX: Final = 16 * 1024
_AGREEABLE: Final = {serialize_type.name: serialize_type for serialize_type in SerializeType}
# Looked up once: a look-up in an enum costs as much as a call, and these are needed for every request.
_OPEN: Final = Life.OPEN
_OFFER_DUE: Final = OurOffer.DUE
_MAY_BE_OURS: Final = (OurOffer.DUE, OurOffer.MADE, OurOffer.ACCEPTED)  # the peer, until it declines
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


class RemotingConnection(Generic[W]):
    """`agreed` says that both ends use Lockstep's own features; `serialize_type` is that of our next request.

    `peer_together`: the peer said that it takes many sends or commits in one frame.
    `peer_run`: which run of its log the peer said that this is; 0: it did not say.

    `ended_by_peer`: the peer ended or reset the connection, before this end closed it or the network gave it up.

    `handling` says whether `events` hands out what arrived. `decoder` holds the bytes that wait.
    """

    def __init__(self, settings: EndpointSettings, session: str = "") -> None:
        """`session` names this connection in signed requests."""
        offer = settings.offer
        self._signer = _Signer(settings.credentials, session) if settings.credentials is not None else None
        self._idle_close_ms = settings.idle_close_ms
        self._flow_table = SERVER_FLOW if settings.server else CLIENT_FLOW
        self._offer = offer
        self._together = settings.together
        self._run = settings.run
        self._our_offer = OurOffer.NONE if offer is None else OurOffer.DUE
        self._offered_opaque: int | None = None  # until its offer is settled
        self._peer_offer = PeerOffer.NONE
        self._owed_echo: tuple[int, str] | None = None  # the opaque and the encoding of the peer's offer
        self._waiting: dict[int, tuple[W, int, int, int]] = {}  # waiter, deadline_ms, code, timeout_ms; by opaque
        self._opaque = 0
        self._traffic_ms = 0
        self.decoder = FrameDecoder(settings.frame_bytes_max, settings.header_bytes_max)
        self.life = Life.NEW
        self.flow = Flow.READING
        self.frames_handled = 0
        self.handling = False
        self.write_paused = False
        self.waits_for_turn = False
        self.close_reason = ""
        self.address = "?"
        self.agreed = False
        self.peer_together = False
        self.peer_run = 0
        self.ended_by_peer = False
        # Every RocketMQ server reads binary headers. MSGPACK ones are for peers that agreed.
        self.serialize_type: int = offer if offer == SerializeType.ROCKETMQ else SerializeType.JSON

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
        try:
            for frame in self.decoder.frames() if self.handling else ():
                self.frames_handled += 1
                command = decode_command(frame)
                if command.flag & _REPLY:
                    if command.opaque == self._offered_opaque:
                        self._settle_offer(command)
                    entry = self._waiting.pop(command.opaque, None)
                    if entry is not None:
                        yield Ended(_ANSWERED, entry[0], command)
                else:
                    if command.ext_fields and SERIALIZE_FIELD in command.ext_fields:
                        self._take_offer(command)
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
        offering = self._our_offer is _OFFER_DUE
        if offering and self._offer is not None:
            command.ext_fields = {**(command.ext_fields or {}), SERIALIZE_FIELD: self._offer.name}
        command.opaque = opaque
        command.serialize_type = self.serialize_type
        if self._signer is not None:
            self._signer.sign(command, now_ms, once=self._our_offer in _MAY_BE_OURS)
        head = encode_command(command)
        if offering:
            self._our_offer = OUR_OFFER[self._our_offer][Event.OFFER_SENT]
            self._offered_opaque = opaque
        self._waiting[opaque] = (waiter, now_ms + timeout_ms, command.code, timeout_ms)
        self._traffic_ms = now_ms
        return _joined(head, command.body)

    def one_way(self, command: RemotingCommand, now_ms: int) -> tuple[bytes, ...]:
        """The bytes of a request that wants no reply. Raises LocalProtocolError for a frame over the limit."""
        command.flag |= _ONE_WAY
        self._opaque = command.opaque = (self._opaque + 1) & _OPAQUE_MASK
        command.serialize_type = self.serialize_type
        self._traffic_ms = now_ms
        if self._signer is not None:
            self._signer.sign(command, now_ms, once=self._our_offer in _MAY_BE_OURS)
        return _joined(encode_command(command), command.body)

    def reply(self, reply: RemotingCommand, now_ms: int) -> tuple[bytes, ...]:
        """The bytes of a reply; those of an error reply when it cannot be encoded."""
        self._traffic_ms = now_ms
        echo: dict[str, ExtValue] | None = None
        if self._owed_echo is not None and reply.opaque == self._owed_echo[0]:
            echo = {SERIALIZE_FIELD: self._owed_echo[1]}
            reply.ext_fields = {**(reply.ext_fields or {}), **echo}
            if self._together:
                reply.flag |= _TOGETHER
            if self._run:
                reply.ext_fields[RUN_FIELD] = str(self._run)
            self._agree(self._owed_echo[1])
            self._owed_echo = None
            self._peer_offer = PEER_OFFER[self._peer_offer][Event.ECHO_SENT]
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

    # Agreement on an encoding --------------------------------------------------------------------------------

    def _settle_offer(self, reply: RemotingCommand) -> None:
        assert self._offer is not None
        name = self._offer.name
        event = Event.ECHO if (reply.ext_fields or {}).get(SERIALIZE_FIELD) == name else Event.NO_ECHO
        self._our_offer = OUR_OFFER[self._our_offer][event]
        self._offered_opaque = None
        if self._our_offer is OurOffer.ACCEPTED:
            self._agree(name)
            self.peer_together = bool(reply.flag & _TOGETHER)
            run = (reply.ext_fields or {}).get(RUN_FIELD)
            self.peer_run = int(run) if isinstance(run, str) and run.isascii() and run.isdigit() else 0

    def _take_offer(self, command: RemotingCommand) -> None:
        """An offer of a one-way request is not taken: no reply could repeat it."""
        name = (command.ext_fields or {}).get(SERIALIZE_FIELD)
        if isinstance(name, str) and name in _AGREEABLE and not command.flag & _ONE_WAY:
            self._owed_echo = (command.opaque, name)
            self._peer_offer = PEER_OFFER[self._peer_offer][Event.OFFER_RECEIVED]

    def ignore_offer(self) -> None:
        """Do not accept the last offer of the peer: the reply does not repeat it."""
        self._owed_echo = None

    def _agree(self, name: str) -> None:
        self.agreed = True
        self.serialize_type = _AGREEABLE[name]

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
            if opaque == self._offered_opaque:
                # Its late reply may still settle the offer.
                self._our_offer = OUR_OFFER[self._our_offer][Event.DEADLINE]
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
        self.handling = self.life is Life.OPEN and self.flow in _HANDLING

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
        self.flow = flow = self._flow_table[self.flow][event]
        self.write_paused = flow in _WRITE_PAUSED
        self.waits_for_turn = flow in _WAITING_FOR_TURN
        self.handling = self.life is Life.OPEN and flow in _HANDLING
