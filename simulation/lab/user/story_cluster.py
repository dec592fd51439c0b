"""The cluster that a story gets: it starts what its setup says, plays the faults of a plan, and comes to an end."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from lockstep.client import Message
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere
from lockstep.simulation.lab.cluster import BROKER, Cluster
from lockstep.simulation.lab.setup import FaultEvent, Setup
from lockstep.simulation.lab.user.app import AppError, Listening, UserApp, app_of, lab_listener
from lockstep.simulation.world import World

__all__ = ["StoryCluster"]

_SETTLE_LEASES: Final = 6
_SETTLE_MS: Final = 90_000
_LEASE_MS: Final = 60_000


class StoryCluster(Cluster):
    """See Cluster.

    Args:
        events: faults, which `start` begins to play.
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
        self._events = events
        self._is_started = self._is_finished = False

    async def start(self, app: Any = None) -> None:
        """Start name servers, brokers, the producer and the consumers, and begin to send messages and to play faults.

        Args:
            app: a listener, or what makes one, or a PushConsumer, see `app_of`; None: that of the experiment.
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
        await self.producer()
        for name in setup.members:
            await self.start_member(name)
        if setup.rate:
            make = partial(self.app.made, self.topic, setup.keys, self.sends.failed)
            self.send_at_a_rate(setup.rate, setup.life_ms, make)
        for event in self._events:
            self.play_fault(event)

    async def start_member(self, name: str) -> None:
        """Start a consumer with the application, on a host."""
        runtime = self.world.host(name)
        runtime.listener_work_ms = self.setup.work_ms
        made = self.app.make(self, name)
        if isinstance(made, Listening):
            settings = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **self.setup.consumer}
            await self.consumer(name, listener=made.listener, **settings)
        else:
            if self.setup.consumer:
                raise AppError("the application makes its own PushConsumer: give it the settings of consumers there")
            await self.start_client(name, lambda *_: made, traced=True)
        self._recipes[name] = partial(self.start_member, name)

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
