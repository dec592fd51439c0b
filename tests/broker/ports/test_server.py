"""The server on virtual time: all encodings, long polls, restarts, idle connections, shutdown.

What hostile peers send it is in `tests/integration/hostile`.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lockstep.broker.cannot_listen import CannotListen
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.command import RemotingCommand, encode_command
from lockstep.protocol.headers.messaging import PullMessageResponseHeader
from lockstep.protocol.messages.message import decode_messages
from lockstep.simulation import SimRuntime, SimulationOptions, World, simulate
from tests.broker.cluster import Client, Served, serve
from tests.broker.helpers import ENCODINGS, consumer, heartbeat_of, pull_header, send_header

R = RequestCode
WAITING = 6  # subscription in the request, may be suspended
Story = Callable[[World, Served, Client], Awaitable[None]]


def on_a_broker(
    story: Story, encoding: SerializeType = SerializeType.MSGPACK, options: SimulationOptions | None = None
) -> None:
    """Run a story with a broker with a name server, and a client; everything must come to an end."""

    async def scenario(world: World) -> None:
        served = await serve(world.host("broker"))
        client = Client(world.host("c1"), encoding)
        await story(world, served, client)
        client.close()
        await served.server.shutdown()

    scenario.__module__ = story.__module__
    simulate(scenario, seed=5, options=options)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_message_goes_in_and_comes_out(encoding: SerializeType) -> None:
    """Route, send, pull, over sockets and under each encoding; the first request agrees on MSGPACK."""

    async def story(world: World, served: Served, client: Client) -> None:
        reply = await client.call(served.address, R.SEND_MESSAGE_V2, send_header("T"), b"hello")
        at_first = SerializeType.JSON if encoding == SerializeType.MSGPACK else encoding
        assert (reply.code, reply.serialize_type) == (0, at_first)
        route = await client.route(served.server.name_server_address)
        assert route is not None
        assert route.broker_datas[0].master_addr == served.address
        reply = await client.call(served.address, R.PULL_MESSAGE, pull_header(0))
        assert reply.serialize_type == encoding
        assert [message.body for message in decode_messages(reply.body)] == [b"hello"]

    on_a_broker(story, encoding)


def test_settings_name_the_ports_that_were_got() -> None:
    """Of both, when free ones were asked for."""

    async def scenario(world: World) -> None:
        served = await serve(world.host("broker"), port=0, name_server_port=0)
        client = Client(world.host("c1"))
        for address, code in [
            (served.address, R.GET_BROKER_CONFIG),
            (served.server.name_server_address, R.GET_NAMESRV_CONFIG),
        ]:
            lines = (await client.call(address, code)).body.decode().splitlines()
            assert f"listenPort={address.rpartition(':')[2]}" in lines
        client.close()
        await served.server.shutdown()

    simulate(scenario, seed=5)


def test_many_sends_of_one_read_wake_a_waiting_pull_once() -> None:
    """Twenty in one write: answered at once, at the end of the read, with all of them and not with the first."""

    async def story(world: World, served: Served, client: Client) -> None:
        await client.call(served.address, R.SEND_MESSAGE_V2, send_header("T"), b"first")
        pull = asyncio.ensure_future(client.call(served.address, R.PULL_MESSAGE, pull_header(1, sys_flag=WAITING)))
        await world.sleep_ms(1000)
        sent_ms = world.elapsed_ms
        peer, transport = await raw_peer(world.host("c2"), served.address)
        transport.write((encode_command(RemotingCommand(R.SEND_MESSAGE_V2, send_header("T"), b"x")) + b"x") * 20)
        reply = await pull
        assert world.elapsed_ms - sent_ms < 100  # by their arrival, not by a sweep
        assert reply.decode_header(PullMessageResponseHeader).next_begin_offset == 21
        transport.close()
        await world.until(lambda: peer.lost)

    on_a_broker(story, options=SimulationOptions(split_percent=0))


def test_a_waiting_pull_is_answered_after_its_time_and_before_another_sweep() -> None:
    """Asked to wait 2 s: answered with 19 between 2 and 7 s later."""

    async def story(world: World, served: Served, client: Client) -> None:
        await client.call(served.address, R.SEND_MESSAGE_V2, send_header("T"), b"x")
        began_ms = world.elapsed_ms
        header = pull_header(1, sys_flag=WAITING, suspend_timeout_millis=2000)
        reply = await client.call(served.address, R.PULL_MESSAGE, header)
        assert reply.code == 19
        assert 2000 <= world.elapsed_ms - began_ms <= 7010

    on_a_broker(story)


def test_a_killed_member_is_noticed_by_its_group_at_once() -> None:
    """The reset of its connection is enough; no timer."""

    async def story(world: World, served: Served, client: Client) -> None:
        group = consumer("G", SubscriptionData.parse("T", "*"))
        other = Client(world.host("c2"))
        await client.call(served.address, R.HEART_BEAT, None, heartbeat_of("a", group))
        await other.call(served.address, R.HEART_BEAT, None, heartbeat_of("b", group))
        await world.sleep_ms(100)
        client.pushed.clear()
        world.crash("c2")
        await world.sleep_ms(100)
        assert [command.code for command in client.pushed] == [R.NOTIFY_CONSUMER_IDS_CHANGED]

    on_a_broker(story)


def test_a_client_that_stops_its_heartbeats_is_closed_within_130_seconds() -> None:
    """And not before 120, though its connection is busy."""

    async def story(world: World, served: Served, client: Client) -> None:
        group = consumer("G", SubscriptionData.parse("T", "*"))
        await client.call(served.address, R.HEART_BEAT, None, heartbeat_of("a", group))
        began_ms = world.elapsed_ms
        while client.dialer.open_endpoint(served.address) is not None:
            await client.call(served.address, 9999)
            await world.sleep_ms(1000)
        assert 120_000 < world.elapsed_ms - began_ms <= 132_000

    on_a_broker(story)


def test_a_restarted_broker_has_forgotten_locks_and_messages() -> None:
    """Another gets the lock at once; queues are empty; the topic has no route."""

    async def scenario(world: World) -> None:
        served = await serve(world.host("broker"))
        client = Client(world.host("c1"))
        await client.call(served.address, R.SEND_MESSAGE_V2, send_header("T"), b"x")
        assert await client.lock(served.address, "a")
        assert not await client.lock(served.address, "b")
        world.crash("broker")
        await world.sleep_ms(10)
        served = await serve(world.host("broker"))
        assert await client.lock(served.address, "b")
        assert await client.route(served.server.name_server_address) is None
        assert (await client.call(served.address, R.PULL_MESSAGE, pull_header(0))).code == 17
        client.close()
        await served.server.shutdown()

    simulate(scenario)


class RawPeer(asyncio.Protocol):
    """Writes bytes and counts what comes back."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.received_bytes = 0
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


async def raw_peer(runtime: SimRuntime, address: str) -> tuple[RawPeer, asyncio.Transport]:
    host, _, port = address.partition(":")
    transport, peer = await runtime.create_connection(RawPeer, host, int(port))
    assert isinstance(peer, RawPeer)
    return peer, transport


def test_a_client_that_pulls_and_never_reads_costs_bounded_memory() -> None:
    """A thousand pulls of 256 KiB: the broker stops working for it soon, and serves others."""

    async def story(world: World, served: Served, client: Client) -> None:
        for _ in range(8):
            await client.call(served.address, R.SEND_MESSAGE_V2, send_header("T"), bytes(32_000))
        peer, transport = await raw_peer(world.host("evil"), served.address)
        transport.pause_reading()
        transport.write(encode_command(RemotingCommand(R.PULL_MESSAGE, pull_header(0))) * 1000)
        await world.sleep_ms(5000)
        (connection,) = world.connections("broker", "evil")
        assert connection.get_write_buffer_size() < 3 << 20
        assert (await client.call(served.address, R.SEND_MESSAGE_V2, send_header("T"), b"x")).code == 0
        transport.resume_reading()
        await world.until(lambda: peer.received_bytes > 1000 * 8 * 32_000)
        transport.close()

    on_a_broker(story)


def test_clients_that_use_the_vip_channel_reach_us() -> None:
    """Older Java clients send to the port two below the one in the route (wire.md 1.1); it ends with the other."""

    async def story(world: World, served: Served, client: Client) -> None:
        host, port = served.address.split(":")
        vip_address = f"{host}:{int(port) - 2}"
        assert (await client.call(vip_address, R.SEND_MESSAGE_V2, send_header("T"), b"x")).code == 0
        reply = await client.call(served.address, R.PULL_MESSAGE, pull_header(0))
        assert [message.body for message in decode_messages(reply.body)] == [b"x"]
        assert int(port) - 2 in await served.server.close_ports()
        await served.server.reopen_ports()
        other = Client(world.host("c2"))
        assert (await other.call(vip_address, R.SEND_MESSAGE_V2, send_header("T"), b"x")).code == 0
        other.close()

    on_a_broker(story)


@pytest.mark.parametrize(
    "settings", [{"port": 20_000}, {"vip_channel": False}, {"port": 2}, {"name_server_port": 10_909}]
)
def test_without_a_vip_channel(settings: dict[str, int]) -> None:
    """When the VIP port is taken, impossible or switched off, the broker serves its own port alone."""

    async def scenario(world: World) -> None:
        runtime = world.host("broker")
        taken = await runtime.create_server(asyncio.Protocol, runtime.address, 19_998)
        served = await serve(runtime, **settings)
        client = Client(world.host("c1"))
        assert (await client.call(served.address, R.SEND_MESSAGE_V2, send_header("T"), b"x")).code == 0
        assert len(await served.server.close_ports()) == 2
        client.close()
        taken.close()
        await served.server.shutdown()

    simulate(scenario)


def test_a_port_in_use_is_one_line_that_says_what_to_do() -> None:
    """For either port; ports that were opened before are closed again."""

    async def scenario(world: World) -> None:
        runtime = world.host("broker")
        served = await serve(runtime)
        for settings, option in [({}, "--port"), ({"port": 0}, "--name-server-port")]:
            with pytest.raises(CannotListen, match=f"is in use.*{option} "):
                await serve(runtime, **settings)
        await served.server.shutdown()

    simulate(scenario)


def test_shutdown_delivers_what_was_answered_and_ends_what_waits() -> None:
    """A parked pull ends with its connection; a second shutdown does nothing."""

    async def story(world: World, served: Served, client: Client) -> None:
        await client.call(served.address, R.SEND_MESSAGE_V2, send_header("T"), b"x")
        pull = asyncio.ensure_future(client.call(served.address, R.PULL_MESSAGE, pull_header(1, sys_flag=WAITING)))
        await world.sleep_ms(100)
        await served.server.shutdown()
        with pytest.raises(Exception, match="ended"):
            await pull
        await served.server.shutdown()

    on_a_broker(story)
