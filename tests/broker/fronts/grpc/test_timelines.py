"""How long a consumer holds what it works on, minute by minute: the timelines measured on RocketMQ 5.5.0."""

import asyncio

import pytest

from lockstep.protocol.grpc import messages as pb
from lockstep.simulation import World
from tests.broker.cluster import Served
from tests.broker.fronts.grpc.grpc_client import GrpcClient, topic_of
from tests.broker.fronts.grpc.story import on_a_broker

DEAD_MS = 120_000  # after the last heartbeat a client counts as dead
LATE_MS = 9_000  # two looks at all clients, each 5 s; RocketMQ took 123.5 and 128.5 s
HOUR_MS = 3_600_000


def test_a_push_consumer_holds_what_it_works_on() -> None:
    """Renewed beyond the first minute; its first handle acknowledges. When it ends, others get it in a second."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"0", group="key")
        await client.send("T", b"1", group="key")
        telemetry = await client.consume("G", push=True)
        (one,) = await client.receive("G", batch=1, auto_renew=True)
        for _ in range(15):
            await asyncio.sleep(10)
            await client.call("Heartbeat", pb.HeartbeatRequest(group=topic_of("G"), client_type=pb.PUSH_CONSUMER))
        assert (await client.ack("G", one)).status.code == pb.OK
        (one,) = await client.receive("G", batch=1, auto_renew=True)
        assert one.body == b"1"
        await client.call("NotifyClientTermination", pb.NotifyClientTerminationRequest(group=topic_of("G")))
        await telemetry.ended
        began_ms = world.now_ms
        client.client_id = "c2"
        await client.consume("G", push=True)
        (one,) = await client.receive("G", batch=1, auto_renew=True)
        assert (one.body, one.system_properties.delivery_attempt) == (b"1", 2)
        assert 900 <= world.now_ms - began_ms <= 1200

    on_a_broker(story)


@pytest.mark.parametrize("lock_mode", ["faithful", "fenced"])
def test_a_consumer_that_dies_gives_back_what_it_holds(lock_mode: str) -> None:
    """Two minutes after its last heartbeat, as in RocketMQ; in fenced mode a grace after its stream ended."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"0", group="key")
        await client.consume("G", push=True)
        (one,) = await client.receive("G", auto_renew=True)
        began_ms = world.now_ms
        assert client.transport is not None
        client.transport.abort()
        other = await GrpcClient.connect(world.host("c2"), served.server.grpc_address, "c2")
        while not (got := await other.receive("G")):
            pass
        assert got[0].body == one.body
        waited_ms = world.now_ms - began_ms
        assert 3000 <= waited_ms <= 8000 if lock_mode == "fenced" else DEAD_MS <= waited_ms <= DEAD_MS + LATE_MS

    on_a_broker(story, lock_mode=lock_mode)


def test_renewal_ends_after_three_hours() -> None:
    """Whoever has worked on a message for so long is stuck: it goes to others when its last period is over."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"0", group="key")
        await client.consume("G", push=True)
        await client.receive("G", auto_renew=True)
        began_ms, beat = world.now_ms, pb.HeartbeatRequest(group=topic_of("G"), client_type=pb.PUSH_CONSUMER)
        other = await GrpcClient.connect(world.host("c2"), served.server.grpc_address, "c2")
        while not await other.receive("G", long_polling_timeout=pb.Duration(seconds=20), timeout_ms=30_000):
            await client.call("Heartbeat", beat)
        assert 3 * HOUR_MS <= world.now_ms - began_ms <= 4 * HOUR_MS

    on_a_broker(story)
