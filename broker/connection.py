"""The part of an Endpoint that handlers and state tables use."""

from collections.abc import Callable
from typing import Protocol

from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.errors import RemotingError

__all__ = ["Connection"]


class Connection(Protocol):
    """A connection to a peer; `remoting.endpoint.Endpoint` implements it. Compared and hashed by identity."""

    address: str
    read_at_ms: int  # when it was last read from, epoch ms

    @property
    def serialize_type(self) -> int: ...  # of requests that the broker sends
    @property
    def ended_by_peer(self) -> bool: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def write_paused(self) -> bool: ...
    def when_writable(self, then: Callable[[], None]) -> None: ...
    def reply(self, reply: RemotingCommand) -> None: ...
    def send_one_way(self, command: RemotingCommand) -> None: ...
    def request_then(
        self, command: RemotingCommand, timeout_ms: int, then: Callable[[RemotingCommand | RemotingError], None]
    ) -> None: ...
    def abort(self, reason: str) -> None: ...
