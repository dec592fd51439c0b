"""Allocation by consistent hashing (wire.md 12.4): when a member joins or leaves, few queues change their owner.

The ring is exactly RocketMQ's, so that members in Java and in Python agree on every queue.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from lockstep.protocol.model import MessageQueue

__all__ = ["AllocateByConsistentHash", "md5_hash"]

_VIRTUAL_NODES: Final = 10


def md5_hash(key: str) -> int:
    """Return the first four bytes of the key's MD5 as an unsigned number."""
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


class AllocateByConsistentHash:
    """CONSISTENT_HASH: each member has `virtual_nodes` places on a ring. A queue belongs to the next place."""

    name: Final = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = _VIRTUAL_NODES, hash_function: Callable[[str], int] = md5_hash) -> None:
        """Raises ValueError."""
        if virtual_nodes < 1:
            raise ValueError(
                f"virtual_nodes must be 1 or more, not {virtual_nodes}: without them no queue has an owner"
            )
        self._virtual_nodes = virtual_nodes
        self._hash = hash_function

    def __call__(
        self, _group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        ring = self._ring(client_ids)
        places = sorted(ring)

        def owner(queue: MessageQueue) -> str:
            place = bisect_left(places, self._hash(_key(queue)))
            return ring[places[place % len(places)]]

        return [queue for queue in queues if owner(queue) == client_id]

    def _ring(self, client_ids: Sequence[str]) -> dict[int, str]:
        """Place -> member. A member that is listed twice has twice the places; of two on one place the last stays."""
        ring: dict[int, str] = {}
        for client_id in client_ids:
            first = sum(member == client_id for member in ring.values())
            for number in range(first, first + self._virtual_nodes):
                ring[self._hash(f"{client_id}-{number}")] = client_id
        return ring


def _key(queue: MessageQueue) -> str:
    """Return the text that Java prints for a MessageQueue."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
