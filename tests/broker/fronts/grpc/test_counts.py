"""What metrics have of clients of gRPC."""

import asyncio

from lockstep.broker.metrics.families import Samples
from lockstep.broker.metrics.scrape import scrape
from lockstep.protocol.grpc import messages as pb
from lockstep.simulation import World
from tests.broker.cluster import Served
from tests.broker.fronts.grpc.grpc_client import GrpcClient, topic_of
from tests.broker.fronts.grpc.story import on_a_broker


def counted(served: Served, now_ms: int) -> tuple[list[float], dict[tuple[str, ...], float]]:
    """Connections, sessions and calls under way; and those that ended."""
    taken: list[Samples] = []
    assert served.server.broker is not None
    for _ in scrape(served.server.broker, now_ms, taken.append):
        continue
    names = ("connections", "sessions", "calls_under_way")
    gauges = [taken[0].rows[f"lockstep_grpc_{name}"][()] for name in names]
    return gauges, taken[0].rows["lockstep_grpc_calls_total"]


def test_calls_are_counted_by_name_and_code() -> None:
    """A call that its client broke off too; one that no front serves has no series."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        assert counted(served, world.now_ms) == ([1, 0, 0], {})
        await client.consume("G")
        await client.send("T", b"0", group="key")
        await client.send("nowhere", b"0")
        (one,) = await client.receive("G")
        await client.ack("G", one)
        await client.receive("G", "nowhere")
        waits = client.receiving("G")
        unknown = client.begin("QueryOffset", pb.HeartbeatResponse)
        client.flush()
        await unknown.ended
        assert counted(served, world.now_ms)[0] == [1, 1, 2]
        waits.cancel()
        await client.call("NotifyClientTermination", pb.NotifyClientTerminationRequest(group=topic_of("G")))
        other = await GrpcClient.connect(world.host("c2"), served.server.grpc_address)
        other.begin("Telemetry", pb.TelemetryCommand, None).send(pb.TelemetryCommand(settings=pb.Settings()))
        await asyncio.sleep(1)
        assert counted(served, world.now_ms) == ([2, 0, 0], {
            ("SendMessage", "OK"): 1,
            ("SendMessage", "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"): 1,
            ("ReceiveMessage", "OK"): 1,
            ("ReceiveMessage", "TOPIC_NOT_FOUND"): 1,
            ("AckMessage", "OK"): 1,
            ("ReceiveMessage", "CANCELLED"): 1,
            ("NotifyClientTermination", "OK"): 1,
            ("Telemetry", "OK"): 1,
            ("Telemetry", "INVALID_ARGUMENT"): 1,
        })  # fmt: skip
        other.close()

    on_a_broker(story)
