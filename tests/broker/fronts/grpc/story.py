"""A story on virtual time: a broker with a port for clients of RocketMQ 5, and one of them."""

from collections.abc import Awaitable, Callable
from typing import Any

from lockstep.protocol.bodies.attributes import MESSAGE_TYPE, MIXED
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.simulation import World, simulate
from tests.broker.cluster import Served, serve
from tests.broker.fronts.grpc.grpc_client import GrpcClient

__all__ = ["on_a_broker"]

Story = Callable[[World, Served, GrpcClient], Awaitable[None]]


def on_a_broker(story: Story, **settings: Any) -> None:
    """Run a story with a broker that has topic T of 4 queues, and G, a group in order with 2 retries."""

    async def scenario(world: World) -> None:
        served = await serve(world.host("broker"), grpc_port=8081, **settings)
        broker = served.server.broker
        assert broker is not None
        broker.catalog.topics.put(TopicConfig("T", 4, 4, attributes=((MESSAGE_TYPE, MIXED),)), world.now_ms)
        group = SubscriptionGroupConfig("G", retry_max_times=2, consume_message_orderly=True)
        broker.catalog.groups.put(group, world.now_ms)
        client = await GrpcClient.connect(world.host("c1"), served.server.grpc_address)
        await story(world, served, client)
        client.close()
        await served.server.shutdown()
        assert not served.log.names("error")

    scenario.__module__ = story.__module__
    simulate(scenario, seed=5)
