"""Waiter: what waits for the reply to a request."""

from typing import Any, Final, Protocol

from lockstep.remoting.connections.connection import Ended
from lockstep.remoting.connections.connection_states import Request

__all__ = ["Waiter", "finish"]

_ANSWERED: Final = Request.ANSWERED


class Waiter(Protocol):
    """As a Future: it gets the reply or the error, unless it is `done` by then because its caller gave up."""

    def done(self) -> bool: ...
    def set_result(self, reply: Any, /) -> None: ...
    def set_exception(self, error: Any, /) -> None: ...


def finish(ended: Ended[Waiter]) -> None:
    """Give a request's end to its waiter, unless the caller gave up."""
    state, waiter, outcome = ended
    if waiter.done():
        return
    if state is _ANSWERED:
        waiter.set_result(outcome)
    else:
        waiter.set_exception(outcome)
