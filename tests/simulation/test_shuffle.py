"""The order of what happens at once, by the seed."""

import asyncio

import pytest

from lockstep.simulation import SimRuntime, SimulationOptions, World, simulate
from tests.simulation import busy_world
from tests.simulation.peers import Echo, Recorder

SHUFFLED = SimulationOptions(shuffle_us=1000)
SEEDS = range(40)


def orders(scenario: object, seeds: range = SEEDS) -> set[str]:
    return {simulate(scenario, seed=seed, options=SHUFFLED).value for seed in seeds}  # type: ignore[arg-type]


def test_hosts_take_turns_by_the_seed() -> None:
    """Timers of three hosts that are due at one instant fire in each of the six orders."""

    async def scenario(world: World) -> str:
        ran: list[str] = []
        for name in "abc":
            world.host(name).call_later_ms(10, ran.append, name)
        await world.sleep_ms(20)
        return "".join(ran)

    assert orders(scenario) == {"abc", "acb", "bac", "bca", "cab", "cba"}
    assert simulate(scenario, seed=3).value == "abc", "without the option as they were set"


def test_a_host_with_a_low_priority_waits_until_others_are_idle() -> None:
    """All callbacks that one host has at an instant may run before the first one of another."""

    async def scenario(world: World) -> str:
        ran: list[str] = []

        async def work(name: str) -> None:
            for _ in range(3):
                ran.append(name)
                await asyncio.sleep(0)

        for name in "ab":
            world.host(name).create_task(work(name), name=name)
        await world.sleep_ms(20)
        return "".join(ran)

    found = orders(scenario)
    assert {"aaabbb", "bbbaaa"} <= found
    assert found & {"abbbaa", "aabbba", "baaabb", "bbaaab"}, "a change of priorities comes in between"


def test_timers_of_one_instant_change_places_and_others_do_not() -> None:
    """Two timers for the same nanosecond fire in both orders; one that is due earlier always comes first."""

    async def scenario(world: World) -> str:
        host, ran = world.host("c1"), list[str]()
        loop = asyncio.get_running_loop()

        async def set_timers() -> None:
            when = loop.time() + 0.01
            for name, seconds in (("x", 0.0), ("y", 0.0), ("later", 0.0003)):
                loop.call_at(when + seconds, ran.append, name)

        await host.run(set_timers())
        await world.sleep_ms(20)
        return " ".join(ran)

    assert orders(scenario) == {"x y later", "y x later"}


def test_call_soon_keeps_its_order() -> None:
    """Callbacks of one host run in the order of call_soon, by every seed."""

    async def scenario(world: World) -> str:
        ran: list[str] = []

        async def soon(name: str) -> None:
            loop = asyncio.get_running_loop()
            for number in range(9):
                loop.call_soon(ran.append, f"{name}{number}")

        for name in "ab":
            world.host(name).create_task(soon(name), name=name)
        await world.sleep_ms(20)
        return " ".join(ran)

    for order in orders(scenario):
        for name in "ab":
            assert [one[1] for one in order.split() if one[0] == name] == list("012345678")


def test_reads_of_different_connections_change_places() -> None:
    """Bytes that arrive at a host at once are read in any order of connections; those of one stay in order."""

    async def scenario(world: World) -> str:
        broker, read = world.host("broker"), list[str]()

        class Reader(Recorder):
            def data_received(self, data: bytes) -> None:
                super().data_received(data)
                read.append(data.decode())

        listening = await broker.create_server(Reader, "0.0.0.0", 9)
        clients = [(await world.host(name).create_connection(Recorder, "broker", 9))[1] for name in "abc"]
        for client, name in zip(clients, "abc", strict=True):
            assert isinstance(client, Recorder)
            client.transport.write(f"{name}1".encode())
        await world.sleep_ms(10)
        for client, name in zip(clients, "abc", strict=True):
            assert isinstance(client, Recorder)
            client.transport.write(f"{name}2".encode())
            client.transport.close()
        await world.sleep_ms(20)
        listening.close()
        return " ".join(read)

    options = SimulationOptions(shuffle_us=1000, latency_us_min=500, latency_us_max=500, split_percent=0)
    found = {simulate(scenario, seed=seed, options=options).value for seed in SEEDS}
    assert {order.split()[0] for order in found} == {"a1", "b1", "c1"}
    for order in found:
        for name in "abc":
            assert order.index(f"{name}1") < order.index(f"{name}2")


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.rotating) for seed in range(2, 6))])
def test_shuffled_runs_are_equal_for_equal_seeds(seed: int) -> None:
    """Two runs of a seed have one hash, and another one than without the option."""
    runs = [simulate(busy_world.scenario, seed=seed, options=SHUFFLED).trace_hash for _ in range(2)]
    assert runs[0] == runs[1] != simulate(busy_world.scenario, seed=seed).trace_hash


def test_bytes_stay_in_order_while_all_else_is_shuffled() -> None:
    """An echo of many writes over several connections comes back whole, by every seed."""
    sent = [bytes([number]) * (1 + number * 41 % 900) for number in range(40)]

    async def talk(world: World, host: SimRuntime) -> bytes:
        _, client = await host.create_connection(Recorder, "broker", 9)
        assert isinstance(client, Recorder)
        for data in sent:
            client.transport.write(data)
            await asyncio.sleep(0.0004)
        await world.until(lambda: len(client.received) == sum(map(len, sent)))
        client.transport.close()
        return client.received

    async def scenario(world: World) -> None:
        listening = await world.host("broker").create_server(Echo, "0.0.0.0", 9)
        for received in await asyncio.gather(*(world.host(name).run(talk(world, world.host(name))) for name in "abc")):
            assert received == b"".join(sent)
        listening.close()

    for seed in range(15):
        simulate(scenario, seed=seed, options=SHUFFLED)
