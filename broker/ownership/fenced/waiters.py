"""Who waits for which lock, and who is told that a queue is free."""

from collections import OrderedDict
from collections.abc import Generator
from typing import Final, NamedTuple

from lockstep.broker.peer import Peer
from lockstep.protocol.model import MessageQueue

__all__ = ["LockWaiters", "QueueKey", "Woken"]

_LOOKED_A_STEP: Final = 500

QueueKey = tuple[str, int]  # topic and queue id
_Place = tuple[str, QueueKey]
_Waiting = dict[Peer, tuple[MessageQueue, bool]]  # the queue, and whether the claim had an epoch


class Woken(NamedTuple):
    """Queues of a group that are free, for one connection that waits for them. `fenced`: its claims had epochs."""

    consumer_group: str
    connection: Peer
    fenced: bool
    queues: tuple[MessageQueue, ...]


class LockWaiters:
    """Connections whose claim was refused. Above `count_max` (0: no limit) a claim is not remembered.

    A connection waits for a queue until it has it, is told, or ends.
    """

    def __init__(self, count_max: int = 0) -> None:
        self._count_max = count_max
        self._count = 0
        self._waiting: dict[_Place, _Waiting] = {}
        self._places: dict[Peer, set[_Place]] = {}
        self._woken: OrderedDict[_Place, _Waiting] = OrderedDict()  # they may also wait again

    @property
    def any_woken(self) -> bool:
        return bool(self._woken)

    def count(self, consumer_group: str, key: QueueKey) -> int:
        return len(self._waiting.get((consumer_group, key), ()))

    def add(self, consumer_group: str, queue: MessageQueue, connection: Peer, *, fenced: bool) -> None:
        place = (consumer_group, (queue.topic, queue.queue_id))
        waiting = self._waiting.get(place)
        if waiting is not None and connection in waiting:
            return
        if self._count_max and self._count >= self._count_max:
            return
        self._waiting.setdefault(place, {})[connection] = (queue, fenced)
        self._places.setdefault(connection, set()).add(place)
        self._count += 1

    def drop(self, consumer_group: str, key: QueueKey, connection: Peer) -> None:
        """The connection has the queue now."""
        place = (consumer_group, key)
        if connection in self._waiting.get(place, ()):
            self._remove(place, connection)

    def forget(self, connection: Peer) -> None:
        """The connection ended."""
        for place in self._places.pop(connection, ()):
            if connection in self._waiting.get(place, ()):
                self._stop_waiting(place, connection)
            woken = self._woken.get(place, {})
            if woken.pop(connection, None) is not None and not woken:
                del self._woken[place]

    def _remove(self, place: _Place, connection: Peer) -> None:
        self._stop_waiting(place, connection)
        if connection not in self._woken.get(place, ()):
            self._leave(place, connection)

    def _stop_waiting(self, place: _Place, connection: Peer) -> None:
        self._count -= 1
        waiting = self._waiting[place]
        del waiting[connection]
        if not waiting:
            del self._waiting[place]

    def _leave(self, place: _Place, connection: Peer) -> None:
        places = self._places[connection]
        places.discard(place)
        if not places:
            del self._places[connection]

    def wake(self, consumer_group: str, key: QueueKey) -> None:
        """The queue is free: those who wait for it are told with the next `take`. It costs the same for all of them."""
        place = (consumer_group, key)
        waiting = self._waiting.pop(place, None)
        if waiting is not None:
            self._count -= len(waiting)
            self._woken.setdefault(place, waiting)
            if self._woken[place] is not waiting:
                self._woken[place] |= waiting

    def wake_all(self) -> None:
        for group, key in list(self._waiting):
            self.wake(group, key)

    def take(self) -> Generator[None, None, list[Woken]]:
        """In steps. Who is woken meanwhile is told with the next `take`."""
        woken: dict[tuple[str, Peer, bool], dict[MessageQueue, None]] = {}
        left = len(self._woken)
        looked_count = 0
        while left and self._woken:
            left -= 1
            place, connections = self._woken.popitem(last=False)
            for connection, (queue, fenced) in connections.items():
                woken.setdefault((place[0], connection, fenced), {})[queue] = None
                if connection not in self._waiting.get(place, ()):
                    self._leave(place, connection)
            looked_count += len(connections)
            if looked_count >= _LOOKED_A_STEP:
                looked_count = 0
                yield None
        return [Woken(*key, tuple(queues)) for key, queues in woken.items()]
