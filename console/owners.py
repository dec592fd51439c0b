"""One letter and one colour for each client: the same on every page, and while the console runs."""

from collections import OrderedDict
from heapq import heappop, heappush
from typing import Final, NamedTuple

from lockstep.order.page.pieces import COLOURS

__all__ = ["Owner", "Owners", "owner_of"]

_CLIENTS_MAX: Final = 1024  # a multiple of COLOURS
_GROUPS_MAX: Final = 1000
_OF_A_GROUP_MAX: Final = 64


class Owner(NamedTuple):
    """How an owner is shown: a letter, a colour, and hatched when the colours are used up."""

    client_id: str
    letter: str
    colour: int
    is_hatched: bool


def owner_of(client_id: str, number: int) -> Owner:
    """`number`: 0 is A, 26 is A2."""
    again = number // 26
    letter = chr(ord("A") + number % 26) + (str(again + 1) if again else "")
    return Owner(client_id, letter, number % COLOURS, number >= COLOURS)


class Owners:
    """Gives numbers to clients. When all are given, the client seen longest ago loses its own."""

    def __init__(self) -> None:
        self._owners: OrderedDict[str, tuple[int, Owner]] = OrderedDict()
        self._groups: OrderedDict[str, OrderedDict[str, int]] = OrderedDict()  # group -> client -> its colour
        self._free = [list(range(colour, _CLIENTS_MAX, COLOURS)) for colour in range(COLOURS)]  # a heap for each colour

    def owner(self, group: str, client_id: str) -> Owner:
        """How a client of a group is shown. Clients of one group have different colours while there are enough."""
        known = self._owners.get(client_id)
        if known is not None:
            self._owners.move_to_end(client_id)
            self._note(group, known[1])
            return known[1]
        if len(self._owners) >= _CLIENTS_MAX:
            _, (number, gone) = self._owners.popitem(last=False)
            heappush(self._free[gone.colour], number)
        taken = set(self._groups.get(group, {}).values())
        colour = min(
            (one for one in range(COLOURS) if self._free[one]), key=lambda one: (one in taken, self._free[one][0])
        )
        number = heappop(self._free[colour])
        owner = owner_of(client_id, number)
        self._owners[client_id] = number, owner
        self._note(group, owner)
        return owner

    def _note(self, group: str, owner: Owner) -> None:
        clients = self._groups.setdefault(group, OrderedDict())
        clients[owner.client_id] = owner.colour
        clients.move_to_end(owner.client_id)
        if len(clients) > _OF_A_GROUP_MAX:
            clients.popitem(last=False)
        self._groups.move_to_end(group)
        if len(self._groups) > _GROUPS_MAX:
            self._groups.popitem(last=False)
