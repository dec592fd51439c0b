"""The Runtime of a simulated host: clocks, chance, identity, workers, storage."""

import asyncio
import re
import sys
import threading
from functools import partial

import pytest

from lockstep.remoting.host.runtime import Runtime
from lockstep.simulation import LimitError, SimRuntime, SimulationOptions, World, simulate
from tests.simulation.simulated import simulated


def test_it_is_a_runtime() -> None:
    """The type checker holds SimRuntime to the protocol; every public name of it is there."""

    def as_runtime(runtime: SimRuntime) -> Runtime:
        return runtime

    async def scenario(world: World) -> list[str]:
        runtime = as_runtime(world.host("broker"))
        return [name for name in vars(Runtime) if not name.startswith("_") and not hasattr(runtime, name)]

    assert simulate(scenario).value == []


@simulated(options=SimulationOptions(epoch_ms=1000000))
async def test_clocks(world: World) -> None:
    """The wall clock starts at the epoch of the options plus the host's offset; both clocks move with virtual time."""
    one, other = world.host("c1"), world.host("c2", clock_offset_ms=-5_000)
    assert (one.now_ms(), other.now_ms()) == (1_000_000, 995_000)
    began = one.monotonic_ns()
    await asyncio.sleep(61.0005)
    assert (one.now_ms(), other.now_ms(), world.now_ms) == (1_061_000, 1_056_000, 1_061_000)
    assert one.monotonic_ns() - began == 61_000_500_000
    assert one.monotonic_ns() == other.monotonic_ns()


def test_timers_are_exact_and_can_be_cancelled() -> None:
    """call_later_ms counts whole milliseconds, without a float's remainder."""

    async def scenario(world: World) -> list[int]:
        runtime = world.host("c1")
        fired: list[int] = []
        for delay_ms in (60_001, 60_000, 1, 0):
            runtime.call_later_ms(delay_ms, lambda: fired.append(runtime.now_ms() - world.options.epoch_ms))
        runtime.call_later_ms(30, fired.append, -1).cancel()
        await world.sleep_ms(100_000)
        return fired

    assert simulate(scenario).value == [0, 1, 60_000, 60_001]


def test_identities_differ() -> None:
    """Between hosts, lives and calls; and are the same in the next run."""

    async def scenario(world: World) -> list[str]:
        runtimes = [world.host(name) for name in ("c1", "c2", "c3")]
        world.crash("c3")
        runtimes.append(world.host("c3"))
        seen = [runtime.new_identity() for runtime in runtimes for _ in range(3)]
        assert len(set(seen)) == 12
        assert len({(identity.pid, identity.serial) for identity in seen}) == 12
        assert all(identity.host == runtime.address for identity, runtime in zip(seen[::3], runtimes, strict=True))
        return [str(identity) for identity in seen]

    assert simulate(scenario).value == simulate(scenario, seed=5).value


def test_chance_comes_from_the_seed() -> None:
    """Each host draws its own numbers, another seed gives others, and a host does not disturb another."""

    async def scenario(world: World) -> list[float]:
        return [world.host(name).rng.random() for name in ("c1", "c2")]

    async def busier(world: World) -> float:
        world.host("c0").rng.random()
        return world.host("c1").rng.random()

    first, second = simulate(scenario, seed=1).value
    assert first != second
    assert simulate(scenario, seed=1).value == [first, second]
    assert simulate(scenario, seed=2).value[0] != first
    assert simulate(busier, seed=1).value == first


def test_workers_run_plain_functions_on_the_loop() -> None:
    """In order, in this thread, not within submit, and without a running loop, as in a real worker's thread."""

    async def scenario(world: World) -> None:
        pool = world.host("c1").new_worker_pool("listener", 2)
        ran: list[int] = []
        futures = [pool.submit(partial(ran.append, number)) for number in range(5)]
        assert ran == []
        await asyncio.gather(*futures)
        assert ran == [0, 1, 2, 3, 4]
        assert await pool.submit(lambda: "result") == "result"
        assert await pool.submit(threading.get_ident) == threading.get_ident()
        with pytest.raises(RuntimeError, match="no running event loop"):
            await pool.submit(asyncio.get_running_loop)
        with pytest.raises(ZeroDivisionError):
            await pool.submit(lambda: 1 // 0)
        with pytest.raises(SystemExit):
            await pool.submit(sys.exit)
        pool.close()
        with pytest.raises(RuntimeError, match="the worker pool is closed"):
            pool.submit(str)

    assert simulate(scenario).elapsed_ms == 0


def test_jobs_take_time_and_threads() -> None:
    """With job_ms, no more jobs run at once than there are threads; resize counts from then on."""

    async def scenario(world: World) -> list[int]:
        runtime = world.host("c1")
        runtime.job_ms = 100
        pool = runtime.new_worker_pool("listener", 2)
        ends: list[int] = []
        futures = [pool.submit(str) for _ in range(7)]
        for future in futures:
            future.add_done_callback(lambda _: ends.append(world.elapsed_ms))
        await world.sleep_ms(150)
        pool.resize(3)
        await asyncio.gather(*futures)
        pool.close()
        return ends

    assert simulate(scenario).value == [100, 100, 200, 200, 250, 300, 300]


def test_a_crash_ends_jobs() -> None:
    """A job that has not begun never runs, and nobody learns the outcome of one that has."""

    async def scenario(world: World) -> list[int]:
        runtime = world.host("c1")
        runtime.job_ms = 1_000
        pool = runtime.new_worker_pool("listener", 1)
        ran: list[int] = []
        futures = [pool.submit(partial(ran.append, number)) for number in range(3)]
        await world.sleep_ms(500)
        world.crash("c1")
        await world.sleep_ms(10_000)
        assert not any(future.done() for future in futures)
        return ran

    assert simulate(scenario).value == [0]


@simulated()
async def test_storage_keeps_what_was_written(world: World) -> None:
    """Appending goes on where another handle stopped; a closed handle refuses; reading a missing file says so."""
    runtime = world.host("c1")
    for text in (b"one\n", b"two\n"):
        file = runtime.storage.open_append("traces/c1.jsonl")
        file.write(text)
        file.close()
        with pytest.raises(ValueError, match="closed"):
            file.write(b"late")
    assert runtime.disk is world.disk("c1")
    assert runtime.disk.paths() == ["traces/c1.jsonl"]
    assert runtime.disk.read("traces/c1.jsonl") == b"one\ntwo\n"
    with pytest.raises(FileNotFoundError, match=r"other\.jsonl"):
        runtime.disk.read("other.jsonl")


def test_run_hands_on_results_failures_and_cancellation() -> None:
    """Awaiting on a host is like awaiting."""

    async def answer() -> int:
        await asyncio.sleep(1)
        return 42

    async def fail() -> None:
        raise KeyError("gone")

    async def scenario(world: World) -> None:
        runtime = world.host("c1")
        assert await runtime.run(answer()) == 42
        with pytest.raises(KeyError):
            await runtime.run(fail())
        task = world.start(runtime.run(asyncio.sleep(100)), name="cancelled")
        await world.sleep_ms(10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert simulate(scenario).elapsed_ms == 1_010


@simulated()
async def test_until_waits_and_gives_up(world: World) -> None:
    """A condition that comes true ends the wait; one that never does is named."""
    seen: list[int] = []
    world.host("c1").call_later_ms(5_003, seen.append, 1)
    await world.until(lambda: seen)
    assert world.elapsed_ms == 5_010
    with pytest.raises(LimitError, match=r"after 200 ms still false: test_until_waits_and_gives_up.*line"):
        await world.until(lambda: len(seen) > 1, timeout_ms=200)
    assert world.elapsed_ms == 5_210


def test_stacks_are_those_of_the_process() -> None:
    """Each task of the host is there by its name and with its lines, and none of another host."""

    async def wait_for_nothing() -> None:
        await asyncio.Event().wait()

    async def scenario(world: World) -> str:
        one, other = world.host("c1"), world.host("c2")
        tasks = [one.create_task(wait_for_nothing(), name="mine"), other.create_task(wait_for_nothing(), name="theirs")]
        await world.sleep_ms(1)
        for task in tasks:
            task.cancel()
        return one.stacks()

    text = re.sub(r"line \d+", "line N", simulate(scenario).value)
    assert text.splitlines() == [
        '"mine" task',
        '  File "test_runtime.py", line N, in wait_for_nothing',  # a folder would make another run of each machine,
        "    await asyncio.Event().wait()",  # and asyncio's own lines one of each version of Python
        "",
    ]
