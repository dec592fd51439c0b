"""The queues that groups read in order: what of them is delivered now."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from lockstep.broker.messages.pop.port import FifoQueue
from lockstep.protocol.bodies.order_info import OrderInfo

__all__ = ["FifoQueues"]

# As in RocketMQ: a record that nobody used for so long is removed.
_UNUSED_LIFE_MS: Final = 24 * 60 * 60 * 1000


class FifoQueues:
    """(topic, group) -> queue id -> deliveries under way.

    Args:
        new_queue: Makes a queue of the broker's mode.
    """

    def __init__(self, new_queue: Callable[[], FifoQueue]) -> None:
        self._new_queue = new_queue
        self._table: dict[tuple[str, str], dict[int, FifoQueue]] = {}
        self._used_ms: dict[tuple[str, str], int] = {}

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
        return queue

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
        times = [queue.next_visible_ms(now_ms) for queue in self.of(topic, consumer_group).values()]
        return min((time for time in times if time is not None), default=None)

    def reset(self, topic: str, consumer_group: str, queue_id: int) -> None:
        """The group's offset was set: all deliveries of the queue are over."""
        self.of(topic, consumer_group).pop(queue_id, None)

    def forget(self, is_gone: Callable[[str, str], bool]) -> None:
        """Forget what is of a topic and group that are deleted."""
        for key in [key for key in self._table if is_gone(*key)]:
            del self._table[key]
            del self._used_ms[key]

    def expire(self, now_ms: int) -> None:
        """Called every 10 s: forget what nobody used for a day."""
        for key in [key for key, used_ms in self._used_ms.items() if now_ms - used_ms >= _UNUSED_LIFE_MS]:
            del self._table[key]
            del self._used_ms[key]

    def client_gone(self, client: str, visible_ms: int, consumer_group: str | None = None) -> Iterator[tuple[str, str]]:
        """What a client holds becomes visible, in one group or in all. Yields (topic, group) of each table."""
        for key, queues in self._table.items():
            if consumer_group not in (None, key[1]):
                continue
            for queue in queues.values():
                queue.client_gone(client, visible_ms)
            yield key
