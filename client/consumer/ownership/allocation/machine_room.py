"""Allocation by machine room (wire.md 12.4): queues stay where they are, and members prefer those next to them."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from lockstep.client.consumer.ownership.allocation.average import (
    AllocateMessageQueueStrategy,
    allocate_averagely,
    strategy_name,
)
from lockstep.protocol.model import MessageQueue

__all__ = ["AllocateByMachineRoom", "AllocateMachineRoomNearby"]

_SEPARATOR: Final = "@"


class AllocateByMachineRoom:
    """MACHINE_ROOM: of the queues whose broker is named `room@name`, those of the rooms given here, averagely.

    Queues of other rooms, and of brokers with other names, have no owner here: `%RETRY%group` neither, unless its
    broker stands in one of the rooms.
    """

    name: Final = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        self.rooms = frozenset(rooms)

    def __call__(
        self, _group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """RocketMQ's slices: what is left over goes singly, from the end, to the first members."""
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

    Queues of a room without a member are shared by all. `broker_room(queue)` and `client_room(client_id)` say who
    stands where; a client id begins with the host's address.
    """

    def __init__(
        self,
        broker_room: Callable[[MessageQueue], str],
        client_room: Callable[[str], str],
        strategy: AllocateMessageQueueStrategy = allocate_averagely,
    ) -> None:
        self.name = f"MACHINE_ROOM_NEARBY-{strategy_name(strategy)}"
        self._broker_room = broker_room
        self._client_room = client_room
        self._strategy = strategy

    def __call__(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Raises ValueError for a queue or a member without a room."""
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
        raise ValueError(f"no machine room is known of {what}")
    return room
