"""Allocation by machine room (wire.md 12.4): members prefer the queues of their own room."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from lockstep.client.consumer.ownership.allocation.average import (
    AllocateMessageQueueStrategy,
    allocate_averagely,
    strategy_name,
)
from lockstep.client.consumer.ownership.allocation.sticky import AllocateSticky
from lockstep.protocol.model import MessageQueue

__all__ = ["AllocateByMachineRoom", "AllocateMachineRoomNearby"]

_SEPARATOR: Final = "@"


class AllocateByMachineRoom:
    """MACHINE_ROOM: shares the queues of brokers named `room@name`, for the given rooms, on average.

    Queues of other rooms, and of brokers with other names, get no owner. That includes `%RETRY%group`, unless its
    broker is in one of the rooms.
    """

    name: Final = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        self.rooms = frozenset(rooms)

    def __call__(
        self, _group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Slices as in RocketMQ: the rest, at the end, goes to the first members, one queue each."""
        if client_id not in client_ids:
            return []
        ours = [queue for queue in queues if self._room(queue) in self.rooms]
        index, members = client_ids.index(client_id), len(client_ids)
        size, left_over = divmod(len(ours), members)
        mine = ours[size * index : size * (index + 1)]
        return [*mine, ours[size * members + index]] if index < left_over else mine

    @staticmethod
    def _room(queue: MessageQueue) -> str | None:
        room, separator, rest = queue.broker_name.rstrip(_SEPARATOR).partition(_SEPARATOR)
        return room if separator and _SEPARATOR not in rest else None


class AllocateMachineRoomNearby:
    """MACHINE_ROOM_NEARBY-x: the queues of a room go to the members in it, by the strategy x within.

    Queues of a room without a member are shared by all members. `broker_room(queue)` and `client_room(client_id)`
    return the rooms; a client id begins with the address of the host.
    """

    def __init__(
        self,
        broker_room: Callable[[MessageQueue], str],
        client_room: Callable[[str], str],
        strategy: AllocateMessageQueueStrategy = allocate_averagely,
    ) -> None:
        """Raises ValueError."""
        if isinstance(strategy, AllocateSticky):
            raise ValueError("STICKY needs the owners of all queues of a topic, and works in no room")
        self.name = f"MACHINE_ROOM_NEARBY-{strategy_name(strategy)}"
        self._broker_room = broker_room
        self._client_room = client_room
        self._strategy = strategy

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Raises ValueError when a queue or a member has no room."""
        if client_id not in client_ids:
            return []
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_of.setdefault(_room_of(queue, self._broker_room(queue)), []).append(queue)
        members_of: dict[str, list[str]] = {}
        for member in client_ids:
            members_of.setdefault(_room_of(member, self._client_room(member)), []).append(member)
        here = self._client_room(client_id)
        mine: list[MessageQueue] = []
        if here in queues_of:
            mine += self._strategy(group, client_id, queues_of[here], members_of[here])
        for room in sorted(queues_of):
            if room not in members_of:
                mine += self._strategy(group, client_id, queues_of[room], client_ids)
        return mine


def _room_of(what: object, room: str) -> str:
    if not room:
        raise ValueError(f"no machine room is known for {what}")
    return room
