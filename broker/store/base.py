"""What a message store is: the broker's side of memory and, later, of files."""

from enum import Enum
from typing import NamedTuple, Protocol

from lockstep.protocol.heartbeat import SubscriptionData

__all__ = ["AppendResult", "GetResult", "GetStatus", "MessageStore", "Record", "StoreFull"]


class StoreFull(Exception):
    """The store cannot take the message; the text says why. The broker answers SERVICE_NOT_AVAILABLE."""


class Record(NamedTuple):
    """A message as it is to be stored; the store adds offsets and its own address."""

    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    born_port: int
    store_timestamp: int
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    properties: bytes
    tags_code: int


class AppendResult(NamedTuple):
    commit_log_offset: int
    queue_offset: int


class GetStatus(Enum):
    """RocketMQ's names; what each answers is a table in processors/pull.py (wire.md 6.3)."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8


class GetResult(NamedTuple):
    """`body`: the messages found, back to back in the stored layout. `max_offset` is exclusive."""

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    body: bytes = b""
    message_count: int = 0


class MessageStore(Protocol):
    """Queues are named by topic and queue id; one that nobody wrote to reads as empty.

    `store_host` and `store_port` are the broker's address as written into messages.
    """

    store_host: bytes
    store_port: int

    def append(self, record: Record) -> AppendResult:
        """Raises StoreFull."""

    def get(
        self, topic: str, queue_id: int, queue_offset: int, max_msg_nums: int, subscription: SubscriptionData | None
    ) -> GetResult:
        """Messages from `queue_offset` on that the subscription's tag hashes pass; None passes all."""

    def min_offset(self, topic: str, queue_id: int) -> int: ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the next message will get."""

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """Epoch ms when the message was stored; None when it is not there."""

    def offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The offset of the message stored nearest to `timestamp`, by the rules of wire.md 8.2."""

    def close(self) -> None: ...
