"""Claim: the queue that a request is about, and the period of ownership under which it comes."""

from typing import NamedTuple, Protocol

__all__ = ["Claim", "Claiming", "OfMessage", "QueueOfGroup", "UnderPeriod"]


class QueueOfGroup(Protocol):
    """A group, and a queue that it reads."""

    @property
    def consumer_group(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...


class UnderPeriod(Protocol):
    """The period of ownership under which a client acts. None: it has none, as an unmodified client."""

    @property
    def lock_epoch(self) -> int | None: ...
    @property
    def lock_client_id(self) -> str | None: ...


class Claiming(QueueOfGroup, UnderPeriod, Protocol):
    """A Claim, or the header of a request with the same fields."""


class OfMessage(UnderPeriod, Protocol):
    """What an ordered consumer says of a message that it sends elsewhere: its period, and the message's queue."""

    @property
    def lock_topic(self) -> str | None: ...
    @property
    def lock_queue_id(self) -> int | None: ...


class Claim(NamedTuple):
    """What is left of a header, for a request that is held."""

    consumer_group: str
    topic: str
    queue_id: int
    lock_epoch: int | None = None
    lock_client_id: str | None = None
