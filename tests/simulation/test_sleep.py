"""A machine that sleeps, and one whose wall clock is set."""

import asyncio

import pytest

from lockstep.simulation import World, simulate
from tests.simulation.peers import Recorder, connect
from tests.simulation.simulated import simulated


@simulated()
async def test_a_sleeping_machine_stands_still(world: World) -> None:
    """Timers have as long to go when it wakes as when it fell asleep, and so have asyncio's own; its Runtime's clocks
    count the sleep, peers go on, and what they sent is read on waking."""
    consumer, broker = world.host("c1"), world.host("broker")
    client, server = await connect(world, consumer, broker)
    log: list[tuple[str, int]] = []
    woken: list[tuple[int, int]] = []
    start = world.elapsed_ms

    def note(name: str) -> None:
        log.append((name, world.elapsed_ms - start))

    async def limited() -> None:
        try:
            async with asyncio.timeout(2):
                await asyncio.sleep(1)
                note("slept")
                await asyncio.sleep(60)
        except TimeoutError:
            note("timeout")

    consumer.on_wake(lambda slept_ms: woken.append((slept_ms, world.elapsed_ms - start)))
    end_of_watch = consumer.on_wake(lambda slept_ms: woken.append((-1, -1)))
    end_of_watch()
    consumer.call_later_ms(1_500, note, "timer")
    clocks = consumer.now_ms(), consumer.monotonic_ns()
    limiting = world.start(consumer.run(limited()), name="limited")
    await world.sleep_ms(500)
    world.suspend_for("c1", 300_000)
    broker.call_later_ms(1_000, note, "peer")
    server.transport.write(b"are you there?")
    with pytest.raises(TimeoutError):
        await broker.create_connection(Recorder, "c1", 1)
    await world.sleep_ms(299_000 - (world.elapsed_ms - start - 500))
    assert log == [("peer", 1_500)]
    assert client.received == b""
    await limiting
    assert log[1:] == [("slept", 301_000), ("timer", 301_500), ("timeout", 302_000)]
    assert woken == [(300_000, 301_500)]
    assert client.received == b"are you there?"
    passed_ms = world.elapsed_ms - start
    assert consumer.now_ms() - clocks[0] == passed_ms
    assert consumer.monotonic_ns() - clocks[1] == passed_ms * 1_000_000
    client.transport.close()
    await server.lost


def test_a_sleep_ends_with_the_host() -> None:
    """A process that is killed in its sleep never wakes; a stall within a sleep ends no earlier than the sleep."""

    async def scenario(world: World) -> list[tuple[str, int]]:
        log: list[tuple[str, int]] = []

        def note(name: str) -> None:
            log.append((name, world.elapsed_ms))

        world.host("c1").call_later_ms(100, note, "first life")
        world.suspend_for("c1", 1_000)
        await world.sleep_ms(500)
        world.crash("c1")
        world.host("c1").call_later_ms(100, note, "second life")
        await world.sleep_ms(1_000)
        world.host("c1").call_later_ms(100, note, "third")
        world.stall("c1", 300)
        world.suspend_for("c1", 1_000)
        await world.sleep_ms(5_000)
        return log

    assert simulate(scenario).value == [("second life", 600), ("third", 2_600)]


def test_a_clock_that_was_set_is_seen_by_the_next_start() -> None:
    """A running process keeps its wall clock; the one that starts after it on the machine has the new one."""

    async def scenario(world: World) -> list[int]:
        first = world.host("c1", clock_offset_ms=1_000)
        world.set_clock("c1", -3_600_000)
        offsets = [first.now_ms() - world.now_ms]
        for _ in range(2):
            world.crash("c1")
            offsets.append(world.host("c1").now_ms() - world.now_ms)
        return offsets

    assert simulate(scenario).value == [1_000, -3_600_000, -3_600_000]
