"""The cluster of a random world: it tells the observer of commits, and the judge of processes by their starts."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.client import MessageExt, MessageQueue, PushConsumer
from lockstep.order import Record
from lockstep.simulation.lab.cluster import TRACE, Cluster
from lockstep.simulation.lab.hosts import GROUP, TOPIC
from lockstep.simulation.world import World
from lockstep.simulation.worlds.observer import Observer

__all__ = ["WatchedCluster"]


class WatchedCluster(Cluster):
    """`observers`: by the names of the brokers."""

    def __init__(self, world: World, observers: Mapping[str, Observer]) -> None:
        super().__init__(world, tap=observers.get)
        self._observers = observers
        self._witnessed: set[str] = set()  # brokers that have started
        self._starts: dict[str, list[int]] = {}  # how long a member's trace was when its processes began
        self._kept: dict[MessageQueue, int] = {}  # the offset that a broker stored last

    async def consumer(self, name: str, **arguments: Any) -> PushConsumer:
        disk = self.world.disk(name)
        length = len(disk.read(TRACE).splitlines()) if TRACE in disk.paths() else 0
        self._starts.setdefault(name, []).append(length)
        return await super().consumer(name, **arguments)

    def read_records(self, name: str) -> Iterator[Record]:
        """Two processes may have one client id, one after the other: the judge sees two."""
        starts = self._starts.get(name, ())
        for number, record in enumerate(super().read_records(name)):
            yield {**record, "client_id": f"{record['client_id']}/{bisect_right(starts, number)}"} if starts else record

    def on_commit(self, consumer_group: str, queue: MessageQueue, committed_offset: int) -> None:
        if consumer_group == GROUP:
            name, observer = queue.broker_name, self._observers[queue.broker_name]
            before = self.core(name).catalog.offsets.query(consumer_group, queue.topic, queue.queue_id)
            end = self.store(name).max_offset(queue.topic, queue.queue_id)
            observer.commit_stored(queue, committed_offset, before, end)
            self._kept[queue] = committed_offset
            if observer.resetting:
                self._witness_offset("reset", queue.queue_id, name, committed_offset)
        super().on_commit(consumer_group, queue, committed_offset)

    def queues(self) -> list[MessageQueue]:
        """Those of the topic."""
        return [MessageQueue(TOPIC, name, queue_id) for name in self.brokers for queue_id in range(self._topics[name])]

    def stored_in(self, queue: MessageQueue) -> list[MessageExt]:
        return self.stored(queue.queue_id, queue.broker_name)

    def committed(self, queue: MessageQueue) -> int:
        """-1 for none."""
        return self.core(queue.broker_name).catalog.offsets.query(GROUP, queue.topic, queue.queue_id)

    def stored_texts(self) -> set[str]:
        """The bodies of all messages in the brokers' stores."""
        return {message.body.decode() for queue in self.queues() for message in self.stored_in(queue)}

    def witness_offsets(self, queues: int, name: str) -> None:
        """At a start of the broker. A crash takes late commits with it: from here on the judge allows repeats.

        At the first start the judge learns that all stored offsets are witnessed, so it trusts no commit of a client.
        """
        event = "reset" if name in self._witnessed else "stored"
        self._witnessed.add(name)
        for queue_id in range(queues):
            self._witness_offset(event, queue_id, name, max(self.committed(MessageQueue(TOPIC, name, queue_id)), 0))

    def forgotten_offsets(self, name: str, *, ended_well: bool) -> list[tuple[MessageQueue, str]]:
        """What a broker that came back has forgotten of the offsets that it had stored, as queues and sentences.

        One that ended well has them all; else those at which the periods began whose fenced locks it has kept.
        """
        kept = {queue: offset for queue, offset in self._kept.items() if queue.broker_name == name}
        now = {queue: self.committed(queue) for queue in kept}
        self._kept |= now
        if not ended_well:
            store = self.store(name)
            return self._observers[name].forgotten_offsets(
                self.committed, lambda queue: store.max_offset(queue.topic, queue.queue_id)
            )
        return [(queue, f"{at} was stored, and is {now[queue]} now") for queue, at in kept.items() if at != now[queue]]

    def _witness_offset(self, event: str, queue_id: int, name: str, offset: int) -> None:
        self.witness(event, group=GROUP, offset=offset, topic=TOPIC, broker=name, queue_id=queue_id)
