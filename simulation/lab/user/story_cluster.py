"""The cluster that a story gets: it starts what its setup says, plays the faults of a plan, and comes to an end."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from lockstep.client import (
    AdminClient,
    AllocateByConsistentHash,
    AllocateMessageQueueStrategy,
    AllocateSticky,
    Message,
    MessageQueue,
    allocate_averagely,
    allocate_averagely_by_circle,
)
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere
from lockstep.simulation.lab.cluster import BROKER, Cluster, in_groups
from lockstep.simulation.lab.setup import FaultEvent, Setup, Strategy
from lockstep.simulation.lab.user.app import AppError, Listening, UserApp, app_of, lab_listener
from lockstep.simulation.world import World

__all__ = ["StoryCluster"]

_SETTLE_LEASES: Final = 6
_SETTLE_MS: Final = 90_000
_LEASE_MS: Final = 60_000


class StoryCluster(Cluster):
    """See Cluster.

    Args:
        events: faults of its plan.
        app: what the consumers run, unless `start` is given another; None: the lab's listener.
        message: see `app_of`, if `app` does not say how; None: the number as text.
    """

    def __init__(
        self,
        world: World,
        setup: Setup,
        events: Sequence[FaultEvent],
        app: UserApp | None,
        message: Callable[..., Message] | None,
    ) -> None:
        self.app = app or app_of(partial(lab_listener, setup.work_ms), message=message)
        super().__init__(world, setup, topic=self.app.topic, group=self.app.group)
        self._early = []
        for event in events:
            self.plan_fault(event)
        self._is_started = self._is_finished = False

    async def start(self, app: Any = None, *, members: Sequence[str] | None = None) -> None:
        """Start name servers, brokers, the producer and the consumers, and begin to send messages.

        Args:
            app: a listener, or what makes one, or a PushConsumer, see `app_of`; None: that of the experiment.
            members: those of the setup that start now; None: all.
        """
        assert not self._is_started, "the cluster has started"
        self._is_started = True
        if app is not None:
            self.app = app_of(app, message=self.app.message)
            self.topic, self.consumer_group = self.app.topic, self.app.group
        setup = self.setup
        for number in range(1, setup.name_servers + 1):
            await self.start_name_server(f"names{number}")
        for number in range(1, setup.brokers + 1):
            name = BROKER if number == 1 else f"{BROKER}{number}"
            await self.broker(name, queues=setup.queues, **setup.broker_settings)
        if setup.fifo:
            self.when_broker_started.append(self.forgive_repeats)
        await self.producer()
        for names in in_groups(setup.members if members is None else tuple(members)):
            await asyncio.gather(*map(self.start_member, names))
        make = partial(self.app.made, self.topic, setup.keys, self.sends.failed)
        self.send_more = lambda name, key: self.sends.begin(partial(make, key=key), name)
        if setup.rate:
            self.send_at_a_rate(setup.rate, setup.life_ms, make)
        early, self._early = self._early or [], None
        for event in early:
            self.play_fault(event)

    async def start_member(self, name: str) -> None:
        """Start a consumer with the application, on a host."""
        runtime = self.world.host(name)
        runtime.listener_work_ms = self.setup.work_ms
        made = self.app.make(self, name)
        if isinstance(made, Listening):
            settings = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **self.setup.consumer}
            if not self.setup.fifo:
                settings["strategy"] = _STRATEGIES[self.setup.strategy]
            await self.consumer(name, listener=made.listener, **settings)
        else:
            if self.setup.consumer:
                raise AppError("the application makes its own PushConsumer: give it the settings of consumers there")
            if self.setup.fifo and not made.pop:
                raise AppError("members of a FIFO group pop: make the PushConsumer with pop=True")
            assert made.listener is not None
            made.register_listener(self.listeners.around(runtime, made.listener, made.ordering))
            await self.start_client(name, lambda *_: made, traced=True)
        self._recipes[name] = partial(self.start_member, name)

    async def reset_to(self, time_ms: int) -> None:
        """Set the group to the first messages since a time, in epoch ms."""

        async def reset(admin: AdminClient) -> None:
            for broker, count in self._topics.items():
                for queue_id in range(count):
                    queue = MessageQueue(self.topic, broker, queue_id)
                    offset = await admin.search_offset(queue, time_ms)
                    place = {"topic": self.topic, "broker": broker, "queue_id": queue_id}
                    self.witness("reset", group=self.consumer_group, offset=offset, **place)
            await admin.reset_offsets(self.consumer_group, self.topic, time_ms)

        await self.administrate(reset)

    async def administrate(self, act: Callable[[AdminClient], Awaitable[None]]) -> None:
        """Do what an administrator does, from the host of the first broker."""
        runtime = self.world.host(BROKER)

        async def do() -> None:
            async with AdminClient(name_server=self.name_server, runtime=runtime, log=self.log_of(BROKER)) as admin:
                await act(admin)

        await runtime.run(do())

    async def add_queues(self, more: int) -> None:
        """Give the topic more queues at each broker."""
        queues = self.setup.queues + more
        await self.administrate(lambda admin: admin.create_topic(self.topic, queues))
        self._topics = dict.fromkeys(self._topics, queues)

    async def finish(self) -> None:
        """Go on until the end of the setup's life, heal everything, and wait until every message is handled."""
        if self._is_finished:
            return
        if not self._is_started:
            await self.start()
        self._is_finished = True
        await self.at(max(self.setup.life_ms, self.world.elapsed_ms))
        await self.heal()
        lease_ms = int(self.setup.broker.get("lock_max_live_time_ms", _LEASE_MS))
        await self.settle(_SETTLE_LEASES * lease_ms + _SETTLE_MS)


_STRATEGIES: Final[Mapping[Strategy, AllocateMessageQueueStrategy]] = {
    Strategy.AVG: allocate_averagely,
    Strategy.AVG_BY_CIRCLE: allocate_averagely_by_circle,
    Strategy.CONSISTENT_HASH: AllocateByConsistentHash(),
    Strategy.STICKY: AllocateSticky(),
}
