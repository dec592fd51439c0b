"""The cluster of a random world: it tells the observer of commits, and the judge of processes by their starts."""

from bisect import bisect_right
from typing import Any

from lockstep.client import MessageQueue, PushConsumer
from lockstep.order import Record
from lockstep.simulation.lab.cluster import BROKER, TRACE, Cluster
from lockstep.simulation.lab.hosts import GROUP, TOPIC
from lockstep.simulation.world import World
from lockstep.simulation.worlds.observer import Observer

__all__ = ["WatchedCluster"]


class WatchedCluster(Cluster):
    def __init__(self, world: World, observer: Observer) -> None:
        super().__init__(world, tap=lambda _: observer)
        self._observer = observer
        self._offsets_event = "stored"
        self._starts: dict[str, list[int]] = {}  # how long a member's trace was when its processes began

    async def consumer(self, name: str, **arguments: Any) -> PushConsumer:
        disk = self.world.disk(name)
        length = len(disk.read(TRACE).splitlines()) if TRACE in disk.paths() else 0
        self._starts.setdefault(name, []).append(length)
        return await super().consumer(name, **arguments)

    def records(self, name: str) -> list[Record]:
        """Two processes may have one client id, one after the other: the judge sees two."""
        starts = self._starts.get(name, ())
        return [
            {**record, "client_id": f"{record['client_id']}/{bisect_right(starts, number)}"} if starts else record
            for number, record in enumerate(super().records(name))
        ]

    def on_commit(self, consumer_group: str, queue: MessageQueue, committed_offset: int) -> None:
        if consumer_group == GROUP:
            before = self.core().offsets.query(consumer_group, queue.topic, queue.queue_id)
            end = self.store().max_offset(queue.topic, queue.queue_id)
            self._observer.commit_stored(queue, committed_offset, before, end)
            if self._observer.resetting:
                self._witness_offset("reset", queue.queue_id, committed_offset)
        super().on_commit(consumer_group, queue, committed_offset)

    def committed(self, queue_id: int) -> int:
        """-1 for none."""
        return self.core().offsets.query(GROUP, TOPIC, queue_id)

    def stored_texts(self, queues: int) -> set[str]:
        """The bodies of all messages in the broker's store."""
        return {message.body.decode() for queue_id in range(queues) for message in self.stored(queue_id)}

    def witness_offsets(self, queues: int) -> None:
        """At a start of the broker. A crash takes late commits with it: from here on the judge allows repeats.

        At the first start the judge learns that all stored offsets are witnessed, so it trusts no commit of a client.
        """
        event, self._offsets_event = self._offsets_event, "reset"
        for queue_id in range(queues):
            self._witness_offset(event, queue_id, max(self.committed(queue_id), 0))

    def _witness_offset(self, event: str, queue_id: int, offset: int) -> None:
        self.witness(event, group=GROUP, offset=offset, topic=TOPIC, broker=BROKER, queue_id=queue_id)
