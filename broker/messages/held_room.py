"""Room for calls that wait: a connection may have so many of them, and all connections so many together."""

from lockstep.broker.messages.pull_answers import NoRoom
from lockstep.broker.peer import Peer

__all__ = ["HeldRoom"]


class HeldRoom:
    """Counts the calls that wait; its length is the number of all.

    Args:
        per_connection_max: The limit for one connection.
        held_max: The limit for all connections; 0: none.
    """

    def __init__(self, per_connection_max: int, held_max: int) -> None:
        self._per_connection_max = per_connection_max
        self._held_max = held_max
        self._counts: dict[Peer, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def take(self, peer: Peer) -> bool:
        """Count one more. Returns False when a limit is reached."""
        count = self._counts.get(peer, 0)
        if count >= self._per_connection_max or 0 < self._held_max <= self._count:
            return False
        self._counts[peer] = count + 1
        self._count += 1
        return True

    @property
    def no_room(self) -> NoRoom:
        """The setting that left no room for the last call."""
        if 0 < self._held_max <= self._count:
            return NoRoom("held_pulls_max", self._held_max)
        return NoRoom("held_pulls_per_connection_max", self._per_connection_max)

    def of(self, peer: Peer) -> int:
        """How many calls of a connection wait."""
        return self._counts.get(peer, 0)

    def give_back(self, peer: Peer, count: int = 1) -> None:
        """So many calls of a connection wait no more."""
        self._count -= count
        left = self.of(peer) - count
        if left:
            self._counts[peer] = left
        else:
            self._counts.pop(peer, None)
