"""What a call fails with: a code and a text in its answer, or the status of gRPC that ends it."""

from collections.abc import Mapping
from typing import Final

from lockstep.broker.core.refused import Reason, Refused
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.grpc.wire import GrpcStatus
from lockstep.store import StoreFull

__all__ = ["PROXY", "CallFailed", "Failure", "as_failure", "no_route"]

# In front of many of the texts of RocketMQ's proxy, which people search for.
PROXY: Final = "org.apache.rocketmq.proxy.common.ProxyException: "
# Of other reasons: INTERNAL_SERVER_ERROR.
_CODES: Final[Mapping[Reason, pb.Code]] = {
    Reason.NOT_PERMITTED: pb.FORBIDDEN,
    Reason.NO_TOPIC: pb.TOPIC_NOT_FOUND,
    Reason.NO_GROUP: pb.CONSUMER_GROUP_NOT_FOUND,
    Reason.NOT_OWNER: pb.INVALID_RECEIPT_HANDLE,
}


class Failure(Exception):
    """The answer has this code of apache.rocketmq.v2, and this text.

    Attributes:
        rest: Messages that follow in a stream.
    """

    rest: tuple[bytes, ...] = ()

    def __init__(self, code: pb.Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class CallFailed(Exception):
    """The call ends with this status of gRPC."""

    def __init__(self, status: GrpcStatus, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def as_failure(error: Refused | StoreFull) -> Failure:
    """The broker's refusal, as this front says it."""
    code = _CODES.get(error.reason) if isinstance(error, Refused) else None
    return Failure(code or pb.INTERNAL_SERVER_ERROR, str(error))


def no_route(topic: str) -> Failure:
    """The text of a client of RocketMQ 4 inside its proxy."""
    text = (
        f"CODE: 17  DESC: No topic route info in name server for the topic: {topic}\n"
        "For more information, please visit the url, https://rocketmq.apache.org/docs/bestPractice/06FAQ"
    )
    return Failure(pb.TOPIC_NOT_FOUND, text)
