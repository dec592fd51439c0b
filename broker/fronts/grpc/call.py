"""A call as the session sees it, whichever transport carries it."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from lockstep.broker.peer import Peer
from lockstep.protocol.grpc.wire import GrpcStatus

__all__ = ["Call", "OnCall", "Service", "answer_with"]


class Call(Protocol):
    """One call of a client.

    Attributes:
        method: Its name, without the service's.
        metadata: Of the names that the session reads.
        peer: The connection.
        received_ms: When it began, in epoch ms.
        deadline_ms: When the client stops waiting, in epoch ms; None: never.
        code: Of its answer, a Code of apache.rocketmq.v2; 0: it has none yet.
        on_end: Called once, with the call and its status, or None when the client ended it, or its connection.
        on_gone: Called once, with epoch ms, when the client ends the call, or its connection or the call's time ends,
            before `finish`.
        on_unsent: Called once when that comes after `finish`, and messages were not written whole: with their number,
            and epoch ms. They are the last ones.
    """

    method: str
    metadata: Mapping[str, str]
    peer: Peer
    received_ms: int
    deadline_ms: int | None
    code: int
    on_end: Callable[["Call", GrpcStatus | None], object]
    on_gone: Callable[[int], object]
    on_unsent: Callable[[int, int], object]

    @property
    def is_open(self) -> bool: ...
    def send(self, message: bytes) -> None:
        """Send a message of the answer; nothing to a call that has ended."""

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End the call."""


# Called with a message of a client, and the time in epoch ms.
OnCall = Callable[[Call, bytes, int], None]


def answer_with(call: Call, answer: Any) -> None:
    """End a call with its only answer, which has a status."""
    call.code = answer.status.code
    call.send(answer.SerializeToString())
    call.finish()


class Service(Protocol):
    """What serves calls. Times are epoch ms."""

    def serves(self, method: str) -> bool: ...
    def keeps_open(self, method: str) -> bool:
        """Whether its messages are handled as they come; else the one message is, when the client has ended."""

    def bytes_max(self, method: str) -> int:
        """Of a message of a client."""

    def may_begin(self, call: Call) -> bool:
        """Whether the peer may make one more call now; else `refuse_busy` answers it."""

    def refuse_busy(self, call: Call) -> None: ...
    def receive(self, call: Call, message: bytes, now_ms: int) -> None: ...
    def half_closed(self, call: Call, now_ms: int) -> None:
        """The client ended its side of a call that is kept open."""

    def after_read(self) -> None:
        """The calls of one read were handled."""
