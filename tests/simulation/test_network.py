"""Connections between simulated hosts: what arrives, in which pieces, and how it ends."""

import asyncio
import random

import pytest

from lockstep.simulation import LeakError, SimulationOptions, UnhandledError, World, simulate
from tests.simulation.peers import Echo, Recorder, connect
from tests.simulation.simulated import simulated

SEEDS = range(20)


def test_bytes_arrive_in_order_whatever_the_pieces() -> None:
    """Over seeds: writes come split and joined, always whole and in order, later than they were sent."""
    sent = [random.Random(9).randbytes(size) for size in (1, 2, 4, 300, 5, 70_000, 4, 9, 200_000, 1)]

    async def scenario(world: World) -> list[bytes]:
        client, server = await connect(world, world.host("c1"), world.host("broker"))
        began = world.loop.now_ns
        for data in sent:
            client.transport.write(data)
        await world.until(lambda: len(server.received) == sum(map(len, sent)))
        assert world.loop.now_ns - began >= world.options.latency_us_min * 1000
        client.transport.close()
        await server.lost
        assert server.received == b"".join(sent)
        return server.chunks

    runs = [simulate(scenario, seed=seed).value for seed in SEEDS]
    sizes = {len(chunk) for chunks in runs for chunk in chunks}
    assert len({tuple(map(len, chunks)) for chunks in runs}) > 10, "the seed decides where bytes are split"
    assert 7 in sizes, "1 + 2 + 4 bytes, written apart, are read together"
    assert len(sizes & {1, 2, 3, 5, 6, 8, 9, 10, 11}) > 3, "splits fall within lengths and headers"


@pytest.mark.long
def test_every_place_to_split_is_met() -> None:
    """A small frame is split at each of its bytes by one seed or another."""
    frame = bytes(range(24))

    async def scenario(world: World) -> int:
        client, server = await connect(world, world.host("c1"), world.host("broker"))
        client.transport.write(frame)
        await world.until(lambda: server.received == frame)
        client.transport.close()
        await server.lost
        return len(server.chunks[0])

    options = SimulationOptions(split_percent=100)
    firsts = {simulate(scenario, seed=seed, options=options).value for seed in range(400)}
    assert firsts == set(range(1, 24))


def test_what_is_written_is_copied_at_once() -> None:
    """A buffer may be used again after write; writelines takes all kinds of bytes."""

    async def scenario(world: World) -> bytes:
        client, server = await connect(world, world.host("c1"), world.host("broker"))
        buffer = bytearray(b"first")
        client.transport.write(buffer)
        buffer[:] = b"wrong"
        client.transport.writelines([b"-", bytearray(b"second"), memoryview(b"-third.")[:6]])
        await world.until(lambda: len(server.received) == 18)
        client.transport.close()
        await server.lost
        return server.received

    assert simulate(scenario).value == b"first-second-third"


@simulated()
async def test_addresses_are_told(world: World) -> None:
    """Both ends know the other's address, and each other's match."""
    client, server = await connect(world, world.host("c1"), world.host("broker"))
    local, remote = (client.transport.get_extra_info(name) for name in ("sockname", "peername"))
    assert local == server.transport.get_extra_info("peername")
    assert remote == server.transport.get_extra_info("sockname")
    assert (local[0], remote[0]) == (world.host("c1").address, world.host("broker").address)
    client.transport.close()
    await server.lost


def test_nobody_listens() -> None:
    """A port without a listener refuses, an unknown name is unreachable, loopback is the host's own."""

    async def scenario(world: World) -> int:
        broker, client = world.host("broker"), world.host("c1")
        with pytest.raises(ConnectionRefusedError):
            await client.create_connection(Recorder, "broker", 10911)
        with pytest.raises(OSError, match="no host of the simulation is 'elsewhere'"):
            await client.create_connection(Recorder, "elsewhere", 10911)
        private = await broker.create_server(Echo, "127.0.0.1", 10911)
        with pytest.raises(ConnectionRefusedError):
            await client.create_connection(Recorder, "broker", 10911)
        transport, _ = await broker.create_connection(Recorder, "localhost", 10911)
        transport.close()
        private.close()
        await private.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await broker.create_connection(Recorder, "127.0.0.1", 10911)
        return world.elapsed_ms

    assert simulate(scenario).value < 20


@simulated()
async def test_ports_are_taken_and_given(world: World) -> None:
    """Port 0 gives a free one; a taken one is refused; a closed one is free; hosts do not share ports."""
    broker, other = world.host("broker"), world.host("b2")
    first = await broker.create_server(Echo, "0.0.0.0", 0)
    second = await broker.create_server(Echo, "0.0.0.0", 0)
    assert first.port != second.port
    with pytest.raises(OSError, match="attempting to bind"):
        await broker.create_server(Echo, broker.address, first.port)
    with pytest.raises(OSError, match="is not an address of"):
        await broker.create_server(Echo, "b2", 0)
    elsewhere = await other.create_server(Echo, "b2", first.port)
    first.close()
    again = await broker.create_server(Echo, "broker", first.port)
    for listening in (second, elsewhere, again):
        listening.close()


def test_a_reader_that_pauses_pauses_the_writer() -> None:
    """Unread bytes fill the window, then the write buffer, whose marks pause and resume the writing protocol."""
    options = SimulationOptions(window_bytes=10_000)

    async def scenario(world: World) -> None:
        client, server = await connect(world, world.host("c1"), world.host("broker"))
        transport = client.transport
        transport.set_write_buffer_limits(high=4_000, low=1_000)
        assert transport.get_write_buffer_limits() == (1_000, 4_000)
        server.transport.pause_reading()
        written = 0
        while "pause" not in client.events:
            transport.write(bytes(500))
            written += 500
            await world.sleep_ms(5)
        assert server.received == b""
        assert transport.get_write_buffer_size() == 4_500
        assert written == 14_500, "a window and a little over the high-water mark"
        server.transport.resume_reading()
        await world.until(lambda: len(server.received) == written)
        assert client.events == ["made", "pause", "resume"]
        transport.close()
        await server.lost

    for seed in SEEDS:
        simulate(scenario, seed=seed, options=options)


def test_pausing_within_data_received_holds() -> None:
    """A protocol that pauses while it reads gets nothing more until it resumes, though bytes are waiting."""

    class PausingReader(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.transport.pause_reading()

    async def scenario(world: World) -> None:
        readers: list[PausingReader] = []

        def accept() -> PausingReader:
            readers.append(PausingReader())
            return readers[0]

        listening = await world.host("broker").create_server(accept, "broker", 0)
        transport, _ = await world.host("c1").create_connection(Recorder, "broker", listening.port)
        transport.write(bytes(10))
        await world.sleep_ms(10)
        transport.write(bytes(1_000))
        await world.sleep_ms(100)
        reads = 0
        while len(readers[0].received) < 1_010:
            assert len(readers[0].chunks) == reads + 1
            readers[0].transport.resume_reading()
            await world.sleep_ms(10)
            reads += 1
        listening.close()
        transport.close()
        readers[0].transport.resume_reading()
        await listening.wait_closed()

    for seed in SEEDS:
        simulate(scenario, seed=seed)


@simulated(seeds=SEEDS, options=SimulationOptions(window_bytes=1000))
async def test_close_sends_what_was_written(world: World) -> None:
    """Also when the window is smaller than it; connection_lost comes after, once, on both ends."""
    client, server = await connect(world, world.host("c1"), world.host("broker"))
    client.transport.write(bytes(50_000))
    client.transport.close()
    client.transport.close()
    assert client.transport.is_closing()
    assert client.events == ["made"], "connection_lost never comes from within close()"
    client.transport.write(b"too late")
    await asyncio.gather(client.lost, server.lost)
    assert len(server.received) == 50_000
    assert client.events == ["made", "lost"]
    assert server.events[-2:] == ["eof", "lost"]


@simulated(options=SimulationOptions(window_bytes=1000))
async def test_abort_drops_what_was_not_sent(world: World) -> None:
    """connection_lost(None) follows at once, and the peer's end comes before all the bytes did."""
    client, server = await connect(world, world.host("c1"), world.host("broker"))
    client.transport.write(bytes(50_000))
    client.transport.abort()
    assert client.transport.get_write_buffer_size() == 0
    assert await client.lost is None
    await server.lost
    assert len(server.received) == 1_000


def test_a_protocol_that_fails_loses_its_connection() -> None:
    """An exception in data_received closes the connection with it, and fails the run unless it is expected."""

    class Failing(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ValueError("cannot read this")

    async def scenario(world: World) -> None:
        listening = await world.host("broker").create_server(Failing, "broker", 0)
        _, client = await world.host("c1").create_connection(Recorder, "broker", listening.port)
        assert isinstance(client, Recorder)
        client.transport.write(b"anything")
        assert await client.lost is None
        assert client.events == ["made", "eof", "lost"]
        listening.close()

    with pytest.raises(UnhandledError, match="cannot read this"):
        simulate(scenario)
    simulate(scenario, errors_allowed=True)


@simulated()
async def test_only_bytes_are_written(world: World) -> None:
    """As on a real transport."""
    client, server = await connect(world, world.host("c1"), world.host("broker"))
    with pytest.raises(TypeError, match="bytes-like"):
        client.transport.write("text")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be >="):
        client.transport.set_write_buffer_limits(high=1, low=2)
    client.transport.close()
    await server.lost


@simulated()
async def test_a_cancelled_connect_leaves_nothing(world: World) -> None:
    """Whenever it is cancelled: before, while or after the other side accepted."""
    broker, client = world.host("broker"), world.host("c1")
    accepted: list[Recorder] = []

    def accept() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    listening = await broker.create_server(accept, "broker", 0)
    for delay_us in range(0, 4_500, 50):
        connecting = client.create_task(client.create_connection(Recorder, "broker", listening.port), name="connect")
        await asyncio.sleep(delay_us / 1e6)
        if connecting.done():
            connecting.result()[0].close()
        else:
            connecting.cancel()
    await world.sleep_ms(50)
    assert 0 < len(accepted) < 90
    assert all(recorder.events[-1] == "lost" for recorder in accepted)
    listening.close()


@simulated()
async def test_wait_closed_waits_for_the_connections(world: World) -> None:
    """A closed listener takes no new connections, keeps those it has, and is closed when they are."""
    broker, client = world.host("broker"), world.host("c1")
    listening = await broker.create_server(Echo, "broker", 0)
    transport, protocol = await client.create_connection(Recorder, "broker", listening.port)
    assert isinstance(protocol, Recorder)
    await world.sleep_ms(10)
    listening.close()
    waiting = world.start(listening.wait_closed(), name="wait")
    with pytest.raises(ConnectionRefusedError):
        await client.create_connection(Recorder, "broker", listening.port)
    transport.write(b"still here")
    await world.until(lambda: protocol.received == b"still here")
    assert not waiting.done()
    transport.close()
    await waiting


def test_connections_and_listeners_left_open_are_leaks() -> None:
    """Both ends, and the listener, are named."""

    async def scenario(world: World) -> None:
        await world.host("broker").create_server(Echo, "broker", 10911)
        await world.host("c1").create_connection(Recorder, "broker", 10911)

    with pytest.raises(LeakError) as caught:
        simulate(scenario)
    assert "connection broker:10911 -> c1:32768" in str(caught.value)
    assert "connection c1:32768 -> broker:10911" in str(caught.value)
    assert "listener broker:10911" in str(caught.value)
