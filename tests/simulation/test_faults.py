"""What goes wrong on purpose: cuts, partitions, holds, crashes, stalls."""

import asyncio

import pytest

from lockstep.simulation import DeadlockError, HostCrashedError, SimRuntime, SimulationOptions, World, simulate
from tests.simulation.peers import Echo, Recorder, connect
from tests.simulation.simulated import simulated

SEEDS = range(20)


@simulated(seeds=SEEDS)
async def test_a_cut_resets_both_ends_and_loses_what_is_under_way(world: World) -> None:
    """ConnectionResetError on both sides in the same instant, whatever had been written just before."""
    client, server = await connect(world, world.host("c1"), world.host("broker"))
    client.transport.write(b"on its way")
    before = world.elapsed_ms
    assert world.cut("c1", "broker") == 1
    assert client.events == ["made"], "connection_lost never comes from within"
    errors = [await client.lost, await server.lost]
    assert [type(error) for error in errors] == [ConnectionResetError] * 2
    assert world.elapsed_ms == before
    await world.sleep_ms(100)
    assert server.received == b""
    assert world.cut("c1", "broker") == 0


@simulated()
async def test_a_cut_chooses_its_connections(world: World) -> None:
    """One transport, all between two hosts, or all of a host; the others live on."""
    broker, one, two = world.host("broker"), world.host("c1"), world.host("c2")
    (first, _), (second, _), (third, _) = [await connect(world, host, broker) for host in (one, one, two)]
    assert world.connections("c1", "broker") == [first.transport, second.transport]
    assert world.cut(first.transport) == 1
    await first.lost
    assert world.connections("c1", "broker") == [second.transport]
    assert world.cut("broker", "c1") == 1
    await second.lost
    assert not third.transport.is_closing()
    assert world.cut("broker") == 1
    await third.lost


@simulated(seeds=SEEDS)
async def test_a_connection_may_end_at_one_side_alone(world: World) -> None:
    """One end is reset, with the bytes under way. The other stays open and hears nothing; what it writes is lost."""
    client, server = await connect(world, world.host("c1"), world.host("broker"))
    client.transport.write(b"on its way")
    assert world.cut_one_side("c1", "broker") == 1
    assert type(await client.lost) is ConnectionResetError
    server.transport.write(b"into the void")
    await world.sleep_ms(60_000)
    assert server.events == ["made"]
    assert not server.transport.is_closing()
    assert world.cut_one_side("broker", "c1") == 1
    assert type(await server.lost) is ConnectionResetError


@simulated()
async def test_a_world_that_heals_resets_the_ends_that_hear_nothing(world: World) -> None:
    """Of a connection that ended at one side, and of one that a NAT has forgotten."""
    client, server = await connect(world, world.host("c1"), world.host("broker"))
    assert world.cut_one_side("c1", "broker") == 1
    await client.lost
    ends = await connect(world, world.host("c2"), world.host("broker"))
    world.forget_idle("c2", "broker", 1000)
    await world.sleep_ms(1100)
    ends[0].transport.write(b"lost")
    await world.sleep_ms(1000)
    assert [one.events for one in (server, *ends)] == [["made"]] * 3
    world.heal()
    errors = [await one.lost for one in (server, *ends)]
    assert [type(error) for error in errors] == [ConnectionResetError] * 3


@simulated(seeds=SEEDS)
async def test_a_partition_holds_bytes_and_repairing_delivers_them(world: World) -> None:
    """Nothing passes either way meanwhile, nothing is lost, and the order holds."""
    client, server = await connect(world, world.host("c1"), world.host("broker"))
    client.transport.write(b"under way; ")
    world.partition("broker", "c1")
    for number in range(5):
        client.transport.write(b"%d " % number)
        server.transport.write(b"%d " % number)
    await world.sleep_ms(60_000)
    assert (client.received, server.received) == (b"", b"")
    world.repair("c1", "broker")
    client.transport.write(b"after")
    await world.until(lambda: server.received.endswith(b"after") and len(client.received) == 10)
    assert server.received == b"under way; 0 1 2 3 4 after"
    client.transport.close()
    await server.lost


@simulated(options=SimulationOptions(connect_timeout_ms=20000))
async def test_connecting_into_a_partition_times_out(world: World) -> None:
    """After connect_timeout_ms; or succeeds when the partition is repaired before."""
    broker, client = world.host("broker"), world.host("c1")
    listening = await broker.create_server(Echo, "broker", 10911)
    world.partition("c1", "broker")
    with pytest.raises(TimeoutError):
        await client.create_connection(Recorder, "broker", 10911)
    assert world.elapsed_ms == 20_000
    connecting = world.start(client.create_connection(Recorder, "broker", 10911), name="connect")
    await world.sleep_ms(10_000)
    world.repair("c1", "broker")
    transport, _ = await connecting
    assert 30_000 <= world.elapsed_ms < 30_020
    transport.close()
    listening.close()


@simulated()
async def test_other_hosts_do_not_notice_a_partition(world: World) -> None:
    """It is between two hosts."""
    broker = world.host("broker")
    client, server = await connect(world, world.host("c1"), broker)
    world.host("c2")
    world.partition("c2", "broker")
    client.transport.write(b"hello")
    await world.until(lambda: server.received == b"hello", timeout_ms=100)
    client.transport.close()
    await server.lost


@simulated()
async def test_a_hold_stops_one_direction(world: World) -> None:
    """Requests arrive, replies do not, until the release."""
    client, server = await connect(world, world.host("c1"), world.host("broker"))
    world.hold("broker", "c1")
    client.transport.write(b"request")
    await world.until(lambda: server.received == b"request")
    server.transport.write(b"reply")
    await world.sleep_ms(10_000)
    assert client.received == b""
    world.release("broker", "c1")
    await world.until(lambda: client.received == b"reply", timeout_ms=100)
    client.transport.close()
    await server.lost


def test_a_deadlock_behind_a_partition_is_reported() -> None:
    """When all that could happen waits for a repair, the run fails instead of hanging."""

    async def scenario(world: World) -> None:
        client, _ = await connect(world, world.host("c1"), world.host("broker"))
        world.partition("c1", "broker")
        client.transport.write(b"never arrives")
        await client.lost

    with pytest.raises(DeadlockError, match="scenario on no host"):
        simulate(scenario)


async def work(host: SimRuntime, log: list[str], peer: Recorder) -> None:
    """What a process does: on a timer, in a task of its own, on disk, to a peer; and it would clean up."""
    file = host.storage.open_append("log")

    async def tick() -> None:
        try:
            for number in range(10_000):
                await asyncio.sleep(0.1)
                log.append("tick")
                peer.transport.write(b"tick")
                file.write(b"%d " % number)
        finally:
            log.append("cleaned up")
            file.write(b"cleaned up")
            peer.transport.write(b"bye")

    def alarm() -> None:
        log.append("alarm")
        host.call_later_ms(100, alarm)

    alarm()
    await asyncio.create_task(tick())


def test_a_crashed_host_does_nothing_more() -> None:
    """Its timers, and tasks that only asyncio knew, stop where they are, without cleaning up; its peers are reset."""

    async def scenario(world: World) -> None:
        victim, broker = world.host("c1"), world.host("broker")
        client, server = await connect(world, victim, broker)
        log: list[str] = []
        running = world.start(victim.run(work(victim, log, client)), name="victim")
        await world.sleep_ms(1_050)
        world.crash("c1")
        seen = list(log)
        with pytest.raises(HostCrashedError, match="c1 has crashed"):
            await running
        assert isinstance(await server.lost, ConnectionResetError)
        await world.sleep_ms(10_000)
        assert log == seen
        assert log.count("tick") == 10
        assert server.received == b"tick" * 10
        assert client.events == ["made"]
        assert world.disk("c1").read("log") == b"0 1 2 3 4 5 6 7 8 9 "

    outcome = simulate(scenario)
    assert "cleaned up" not in "".join(outcome.trace)


@simulated()
async def test_a_crashed_host_starts_again(world: World) -> None:
    """On the same address and disk, as another process: other pid, other identity, other chance."""
    first = world.host("broker")
    await first.create_server(Echo, "broker", 10911)
    first.storage.open_append("data/log").write(b"before;")
    drawn = first.rng.random()
    world.crash("broker")
    with pytest.raises(HostCrashedError, match=r"World.host\('broker'\)"):
        first.call_later_ms(1, print)
    with pytest.raises(HostCrashedError):
        world.crash("broker")
    with pytest.raises(ConnectionRefusedError):
        await world.host("c1").create_connection(Recorder, "broker", 10911)
    second = world.host("broker")
    assert second is not first
    assert second is world.host("broker")
    assert second.address == first.address
    assert second.new_identity().pid != first.new_identity().pid
    assert second.rng.random() != drawn
    listening = await second.create_server(Echo, "broker", 10911)
    second.storage.open_append("data/log").write(b"after")
    assert world.disk("broker").read("data/log") == b"before;after"
    transport, _ = await world.host("c1").create_connection(Recorder, "broker", 10911)
    transport.close()
    listening.close()


@simulated()
async def test_a_host_may_crash_itself(world: World) -> None:
    """What its code does after that, in the same callback, has no effect."""
    victim = world.host("c1")
    client, server = await connect(world, victim, world.host("broker"))

    async def die() -> None:
        world.crash("c1")
        client.transport.write(b"from the grave")
        victim.storage.open_append("log").write(b"from the grave")
        await asyncio.sleep(0)
        raise AssertionError("it runs on")

    with pytest.raises(HostCrashedError):
        await victim.run(die())
    await server.lost
    assert server.received == b""
    assert world.disk("c1").read("log") == b""


@simulated()
async def test_a_silent_crash_is_not_heard_of(world: World) -> None:
    """Peers keep their connections, connecting times out; when the machine is up again it resets the old ones."""
    client, server = await connect(world, world.host("c1"), world.host("broker"))
    world.crash("broker", silently=True)
    client.transport.write(b"anybody?")
    with pytest.raises(TimeoutError):
        await world.host("c1").create_connection(Recorder, "broker", 10911)
    assert client.events == ["made"]
    world.host("broker")
    client.transport.write(b"anybody now?")
    assert isinstance(await client.lost, ConnectionResetError)
    assert server.events == ["made"]


@simulated()
async def test_a_stalled_host_does_everything_later(world: World) -> None:
    """Timers, tasks and reads wait in order until the stall ends; clocks go on; the network takes bytes for it."""
    consumer, broker = world.host("c1"), world.host("broker")
    client, server = await connect(world, consumer, broker)
    log: list[tuple[str, int]] = []

    async def sleeper() -> None:
        await asyncio.sleep(1)
        log.append(("slept", world.elapsed_ms))

    start = world.elapsed_ms
    consumer.call_later_ms(1_500, lambda: log.append(("timer", consumer.now_ms() - world.options.epoch_ms)))
    sleeping = world.start(consumer.run(sleeper()), name="sleeper")
    await world.sleep_ms(500)
    world.stall("c1", 70_000)
    server.transport.write(b"are you there?")
    await world.sleep_ms(69_999)
    assert log == []
    assert client.received == b""
    await world.sleep_ms(2)
    await sleeping
    end = start + 70_500
    assert sorted(log) == [("slept", end), ("timer", end)]
    await world.until(lambda: client.received == b"are you there?", timeout_ms=20)
    client.transport.close()
    await server.lost


@simulated(options=SimulationOptions(window_bytes=10000))
async def test_a_stalled_server_still_accepts_connections(world: World) -> None:
    """As a kernel does; but its protocol sees them only later, and bytes beyond the window press back."""
    broker, client = world.host("broker"), world.host("c1")
    listening = await broker.create_server(Echo, "broker", 10911)
    world.pause("broker")
    transport, protocol = await client.create_connection(Recorder, "broker", 10911)
    assert isinstance(protocol, Recorder)
    transport.write(bytes(100_000))
    await world.sleep_ms(30_000)
    assert transport.get_write_buffer_size() == 90_000
    assert protocol.events == ["made", "pause"]
    world.resume("broker")
    await world.until(lambda: len(protocol.received) == 100_000)
    transport.close()
    listening.close()


def test_a_stall_ends_with_the_host() -> None:
    """A host that crashes while it is stalled never does what it had put off, and its next life is not paused."""

    async def scenario(world: World) -> list[str]:
        log: list[str] = []
        world.host("c1").call_later_ms(100, log.append, "first life")
        world.stall("c1", 1_000)
        await world.sleep_ms(500)
        world.crash("c1")
        world.host("c1").call_later_ms(100, log.append, "second life")
        await world.sleep_ms(5_000)
        return log

    assert simulate(scenario).value == ["second life"]


def test_power_off_ends_everything() -> None:
    """A scenario may stop in the middle of things without cleaning up."""

    async def scenario(world: World) -> None:
        victim = world.host("c1")
        client, _ = await connect(world, victim, world.host("broker"))
        victim.create_task(work(victim, [], client), name="work")
        await world.sleep_ms(1_000)
        world.power_off()

    assert simulate(scenario).elapsed_ms < 1_100


@simulated()
async def test_faults_name_hosts_that_exist(world: World) -> None:
    """A typo in a host's name is an error, not a fault without effect."""
    world.host("broker")
    for fault in (world.partition, world.repair, world.hold, world.release):
        with pytest.raises(LookupError, match="'brocker'"):
            fault("broker", "brocker")
    for fault_of_one in (world.crash, world.pause, world.resume):
        with pytest.raises(LookupError, match="'brocker'"):
            fault_of_one("brocker")
    with pytest.raises(LookupError, match="'brocker'"):
        world.cut("brocker")
