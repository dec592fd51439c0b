"""What a client's caller can meet.

    ClientError
    ├── NoRouteError         no name server answered, or the topic has no queue to use
    │   └── TopicNotFoundError   the name servers answered: nobody knows the topic
    ├── SendError            a message was not sent, or nobody knows: `outcome` says which
    ├── SendForbiddenError   a CheckForbiddenHook would not have it sent
    ├── RequestTimeoutError  a request was sent, and nobody answered it in time
    ├── DuplicateGroupError  another client of this process with the same client id is in the group
    │   └── DuplicateConsumerGroupError   the same, and a ConsumerError
    └── ConsumerError        a consumer that cannot start, or is used in the wrong state

Errors of one call to one broker are `lockstep.remoting.errors`: RequestRefused, RequestTimeout, ConnectionLost.
"""

from enum import Enum

__all__ = [
    "ClientError",
    "ConsumerError",
    "DuplicateConsumerGroupError",
    "DuplicateGroupError",
    "NoRouteError",
    "RequestTimeoutError",
    "SendError",
    "SendForbiddenError",
    "SendOutcome",
    "TopicNotFoundError",
]


class SendOutcome(Enum):
    NOT_SENT = "not sent"  # nothing left this process for it
    REFUSED = "refused"  # the broker said no: it is not stored
    UNKNOWN = "unknown"  # it left, and no answer came, or the broker's disk failed it: it may be stored


class ClientError(Exception):
    pass


class NoRouteError(ClientError):
    pass


class TopicNotFoundError(NoRouteError):
    pass


class ConsumerError(ClientError):
    pass


class SendForbiddenError(ClientError):
    pass


class RequestTimeoutError(ClientError):
    pass


class DuplicateGroupError(ClientError):
    pass


class DuplicateConsumerGroupError(DuplicateGroupError, ConsumerError):
    pass


class SendError(ClientError):
    """`code` is the broker's response code when it answered, `msg_id` the message's UNIQ_KEY."""

    def __init__(self, reason: str, outcome: SendOutcome, *, msg_id: str, code: int | None = None) -> None:
        super().__init__(f"message {msg_id} {outcome.value}: {reason}")
        self.reason = reason
        self.outcome = outcome
        self.msg_id = msg_id
        self.code = code

    def after(self, earlier: "SendError | None") -> "SendError":
        """This failure of a repeat: when nobody knows of an earlier attempt, nobody knows of the message."""
        if earlier is None or earlier.outcome is not SendOutcome.UNKNOWN or self.outcome is SendOutcome.UNKNOWN:
            return self
        reason = f"{self.reason} (after an attempt without an answer)"
        return SendError(reason, SendOutcome.UNKNOWN, msg_id=self.msg_id, code=self.code)
