"""A run of an exhibit: a cluster of the lab, and what took too long in it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from lockstep.client import ClientError, ConsumeOrderlyStatus, MessageExt
from lockstep.protocol.messages.message import Record
from lockstep.remoting.errors import RemotingError
from lockstep.simulation.lab.hosts import GROUP, PRODUCER, TOPIC, Hosts
from lockstep.simulation.lab.user.app import Listening, UserApp
from lockstep.simulation.lab.user.story import PlayedStory, Story
from lockstep.simulation.lab.user.story_cluster import StoryCluster
from lockstep.simulation.museum.plan import MuseumPlan
from lockstep.simulation.museum.waits import Seen, idle_queues, not_drained
from lockstep.simulation.world import World
from lockstep.store import MessageStore

__all__ = ["ExhibitRun"]

_CALM_MS: Final = 25_000
_OLD: Final = bytes(3_000)
_HOST: Final = bytes(4)
_KEYS: Final = 5


class ExhibitRun(PlayedStory):
    """A story of the lab with the messages of the exhibit, and the checks of waits.py at its end."""

    def __init__(self, world: World, plan: MuseumPlan) -> None:
        furnished, app = plan.furnished(), UserApp(TOPIC, GROUP, self._make)
        super().__init__(world, furnished, Story("museum", "", self._story, furnished, app=lambda: app))
        self._exhibited = plan
        self._until_ms = 0

    def _make(self, hosts: Hosts, _name: str) -> Listening:
        if self._exhibited.from_last:
            _age(hosts.store(), self._exhibited.queues)
        return Listening(_listener(self._exhibited))

    async def _story(self, cluster: StoryCluster) -> None:
        world = cluster.world
        await cluster.start()
        for at_ms, count in self._exhibited.sends:
            await cluster.at(max(at_ms, world.elapsed_ms))
            for _ in range(count):
                world.host(PRODUCER).create_task(self._send(), name="send")
        await cluster.finish()
        self._until_ms = world.elapsed_ms

    async def _send(self) -> None:
        try:
            await self.cluster.send_one(_KEYS)
        except (ClientError, RemotingError):
            self.findings.saw("sends failed")

    def _judge(self) -> None:
        super()._judge()
        traces = {name: self.cluster.records(name) for name in self.cluster.traced_hosts}
        seen = Seen(traces, self.findings.bands, self._until_ms, self._exhibited.lock_ms + _CALM_MS)
        self.findings.wrong += [*not_drained(seen), *idle_queues(seen)]


def _age(store: MessageStore, queues: int) -> None:
    """Store messages until the first ones of each queue are gone.

    RocketMQ answers a group without an offset that it begins at 0 while a queue has its first message.
    """
    while any(store.min_offset(TOPIC, queue_id) == 0 for queue_id in range(queues)):
        for queue_id in range(queues):
            store.append(Record(TOPIC, queue_id, 0, 0, 0, _HOST, 0, 0, 0, 0, _OLD, b"", 0))


def _listener(plan: MuseumPlan) -> Callable[[list[MessageExt], Any], Awaitable[ConsumeOrderlyStatus | None]]:
    async def listen(messages: list[MessageExt], _context: Any) -> ConsumeOrderlyStatus | None:
        if plan.work_ms:
            await asyncio.sleep(plan.work_ms / 1000)
        if any(one.reconsume_times == 0 and plan.fails_first(one.body.decode()) for one in messages):
            return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        return None

    return listen
