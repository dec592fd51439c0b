"""Who waits for which lock, and who is told that a queue is free."""

from typing import NamedTuple

from lockstep.broker.connection import Connection
from lockstep.protocol.model import MessageQueue

__all__ = ["LockWaiters", "QueueKey", "Woken"]

QueueKey = tuple[str, int]  # topic and queue id
_Place = tuple[str, QueueKey]


class Woken(NamedTuple):
    """Queues of a group that are free, for one connection that waits for them. `fenced`: its claims had epochs."""

    consumer_group: str
    connection: Connection
    fenced: bool
    queues: tuple[MessageQueue, ...]


class LockWaiters:
    """Connections whose claim was refused. Above `count_max` (0: no limit) a claim is not remembered.

    A connection waits for a queue until it has it, is told, or ends.
    """

    def __init__(self, count_max: int = 0) -> None:
        self._count_max = count_max
        self._count = 0
        self._waiting: dict[_Place, dict[Connection, tuple[MessageQueue, bool]]] = {}
        self._places: dict[Connection, set[_Place]] = {}
        self._woken: dict[tuple[str, Connection, bool], dict[MessageQueue, None]] = {}

    @property
    def any_woken(self) -> bool:
        return bool(self._woken)

    def count(self, consumer_group: str, key: QueueKey) -> int:
        return len(self._waiting.get((consumer_group, key), ()))

    def add(self, consumer_group: str, queue: MessageQueue, connection: Connection, *, fenced: bool) -> None:
        place = (consumer_group, (queue.topic, queue.queue_id))
        waiting = self._waiting.get(place)
        if waiting is not None and connection in waiting:
            return
        if self._count_max and self._count >= self._count_max:
            return
        self._waiting.setdefault(place, {})[connection] = (queue, fenced)
        self._places.setdefault(connection, set()).add(place)
        self._count += 1

    def drop(self, consumer_group: str, key: QueueKey, connection: Connection) -> None:
        """The connection has the queue now."""
        place = (consumer_group, key)
        if connection in self._waiting.get(place, ()):
            self._remove(place, connection)

    def forget(self, connection: Connection) -> None:
        """The connection ended."""
        for place in list(self._places.get(connection, ())):
            self._remove(place, connection)
        for key in [key for key in self._woken if key[1] is connection]:
            del self._woken[key]

    def _remove(self, place: _Place, connection: Connection) -> None:
        self._count -= 1
        waiting, places = self._waiting[place], self._places[connection]
        del waiting[connection]
        if not waiting:
            del self._waiting[place]
        places.discard(place)
        if not places:
            del self._places[connection]

    def wake(self, consumer_group: str, key: QueueKey) -> None:
        """The queue is free: those who wait for it are told with the next `take`."""
        place = (consumer_group, key)
        for connection, (queue, fenced) in list(self._waiting.get(place, {}).items()):
            self._woken.setdefault((consumer_group, connection, fenced), {})[queue] = None
            self._remove(place, connection)

    def wake_all(self) -> None:
        for group, key in list(self._waiting):
            self.wake(group, key)

    def take(self) -> list[Woken]:
        woken, self._woken = self._woken, {}
        return [Woken(*key, tuple(queues)) for key, queues in woken.items()]
