"""What the broker's decisions know of a connection: the part of an Endpoint that they use."""

from typing import Protocol

from lockstep.protocol.command import RemotingCommand

__all__ = ["Connection"]


class Connection(Protocol):
    """Implemented by lockstep.remoting's Endpoint. Compared and hashed by identity."""

    address: str

    @property
    def is_open(self) -> bool: ...
    @property
    def write_paused(self) -> bool: ...
    def reply(self, reply: RemotingCommand) -> None: ...
    def send_one_way(self, command: RemotingCommand) -> None: ...
    def abort(self, reason: str) -> None: ...
