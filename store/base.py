"""What a message store is: the broker's side of memory and, later, of files."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.message import MessageExt, Record
from lockstep.protocol.properties import KEYS, UNIQ_KEY

__all__ = [
    "AppendResult",
    "GetResult",
    "GetStatus",
    "KeyQuery",
    "MessageStore",
    "Passes",
    "QueryResult",
    "QueueEntry",
    "Record",
    "StoreFull",
]


class StoreFull(Exception):
    """The store cannot take the message; the text says why. The broker answers SERVICE_NOT_AVAILABLE."""


class AppendResult(NamedTuple):
    commit_log_offset: int
    queue_offset: int


class QueueEntry(NamedTuple):
    """What a queue's index knows of a message."""

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
    """`messages`: whole ones in the stored layout, oldest first. The other two: the newest message of the whole log."""

    messages: list[bytes]
    last_timestamp: int
    last_commit_log_offset: int


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


@dataclass(frozen=True, slots=True)
class Passes:
    """Is a message in the stored layout wanted? It takes time: a read shows it `entries_max` of them at most."""

    matches: Callable[[bytes], bool]
    entries_max: int


class MessageStore(Protocol):
    """Queues are named by topic and queue id; one that nobody wrote to reads as empty.

    `store_host` and `store_port` are the broker's address as written into messages.
    """

    store_host: bytes
    store_port: int

    def append(self, record: Record) -> AppendResult:
        """Raises StoreFull, and nothing is stored then."""

    def append_all(self, records: Sequence[Record]) -> list[AppendResult]:
        """All of these, behind one another in the log, or none. Raises StoreFull."""

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
        subscription: SubscriptionData | None,
        passes: Passes | None = None,
    ) -> GetResult:
        """Messages from `queue_offset` on that the subscription's tag hashes pass; None passes all.

        With `passes` that alone decides, and is shown each message, up to its own `entries_max`.
        """

    def min_offset(self, topic: str, queue_id: int) -> int: ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the next message will get."""

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """Epoch ms when the message was stored; None when it is not there."""

    def offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The offset of the message stored nearest to `timestamp`, by the rules of wire.md 8.2."""

    def entries(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[QueueEntry]:
        """Up to `count` entries of a queue's index from `queue_offset` on; none for what is out of its bounds."""

    def message_at(self, commit_log_offset: int) -> bytes | None:
        """The whole message that begins there; None when none does."""

    def query(self, topic: str, key: str, max_num: int, begin_timestamp: int, end_timestamp: int) -> QueryResult:
        """The newest `max_num` with `key` as a word of KEYS or as UNIQ_KEY; times inclusive, epoch ms."""

    def drop_topic(self, topic: str) -> None:
        """Forget the queues of a topic; the next message of one gets offset 0."""

    def max_offsets(self) -> dict[tuple[str, int], int]:
        """(topic, queue id) -> `max_offset`, of every queue that was written to."""

    def stored_bytes(self, topic: str, queue_id: int, first_offset: int, end_offset: int) -> int:
        """The size of the messages as they are stored, of those that are left."""

    @property
    def min_commit_log_offset(self) -> int: ...

    @property
    def max_commit_log_offset(self) -> int:
        """Where the next message will stand: the bytes ever written."""

    def earliest_timestamp(self) -> int | None:
        """Epoch ms when the oldest message that is left was stored; None when there is none."""

    def close(self) -> None: ...
