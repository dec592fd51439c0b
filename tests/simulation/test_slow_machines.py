"""Machines that are not as they should be: clocks that drift, slow processors, slow and hanging disks."""

import asyncio
from typing import Any

import pytest

from lockstep.simulation import SimRuntime, World, simulate
from lockstep.simulation.machine.clock import Clock
from lockstep.simulation.virtual_time.loop import START_NS
from tests.simulation.simulated import simulated


def test_a_clock_knows_which_virtual_time_it_showed() -> None:
    """Over several rates, forth and back, to the nanosecond."""
    clock, shown = Clock(), dict[int, int]()
    rates = {0: 500_000, 1000: -200_000, 3000: 0}
    for at in (0, 500, 1000, 2000, 3000, 4000):
        if at in rates:
            clock.set_ppm(rates[at], START_NS + at)
        shown[at] = clock.read_ns(START_NS + at) - START_NS
    assert shown == {0: 0, 500: 750, 1000: 1500, 2000: 2300, 3000: 3100, 4000: 4100}
    assert [clock.virtual_ns(START_NS + at) - START_NS for at in shown.values()] == list(shown)
    assert clock.virtual_ns(START_NS - 7) == START_NS - 7


@pytest.mark.parametrize("ppm", [100_000, -100_000])
def test_clocks_and_timers_of_a_machine_drift(ppm: int) -> None:
    """All clocks of the machine run fast or slow by the same rate, also for timers that were set before."""

    async def scenario(world: World) -> list[float]:
        host, right = world.host("c1"), world.host("c2")
        fired: list[float] = []

        def note() -> None:
            fired.append((world.loop.now_ns - began_ns) / 1e9)

        def work() -> None:
            host.block_ms(10_000)

        async def wait() -> None:
            await asyncio.gather(asyncio.sleep(10), host.new_worker_pool("listener", 1).submit(work))
            note()
            loop = asyncio.get_running_loop()
            loop.call_at(loop.time() + 10, note)

        began_ns = world.loop.now_ns
        host.call_later_ms(10_000, note)
        world.set_drift("c1", ppm)
        host.create_task(wait(), name="wait")
        before = host.now_ms(), host.monotonic_ns(), right.now_ms()
        await world.sleep_ms(1_000_000)
        rate = 1 + ppm / 1e6
        assert host.now_ms() - before[0] == pytest.approx(1_000_000 * rate, abs=1)
        assert host.monotonic_ns() - before[1] == 1_000_000_000_000 * (1_000_000 + ppm) // 1_000_000
        assert right.now_ms() - before[2] == 1_000_000
        return [seconds * rate for seconds in fired]

    assert simulate(scenario).value == pytest.approx([10, 10, 20], abs=1e-6)


@simulated()
async def test_a_drift_may_end_and_stays_with_the_machine(world: World) -> None:
    """What a clock has gained stays; the next process on the machine has the same clock; sleep counts by its rate."""
    host = world.host("c1")
    epoch_ms = host.now_ms()
    world.set_drift("c1", 100_000)
    await world.sleep_ms(10_000)
    world.set_drift("c1", 0)
    await world.sleep_ms(10_000)
    assert host.now_ms() - epoch_ms == 21_000
    world.set_drift("c1", 100_000)
    world.crash("c1")
    host = world.host("c1")
    await world.sleep_ms(10_000)
    assert host.now_ms() - epoch_ms == 32_000
    fired: list[int] = []
    host.call_later_ms(1_100, lambda: fired.append(world.elapsed_ms))
    world.suspend("c1")
    await world.sleep_ms(10_000)
    world.set_drift("c1", -500_000)
    await world.sleep_ms(10_000)
    world.wake("c1")
    assert host.now_ms() - epoch_ms == 32_000 + 11_000 + 5_000
    await world.sleep_ms(5_000)
    assert fired == [30_000 + 20_000 + 2_200]


@simulated()
async def test_a_slow_processor_takes_time_for_each_callback(world: World) -> None:
    """Callbacks keep their order, one after the other; those of another host do not wait."""
    ran: list[tuple[str, int]] = []

    def work(host: SimRuntime, number: int) -> None:
        ran.append((host.name, world.elapsed_ms))
        if number:
            asyncio.get_running_loop().call_soon(work, host, number - 1)

    world.slow_cpu("c1", 5_000)
    for name in ("c1", "c2"):
        host = world.host(name)
        for _ in range(2):
            host.call_later_ms(10, work, host, 1)
    await world.sleep_ms(100)
    assert [at for name, at in ran if name == "c2"] == [10] * 4
    assert [at for name, at in ran if name == "c1"] == [10, 15, 20, 25]


@pytest.mark.parametrize("stop", ["pause", "suspend"])
def test_a_slow_processor_stops_with_its_host(stop: str) -> None:
    """Callbacks of a host that is paused or asleep wait, keep their order, and are lost at a crash."""

    async def scenario(world: World) -> list[str]:
        ran: list[str] = []
        host = world.host("c1")
        world.slow_cpu("c1", 10_000)
        for number in range(6):
            host.call_later_ms(1, ran.append, f"{number}")
        await world.sleep_ms(15)
        getattr(world, stop)("c1")
        await world.sleep_ms(500)
        assert ran == ["0", "1"]
        getattr(world, "resume" if stop == "pause" else "wake")("c1")
        host.call_later_ms(0, ran.append, "new")
        await world.sleep_ms(25)
        world.slow_cpu("c1", 0)
        host.call_later_ms(0, ran.append, "last")
        await world.sleep_ms(1)
        world.slow_cpu("c1", 10_000)
        host.call_later_ms(0, ran.append, "never")
        world.crash("c1")
        host = world.host("c1")
        host.call_later_ms(0, ran.append, "still slow")
        host.call_later_ms(0, lambda: ran.append(str(world.elapsed_ms)))
        began_ms = world.elapsed_ms
        await world.sleep_ms(20)
        assert ran.pop() == str(began_ms + 10)
        return ran

    assert simulate(scenario).value == ["0", "1", "2", "3", "4", "5", "new", "last", "still slow"]


def test_errors_on_a_slow_processor_are_reported() -> None:
    """An exception of a callback reaches the handler, and the next callback runs."""

    async def scenario(world: World) -> list[str]:
        host, ran = world.host("c1"), list[str]()
        world.slow_cpu("c1", 10)
        host.call_later_ms(1, lambda: 1 // 0)
        host.call_later_ms(1, ran.append, "next")
        await world.sleep_ms(10)
        assert isinstance(world.loop.errors[0]["exception"], ZeroDivisionError)
        return ran

    assert simulate(scenario, errors_allowed=True).value == ["next"]


def test_resumed_callbacks_run_before_newer_ones() -> None:
    """call_soon keeps its order: what waited for a resume runs before what was scheduled after it."""

    async def scenario(world: World) -> list[int]:
        host, ran = world.host("c1"), list[int]()
        host.call_later_ms(1, ran.append, 1)
        world.stall("c1", 10)
        host.call_later_ms(10, ran.append, 2)
        await world.sleep_ms(20)
        return ran

    assert simulate(scenario).value == [1, 2]


# Disks -------------------------------------------------------------------------------------------------------


async def write_and_sync(host: SimRuntime, data: bytes) -> None:
    pool = host.new_worker_pool("disk", 1)

    def job() -> None:
        file = host.storage.open_file("log", create=True)
        file.write_at(file.size_bytes(), data)
        file.sync()
        host.storage.sync_dir(".")
        file.write_at(file.size_bytes(), b".")

    await pool.submit(job)


def test_a_slow_disk_is_late_and_keeps_the_process_at_reads() -> None:
    """Syncs and reads of a job take their time beside the loop; a read on the loop keeps all callbacks."""

    async def scenario(world: World) -> tuple[list[int], list[int]]:
        host, times, ticks = world.host("broker"), list[int](), list[int]()
        await host.run(write_and_sync(host, b"old"))
        world.slow_disk("broker", sync_ms=30, read_ms=40)

        async def run() -> None:
            began_ms = world.elapsed_ms
            await write_and_sync(host, b"new")
            times.append(world.elapsed_ms - began_ms)
            pool = host.new_worker_pool("disk", 1)
            await pool.submit(lambda: host.storage.read_file("log"))
            times.append(world.elapsed_ms - began_ms)
            host.storage.read_file("log")
            host.call_later_ms(1, lambda: ticks.append(world.elapsed_ms - began_ms))
            await asyncio.sleep(0)
            times.append(world.elapsed_ms - began_ms)

        await host.run(run())
        await world.sleep_ms(10)
        world.slow_disk("broker", sync_ms=0)
        await host.run(write_and_sync(host, b"fast"))
        return times, ticks

    assert simulate(scenario).value == ([60, 100, 140], [140])


@simulated(seeds=range(10))
async def test_a_hanging_disk_answers_when_it_is_released(world: World) -> None:
    """A sync does not return while the disk hangs; nothing is durable until then; the job goes on afterwards."""
    host = world.host("broker")
    world.hang_disk("broker")
    task = host.create_task(write_and_sync(host, b"data"), name="write")
    await world.sleep_ms(50_000)
    assert not task.done()
    host.storage.read_file("log")  # from the page cache
    world.release_disk("broker")
    await world.sleep_ms(1)
    assert task.done()
    world.power_cut("broker")
    assert world.disk("broker").read("log")[:4] == b"data"


@pytest.mark.parametrize("end", ["crash", "power_cut"])
def test_what_hangs_is_lost_with_the_process(end: str) -> None:
    """A process that ends while the disk hangs never did what comes after the sync; a power cut may take the rest."""

    async def scenario(world: World) -> bytes:
        host: Any = world.host("broker")
        await host.run(write_and_sync(host, b"old"))
        world.hang_disk("broker")
        host.create_task(write_and_sync(host, b"new"), name="write")
        await world.sleep_ms(1000)
        getattr(world, end)("broker")
        world.release_disk("broker")
        await world.sleep_ms(1000)
        return world.disk("broker").read("log")

    found = {simulate(scenario, seed=seed).value for seed in range(30)}
    if end == "crash":
        assert found == {b"old.new"}
    else:
        assert all(data.startswith(b"old") and not data.endswith(b"new.") for data in found)
        assert len(found) > 1, "by the seed the unsynced bytes are there or not"
