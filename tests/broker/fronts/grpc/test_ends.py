"""How connections and clients end: nothing that they have not got stays theirs, and none stays for ever."""

import asyncio

import pytest

from lockstep.protocol.grpc import messages as pb
from lockstep.simulation import World
from tests.broker.cluster import Served
from tests.broker.fronts.grpc.grpc_client import GrpcClient, topic_of
from tests.broker.fronts.grpc.story import on_a_broker

FENCED = {"lock_mode": "fenced"}
WINDOW = 8 * 1024 * 1024


@pytest.mark.parametrize("lock_mode", ["fenced", "faithful"])
def test_what_a_client_that_says_goaway_has_not_got_goes_to_others(lock_mode: str) -> None:
    """Its goodbye comes in the read that brings its call: h2 writes no more then."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"0", group="key")
        leaves = await GrpcClient.connect(world.host("c2"), served.server.grpc_address, "c2")
        await leaves.consume("G")
        leaves.is_corked = True
        leaves.receiving("G")
        leaves.h2.close_connection()
        leaves.is_corked = False
        leaves.flush()
        await leaves.gone.wait()
        await client.consume("G")
        began_ms = world.now_ms
        assert [one.body for one in await client.receive("G")] == [b"0"]
        assert world.now_ms - began_ms < 1000

    on_a_broker(story, lock_mode=lock_mode)


def test_a_goodbye_to_who_does_not_read_ends_too() -> None:
    """The client says goodbye, and takes no more bytes: the connection is closed when it has been idle."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send_long("T", 700_000)
        stuck = await GrpcClient.connect(world.host("c2"), served.server.grpc_address, "c2", window=WINDOW)
        stuck.h2.increment_flow_control_window(WINDOW)
        await stuck.consume("G")
        assert stuck.transport is not None
        stuck.transport.pause_reading()
        stuck.receiving("G")
        await asyncio.sleep(1)
        stuck.h2.close_connection()
        stuck.flush()
        counts = served.server.broker.grpc_counts if served.server.broker is not None else None
        assert counts is not None
        await asyncio.sleep(100)
        assert counts.connections == 2
        await asyncio.sleep(21)
        assert counts.connections == 0
        stuck.transport.abort()

    on_a_broker(story)


def test_an_answer_that_is_reset_waits_no_more() -> None:
    """Its bytes count for no bound: the connection lives on, and others are closed for what is kept."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send_long("T", 700_000)
        slow = await GrpcClient.connect(world.host("c2"), served.server.grpc_address, "c2", window=1000)
        await slow.consume("G")
        slow.grants_windows = False
        call = slow.receiving("G")
        await call.message(0)
        outbound = served.server._connections.bounds.outbound
        assert outbound.bytes > 600_000
        call.cancel()
        await slow.call("Heartbeat", pb.HeartbeatRequest(group=topic_of("G")))
        assert outbound.bytes == 0
        slow.close()

    on_a_broker(story)


def test_a_client_with_too_many_topics_learns_why_it_ends() -> None:
    async def story(world: World, served: Served, client: GrpcClient) -> None:
        settings = pb.Settings(client_type=pb.PRODUCER)
        settings.publishing.topics.extend([topic_of("T"), topic_of("U")])
        call = client.begin("Telemetry", pb.TelemetryCommand, None)
        call.send(pb.TelemetryCommand(settings=settings))
        await call.ended
        assert call.status[0] == "8"
        assert "groups_per_connection_max" in call.status[1]

    on_a_broker(story, groups_per_connection_max=1)


def test_a_client_that_the_broker_sends_away_keeps_nothing() -> None:
    """With fences others need not wait for its heartbeats."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"0", group="key")
        away = await GrpcClient.connect(world.host("c2"), served.server.grpc_address, "c2")
        await away.consume("G", push=True)
        assert len(await away.receive("G", auto_renew=True)) == 1
        (connection,) = [one for one in served.server._connections if one.address.startswith(away_host(away))]
        connection.close("pushed by a test")
        await away.gone.wait()
        await client.consume("G")
        began_ms = world.now_ms
        assert [one.body for one in await client.receive("G")] == [b"0"]
        assert world.now_ms - began_ms <= 3000

    on_a_broker(story, **FENCED)


def test_a_broker_that_ends_takes_nothing_from_its_clients() -> None:
    """They work on, and say so to the broker that comes after it."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.send("T", b"0", group="key")
        await client.consume("G", push=True)
        (one,) = await client.receive("G", auto_renew=True)
        broker, queue_id = served.server.broker, one.system_properties.queue_id
        assert broker is not None
        await served.server.shutdown()
        queue = broker.messages.pops.fifo.find("T", "G", queue_id)
        assert queue is not None
        (held,) = queue.under_way()
        assert held.visible_ms - world.now_ms > 50_000

    on_a_broker(story, **FENCED)


@pytest.mark.parametrize("lock_mode", ["fenced", "faithful"])
def test_a_call_that_is_repeated_takes_nothing(lock_mode: str) -> None:
    """Its connection is half open: what it took would be renewed for as long as the client lives."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.consume("G", push=True)
        client.receives = False
        poll = pb.Duration(seconds=15)
        client.receiving("G", auto_renew=True, attempt_id="one", long_polling_timeout=poll, timeout_ms=20_000)
        back = await GrpcClient.connect(world.host("c2"), served.server.grpc_address, "c1")
        await back.consume("G", push=True)
        assert await back.receive("G", auto_renew=True, attempt_id="one") == []
        waits = back.receiving("G", auto_renew=True, attempt_id="two")
        await back.send("T", b"0", group="key")
        await waits.ended
        (one,) = (answer.message for answer in waits.messages if answer.HasField("message"))
        assert (await back.ack("G", one)).status.code == pb.OK
        back.close()

    on_a_broker(story, lock_mode=lock_mode)


def test_what_a_repeat_gives_no_more_goes_to_a_call_that_waits() -> None:
    """At once: the client never got it, and nothing else would wake the other call."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.consume("G", push=True)
        for number in range(2):
            await client.send("T", f"{number}".encode(), group=f"key {number}")
        assert len(await client.receive("G", auto_renew=True, attempt_id="one")) == 2
        other = await GrpcClient.connect(world.host("c2"), served.server.grpc_address, "c2")
        await other.consume("G", push=True)
        waits = other.receiving("G", auto_renew=True)
        await world.sleep_ms(100)
        began_ms = world.now_ms
        (one,) = await client.receive("G", batch=1, auto_renew=True, attempt_id="one")
        await waits.ended
        (freed,) = (answer.message for answer in waits.messages if answer.HasField("message"))
        assert freed.body != one.body
        assert world.now_ms - began_ms < 1000

    on_a_broker(story, **FENCED)


def away_host(client: GrpcClient) -> str:
    assert client.transport is not None
    return str(client.transport.get_extra_info("sockname")[0]) + ":"
