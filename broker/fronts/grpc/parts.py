"""What the calls of this front share: the broker, the clients, and how an answer waits for the disk."""

from collections.abc import Callable
from typing import Final, NamedTuple

from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.grpc.call import Call
from lockstep.broker.fronts.grpc.failures import Failure
from lockstep.broker.fronts.grpc.renewals import Renewals
from lockstep.broker.fronts.grpc.sessions import Session, Sessions
from lockstep.broker.fronts.grpc.undecided import Undecided
from lockstep.protocol.grpc import messages as pb

__all__ = ["CLIENT_ID", "Parts", "session_of"]

CLIENT_ID: Final = "x-mq-client-id"


class Parts(NamedTuple):
    """Args:
    port: Where clients reach this front, for routes.
    when_kept: Calls back when what was stored so far is as safe as the settings ask for, with "" or why it is not.
    """

    broker: Broker
    sessions: Sessions
    renewals: Renewals
    undecided: Undecided
    port: Callable[[], int]
    when_kept: Callable[[Callable[[str], None]], None]


def session_of(parts: Parts, call: Call) -> Session:
    """The client of a call. Raises Failure before its settings."""
    session = parts.sessions.find(call.metadata[CLIENT_ID])
    if session is None:
        raise Failure(pb.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")
    return session
