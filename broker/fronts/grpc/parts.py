"""What the calls of this front share: the broker, the clients, and how an answer waits for the disk."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.grpc.asked import Asked
from lockstep.broker.fronts.grpc.call import Call, answer_with
from lockstep.broker.fronts.grpc.failures import Failure
from lockstep.broker.fronts.grpc.renewals import Renewals
from lockstep.broker.fronts.grpc.sessions import Session, Sessions
from lockstep.broker.fronts.grpc.undecided import Undecided
from lockstep.broker.grpc_counts import GrpcCounts
from lockstep.protocol.bodies.broker import TopicRouteData
from lockstep.protocol.grpc import messages as pb

__all__ = ["CLIENT_ID", "AskRoute", "Parts", "answer_when_kept", "session_of"]

AskRoute = Callable[[str, Callable[[TopicRouteData | None], None]], None]
CLIENT_ID: Final = "x-mq-client-id"


class Parts(NamedTuple):
    """Args:
    when_kept: Calls back when what was stored so far is as safe as the settings ask for, with "" or why it is not.
    ask_route: Calls back with the route of a topic over all brokers; None: nobody tells.
    """

    broker: Broker
    sessions: Sessions
    renewals: Renewals
    undecided: Undecided
    asked: Asked
    counts: GrpcCounts
    when_kept: Callable[[Callable[[str], None]], None]
    ask_route: AskRoute


def answer_when_kept(parts: Parts, call: Call, answer: Any, code: pb.Code) -> None:
    """Answer OK when what was stored so far is as safe as the settings ask for, and with this code if it is not."""

    def leave(reason: str) -> None:
        answer.status.code, answer.status.message = (code, reason) if reason else (pb.OK, "OK")
        answer_with(call, answer)

    parts.when_kept(leave)


def session_of(parts: Parts, call: Call) -> Session:
    """The client of a call. Raises Failure before its settings."""
    session = parts.sessions.find(call.metadata[CLIENT_ID])
    if session is None:
        raise Failure(pb.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")
    return session
