"""The interface of a message store, and the values that it takes and returns."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.kernels import QueueRun
from lockstep.protocol.messages.message import MessageExt, Record
from lockstep.protocol.messages.properties import KEYS, UNIQ_KEY

__all__ = [
    "KEY_QUERY_MESSAGE_COST",
    "KEY_QUERY_STEP_BYTES",
    "AppendResult",
    "Bounds",
    "GetResult",
    "GetStatus",
    "KeyQuery",
    "LogOffsets",
    "MessageStore",
    "Passes",
    "QueryResult",
    "QueueEntry",
    "Record",
    "StoreFull",
    "TakenQueue",
    "TakenTopic",
    "fitting",
    "nearest_in_time",
    "outside",
]

# A query by key looks at messages of so many bytes in one step.
KEY_QUERY_STEP_BYTES: Final = 256 * 1024
# Besides its own bytes, each message counts as so many.
KEY_QUERY_MESSAGE_COST: Final = 16 * 1024


class StoreFull(Exception):
    """The store cannot take the message; the text gives the reason. The broker answers SERVICE_NOT_AVAILABLE."""


class AppendResult(NamedTuple):
    """Where a message was stored."""

    commit_log_offset: int
    queue_offset: int


class QueueEntry(NamedTuple):
    """An entry of a consume queue."""

    commit_log_offset: int
    size_bytes: int
    tags_code: int


class KeyQuery(NamedTuple):
    """The newest `max_num` messages of a topic with a key, stored in [begin_timestamp, end_timestamp], epoch ms."""

    topic: str
    key: str
    max_num: int
    begin_timestamp: int
    end_timestamp: int

    def matches(self, message: MessageExt) -> bool:
        properties = message.properties
        has_key = properties.get(UNIQ_KEY) == self.key or self.key in properties.get(KEYS, "").split(" ")
        in_time = self.begin_timestamp <= message.store_timestamp <= self.end_timestamp
        return has_key and in_time and message.topic == self.topic


class QueryResult(NamedTuple):
    """`messages`: in the stored layout, oldest first. The other two fields describe the newest message of the log."""

    messages: list[bytes]
    last_timestamp: int
    last_commit_log_offset: int


class GetStatus(Enum):
    """The result of a read, by RocketMQ's names (wire.md 6.3); broker/core/read.py says what each means."""

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
    """`body`: the messages, back to back in the stored layout. `max_offset` is exclusive."""

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    body: bytes = b""
    message_count: int = 0


@dataclass(frozen=True, slots=True)
class Passes:
    """A filter on messages in the stored layout.

    Args:
        entries_max: One read applies it to so many messages at most.
        text_bytes_max: And to so many bytes of topics and properties, but for the first message.
    """

    matches: Callable[[bytes], bool]
    entries_max: int
    text_bytes_max: int = 256 * 1024


class Bounds(Protocol):
    """A queue's entries: `min_offset` and the exclusive `max_offset`."""

    @property
    def min_offset(self) -> int: ...

    @property
    def max_offset(self) -> int: ...


class LogOffsets(Protocol):
    """Commit log offsets of a queue's messages, ascending."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> int: ...


def outside(queue: Bounds, queue_offset: int) -> GetResult | None:
    """The result of a read at an offset that the queue does not have; None when it has it."""
    low, high = queue.min_offset, queue.max_offset
    if queue_offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if queue_offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, queue_offset, low, high)
    if queue_offset > high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
    return None


def fitting(sizes: Sequence[int], bytes_max: int) -> int:
    """How many of the first messages have at most `bytes_max` bytes together; at least one (wire.md 6.3)."""
    return max(1, bisect_right(list(accumulate(sizes)), bytes_max))


def nearest_in_time(log_offsets: LogOffsets, timestamp: int, stored_ms: Callable[[int], int]) -> int:
    """The index of the message stored nearest to `timestamp`, by the rules of wire.md 8.2.

    Args:
        log_offsets: At least one.
        stored_ms: Returns when the message at a commit log offset was stored.
    """
    after = bisect_left(log_offsets, timestamp, key=stored_ms)
    if after == len(log_offsets):
        return after - 1
    if after == 0 or stored_ms(log_offsets[after]) == timestamp:
        return after
    nearer_before = timestamp - stored_ms(log_offsets[after - 1]) <= stored_ms(log_offsets[after]) - timestamp
    return after - 1 if nearer_before else after


class TakenQueue(Protocol):
    """A queue of a topic that was deleted."""

    @property
    def max_offset(self) -> int: ...

    def stored_bytes(self, first_offset: int, end_offset: int) -> int:
        """The stored size of the messages in a range that still exist. Raises OSError."""


Q = TypeVar("Q", bound=TakenQueue)


class TakenTopic(NamedTuple, Generic[Q]):
    """The queues of a deleted topic by queue id.

    `is_apart`: they may be freed later. Otherwise a new topic of that name would find their files.
    """

    queues: Sequence[tuple[int, Q]]
    is_apart: bool


class MessageStore(Protocol):
    """Messages by topic and queue id. A queue without messages reads as empty.

    Attributes:
        store_host: The broker's address as it is written into messages; so is `store_port`.
    """

    store_host: bytes
    store_port: int

    def append(self, record: Record) -> AppendResult:
        """Store one message. Raises StoreFull if nothing was stored."""

    def append_all(self, records: Sequence[Record]) -> list[AppendResult]:
        """Store all of these next to each other in the log, or none. Raises StoreFull."""

    def next_offset(self, topic: str, queue_id: int) -> int | None:
        """The offset of the next message of a queue. None: it has had none yet."""

    def append_encoded(self, log: bytes, queues: Sequence[QueueRun], now_ms: int) -> bool:
        """Store messages that were encoded for the end of the log, and their queue entries.

        Returns:
            False: nothing was stored. `append` says why.
        """

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
        subscription: SubscriptionData | None,
        passes: Passes | None = None,
        *,
        bulk: bool = False,
    ) -> GetResult:
        """Messages from `queue_offset` on whose tag hashes the subscription has.

        Args:
            subscription: None selects all messages.
            passes: Replaces the subscription's filter.
            bulk: Without a filter only the limit of a pull in bytes holds, not the one in messages.
        """

    def min_offset(self, topic: str, queue_id: int) -> int: ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset of the next message."""

    def recovered_offset(self, topic: str, queue_id: int) -> int:
        """Where the queue ended when this process opened the store. Messages from there on are of this process."""

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """Epoch ms when the message was stored; None when it does not exist."""

    def offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The offset of the message stored nearest to `timestamp`, by the rules of wire.md 8.2."""

    def entries(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[QueueEntry]:
        """Up to `count` entries from `queue_offset` on; none outside the queue's bounds."""

    def message_at(self, commit_log_offset: int) -> bytes | None:
        """The message that begins at this offset; None when none does."""

    def query(self, query: KeyQuery) -> Generator[None, None, QueryResult]:
        """The newest messages with a key, as a word of KEYS or as UNIQ_KEY, in steps: there may be many to look at."""

    def drop_topic(self, topic: str) -> None:
        """Delete the queues of a topic. Its next message gets offset 0."""

    def take_topic(self, topic: str) -> "TakenTopic[Any]":
        """Remove the queues of a topic from the store, as `drop_topic`; `free` deletes what is left of each."""

    def free(self, queue: Any) -> None:
        """Delete what a queue that was taken has on the disk."""

    def end_free(self) -> None:
        """All queues of a topic that was taken, and is apart, are free."""

    def queue_keys(self) -> list[tuple[str, int]]:
        """(topic, queue id) of each queue that has had a message."""

    def max_offsets(self) -> dict[tuple[str, int], int]:
        """(topic, queue id) -> `max_offset`, for each queue that has had a message."""

    def stored_bytes(self, topic: str, queue_id: int, first_offset: int, end_offset: int) -> int:
        """The stored size of the messages in [first_offset, end_offset) that still exist."""

    @property
    def min_commit_log_offset(self) -> int: ...

    @property
    def max_commit_log_offset(self) -> int:
        """The offset of the next message: the number of bytes ever written."""

    def earliest_timestamp(self) -> int | None:
        """Epoch ms when the oldest existing message was stored; None without messages."""

    def close(self) -> None: ...
