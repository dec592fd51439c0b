"""How the queues of a topic are shared among the members of a group: clients decide it, or a broker (wire.md 12.4)."""

from collections.abc import Callable, Sequence

from lockstep.protocol.model import MessageQueue

__all__ = [
    "AllocateMessageQueueStrategy",
    "allocate_averagely",
    "allocate_averagely_by_circle",
    "share_averagely",
    "share_by_circle",
]

AllocateMessageQueueStrategy = Callable[[str, str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""`(group, client_id, sorted queues, sorted client ids) -> the queues of client_id`."""


def allocate_averagely(
    _group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """AVG: contiguous ranges; the first members get one queue more. A client that is not a member gets none."""
    if client_id not in client_ids:
        return []
    return share_averagely(queues, client_ids.index(client_id), len(client_ids))


def share_averagely(queues: Sequence[MessageQueue], place: int, members: int) -> list[MessageQueue]:
    """AVG, for the member at a place, from 0."""
    size, longer = divmod(len(queues), members)
    start = place * size + min(place, longer)
    return list(queues[start : start + size + (place < longer)])


def allocate_averagely_by_circle(
    _group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """AVG_BY_CIRCLE: the members get one queue each in turn. A client that is not a member gets none."""
    if client_id not in client_ids:
        return []
    return share_by_circle(queues, client_ids.index(client_id), len(client_ids))


def share_by_circle(queues: Sequence[MessageQueue], place: int, members: int) -> list[MessageQueue]:
    """AVG_BY_CIRCLE, for the member at a place, from 0."""
    return list(queues[place::members])
