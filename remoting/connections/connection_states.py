"""The states of one connection, and what changes them: five small tables of transitions.

`connection.py` acts by these tables, and `make docs` draws them. A state and an event without an entry
cannot meet: the lookup fails, which is a bug of ours and never the doing of a peer.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

__all__ = [
    "CLIENT_FLOW",
    "LIFE",
    "MACHINES",
    "OUR_OFFER",
    "PEER_OFFER",
    "REQUEST",
    "SERVER_FLOW",
    "Event",
    "Flow",
    "Life",
    "Machine",
    "OurOffer",
    "PeerOffer",
    "Request",
]


class Life(StrEnum):
    """Whether bytes may come and go."""

    NEW = "new"
    OPEN = "open"
    HALF_CLOSED = "half-closed"  # what was written leaves, nothing more is handled
    ABORTED = "aborted"  # what was not written yet is dropped
    CLOSED = "closed"


class Flow(StrEnum):
    """Back-pressure: whether frames are handled, and what they wait for."""

    READING = "reading"
    WAITING_FOR_TURN = "waiting-for-turn"  # the other connections of the process come first
    WAITING_FOR_PEER = "waiting-for-peer"  # the peer does not take what we write
    WAITING_FOR_BOTH = "waiting-for-both"
    READING_ONLY = "reading-only"  # a client reads replies while its peer does not take requests


class OurOffer(StrEnum):
    """The header encoding that this end asks for."""

    NONE = "none"
    DUE = "due"  # the next request that wants a reply carries it
    MADE = "made"
    ACCEPTED = "accepted"
    DECLINED = "declined"


class PeerOffer(StrEnum):
    """The header encoding that the peer asks for."""

    NONE = "none"
    RECEIVED = "received"  # the reply to the request that carried it repeats it
    ACCEPTED = "accepted"


class Request(StrEnum):
    """A request that wants a reply. It ends exactly once."""

    WAITING = "waiting"
    ANSWERED = "answered"
    TIMED_OUT = "timed-out"
    LOST = "lost"


class Event(StrEnum):
    CONNECTED = "connected"
    CLOSE = "close"  # this end closes once what was written has left
    ABORT = "abort"  # this end closes at once
    PEER_END = "peer end"  # the peer will send nothing more
    UNREADABLE = "unreadable"  # bytes that can never be a frame, or a header that cannot be read
    IDLE = "idle"  # no traffic either way for idle_close_ms
    LOST = "lost"  # the transport is gone
    TURN_ENDED = "turn ended"  # this connection used its share of the loop's time
    TURN_CAME = "turn came"
    WRITES_FULL = "writes full"  # above the high-water mark
    WRITES_DRAINED = "writes drained"
    OFFER_SENT = "offer sent"
    ECHO = "echo"  # the reply to the request with the offer repeats it
    NO_ECHO = "no echo"
    DEADLINE = "deadline"
    OFFER_RECEIVED = "offer received"
    ECHO_SENT = "echo sent"
    REPLY = "reply"


LIFE: Final[Mapping[Life, Mapping[Event, Life]]] = {
    Life.NEW: {Event.CONNECTED: Life.OPEN, Event.CLOSE: Life.NEW, Event.ABORT: Life.NEW},
    Life.OPEN: {
        Event.CLOSE: Life.HALF_CLOSED,
        Event.PEER_END: Life.HALF_CLOSED,
        Event.ABORT: Life.ABORTED,
        Event.UNREADABLE: Life.ABORTED,
        Event.IDLE: Life.ABORTED,
        Event.LOST: Life.CLOSED,
    },
    Life.HALF_CLOSED: {
        Event.CLOSE: Life.HALF_CLOSED,
        Event.PEER_END: Life.HALF_CLOSED,
        Event.ABORT: Life.ABORTED,
        Event.IDLE: Life.ABORTED,
        Event.LOST: Life.CLOSED,
    },
    Life.ABORTED: {
        Event.CLOSE: Life.ABORTED,
        Event.PEER_END: Life.ABORTED,
        Event.ABORT: Life.ABORTED,
        Event.LOST: Life.CLOSED,
    },
    Life.CLOSED: {Event.CLOSE: Life.CLOSED, Event.ABORT: Life.CLOSED, Event.LOST: Life.CLOSED},
}

# A server stops reading while its peer does not take replies. A client goes on, or the two would wait for each other.
SERVER_FLOW: Final[Mapping[Flow, Mapping[Event, Flow]]] = {
    Flow.READING: {Event.TURN_ENDED: Flow.WAITING_FOR_TURN, Event.WRITES_FULL: Flow.WAITING_FOR_PEER},
    Flow.WAITING_FOR_TURN: {Event.TURN_CAME: Flow.READING, Event.WRITES_FULL: Flow.WAITING_FOR_BOTH},
    Flow.WAITING_FOR_PEER: {Event.TURN_ENDED: Flow.WAITING_FOR_BOTH, Event.WRITES_DRAINED: Flow.READING},
    Flow.WAITING_FOR_BOTH: {Event.TURN_CAME: Flow.WAITING_FOR_PEER, Event.WRITES_DRAINED: Flow.WAITING_FOR_TURN},
}
CLIENT_FLOW: Final[Mapping[Flow, Mapping[Event, Flow]]] = {
    Flow.READING: {Event.WRITES_FULL: Flow.READING_ONLY},
    Flow.READING_ONLY: {Event.WRITES_DRAINED: Flow.READING},
}

# An offer whose request timed out is made again; a late reply to the first one still settles it.
OUR_OFFER: Final[Mapping[OurOffer, Mapping[Event, OurOffer]]] = {
    OurOffer.NONE: {},
    OurOffer.DUE: {
        Event.OFFER_SENT: OurOffer.MADE,
        Event.ECHO: OurOffer.ACCEPTED,
        Event.NO_ECHO: OurOffer.DECLINED,
    },
    OurOffer.MADE: {
        Event.ECHO: OurOffer.ACCEPTED,
        Event.NO_ECHO: OurOffer.DECLINED,
        Event.DEADLINE: OurOffer.DUE,
    },
    OurOffer.ACCEPTED: {},
    OurOffer.DECLINED: {},
}
PEER_OFFER: Final[Mapping[PeerOffer, Mapping[Event, PeerOffer]]] = {
    PeerOffer.NONE: {Event.OFFER_RECEIVED: PeerOffer.RECEIVED},
    PeerOffer.RECEIVED: {Event.OFFER_RECEIVED: PeerOffer.RECEIVED, Event.ECHO_SENT: PeerOffer.ACCEPTED},
    PeerOffer.ACCEPTED: {Event.OFFER_RECEIVED: PeerOffer.RECEIVED},
}

REQUEST: Final[Mapping[Request, Mapping[Event, Request]]] = {
    Request.WAITING: {
        Event.REPLY: Request.ANSWERED,
        Event.DEADLINE: Request.TIMED_OUT,
        Event.LOST: Request.LOST,
    },
    Request.ANSWERED: {},
    Request.TIMED_OUT: {},
    Request.LOST: {},
}


class Machine(NamedTuple):
    """A table with the words that the page says about it. `starts` are the states in which it may begin."""

    title: str
    meaning: str
    table: Mapping[Any, Mapping[Event, StrEnum]]
    starts: tuple[StrEnum, ...]


MACHINES: Final = (
    Machine("Life", "Whether bytes may come and go.", LIFE, (Life.NEW,)),
    Machine("Flow of a server", "Whether frames are handled, and what they wait for.", SERVER_FLOW, (Flow.READING,)),
    Machine("Flow of a client", "Back-pressure never stops the reading of replies.", CLIENT_FLOW, (Flow.READING,)),
    Machine(
        "Our offer",
        "The header encoding that this end asks for with its first request. Without one the state stays `none`.",
        OUR_OFFER,
        (OurOffer.NONE, OurOffer.DUE),
    ),
    Machine("The peer's offer", "The header encoding that the peer asks for.", PEER_OFFER, (PeerOffer.NONE,)),
    Machine("A request", "By its opaque. It ends exactly once.", REQUEST, (Request.WAITING,)),
)
