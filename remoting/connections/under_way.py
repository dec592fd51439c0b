"""Requests under way: received, and to be answered later. Their number has a bound, of a connection and of all."""

import sys
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, Protocol, TypeVar

from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.limit_log import LimitLog

__all__ = ["UnderWay", "busy"]

_ONE: Final = "requests_under_way_per_connection_max"
_ALL: Final = "requests_under_way_max"


class _Peer(Protocol):
    address: str
    read_at_ms: int
    late_count: int


P = TypeVar("P", bound=_Peer)
Handler = Callable[[P, RemotingCommand], RemotingCommand | None]


class UnderWay:
    """`count` is of all connections; an `Endpoint` keeps its own number.

    Args:
        all_max: Of all connections; 0: no limit.
        connection_max: Of one; 0: no limit.
        spared: Codes that are served up to twice the limits: without them a healthy client would lose what it has.
        limits: Counts and logs.
    """

    def __init__(self, all_max: int, connection_max: int, spared: AbstractSet[int], limits: LimitLog) -> None:
        self._all_max = all_max or sys.maxsize
        self._connection_max = connection_max or sys.maxsize
        self._spared = spared
        self._limits = limits
        self.count = 0

    def add(self, peer: _Peer, count: int) -> None:
        """So many requests of a connection began; below 0: they ended."""
        peer.late_count += count
        self.count += count

    def handler(self, peer: P, on_request: Handler[P]) -> Handler[P]:
        """The handler of a connection's next requests: `on_request` until a limit is reached, so it costs nothing."""
        return on_request if self.has_room(peer) else self._guarded(on_request)

    def has_room(self, peer: _Peer) -> bool:
        """Whether one more request of a connection may begin."""
        return peer.late_count < self._connection_max and self.count < self._all_max

    def _is_full(self, peer: _Peer, times: int = 1) -> bool:
        return peer.late_count >= times * self._connection_max or self.count >= times * self._all_max

    def _guarded(self, on_request: Handler[P]) -> Handler[P]:
        def handle(peer: P, command: RemotingCommand) -> RemotingCommand | None:
            if not self._is_full(peer, 2 if command.code in self._spared else 1):
                return on_request(peer, command)
            of_all = self.count >= self._all_max
            setting, maximum = (_ALL, self._all_max) if of_all else (_ONE, self._connection_max)
            self._limits.met(setting, maximum, peer.read_at_ms, peer.address)
            return busy(command, "OVERLOAD", setting, maximum)

        return handle


def busy(command: RemotingCommand, tag: str, setting: str, maximum: int) -> RemotingCommand:
    """RocketMQ's answer to a request that it has no room for (wire.md 3).

    Args:
        tag: RocketMQ's word for the reason: OVERLOAD, REJECTREQUEST.
    """
    remark = f"[{tag}]system busy, start flow control for a while: {setting} is {maximum}"
    return command.reply(ResponseCode.SYSTEM_BUSY, remark=remark)
