"""The queues that groups read in order: what of them is delivered now."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from lockstep.broker.messages.pop.port import FifoQueue
from lockstep.protocol.bodies.order_info import OrderInfo

__all__ = ["Busy", "FifoQueues"]

# As in RocketMQ: a record that nobody used for so long is removed.
_UNUSED_LIFE_MS: Final = 24 * 60 * 60 * 1000


class Busy(NamedTuple):
    """Queues that may have something for a group.

    Args:
        first_pop_ms: The earliest time that a delivery made now may be named by, as the others allow it.
    """

    queue_ids: Collection[int]
    first_pop_ms: int = 0


class _Looked:
    """What pops of a group found in a topic.

    Attributes:
        count: So many queues they looked at.
        busy: All queue ids, but for those of idle queues.
        first_pop_ms: As of `Busy`.
    """

    __slots__ = ("busy", "count", "first_pop_ms")

    def __init__(self, count: int, queue_ids: Iterable[int]) -> None:
        self.count = count
        self.busy = {*range(count), *queue_ids}
        self.first_pop_ms = 0


class FifoQueues:
    """(topic, group) -> queue id -> deliveries under way.

    Pops look at busy queues alone. A queue is idle when a pop has found that the group has consumed all of it: another
    look would find and change nothing. It is busy again when a message of it can be read, or an answer to a delivery of
    it comes. After a reset of one queue all are busy.

    Attributes:
        looked: Topic -> group -> what its pops found.

    Args:
        new_queue: Makes a queue of the broker's mode.
    """

    def __init__(self, new_queue: Callable[[], FifoQueue]) -> None:
        self._new_queue = new_queue
        self._table: dict[tuple[str, str], dict[int, FifoQueue]] = {}
        self._used_ms: dict[tuple[str, str], int] = {}
        self.looked: dict[str, dict[str, _Looked]] = {}

    def __bool__(self) -> bool:
        return bool(self._table)

    def queue(self, topic: str, consumer_group: str, queue_id: int, now_ms: int) -> FifoQueue:
        """The queue; made when it is new."""
        key = (topic, consumer_group)
        self._used_ms[key] = now_ms
        queues = self._table.setdefault(key, {})
        queue = queues.get(queue_id)
        if queue is None:
            queue = queues[queue_id] = self._new_queue()
        looked = self._looked(topic, consumer_group)
        if looked is not None:
            looked.busy.add(queue_id)
        return queue

    def _looked(self, topic: str, consumer_group: str) -> _Looked | None:
        groups = self.looked.get(topic)
        return None if groups is None else groups.get(consumer_group)

    def busy(self, topic: str, consumer_group: str, count: int, now_ms: int) -> Busy:
        """Those of a topic's `count` queues that a pop must look at."""
        looked = self._looked(topic, consumer_group)
        if looked is None or looked.count != count:
            return Busy(range(count))
        self._used_ms[topic, consumer_group] = now_ms
        return Busy([queue_id for queue_id in looked.busy if queue_id < count], looked.first_pop_ms)

    def set_idle(self, topic: str, consumer_group: str, queue_id: int, count: int) -> None:
        """A pop found that all of a queue is consumed, of a topic with `count` queues."""
        looked, queues = self._looked(topic, consumer_group), self._table[topic, consumer_group]
        if looked is None or looked.count != count:
            looked = self.looked.setdefault(topic, {})[consumer_group] = _Looked(count, queues)
        looked.busy.discard(queue_id)
        looked.first_pop_ms = max(looked.first_pop_ms, queues[queue_id].first_pop_ms(0))

    def busy_queues(self, topic: str, consumer_group: str) -> list[tuple[int, FifoQueue]]:
        """Queue ids and queues; all that is under way is of these."""
        queues, looked = self.of(topic, consumer_group), self._looked(topic, consumer_group)
        if looked is None:
            return list(queues.items())
        return [(queue_id, queues[queue_id]) for queue_id in looked.busy if queue_id in queues]

    def on_stored(self, topic: str, queue_id: int) -> None:
        """A message can be read."""
        for looked in self.looked.get(topic, {}).values():
            looked.busy.add(queue_id)

    def _all_are_busy(self, topic: str, consumer_group: str) -> None:
        groups = self.looked.get(topic, {})
        if groups.pop(consumer_group, None) is not None and not groups:
            del self.looked[topic]

    def find(self, topic: str, consumer_group: str, queue_id: int) -> FifoQueue | None:
        return self._table.get((topic, consumer_group), {}).get(queue_id)

    def of(self, topic: str, consumer_group: str) -> dict[int, FifoQueue]:
        """Queue id -> queue."""
        return self._table.get((topic, consumer_group), {})

    def queues(self) -> list[tuple[str, str, int, FifoQueue]]:
        """Topic, group, queue id and queue of all that are known now."""
        return [(*key, *row) for key, queues in self._table.items() for row in queues.items()]

    def of_group(self, consumer_group: str) -> list[tuple[str, int, FifoQueue]]:
        """Topic, queue id and queue of all that the group reads, by name and number."""
        tables = sorted((topic, queues) for (topic, group), queues in self._table.items() if group == consumer_group)
        return [(topic, queue_id, queues[queue_id]) for topic, queues in tables for queue_id in sorted(queues)]

    def saved(self) -> dict[tuple[str, str], dict[int, OrderInfo]]:
        """For the file: (topic, group) -> queue id -> its last delivery."""
        return {
            key: {queue_id: info for queue_id, queue in queues.items() if (info := queue.saved()) is not None}
            for key, queues in self._table.items()
        }

    def restore(
        self,
        table: Mapping[tuple[str, str], Mapping[int, OrderInfo]],
        restored: Callable[[OrderInfo], FifoQueue],
        now_ms: int,
    ) -> None:
        """Load the deliveries of an earlier run."""
        for key, infos in table.items():
            self._table[key] = {queue_id: restored(info) for queue_id, info in infos.items()}
            self._used_ms[key] = now_ms

    def next_visible_ms(self, topic: str, consumer_group: str, now_ms: int) -> int | None:
        """When something that is held in a topic becomes visible. None: nothing is held."""
        times = [queue.next_visible_ms(now_ms) for _, queue in self.busy_queues(topic, consumer_group)]
        return min((time for time in times if time is not None), default=None)

    def reset(self, topic: str, consumer_group: str, queue_id: int) -> None:
        """The group's offset was set: all deliveries of the queue are over."""
        self.of(topic, consumer_group).pop(queue_id, None)
        self._all_are_busy(topic, consumer_group)

    def forget(self, is_gone: Callable[[str, str], bool]) -> None:
        """Forget what is of a topic and group that are deleted."""
        for key in [key for key in self._table if is_gone(*key)]:
            self._forget(key)

    def _forget(self, key: tuple[str, str]) -> None:
        del self._table[key]
        del self._used_ms[key]
        self._all_are_busy(*key)

    def expire(self, now_ms: int) -> None:
        """Called every 10 s: forget what nobody used for a day."""
        for key in [key for key, used_ms in self._used_ms.items() if now_ms - used_ms >= _UNUSED_LIFE_MS]:
            self._forget(key)

    def client_gone(self, client: str, visible_ms: int, consumer_group: str | None = None) -> Iterator[tuple[str, str]]:
        """What a client holds becomes visible, in one group or in all. Yields (topic, group) of each table."""
        for key, queues in self._table.items():
            if consumer_group not in (None, key[1]):
                continue
            for queue in queues.values():
                queue.client_gone(client, visible_ms)
            yield key
