"""A story with a controlled broker on virtual time."""

from collections.abc import Awaitable, Callable
from typing import Any

from lockstep.broker.config import BrokerConfig
from lockstep.broker.server import BrokerServer
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.host.manual_clock import ManualClockRuntime
from lockstep.simulation import World, simulate
from lockstep.testing.control_port.calls import ControlledBroker
from lockstep.testing.control_port.faults import Faults
from lockstep.testing.control_port.server import FaultInterceptor
from tests.broker.cluster import Client
from tests.broker.helpers import RecordingLog

__all__ = ["Stage", "on_stage"]


class Stage:
    """A controlled broker on virtual time, which here stands still unless a story sleeps."""

    def __init__(self, world: World, client: Client, **settings: Any) -> None:
        host = world.host("broker")
        self.world = world
        self.client = client
        self.faults = Faults()
        self.runtime = ManualClockRuntime(host)
        self.log = RecordingLog()
        config = BrokerConfig(host=host.address, **settings)
        interceptor = FaultInterceptor(self.faults, host)
        self.server = BrokerServer(config, self.runtime, self.log, interceptor, call_interceptor=interceptor)
        self.broker = ControlledBroker(self.server, self.faults, self.runtime, config)

    async def call(self, name: str, **arguments: Any) -> Any:
        return await self.broker.call(name, arguments)

    async def ask(self, code: int, header: tuple[Any, ...] | None = None, body: Any = b"") -> RemotingCommand:
        return await self.client.call(self.server.broker_address, code, header, body)


Story = Callable[[Stage], Awaitable[None]]


def on_stage(story: Story, encoding: SerializeType = SerializeType.MSGPACK, **settings: Any) -> None:
    async def scenario(world: World) -> None:
        client = Client(world.host("c1"), encoding)
        stage = Stage(world, client, **settings)
        await world.host("broker").run(stage.server.start())
        await story(stage)
        client.close()
        await stage.server.shutdown()

    scenario.__module__ = story.__module__
    simulate(scenario, seed=5)
