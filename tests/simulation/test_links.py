"""Links with a bandwidth, and NATs that forget idle connections."""

import asyncio

import pytest

from lockstep.simulation import SimulationOptions, World, simulate
from tests.simulation.peers import Connected, Recorder, connect
from tests.simulation.simulated import simulated

EXACT = SimulationOptions(latency_us_min=1000, latency_us_max=1000, split_percent=0)


async def pair(world: World) -> Connected:
    return await connect(world, world.host("c1"), world.host("broker"))


async def end(client: Recorder, server: Recorder) -> None:
    for recorder in (client, server):
        recorder.transport.abort()
    await client.lost
    await server.lost


async def arrival_ms(world: World, server: Recorder, size: int) -> int:
    await world.until(lambda: len(server.received) >= size, poll_ms=1)
    return world.elapsed_ms


def test_bytes_queue_behind_each_other() -> None:
    """At 10,000 bytes/s a write of 960 bytes takes 100 ms with its headers, and the next one waits for it."""

    async def scenario(world: World) -> list[int]:
        client, server = await pair(world)
        world.set_bandwidth("c1", "broker", 10_000)
        began_ms = world.elapsed_ms
        for _ in range(3):
            client.transport.write(bytes(960))
        times = [await arrival_ms(world, server, size) - began_ms for size in (960, 1920, 2880)]
        world.set_bandwidth("c1", "broker")
        await end(client, server)
        return times

    assert simulate(scenario, options=EXACT).value == pytest.approx([102, 202, 302], abs=1)


def test_connections_share_a_link_and_directions_do_not() -> None:
    """A second connection waits for the first one; what comes back is not slowed."""

    async def scenario(world: World) -> tuple[int, int]:
        one, other = await pair(world), await pair(world)
        world.set_bandwidth("c1", "broker", 10_000)
        began_ms = world.elapsed_ms
        one[0].transport.write(bytes(9960))
        other[0].transport.write(b"x")
        one[1].transport.write(b"back")
        back_ms = await arrival_ms(world, one[0], 4) - began_ms
        forth_ms = await arrival_ms(world, other[1], 1) - began_ms
        world.set_bandwidth("c1", "broker")
        await end(*one)
        await end(*other)
        return back_ms, forth_ms

    back_ms, forth_ms = simulate(scenario, options=EXACT).value
    assert back_ms <= 3
    assert forth_ms == pytest.approx(1005, abs=3)


def test_a_change_counts_for_what_is_on_its_way() -> None:
    """After half of the bytes the link gets ten times as fast; without a limit the rest leaves at once."""

    async def scenario(world: World) -> list[int]:
        client, server = await pair(world)
        times = []
        for rate in (100_000, None):
            world.set_bandwidth("c1", "broker", 10_000)
            began_ms, before = world.elapsed_ms, len(server.received)
            client.transport.write(bytes(9960))
            await world.sleep_ms(500)
            world.set_bandwidth("c1", "broker", rate)
            times.append(await arrival_ms(world, server, before + 9960) - began_ms)
        await end(client, server)
        return times

    assert simulate(scenario, options=EXACT).value == pytest.approx([552, 502], abs=2)


def test_order_is_kept_while_the_bandwidth_changes() -> None:
    """Whatever the changes, the bytes of a connection arrive in order, by every seed."""
    sent = [bytes([number]) * (number * 37 % 500 + 1) for number in range(60)]

    async def scenario(world: World) -> None:
        client, server = await pair(world)
        for data in sent:
            client.transport.write(data)
            if world.rng.random() < 0.5:
                world.set_bandwidth("c1", "broker", world.rng.choice((None, 500, 20_000, 1_000_000)))
            await world.sleep_ms(world.rng.randrange(40))
        world.set_bandwidth("c1", "broker")
        await world.until(lambda: len(server.received) == sum(map(len, sent)))
        assert server.received == b"".join(sent)
        await end(client, server)

    for seed in range(20):
        simulate(scenario, seed=seed)


def test_new_connections_queue_too() -> None:
    """A connection request waits behind the bytes of other connections."""

    async def scenario(world: World) -> int:
        client, server = await pair(world)
        world.set_bandwidth("c1", "broker", 10_000)
        client.transport.write(bytes(19_960))
        began_ms = world.elapsed_ms
        other = await pair(world)
        took_ms = world.elapsed_ms - began_ms
        world.set_bandwidth("c1", "broker")
        await end(*other)
        await end(client, server)
        return took_ms

    assert 2000 <= simulate(scenario, options=EXACT).value <= 2030


def test_every_link_may_have_a_bandwidth_by_the_options() -> None:
    """An option limits all links between hosts, but not a host to itself."""

    async def scenario(world: World) -> tuple[int, int]:
        times = []
        for names in (("c1", "broker"), ("c1", "c1")):
            client, server = await connect(world, *map(world.host, names))
            began_ms = world.elapsed_ms
            client.transport.write(bytes(960))
            times.append(await arrival_ms(world, server, 960) - began_ms)
            await end(client, server)
        return times[0], times[1]

    slow_ms, local_ms = simulate(scenario, options=SimulationOptions(bytes_per_s=1000)).value
    assert slow_ms >= 1000
    assert local_ms <= 3


@pytest.mark.parametrize("sender", ["c1", "broker"])
def test_a_silent_nat_is_not_noticed_until_tcp_gives_up(sender: str) -> None:
    """After the idle time bytes are lost in both directions; who sent some hears of it after 15 minutes."""

    async def scenario(world: World) -> None:
        client, server = await pair(world)
        writer, reader = (client, server) if sender == "c1" else (server, client)
        world.forget_idle("c1", "broker", 10_000)
        await world.sleep_ms(9_000)
        writer.transport.write(b"in time")
        await world.until(lambda: reader.received == b"in time")
        await world.sleep_ms(10_001)
        began_ms = world.elapsed_ms
        writer.transport.write(b"too late")
        await world.sleep_ms(60_000)
        assert (reader.received, client.lost.done(), server.lost.done()) == (b"in time", False, False)
        assert isinstance(await writer.lost, TimeoutError)
        assert world.elapsed_ms - began_ms == world.options.retransmit_ms
        assert not reader.lost.done(), "it has sent nothing, so it waits for ever"
        reader.transport.abort()
        await reader.lost

    assert any("forgotten" in line for line in simulate(scenario).trace)


@simulated()
async def test_a_nat_looks_at_both_directions(world: World) -> None:
    """A connection lives on while one of its ends sends, and the other may speak at any time."""
    client, server = await pair(world)
    world.forget_idle("c1", "broker", 10_000)
    for writer, reader in ((client, server), (server, client)):
        for _ in range(3):
            await world.sleep_ms(9_000)
            writer.transport.write(b"x")
        await arrival_ms(world, reader, 3)
    await end(client, server)


@simulated()
async def test_what_a_nat_has_forgotten_is_forgotten_for_both_ends(world: World) -> None:
    """Without the NAT too: nothing of that connection arrives any more, in either direction."""
    client, server = await pair(world)
    world.forget_idle("c1", "broker", 10_000)
    await world.sleep_ms(10_100)
    client.transport.write(b"too late")
    world.forget_idle("c1", "broker", None)
    server.transport.write(b"too late as well")
    client.transport.write(b"and again")
    await world.sleep_ms(60_000)
    assert (client.received, server.received) == (b"", b"")
    await end(client, server)


@simulated()
async def test_a_nat_that_answers_tells_only_the_sender(world: World) -> None:
    """The sender gets a reset; the other side goes on waiting on its end."""
    client, server = await pair(world)
    world.forget_idle("c1", "broker", 10_000, answers=True)
    await world.sleep_ms(10_100)
    client.transport.write(b"lost")
    assert isinstance(await client.lost, ConnectionResetError)
    await world.sleep_ms(60_000)
    assert server.received == b""
    assert not server.lost.done()
    server.transport.abort()
    await server.lost


@simulated()
async def test_without_the_nat_nothing_more_is_forgotten(world: World) -> None:
    """Connections that were idle, but sent nothing while the NAT was there, live on; other links never lose any."""
    client, server = await pair(world)
    other = await connect(world, world.host("c2"), world.host("broker"))
    world.forget_idle("c1", "broker", 1_000)
    await world.sleep_ms(5_000)
    other[0].transport.write(b"known")
    await world.until(lambda: other[1].received == b"known")
    world.forget_idle("c1", "broker", None)
    client.transport.write(b"known")
    await world.until(lambda: server.received == b"known")
    await end(client, server)
    await end(*other)


@simulated()
async def test_tcp_gives_up_a_machine_that_is_off(world: World) -> None:
    """Bytes to a host that crashed with its machine are sent again for 15 minutes; then the connection ends."""
    client, _ = await pair(world)
    world.crash("broker", silently=True)
    client.transport.write(b"anyone?")
    began_ms = world.elapsed_ms
    error = await asyncio.shield(client.lost)
    assert isinstance(error, TimeoutError)
    assert world.elapsed_ms - began_ms == pytest.approx(world.options.retransmit_ms, abs=5)
