"""Claim: the queue that a request is about, and the period of ownership under which it comes."""

from typing import NamedTuple, Protocol

__all__ = ["Claim", "Claiming"]


class Claiming(Protocol):
    """A Claim, or the header of a request with the same fields.

    `lock_epoch` and `lock_client_id` are None in a request of a client that has no period: an unmodified one.
    """

    @property
    def consumer_group(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def lock_epoch(self) -> int | None: ...
    @property
    def lock_client_id(self) -> str | None: ...


class Claim(NamedTuple):
    """What is left of a header, for a request that is held."""

    consumer_group: str
    topic: str
    queue_id: int
    lock_epoch: int | None = None
    lock_client_id: str | None = None
