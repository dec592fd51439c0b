"""The errors of clients.

    ClientError
    ├── NoRouteError         no name server answered, or the topic has no usable queue
    │   └── TopicNotFoundError   a name server answered that it does not know the topic
    ├── SendError            a message was not sent, or perhaps not: see `outcome`
    ├── SendForbiddenError   a CheckForbiddenHook forbade a send
    ├── RequestTimeoutError  a request message was sent, and no reply came in time
    ├── DuplicateGroupError  another client of this process with the same client id is in the group
    │   └── DuplicateConsumerGroupError   the same, and a ConsumerError
    ├── ConsumerError        a consumer cannot start, or is used in the wrong state
    │   └── StaleDeliveryError   the broker refuses an acknowledgement: this delivery of the message has ended
    ├── LockLostError        a listener asks, and its fenced lock is lost: what it does now may come too late
    ├── NotLockstepError     the broker is not a Lockstep broker and does not know the request
    ├── RemotingError        one request to one broker failed: RequestRefused and others of `lockstep.remoting.errors`
    ├── ProtocolError        what is sent is not allowed, or the answer cannot be read (`lockstep.protocol.errors`)
    └── SettingError         a setting is wrong (`lockstep.remoting.settings`)

An error about what the caller gave is a ValueError too: LocalProtocolError, FilterError, SettingError.
"""

from enum import Enum

from lockstep.protocol.errors import ClientError

__all__ = [
    "ClientError",
    "ConsumerError",
    "DuplicateConsumerGroupError",
    "DuplicateGroupError",
    "LockLostError",
    "NoRouteError",
    "NotLockstepError",
    "RequestTimeoutError",
    "SendError",
    "SendForbiddenError",
    "SendOutcome",
    "StaleDeliveryError",
    "TopicNotFoundError",
]


class SendOutcome(Enum):
    NOT_SENT = "not sent"  # the request did not leave this process
    REFUSED = "refused"  # the broker refused it: it is not stored
    UNKNOWN = "unknown"  # no answer came, or the broker's disk failed: it may be stored


class NoRouteError(ClientError):
    pass


class TopicNotFoundError(NoRouteError):
    pass


class ConsumerError(ClientError):
    pass


class StaleDeliveryError(ConsumerError):
    pass


class LockLostError(ClientError):
    pass


class NotLockstepError(ClientError):
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
    """A failed send.

    Args:
        code: the response code of the broker; None: it did not answer.
        msg_id: the UNIQ_KEY of the message.
    """

    def __init__(self, reason: str, outcome: SendOutcome, *, msg_id: str, code: int | None = None) -> None:
        super().__init__(f"message {msg_id} {outcome.value}: {reason}")
        self.reason = reason
        self.outcome = outcome
        self.msg_id = msg_id
        self.code = code

    def after(self, earlier: "SendError | None") -> "SendError":
        """Return the failure of a repeated send: if an earlier attempt may be stored, the message may be stored."""
        if earlier is None or earlier.outcome is not SendOutcome.UNKNOWN or self.outcome is SendOutcome.UNKNOWN:
            return self
        reason = f"{self.reason} (after an attempt without an answer)"
        return SendError(reason, SendOutcome.UNKNOWN, msg_id=self.msg_id, code=self.code)
