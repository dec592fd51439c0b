"""Hooks: callers' code around sends, listener calls and ends of transactions, and before messages are consumed.

A hook is any object with these methods, all plain functions: they run on the event loop and must not block. What a
hook raises is logged and changes nothing, but for a CheckForbiddenHook's, which forbids a send. A context is
made for each send attempt or listener call, the same for `before` and `after`; `data` is the hooks' own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from lockstep.client.producer.result import SendResult
from lockstep.protocol.message import MessageExt
from lockstep.protocol.model import Message, MessageQueue

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
    """What became of a producer's own part of a transaction. UNKNOWN: the broker asks for it later."""

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"  # RocketMQ's spelling


class ConsumeReturnType(Enum):
    """What a listener call came to, for hooks."""

    SUCCESS = "SUCCESS"
    TIME_OUT = "TIME_OUT"  # it returned something else than an error, but after `consume_timeout`
    EXCEPTION = "EXCEPTION"
    RETURNNULL = "RETURNNULL"  # it returned nothing that is a status
    FAILED = "FAILED"  # it asked for another attempt


# Producers --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class SendMessageContext:
    """One attempt to send `messages`, of which a batch has several. After it either `result` or `error` is set, but
    neither for one-way sends that left."""

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
    """When it raises, nothing is sent: the sender hears SendForbiddenError, and no other attempt is made."""

    def check_forbidden(self, context: SendMessageContext, /) -> object: ...


@dataclass(slots=True)
class EndTransactionContext:
    """Before a producer tells the broker. `from_check`: the broker had asked, and `message` is its copy."""

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
    """One listener call.

    `status` is the listener's answer by name, `success` whether the messages are done. `namespace` is the
    consumer's, None without one; `queue` and the messages have their names without it.
    A call that waited for a thread, and was then not made because the queue had been lost, is FAILED.
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
    """What a pull brought, tags having been looked at. A hook takes out of `messages` what it does not want."""

    consumer_group: str
    messages: list[MessageExt]
    queue: MessageQueue


class FilterMessageHook(Protocol):
    def filter_message(self, context: FilterMessageContext, /) -> object: ...
