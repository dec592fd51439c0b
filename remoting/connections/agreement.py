"""Agreement: what two ends of a connection agree on with the first request that is answered (wire.md 16).

One end offers a header encoding, the other one repeats it in its reply. With the reply go the features of a server.
"""

from typing import Final

from lockstep.protocol.codecs.base import ExtValue
from lockstep.protocol.codes import RemotingFlag, SerializeType
from lockstep.protocol.command import RUN_FIELD, SERIALIZE_FIELD, RemotingCommand
from lockstep.remoting.connections.connection_states import OUR_OFFER, PEER_OFFER, Event, OurOffer, PeerOffer

__all__ = ["Agreement"]

_TOGETHER: Final = int(RemotingFlag.TOGETHER)
_ONE_WAY: Final = int(RemotingFlag.ONE_WAY)
_AGREEABLE: Final = {serialize_type.name: serialize_type for serialize_type in SerializeType}
_MAY_BE_OURS: Final = (OurOffer.DUE, OurOffer.MADE, OurOffer.ACCEPTED)


class Agreement:
    """The offers of both ends of a connection.

    Args:
        offer: the header encoding that this end asks for with its first request.
        together: this end says, when it accepts an offer, that it takes many sends or commits in one frame.
        run: this end says, when it accepts an offer, which run of its log this is; 0: it does not say.

    Attributes:
        agreed: both ends use Lockstep's own features.
        serialize_type: the header encoding of our next request.
        peer_together: the peer said that it takes many sends or commits in one frame.
        peer_run: which run of its log the peer said that this is; 0: it did not say.
        ours: the state of our offer; `peers`: that of the peer's.
        owed_echo: the opaque and the encoding of the peer's offer, until a reply repeats it.
        offered_opaque: the request that carried our offer, until the offer is settled.
    """

    def __init__(self, offer: SerializeType | None, *, together: bool, run: int) -> None:
        self._offer = offer
        self._together = together
        self._run = run
        self.ours = OurOffer.NONE if offer is None else OurOffer.DUE
        self.peers = PeerOffer.NONE
        self.owed_echo: tuple[int, str] | None = None
        self.offered_opaque: int | None = None
        self.agreed = False
        self.peer_together = False
        self.peer_run = 0
        # Every RocketMQ server reads binary headers. MSGPACK ones are for peers that agreed.
        self.serialize_type: int = offer if offer == SerializeType.ROCKETMQ else SerializeType.JSON

    @property
    def may_be_ours(self) -> bool:
        """Whether the peer may be one of ours: until it declines our offer."""
        return self.ours in _MAY_BE_OURS

    # Our offer -----------------------------------------------------------------------------------------------

    def offer_in(self, command: RemotingCommand) -> bool:
        """Put our offer into a request, when `ours` is DUE. Returns whether it is there; `offer_sent` follows then."""
        if self._offer is None:
            return False
        command.ext_fields = {**(command.ext_fields or {}), SERIALIZE_FIELD: self._offer.name}
        return True

    def offer_sent(self, opaque: int) -> None:
        self.ours = OUR_OFFER[self.ours][Event.OFFER_SENT]
        self.offered_opaque = opaque

    def settle(self, reply: RemotingCommand) -> None:
        """The request that carried our offer has its reply."""
        assert self._offer is not None
        name = self._offer.name
        event = Event.ECHO if (reply.ext_fields or {}).get(SERIALIZE_FIELD) == name else Event.NO_ECHO
        self.ours = OUR_OFFER[self.ours][event]
        self.offered_opaque = None
        if self.ours is OurOffer.ACCEPTED:
            self._agree(name)
            self.peer_together = bool(reply.flag & _TOGETHER)
            run = (reply.ext_fields or {}).get(RUN_FIELD)
            self.peer_run = int(run) if isinstance(run, str) and run.isascii() and run.isdigit() else 0

    def not_answered(self, opaque: int) -> None:
        """A request timed out. If it carried our offer, its late reply may still settle the offer."""
        if opaque == self.offered_opaque:
            self.ours = OUR_OFFER[self.ours][Event.DEADLINE]

    # The peer's offer ----------------------------------------------------------------------------------------

    def take(self, command: RemotingCommand) -> None:
        """A request carries an offer. That of a one-way request is not taken: no reply could repeat it."""
        name = (command.ext_fields or {}).get(SERIALIZE_FIELD)
        if isinstance(name, str) and name in _AGREEABLE and not command.flag & _ONE_WAY:
            self.owed_echo = (command.opaque, name)
            self.peers = PEER_OFFER[self.peers][Event.OFFER_RECEIVED]

    def ignore(self) -> None:
        """Do not accept the last offer of the peer: the reply does not repeat it."""
        self.owed_echo = None

    def echo_in(self, reply: RemotingCommand) -> dict[str, ExtValue] | None:
        """Accept the peer's offer in the reply to its request. Returns what must be in the reply; None: nothing."""
        if self.owed_echo is None or reply.opaque != self.owed_echo[0]:
            return None
        name = self.owed_echo[1]
        echo: dict[str, ExtValue] = {SERIALIZE_FIELD: name}
        reply.ext_fields = {**(reply.ext_fields or {}), **echo}
        if self._together:
            reply.flag |= _TOGETHER
        if self._run:
            reply.ext_fields[RUN_FIELD] = str(self._run)
        self._agree(name)
        self.owed_echo = None
        self.peers = PEER_OFFER[self.peers][Event.ECHO_SENT]
        return echo

    def _agree(self, name: str) -> None:
        self.agreed = True
        self.serialize_type = _AGREEABLE[name]
