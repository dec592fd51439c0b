"""Peer: a client as the broker's tables and use cases know it, whichever front it speaks to."""

from collections.abc import Callable
from typing import Protocol

from lockstep.protocol.model import MessageQueue

__all__ = ["NobodyHears", "Notices", "Peer"]


class Peer(Protocol):
    """A connection to a client. Compared and hashed by identity."""

    address: str

    @property
    def is_open(self) -> bool: ...
    @property
    def ended_by_peer(self) -> bool: ...
    @property
    def write_paused(self) -> bool: ...
    def when_writable(self, then: Callable[[], None]) -> None: ...
    def abort(self, reason: str) -> None: ...


class Notices(Protocol):
    """How a front tells a client what it did not ask for."""

    def members_changed(self, peer: Peer, consumer_group: str) -> None:
        """Members of a group, or what they subscribe to, changed: it is time to rebalance."""

    def queues_free(self, peer: Peer, consumer_group: str, queues: tuple[MessageQueue, ...]) -> None:
        """Queues are free that the peer asked for in vain."""

    def transaction_undecided(self, peer: Peer, message: bytes) -> None:
        """It is time to commit or to roll back a half message, here in its stored layout, as it was sent."""


class NobodyHears:
    """A broker without a front."""

    def members_changed(self, peer: Peer, consumer_group: str) -> None: ...
    def queues_free(self, peer: Peer, consumer_group: str, queues: tuple[MessageQueue, ...]) -> None: ...
    def transaction_undecided(self, peer: Peer, message: bytes) -> None: ...
