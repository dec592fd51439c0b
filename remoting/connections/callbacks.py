"""What an endpoint calls when something happens on its connection."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from lockstep.protocol.command import RemotingCommand

__all__ = ["Callbacks"]

E = TypeVar("E")


class Callbacks(NamedTuple, Generic[E]):
    """What an endpoint (E) calls.

    Args:
        on_request: Answers a request of the peer: returns a reply, or None to reply later through `Endpoint.reply`.
        on_opened: The connection is there.
        on_closed: The connection is gone. It is called once.
        after_read: The requests of one read were handled and their replies written.
        before_replies: Some requests of a read were handled, and their replies are encoded next.
    """

    on_request: Callable[[E, RemotingCommand], RemotingCommand | None]
    on_opened: Callable[[E], object] | None = None
    on_closed: Callable[[E], object] | None = None
    after_read: Callable[[], object] | None = None
    before_replies: Callable[[], object] | None = None
