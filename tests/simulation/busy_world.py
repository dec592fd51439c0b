"""A scenario with something of everything, run as a program: prints a trace hash for each seed.

`python busy_world.py ballast seed...`: the ballast moves memory addresses, and with them whatever depends on them.
With the seed "careless" it prints what a program does that iterates over a set of strings.
"""

import asyncio
import sys

from lockstep.simulation import SimRuntime, World, simulate

HOSTS = ("c1", "c2", "c3")


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Counter(asyncio.Protocol):
    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._count = 0

    def data_received(self, data: bytes) -> None:
        self._count += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._world.record(f"{self._name} read {self._count} {type(exc).__name__}")


async def client(world: World, runtime: SimRuntime) -> None:
    """Writes for a minute, connecting again whenever it must."""
    pool = runtime.new_worker_pool("listener", 2)
    while world.elapsed_ms < 60_000:
        try:
            transport, _ = await runtime.create_connection(lambda: Counter(world, runtime.name), "broker", 10911)
        except OSError as error:
            world.record(f"{runtime.name} {type(error).__name__}")
            await asyncio.sleep(runtime.rng.random())
            continue
        while not transport.is_closing() and world.elapsed_ms < 60_000:
            transport.write(runtime.rng.randbytes(runtime.rng.randrange(1, 3_000)))
            await pool.submit(lambda: runtime.rng.random())
            await asyncio.sleep(runtime.rng.random() / 10)
        transport.close()


async def sleep_and_tell(world: World, number: int) -> None:
    try:
        await asyncio.sleep(world.rng.random())
    finally:
        world.record(f"task {number}")


async def serve(world: World) -> None:
    broker = world.host("broker")
    listening = await broker.run(broker.create_server(Echo, "0.0.0.0", 10911))
    await world.sleep_ms(25_000 if world.host("broker").host.generation == 1 else 100_000)
    listening.close()


async def scenario(world: World) -> None:
    server = world.start(serve(world), name="server")
    await world.sleep_ms(1)
    clients = [world.start(world.host(name).run(client(world, world.host(name))), name=name) for name in HOSTS]
    await world.sleep_ms(5_000)
    world.cut("c1", "broker")
    world.stall("c2", 7_000)
    world.partition("c3", "broker")
    await world.sleep_ms(10_000)
    world.repair("c3", "broker")
    world.crash("broker")
    server.cancel()
    await world.sleep_ms(2_000)
    server = world.start(serve(world), name="server again")
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(sleep_and_tell(world, number))
            await world.sleep_ms(300)
            raise ValueError("cancel the others")
    except* ValueError:
        world.record("cancelled")
    done, _ = await asyncio.wait([*clients, *(world.start(asyncio.sleep(1), name=f"s{n}") for n in range(20))])
    for task in done:
        world.record(task.get_name())
    server.cancel()
    world.power_off()


async def careless(world: World) -> None:
    for name in {f"queue-{number}" for number in range(50)}:
        world.record(name)


def main(ballast: str, *seeds: str) -> None:
    kept = [[object() for _ in range(number % 7)] for number in range(int(ballast))]
    for seed in seeds:
        if seed == "careless":
            print(simulate(careless).trace_hash)
        else:
            outcome = simulate(scenario, seed=int(seed))
            print(outcome.trace_hash, outcome.steps)
    assert len(kept) == int(ballast)


if __name__ == "__main__":
    main(*sys.argv[1:])
