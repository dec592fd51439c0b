"""A broker under load loses its power again and again, on a disk that loses unsynced data; checks after each cut."""

import asyncio
import errno
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from lockstep.client import ClientError, Message, Producer, SendResult
from lockstep.order import Cause
from lockstep.remoting.errors import RemotingError
from lockstep.simulation import SimRuntime
from tests.scenarios.cluster import BROKER, GROUP, PRODUCER, TOPIC, Cluster

__all__ = ["FILES", "PowerCuts"]

QUEUES, KEYS, SENDERS = 3, 12, 4
OFFSETS_MS: Final = 5000
TICK_MS: Final = 500  # the broker looks so often whether offsets are to be written
SYNCS_MAX: Final = 150  # in the rounds that it takes until they are on the disk
FILES: Final[dict[str, Any]] = {  # so small that cuts meet every kind of end
    "data_dir": "store",
    "flush_sync": True,
    "segment_bytes": 40_000,
    "queue_file_bytes": 20 * 50,
    "index_slot_count": 64,
    "index_item_count": 128,
    "max_message_bytes": 4096,
}


@dataclass
class PowerCuts:
    """`acknowledged`: (queue id, queue offset) -> text. `unknown`: sends that got no answer, or an error."""

    cluster: Cluster
    rng: random.Random
    faults: bool = False  # every second life has a disk that fails or fills up, and may not keep offsets
    acknowledged: dict[tuple[int, int], str] = field(default_factory=dict)
    unknown: int = 0
    cuts: int = 0
    kills: int = 0
    consumers: int = 1
    _stopped: bool = False
    _corrupted: bool = False
    _count: int = 0
    _commits: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # queue id -> (at ms, offset) of this life
    _fresh: list[tuple[int, int]] = field(default_factory=list)  # acknowledged since the last look

    async def run(self, count: int) -> None:
        """So many cuts; then quiet, and everything is handled."""
        cluster = self.cluster
        await self._start()
        await cluster.producer()
        await cluster.consumer("c1")
        producer = cluster.world.host(PRODUCER)
        senders = [producer.create_task(self._send(producer), name=f"sender {n}") for n in range(SENDERS)]
        for _ in range(count):
            await self._live_and_die()
        await cluster.world.sleep_ms(5000)
        self._stopped = True
        await asyncio.gather(*senders)
        self._look(everything=True)
        await cluster.all_seen(timeout_ms=300_000)
        cluster.expected.possible = (Cause.RESET, Cause.TAKEOVER, Cause.PRODUCER_RETRY)
        await cluster.end()

    async def _live_and_die(self) -> None:
        world, rng = self.cluster.world, self.rng
        if self.faults:
            self._corrupt_disk()
        world.disk(BROKER).sync_ms = rng.choice((0, 1, 3, 10, 25))
        await world.sleep_ms(rng.choice((rng.randrange(1, 300), rng.randrange(1, 4000), rng.randrange(4000, 12_000))))
        if rng.randrange(10):
            self.cuts += 1
            self.cluster.power_cut()
        else:
            self.kills += 1
            self.cluster.crash(BROKER)
        died_ms = world.elapsed_ms
        await world.sleep_ms(rng.choice((0, 50, rng.randrange(3000))))
        await self._start()
        self._look()
        self._look_at_offsets(died_ms)
        if rng.randrange(10) == 0:
            await self._change_consumer()

    def _corrupt_disk(self) -> None:
        disk, rng = self.cluster.world.disk(BROKER), self.rng
        kind = rng.randrange(4)
        if kind == 0:
            path = rng.choice(("commitlog", "consumequeue", "config", ""))
            disk.fail("sync", errno.EIO, path=path, times=rng.randrange(1, 4))
        elif kind == 1:
            disk.capacity_bytes = disk.used_bytes + rng.randrange(60_000)
        self._corrupted = kind < 2

    def _mend_disk(self) -> None:
        disk = self.cluster.world.disk(BROKER)
        disk.heal()
        disk.capacity_bytes = None

    async def _change_consumer(self) -> None:
        """One at a time: a broker that comes back has forgotten its locks, and what two make of that is told by
        test_broker_restart.py."""
        self.cluster.crash(f"c{self.consumers}")
        self.consumers += 1
        await self.cluster.consumer(f"c{self.consumers}")

    async def _start(self) -> None:
        self._mend_disk()
        server = await self.cluster.broker(queues=QUEUES, **FILES)
        assert server.broker is not None
        world = self.cluster.world

        def noted(consumer_group: str, topic: str, queue_id: int, committed_offset: int) -> None:
            if (consumer_group, topic) == (GROUP, TOPIC):
                self._commits.setdefault(queue_id, []).append((world.elapsed_ms, committed_offset))

        server.broker.catalog.offsets.when_committed.append(noted)

    # Sending -------------------------------------------------------------------------------------------------

    async def _send(self, runtime: SimRuntime) -> None:
        producer = self.cluster.client(PRODUCER)
        assert isinstance(producer, Producer)
        while not self._stopped:
            self._count += 1
            text, key = f"m{self._count}".ljust(self.rng.randrange(900)), f"key{self._count % KEYS}"
            message = Message(TOPIC, text.encode(), keys=text.rstrip())
            try:
                result = await producer.send(message, sharding_key=key)
            except (ClientError, RemotingError):
                self.unknown += 1
            else:
                self._note(result, text)
            await asyncio.sleep(self.rng.choice((0, 0.005, 0.05)))

    def _note(self, result: SendResult, text: str) -> None:
        place = (result.queue.queue_id, result.queue_offset)
        assert place not in self.acknowledged, f"{place} was given to {self.acknowledged[place]} and to {text}"
        self.acknowledged[place] = text
        self._fresh.append(place)
        self.cluster.sent.append(text)

    # Looking -------------------------------------------------------------------------------------------------

    def _look(self, *, everything: bool = False) -> None:
        """That what was acknowledged is there: of late, or all of it."""
        places = list(self.acknowledged) if everything else self._fresh[-300:]
        self._fresh.clear()
        found = dict(self._stored(min((offset for _, offset in places), default=0)))
        missing = [place for place in places if found.get(place) != self.acknowledged[place]]
        assert not missing, f"cut {self.cuts}: acknowledged, and not there: {missing[:10]} of {len(places)}"

    def _stored(self, first_offset: int) -> Iterator[tuple[tuple[int, int], str]]:
        for queue_id in range(QUEUES):
            for message in self.cluster.stored(queue_id, first=first_offset):
                yield (queue_id, message.queue_offset), message.body.decode()

    def _look_at_offsets(self, died_ms: int) -> None:
        """That what was committed an interval before the end still is; the checker is told of what is not."""
        since_ms = died_ms - OFFSETS_MS - TICK_MS - SYNCS_MAX * self.cluster.world.disk(BROKER).sync_ms
        for queue_id, commits in self._commits.items():
            now = self.cluster.committed(queue_id)
            old = max([offset for at_ms, offset in commits if at_ms <= since_ms], default=-1)
            assert now >= old or self._corrupted, (
                f"cut {self.cuts}: queue {queue_id} is committed up to {now}, and was up to {old}"
            )
            if commits and now < commits[-1][1]:
                self.cluster.witness(
                    "reset", group=GROUP, offset=max(now, 0), topic=TOPIC, broker=BROKER, queue_id=queue_id
                )
            commits[:] = [(0, now)]
