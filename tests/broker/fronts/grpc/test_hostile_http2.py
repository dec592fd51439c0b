"""Attacks on HTTP/2: each ends its own connection, or waits within bounds; another client is served all the while."""

import asyncio
import struct
from collections.abc import Callable

import pytest
from hpack import Encoder

from lockstep.broker.fronts.grpc.http2.frame_guard import FrameGuard
from lockstep.protocol.grpc import messages as pb
from lockstep.protocol.grpc.wire import encode_message
from lockstep.simulation import World
from tests.broker.cluster import Served
from tests.broker.fronts.grpc.grpc_client import GrpcClient, topic_of
from tests.broker.fronts.grpc.story import on_a_broker

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
MANY = 5000


def frame(kind: int, stream_id: int = 0, body: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream_id) + body


def headers() -> bytes:
    path = "/apache.rocketmq.v2.MessagingService/QueryRoute"
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), ("content-type", "application/grpc")]
    return Encoder().encode(fields)


def resets() -> bytes:
    """Rapid reset: calls that end before their answer."""
    calls = (frame(HEADERS, 2 * n + 1, headers(), 4) + frame(RESET, 2 * n + 1, bytes(4)) for n in range(MANY))
    return b"".join(calls)


def bomb() -> bytes:
    """Headers that are small on the wire and large in memory: one long value, named again and again."""
    encoder = Encoder()
    first = encoder.encode([("x-mq-a", "a" * 3000)])
    again = encoder.encode([("x-mq-a", "a" * 3000)])
    return frame(HEADERS, 1, headers() + first + again * 2000, 4)


ATTACKS: dict[str, Callable[[], bytes]] = {
    "rapid reset": resets,
    "settings": lambda: frame(SETTINGS) * MANY,
    "pings": lambda: frame(PING, body=bytes(8)) * MANY,
    "priorities": lambda: frame(PRIORITY, 1, bytes(5)) * MANY,
    "windows": lambda: frame(WINDOW, body=struct.pack(">I", 1)) * MANY,
    "continuations": lambda: frame(HEADERS, 1, headers()) + frame(CONTINUATION, 1, b"") * MANY,
    "empty data": lambda: frame(HEADERS, 1, headers(), 4) + frame(DATA, 1) * MANY,
    "dribbled data": lambda: (
        frame(HEADERS, 1, headers(), 4) + frame(DATA, 1, b"\0\0\0\xff\xff") + frame(DATA, 1, b"x") * MANY
    ),
    "header bomb": bomb,
    "long frame": lambda: b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
    "HTTP/1": lambda: b"",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_its_connection(name: str) -> None:
    async def story(world: World, served: Served, client: GrpcClient) -> None:
        attacker = await GrpcClient.connect(world.host("attacker"), served.server.grpc_address)
        assert attacker.transport is not None
        attacker.receives = False
        attacker.h2.data_to_send()
        attack = ATTACKS[name]()
        attacker.transport.write(attack or b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
        while not attacker.lost:
            answer = await client.call("QueryRoute", pb.QueryRouteRequest(topic=topic_of("T")))
            assert answer.status.code == pb.OK
            await asyncio.sleep(0.01)
        assert served.log.names("warning") == ["http2_failed"]

    on_a_broker(story)


def test_a_client_without_window_gets_its_answer_later() -> None:
    """What waits is bounded by the answer; others are served, and the answer is whole when the window opens."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        body = b"x" * 100_000
        await client.send("T", body)
        slow = await GrpcClient.connect(world.host("slow"), served.server.grpc_address, "slow", window=0)
        waits = slow.receiving("free", timeout_ms=60_000)
        await asyncio.sleep(1)
        assert waits.messages == []
        await client.send("T", b"other")
        assert [one.body for one in await client.receive("other", batch=1)]
        slow.h2.increment_flow_control_window(1_000_000, waits.stream_id)
        slow.flush()
        await waits.ended
        assert [one.message.body for one in waits.messages if one.HasField("message")] == [body]

    on_a_broker(story)


def test_a_message_of_4_mib_passes_and_a_longer_one_is_refused() -> None:
    """The limit of a body is answered with its code; what is far above it ends the call."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        sent = await client.send_long("T", 4 * 1024 * 1024)
        assert sent.messages[0].status.code == pb.OK
        (one,) = await client.receive("free")
        assert len(one.body) == 4 * 1024 * 1024
        sent = await client.send_long("T", 4 * 1024 * 1024 + 1)
        assert sent.messages[0].status.code == pb.MESSAGE_BODY_TOO_LARGE
        sent = await client.send_long("T", 5 * 1024 * 1024)
        assert sent.status[0] == "8"

    on_a_broker(story)


def test_a_silent_connection_is_closed() -> None:
    """Clients send a heartbeat every 10 s: one that says nothing for two minutes is not there any more."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.consume("G")
        await asyncio.sleep(121)
        assert client.lost

    on_a_broker(story)


def test_a_shutdown_ends_calls_in_order() -> None:
    """A call that waits ends with UNAVAILABLE, and the connection says goodbye."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.consume("G")
        waits = client.receiving("G")
        await asyncio.sleep(1)
        await served.server.shutdown()
        await waits.ended
        assert waits.status[0] == "14"
        assert client.goaway == 0

    on_a_broker(story)


def test_a_request_that_never_ends_counts_as_received() -> None:
    """Whole messages without the end of their calls: the connection with too many bytes is closed."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        attacker = await GrpcClient.connect(world.host("attacker"), served.server.grpc_address)
        for _ in range(20):
            if attacker.lost:
                break
            await asyncio.sleep(0.1)
            attacker.begin("SendMessage", pb.SendMessageResponse).send(bytes(900_000))
        assert attacker.lost
        assert served.log.names("warning") == ["limit_met"]

    on_a_broker(story, inbound_bytes_per_connection_max=5_505_024)


def test_a_request_that_never_ends_is_closed_in_a_minute() -> None:
    """Also where other calls of the connection go on."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        client.begin("QueryRoute", pb.QueryRouteResponse).send(pb.QueryRouteRequest(topic=topic_of("T")))
        began_ms = world.now_ms
        while not client.lost and world.now_ms - began_ms < 70_000:
            await client.start("QueryRoute", pb.QueryRouteRequest(topic=topic_of("T"))).ended
            await asyncio.sleep(1)
        assert 60_000 <= world.now_ms - began_ms <= 63_000
        assert served.log.names("warning") == ["frame_timeout"]

    on_a_broker(story)


def test_a_call_is_bounded() -> None:
    """A request without a body has 1 MiB; a stream 16 messages in one frame; an acknowledgement 2048 entries."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        call = client.begin("QueryRoute", pb.QueryRouteResponse)
        client.write(call.stream_id, bytes(1_000_000), end=True)
        await call.ended
        assert call.status[0] == "13"
        call = client.begin("QueryRoute", pb.QueryRouteResponse)
        client.h2.send_data(call.stream_id, encode_message(bytes(1_100_000))[:10_000])
        client.flush()
        await call.ended
        assert call.status[0] == "8"
        telemetry = client.begin("Telemetry", pb.TelemetryCommand, None)
        client.h2.send_data(telemetry.stream_id, encode_message(b"") * 16)
        client.flush()
        await asyncio.sleep(1)
        assert not telemetry.ended.done()
        client.h2.send_data(telemetry.stream_id, encode_message(b"") * 17)
        client.flush()
        await telemetry.ended
        assert telemetry.status[0] == "8"
        acks = pb.AckMessageRequest(group=topic_of("G"), topic=topic_of("T"), entries=[pb.AckMessageEntry()] * 2049)
        assert (await client.call("AckMessage", acks)).status.code == pb.BAD_REQUEST
        settings = pb.Settings(client_type=pb.PRODUCER)
        settings.publishing.topics.extend([topic_of("not legal")] * 1001)
        telemetry = client.begin("Telemetry", pb.TelemetryCommand, None)
        telemetry.send(pb.TelemetryCommand(settings=settings))
        await telemetry.ended
        assert telemetry.status[0] == "8"

    on_a_broker(story)


def test_calls_go_to_the_protocol_four_at_a_time() -> None:
    """One of 300 headers costs it a millisecond."""
    guard = FrameGuard(0)
    guard.receive(PREFACE + frame(HEADERS, 1, headers(), 4) * 32, 0)
    assert len(list(guard.batches())) == 8


def test_an_address_has_so_many_calls_a_second() -> None:
    """Heartbeats have their own number."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.consume("G")
        route = pb.QueryRouteRequest(topic=topic_of("T"))
        codes = [(await client.call("QueryRoute", route)).status.code for _ in range(6)]
        assert codes == [pb.OK] * 5 + [pb.TOO_MANY_REQUESTS]
        assert (await client.call("Heartbeat", pb.HeartbeatRequest())).status.code == pb.OK
        await asyncio.sleep(1)
        assert (await client.call("QueryRoute", route)).status.code == pb.OK

    on_a_broker(story, requests_per_second_max=5)


def test_an_answer_that_waits_for_a_window_leaves_after_the_client_ended() -> None:
    async def story(world: World, served: Served, client: GrpcClient) -> None:
        slow = await GrpcClient.connect(world.host("slow"), served.server.grpc_address, "", window=0)
        call = slow.begin("Telemetry", pb.TelemetryCommand, None)
        call.send(pb.TelemetryCommand(settings=pb.Settings()))
        await asyncio.sleep(1)
        call.half_close()
        await asyncio.sleep(1)
        slow.h2.increment_flow_control_window(1_000_000, call.stream_id)
        slow.flush()
        await call.ended
        assert call.messages[0].status.code == pb.CLIENT_ID_REQUIRED
        assert call.status[0] == "0"

    on_a_broker(story)
