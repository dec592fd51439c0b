"""The port of a queue that a group reads in order: what is delivered now, what an answer to a delivery does.

A queue has no owner. It is held while a delivery of it is not acknowledged and its invisible time is not over.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple, Protocol

from lockstep.protocol.bodies.order_info import OrderInfo

__all__ = ["Answered", "Delivered", "FifoQueue", "Found", "Order", "QueueReader", "Replayed", "UnderWay"]


class Found(NamedTuple):
    """The result of a read: messages that pass the filter, and where the next read begins.

    Args:
        body: All of them, one after the other, in the stored layout.
    """

    offsets: Sequence[int]
    body: bytes
    next_offset: int


class QueueReader(Protocol):
    """Reads one queue with the filter of one request."""

    def read(self, queue_offset: int, count_max: int) -> Found:
        """Messages from an offset on."""


class Order(NamedTuple):
    """What a client wants of a queue.

    Args:
        client: Who asks: a client id, or the address of a connection that has registered none.
        attempt_id: Names the call. A client that got no answer repeats the call with the same one.
        pop_ms: Names the delivery: the time of the call, as `first_pop_ms` allows it.
        invisible_ms: For so long nobody else gets what is delivered.
    """

    client: str
    attempt_id: str | None
    count_max: int
    pop_ms: int
    invisible_ms: int


class Delivered(NamedTuple):
    """What a queue gives.

    Args:
        start_offset: Of the first message that could be given.
        body: The messages, in the stored layout.
        times_before: How often a message was delivered before, by queue offset; without those that are new.
        commit_offset: The group has consumed everything before it.
        acked: What the group has consumed behind it.
    """

    start_offset: int
    offsets: Sequence[int]
    body: bytes
    times_before: dict[int, int]
    commit_offset: int
    acked: Sequence[int] = ()


class Replayed(NamedTuple):
    """What the log has of a delivery, or of a change of its invisible time.

    Args:
        commit_offset, acked: As of `Delivered`; -1: they are not known.
    """

    order: Order
    queue_offsets: Sequence[int]
    commit_offset: int
    acked: Sequence[int]


class Answered(Enum):
    """What became of an acknowledgement, or of a change of the invisible time."""

    DONE = auto()
    LATE = auto()  # it is for a delivery that is over: ignored
    STALE = auto()  # likewise: refused
    UNKNOWN = auto()  # no delivery had this message


class UnderWay(NamedTuple):
    """A message that was delivered and is not acknowledged.

    Args:
        key: A hash of its key. None: it has none, or its whole queue waits for it.
        client: Who has it. None: it is not known.
    """

    queue_offset: int
    pop_ms: int
    visible_ms: int
    times_before: int
    key: int | None = None
    client: str | None = None


class FifoQueue(Protocol):
    """Deliveries of one queue to one group in order. All times are epoch ms by the broker's clock."""

    def first_pop_ms(self, now_ms: int) -> int:
        """The earliest time that a delivery made now may be named by."""

    def pop(self, order: Order, committed: int, reader: QueueReader, now_ms: int) -> Delivered | None:
        """Deliver messages. None: deliveries under way hold up all that is left.

        Args:
            committed: The group's offset.
        """

    def end_attempt(self, order: Order) -> bool:
        """A client repeats a call, and gets other messages: it never got what the call gave before, so that is over.

        Returns:
            Whether messages became visible.
        """

    def ack(self, queue_offset: int, pop_ms: int, committed: int) -> tuple[Answered, int]:
        """A message of the delivery made at `pop_ms` is consumed.

        Args:
            committed: The group's offset.

        Returns:
            Also the group's next offset; -1 when the answer is not DONE.
        """

    def change(self, queue_offset: int, pop_ms: int, visible_ms: int) -> Answered:
        """A message of that delivery is invisible until another time."""

    def next_visible_ms(self, now_ms: int) -> int | None:
        """When more can be given although nobody acknowledges anything. None: nothing is held."""

    def may_give(self, committed: int, max_offset: int, now_ms: int) -> bool:
        """Whether a pop may find something, but for its filter and its attempt id.

        Args:
            max_offset: Of the queue, exclusive.
        """

    def under_way(self) -> list[UnderWay]:
        """What was delivered and is not acknowledged, by queue offset; also what is visible again."""

    def replay(self, replayed: Replayed, reader: QueueReader) -> None:
        """After a crash: this was made after the file was written."""

    def crashed(self) -> None:
        """The broker starts after a crash, and all is restored and replayed: acknowledgements may be lost."""

    def saved(self) -> OrderInfo | None:
        """For the file. None: there is nothing to keep."""

    def client_gone(self, client: str, visible_ms: int) -> None:
        """A client's connection ended: what it holds is visible from then on at the latest."""
