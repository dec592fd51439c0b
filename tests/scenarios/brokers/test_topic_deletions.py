"""A wide topic is deleted and made again while its broker loses its power: a new topic has its own messages alone."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from lockstep.broker.core.broker import Broker
from lockstep.client import ClientError
from lockstep.client.admin.client import AdminClient
from lockstep.protocol.messages.message import decode_messages
from lockstep.remoting.errors import RemotingError
from lockstep.store.file.store import FileStore
from tests.scenarios.brokers.power_cuts import FILES
from tests.scenarios.cluster import BROKER, Cluster
from tests.scenarios.scenario import INSTANT, scenario
from tests.store.stores import record

WIDE: Final = "Wide"
QUEUES: Final = 300  # more than are deleted in one go
ROUNDS: Final = 12


class Deletions:
    """`round`: of the newest topic; each message has its number. `oldest`: of the oldest that may be found."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.rng = cluster.world.rng
        self.round = self.oldest = 0
        self.kept: set[int] = set()  # queues whose message of the newest topic is on the disk
        self.in_steps = 0  # cuts in the middle of a deletion

    async def start(self) -> None:
        """The steps of long work take a millisecond each, so that a cut comes between them."""
        server = await self.cluster.broker(queues=1, **FILES, checkpoint_interval_ms=500)
        assert server.broker is not None
        self.server, self.broker = server, server.broker
        runtime = self.cluster.world.host(BROKER)

        def soon(turn: Callable[[], None]) -> None:
            runtime.call_later_ms(1, turn)

        self.broker.work.soon = soon
        if self.broker.catalog.topics.get(WIDE) is None:
            self.oldest = self.round + 1
            self.kept.clear()

    async def fill(self) -> None:
        """Make the topic if it is gone, and send to some of its queues."""
        runtime, world = self.cluster.world.host(BROKER), self.cluster.world
        if self.broker.catalog.topics.get(WIDE) is None:
            self.round += 1
            self.server.create_topic(WIDE, QUEUES)
        sent = range(self.rng.randrange(2), QUEUES, self.rng.choice((1, 1, 1, 40)))
        runtime.call_later_ms(0, partial(self._put, self.broker, sent))
        writers = self.server._writers
        assert writers is not None
        await world.sleep_ms(1)
        await runtime.run(writers.flush())
        self.kept |= set(sent)
        await world.sleep_ms(self.rng.choice((0, 3000, 3000)))

    def _put(self, broker: Broker, queue_ids: range) -> None:
        for queue_id in queue_ids:
            broker.messages.put(record(b"%d" % self.round, queue_id, topic=WIDE))

    async def delete(self, admin: AdminClient) -> None:
        """The topic is gone when the broker has answered."""
        deleted = self.round
        try:
            await admin.delete_topic(WIDE)
        except (ClientError, RemotingError, OSError):
            return
        self.oldest = max(self.oldest, deleted + 1)
        self.kept.clear()

    def look(self) -> None:
        """What was stored in the topic is there, and nothing else of its name."""
        store = self.broker.messages.store
        assert isinstance(store, FileStore)
        for queue_id in range(QUEUES):
            body = store.get(WIDE, queue_id, store.min_offset(WIDE, queue_id), 32, None).body
            found = [int(message.body) for message in decode_messages(body)]
            assert all(number >= self.oldest for number in found), f"{queue_id}: {found}, not below {self.oldest}"
            assert queue_id not in self.kept or found, f"the message of round {self.round} in {queue_id} is lost"


@scenario(INSTANT)
async def test_a_new_topic_is_empty_whenever_the_power_goes(cluster: Cluster) -> None:
    """In the middle of the deletion of its files too; messages that are on the disk stay there."""
    story, world, rng = Deletions(cluster), cluster.world, cluster.world.rng
    await story.start()
    host = world.host("admin")
    for _ in range(ROUNDS):
        async with AdminClient(name_server=cluster.name_server, runtime=host) as admin:
            await story.fill()
            deletion = host.create_task(story.delete(admin), name="delete")
            await world.sleep_ms(rng.choice((rng.randrange(1, 16), rng.randrange(1, 200))))
            if deletion.done() and rng.randrange(2):
                await story.fill()
            left = [path for path in world.disk(BROKER).paths() if path.startswith("store/dropped-")]
            story.in_steps += bool(left)
            if rng.randrange(5):
                cluster.power_cut()
            else:
                cluster.crash(BROKER)
            deletion.cancel()
            await asyncio.gather(deletion, return_exceptions=True)
        story.kept = story.kept if story.broker.catalog.topics.get(WIDE) is not None else set()
        await story.start()
        story.look()
        assert not [path for path in world.disk(BROKER).paths() if path.startswith("store/dropped-")]
    assert story.in_steps > 1
    assert story.round > ROUNDS // 3
