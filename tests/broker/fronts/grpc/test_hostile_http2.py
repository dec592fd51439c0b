"""Attacks on HTTP/2: each ends its own connection, or waits within bounds; another client is served all the while."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any

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
DATA, HEADERS, PRIORITY, RESET, SETTINGS, PING, GOAWAY, WINDOW, CONTINUATION, UNKNOWN = 0, 1, 2, 3, 4, 6, 7, 8, 9, 99
ENDS, ENDS_HEADERS, PADDED = 1, 4, 8
PROTOCOL, FLOW_CONTROL, STREAM_CLOSED, CALM = 1, 3, 5, 11  # codes of errors, RFC 9113, 7
TABLE_SIZE, WINDOW_SIZE = 1, 4
WINDOW_MAX = 2**31 - 1
MANY = 5000


def frame(kind: int, stream_id: int = 0, body: bytes = b"", flags: int = 0) -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream_id) + body


def headers(method: str = "QueryRoute", *more: tuple[str, str]) -> bytes:
    path = f"/apache.rocketmq.v2.MessagingService/{method}"
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), ("content-type", "application/grpc")]
    return Encoder().encode([*fields, *more])


def opening(stream_id: int = 1, method: str = "QueryRoute") -> bytes:
    """A call whose request is to come."""
    return frame(HEADERS, stream_id, headers(method, ("x-mq-client-id", "attacker")), ENDS_HEADERS)


def call(stream_id: int, method: str, request: Any) -> bytes:
    return opening(stream_id, method) + frame(DATA, stream_id, encode_message(request.SerializeToString()), ENDS)


def settings(*pairs: tuple[int, int]) -> bytes:
    return frame(SETTINGS, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def window(more: int, stream_id: int = 0) -> bytes:
    return frame(WINDOW, stream_id, struct.pack(">I", more))


def resets() -> bytes:
    """Rapid reset: calls that end before their answer."""
    return b"".join(opening(2 * n + 1) + frame(RESET, 2 * n + 1, bytes(4)) for n in range(MANY))


def bomb(stream_id: int = 1) -> bytes:
    """Headers that are small on the wire and large in memory: one long value, named again and again."""
    encoder = Encoder()
    first = encoder.encode([("x-mq-a", "a" * 3000)])
    again = encoder.encode([("x-mq-a", "a" * 3000)])
    return frame(HEADERS, stream_id, headers() + first + again * 2000, ENDS_HEADERS)


def trailers(*fields: tuple[str, str]) -> bytes:
    return frame(HEADERS, 1, Encoder().encode(fields), ENDS_HEADERS | ENDS)


class Attacker(asyncio.Protocol):
    """A connection that sends what it likes, and keeps what comes."""

    def __init__(self) -> None:
        self.lost = False
        self.received = b""
        self.transport: Any = None

    @classmethod
    async def connect(cls, world: World, served: Served, hello: bytes = PREFACE + frame(SETTINGS)) -> "Attacker":
        host, _, port = served.server.grpc_address.rpartition(":")
        attacker = cls()
        await world.host("attacker").create_connection(lambda: attacker, host, int(port))
        attacker.transport.write(hello)
        return attacker

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def frames(self) -> list[tuple[int, int, bytes]]:
        """Kinds, calls and contents of those that came."""
        found, at = list[tuple[int, int, bytes]](), 0
        while at < len(self.received):
            head, body = at + 9, int.from_bytes(self.received[at : at + 3], "big")
            stream_id = int.from_bytes(self.received[at + 5 : head], "big")
            found.append((self.received[at + 3], stream_id, self.received[head : head + body]))
            at = head + body
        return found

    def codes(self, kind: int) -> list[int]:
        """The codes of the frames of a kind, GOAWAY or RESET, that came."""
        return [int.from_bytes(body[-4:], "big") for one, _, body in self.frames() if one == kind]

    def count(self, kind: int, stream_id: int) -> int:
        return [one[:2] for one in self.frames()].count((kind, stream_id))


async def is_served(client: GrpcClient) -> None:
    answer = await client.call("QueryRoute", pb.QueryRouteRequest(topic=topic_of("T")))
    assert answer.status.code == pb.OK


# Each with the code that its connection is closed with.
ATTACKS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "rapid reset": (CALM, resets),
    "settings": (CALM, lambda: settings() * MANY),
    "a frame of many settings": (CALM, lambda: settings(*((code, 1) for code in range(10, 2700)))),
    "windows and tables to 0 and back": (
        CALM,
        lambda: opening() + (settings((WINDOW_SIZE, 0), (TABLE_SIZE, 0)) + settings((WINDOW_SIZE, 65_535))) * MANY,
    ),
    "pings": (CALM, lambda: frame(PING, body=bytes(8)) * MANY),
    "priorities": (CALM, lambda: frame(PRIORITY, 1, bytes(5)) * MANY),
    "unknown frames": (CALM, lambda: frame(UNKNOWN, 0, bytes(100)) * MANY),
    "windows": (CALM, lambda: window(1) * MANY),
    "a window of the connection over its limit": (FLOW_CONTROL, lambda: window(WINDOW_MAX)),
    "initial windows over the limit": (
        FLOW_CONTROL,
        lambda: opening() + window(1, 1) + settings((WINDOW_SIZE, WINDOW_MAX)),
    ),
    "continuations": (PROTOCOL, lambda: frame(HEADERS, 1, headers()) + frame(CONTINUATION, 1, b"") * MANY),
    "long continuations": (
        PROTOCOL,
        lambda: frame(HEADERS, 1, headers()) + frame(CONTINUATION, 1, bytes(16_384)) * 200,
    ),
    "empty data": (CALM, lambda: opening() + frame(DATA, 1) * MANY),
    "padded data": (CALM, lambda: opening() + frame(DATA, 1, b"\xff" + bytes(255), PADDED) * MANY),
    "padding longer than its frame": (PROTOCOL, lambda: opening() + frame(DATA, 1, b"\xff" + bytes(100), PADDED)),
    "dribbled data": (CALM, lambda: opening() + frame(DATA, 1, b"\0\0\0\xff\xff") + frame(DATA, 1, b"x") * MANY),
    "data of no call": (PROTOCOL, lambda: frame(DATA, 1, bytes(100))),
    "header bomb": (CALM, bomb),
    "huge trailers": (CALM, lambda: opening() + trailers(*((f"x-{n}", "t" * 1000) for n in range(16)))),
    "more calls than are allowed": (PROTOCOL, lambda: b"".join(opening(2 * n + 1) for n in range(2100))),
    "long frame": (CALM, lambda: b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_its_connection(name: str) -> None:
    async def story(world: World, served: Served, client: GrpcClient) -> None:
        code, attack = ATTACKS[name]
        attacker = await Attacker.connect(world, served)
        attacker.transport.write(attack())
        while not attacker.lost:
            await is_served(client)
            await asyncio.sleep(0.01)
        assert attacker.codes(GOAWAY) == [code]
        assert served.log.names("warning") == ["http2_failed"]

    on_a_broker(story)


def test_what_is_no_http2_is_closed() -> None:
    async def story(world: World, served: Served, client: GrpcClient) -> None:
        attacker = await Attacker.connect(world, served, b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
        while not attacker.lost:
            await is_served(client)
        assert served.log.names("warning") == ["http2_failed"]

    on_a_broker(story)


def test_a_window_of_a_call_over_its_limit_ends_the_call() -> None:
    """The others of its connection go on."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        waits = client.receiving("free")
        attacked = client.begin("Telemetry", pb.TelemetryCommand, None)
        assert client.transport is not None
        client.flush()
        client.transport.write(window(WINDOW_MAX, attacked.stream_id))
        await attacked.ended
        assert attacked.reset == FLOW_CONTROL
        await client.send("T", b"x")
        await waits.ended
        assert [one.message.body for one in waits.messages if one.HasField("message")] == [b"x"]

    on_a_broker(story)


# Frames for calls that are over; their clients may not know it yet.
LATE: dict[str, Callable[[], bytes]] = {
    "data behind a reset": lambda: opening() + frame(RESET, 1, bytes(4)) + frame(DATA, 1, bytes(16_384)) * 1000,
    "data behind the end": lambda: opening() + frame(DATA, 1, bytes(5), ENDS) + frame(DATA, 1, bytes(16_384)) * 1000,
    "trailers behind trailers": lambda: opening() + trailers(("x", "y")) * 1001,
}


@pytest.mark.parametrize("name", LATE)
def test_what_comes_for_a_call_that_is_over_is_answered_with_a_reset(name: str) -> None:
    """It takes nobody's window, and nothing is kept of it."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        attacker = await Attacker.connect(world, served)
        attacker.transport.write(LATE[name]())
        for _ in range(200):
            await is_served(client)
            await asyncio.sleep(0.01)
        assert attacker.codes(RESET) == [STREAM_CLOSED] * 1000
        attacker.transport.write(call(3, "QueryRoute", pb.QueryRouteRequest(topic=topic_of("T"))))
        await asyncio.sleep(1)
        assert attacker.count(HEADERS, 3) == 2  # of the answer and its end

    on_a_broker(story)


HELLO = PREFACE + settings()
# What comes first, and what comes every four seconds: none of these connections is idle.
SLOW: dict[str, tuple[bytes, list[bytes]]] = {
    "the preface": (PREFACE[:1], [bytes([one]) for one in PREFACE[1:]]),
    "a frame": (HELLO + frame(HEADERS, 1, bytes(1000))[:10], [b"\0"] * 20),
    "headers": (HELLO + frame(HEADERS, 1, headers()), [frame(CONTINUATION, 1)] * 20),
    "a call without its request": (HELLO + opening(), [frame(PING, 0, bytes(8))] * 20),
    "padding instead of a request": (HELLO + opening(), [frame(DATA, 1, b"\xff" + bytes(255), PADDED)] * 20),
    "a request": (HELLO + opening() + frame(DATA, 1, b"\0\0\0\xff\xff"), [frame(DATA, 1, b"x")] * 20),
}


@pytest.mark.parametrize("name", SLOW)
def test_what_comes_slowly_is_closed_in_a_minute(name: str) -> None:
    async def story(world: World, served: Served, client: GrpcClient) -> None:
        first, again = SLOW[name]
        attacker, began_ms = await Attacker.connect(world, served, first), world.now_ms
        for more in again:
            if attacker.lost:
                break
            await is_served(client)
            await asyncio.sleep(4)
            attacker.transport.write(more)
        assert 60_000 <= world.now_ms - began_ms <= 65_000
        assert served.log.names("warning") == ["frame_timeout"]

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


@pytest.mark.parametrize("bytes_max", [0, 32 * 1024 * 1024])
def test_answers_that_are_not_read_are_bounded(bytes_max: int) -> None:
    """Above 1 MiB nothing more is read from the connection; then it is idle, or over the bound of a connection."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        for _ in range(40):
            await client.send("T", b"x" * 900_000)
        attacker = await Attacker.connect(world, served, PREFACE + settings((WINDOW_SIZE, WINDOW_MAX)) + window(2**30))
        attacker.transport.pause_reading()
        request = pb.ReceiveMessageRequest(group=topic_of("free"), batch_size=1)
        request.message_queue.topic.name, request.invisible_duration.seconds = "T", 300
        attacker.transport.write(b"".join(call(2 * n + 1, "ReceiveMessage", request) for n in range(40)))
        await asyncio.sleep(1)
        assert served.server.broker is not None
        counts = served.server.broker.grpc_counts
        assert counts is not None
        begun, began_ms = counts.ended.total(), world.now_ms
        attacker.transport.write(call(81, "QueryRoute", pb.QueryRouteRequest(topic=topic_of("T"))))
        # The attacker does not see its end.
        while counts.connections > 1 and world.now_ms - began_ms < 130_000:
            await is_served(client)
            begun += 1
            await asyncio.sleep(1)
        assert counts.connections == 1
        assert world.now_ms - began_ms <= (0 if bytes_max else 121_000)
        assert served.log.names("warning") == (["limit_met"] if bytes_max else [])
        assert counts.ended.total() == begun
        attacker.transport.abort()

    on_a_broker(story, outbound_bytes_per_connection_max=bytes_max)


def test_a_set_of_lite_topics_is_bounded() -> None:
    """There are none here: of 1 MiB nothing is read, and what is longer ends the call."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        request = pb.SyncLiteSubscriptionRequest(topic=topic_of("T"), group=topic_of("G")).SerializeToString()
        for entries, status in ((300_000, "0"), (1_400_000, "8")):
            attacked = client.begin("SyncLiteSubscription", pb.SyncLiteSubscriptionResponse)
            await client.write_all(attacked, request + b"\x22\1t" * entries)
            await attacked.ended
            assert attacked.status[0] == status
        await is_served(client)

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
        await client.gone.wait()
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
        client.begin("QueryRoute", pb.QueryRouteResponse, None).send(pb.QueryRouteRequest(topic=topic_of("T")))
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
    assert len(list(iter(guard.next_batch, b""))) == 8


def test_an_address_has_so_many_calls_a_second() -> None:
    """Heartbeats have their own number."""

    async def story(world: World, served: Served, client: GrpcClient) -> None:
        await client.consume("G")
        route = pb.QueryRouteRequest(topic=topic_of("T"))
        codes = [(await client.call("QueryRoute", route)).status.code for _ in range(6)]
        assert codes == [pb.OK] * 5 + [pb.TOO_MANY_REQUESTS]
        assert (await client.call("Heartbeat", pb.HeartbeatRequest(group=topic_of("G")))).status.code == pb.OK
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
