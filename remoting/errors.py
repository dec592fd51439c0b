"""Errors of a call to a peer.

RemotingError              `retriable` says whether the same call may be made again
├── ConnectFailed          nothing was sent
├── ConnectionLost         the connection ended during the call: its outcome is unknown
├── RequestTimeout         no reply in time: its outcome is unknown
└── RequestRefused         the peer answered with an error code; see `code` and `remark`
"""

from collections.abc import Container

from lockstep.protocol.codes import ResponseCode, request_name, response_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import ClientError

__all__ = ["ConnectFailed", "ConnectionLost", "RemotingError", "RequestRefused", "RequestTimeout", "must_succeed"]


class RemotingError(ClientError):
    retriable = True


class ConnectFailed(RemotingError):
    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot connect to {address}: {reason}")
        self.address = address


class ConnectionLost(RemotingError):
    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"the connection to {address} ended: {reason}")
        self.address = address


class RequestTimeout(RemotingError):
    def __init__(self, address: str, what: str, timeout_ms: int) -> None:
        super().__init__(f"no reply to {what} from {address} within {timeout_ms} ms")
        self.address = address
        self.timeout_ms = timeout_ms


class RequestRefused(RemotingError):
    """A reply with an error code."""

    retriable = False

    def __init__(self, address: str, what: str, code: int, remark: str | None) -> None:
        super().__init__(f"{address} answered {what} with {response_name(code)}: {remark or 'no reason given'}")
        self.address = address
        self.code = code
        self.remark = remark


def must_succeed(reply: RemotingCommand, peer: str, code: int, also: Container[int] = ()) -> None:
    """Raises RequestRefused for any code but SUCCESS and those of `also`. `code` is the request's."""
    if reply.code != ResponseCode.SUCCESS and reply.code not in also:
        raise RequestRefused(peer, request_name(code), reply.code, reply.remark)
