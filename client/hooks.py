"""Hooks: the user's code around sends, listener calls and ends of transactions, and after pulls.

A hook is an object with the methods of its protocol. They are plain functions that run on the event loop and must not
block. An exception of a hook is logged and changes nothing; only that of a CheckForbiddenHook forbids the send.
`before` and `after` of one send attempt or listener call get the same context; its `data` is for the hooks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from lockstep.client.send_result import SendResult
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.to_send import Message
from lockstep.protocol.model import MessageQueue

__all__ = [
    "CheckForbiddenHook",
    "CommunicationMode",
    "ConsumeMessageContext",
    "ConsumeMessageHook",
    "ConsumeReturnType",
    "EndTransactionContext",
    "EndTransactionHook",
    "FilterMessageContext",
    "FilterMessageHook",
    "LocalTransactionState",
    "MessageType",
    "SendMessageContext",
    "SendMessageHook",
]


class CommunicationMode(Enum):
    SYNC = "SYNC"  # `send`: the caller waits
    ASYNC = "ASYNC"  # `send_async`
    ONEWAY = "ONEWAY"


class MessageType(Enum):
    NORMAL = "Normal"
    HALF = "Trans"
    DELAY = "Delay"


class LocalTransactionState(Enum):
    """The result of the producer's local transaction. UNKNOWN: the broker checks it later."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"  # RocketMQ's spelling


class ConsumeReturnType(Enum):
    """The result of a listener call, for hooks."""

    SUCCESS = "SUCCESS"
    TIME_OUT = "TIME_OUT"  # no failure, but it took longer than `consume_timeout`
    EXCEPTION = "EXCEPTION"
    RETURNNULL = "RETURNNULL"  # the answer was not a status
    FAILED = "FAILED"  # the listener wants another attempt


# Producers --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SendMessageContext:
    """One attempt to send messages. A batch has several.

    After it, `result` or `error` is set; a one-way send that left has neither.
    """

    producer_group: str
    messages: Sequence[Message]
    queue: MessageQueue
    broker_address: str
    mode: CommunicationMode
    message_type: MessageType
    result: SendResult | None = None
    error: BaseException | None = None
    data: dict[str, Any] = field(default_factory=dict)


class SendMessageHook(Protocol):
    def before(self, context: SendMessageContext, /) -> object: ...
    def after(self, context: SendMessageContext, /) -> object: ...


class CheckForbiddenHook(Protocol):
    """If it raises, nothing is sent and no other attempt is made: the sender gets SendForbiddenError."""

    def check_forbidden(self, context: SendMessageContext, /) -> object: ...


@dataclass(slots=True)
class EndTransactionContext:
    """The end of a transaction, before the producer sends it.

    Args:
        from_check: it answers a check of the broker, and `message` is the broker's copy.
    """

    producer_group: str
    message: Message | MessageExt
    broker_address: str
    msg_id: str
    transaction_id: str
    state: LocalTransactionState
    from_check: bool


class EndTransactionHook(Protocol):
    def end_transaction(self, context: EndTransactionContext, /) -> object: ...


# Consumers --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ConsumeMessageContext:
    """One listener call. A call that was not made, because the queue was lost meanwhile, is FAILED.

    Args:
        queue: without the namespace, as the messages.
        namespace: of the consumer; None: it has none.
        success: the messages are handled.
        status: the name of the listener's answer.
    """

    consumer_group: str
    messages: list[MessageExt]
    queue: MessageQueue
    namespace: str | None = None
    success: bool = False
    status: str = ""
    return_type: ConsumeReturnType | None = None
    data: dict[str, Any] = field(default_factory=dict)


class ConsumeMessageHook(Protocol):
    def before(self, context: ConsumeMessageContext, /) -> object: ...
    def after(self, context: ConsumeMessageContext, /) -> object: ...


@dataclass(slots=True)
class FilterMessageContext:
    """The messages of one pull, after their tags were checked. A hook removes messages that must not be consumed."""

    consumer_group: str
    messages: list[MessageExt]
    queue: MessageQueue


class FilterMessageHook(Protocol):
    def filter_message(self, context: FilterMessageContext, /) -> object: ...
