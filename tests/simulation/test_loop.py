"""The virtual loop: time that jumps, an order that is always the same, and ends that say why."""

import asyncio
import functools
import itertools
import time
from collections.abc import AsyncIterator

import pytest

from lockstep.simulation import (
    LeakError,
    LimitError,
    Outcome,
    SimulationOptions,
    UnhandledError,
    World,
    simulate,
)
from lockstep.simulation.machine.host import host_context
from lockstep.simulation.run import Simulation


def test_time_jumps_to_the_next_timer() -> None:
    """A virtual day passes in far less than a real second, and sleeps last exactly what was asked."""

    async def scenario(world: World) -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(86_399)
        assert world.elapsed_ms == 86_399_000
        await asyncio.sleep(0.0001)
        return loop.time() - began

    used = time.process_time()
    outcome = simulate(scenario)
    assert outcome.value == pytest.approx(86_399.0001, abs=1e-9)
    assert time.process_time() - used < 1


def test_a_minute_of_many_timers_is_cheap() -> None:
    """Ten clients that look at the clock every 100 ms for a virtual minute cost milliseconds."""

    async def client() -> None:
        for _ in range(600):
            await asyncio.sleep(0.1)

    async def scenario(world: World) -> None:
        await asyncio.gather(*(client() for _ in range(10)))

    used = time.process_time()
    outcome = simulate(scenario)
    assert outcome.elapsed_ms == 60_000
    assert time.process_time() - used < 0.5


def test_timers_of_one_instant_run_in_the_order_they_were_set() -> None:
    """Equal deadlines are first come, first served, whichever way they were set."""

    async def scenario(world: World) -> list[int]:
        loop = asyncio.get_running_loop()
        order: list[int] = []
        due = loop.time() + 5
        for number in range(50):
            if number % 2:
                loop.call_at(due, order.append, number)
            else:
                loop.call_later(5, order.append, number)
        await asyncio.sleep(6)
        return order

    assert simulate(scenario).value == list(range(50))


def test_a_timer_of_now_is_not_starved_by_what_is_ready() -> None:
    """A task that only yields lets a timer without delay run."""

    async def scenario(world: World) -> int:
        fired: list[int] = []
        asyncio.get_running_loop().call_later(0, fired.append, 1)
        turns = 0
        while not fired:
            await asyncio.sleep(0)
            turns += 1
        return turns

    assert simulate(scenario).value < 5


def test_sleeping_away_a_float_remainder_moves_time() -> None:
    """A delay too small for the clock still takes one tick, so that waiting for a deadline ends."""

    async def scenario(world: World) -> int:
        loop = asyncio.get_running_loop()
        began = world.loop.now_ns
        loop.call_later(1e-15, lambda: None)
        await asyncio.sleep(1e-15)
        return world.loop.now_ns - began

    assert simulate(scenario).value == 1


def test_many_cancelled_timers_are_swept_out() -> None:
    """A request timeout that is cancelled a thousand times a second leaves no heap of dead timers."""

    async def scenario(world: World) -> int:
        loop = asyncio.get_running_loop()
        for _ in range(5_000):
            loop.call_later(60, lambda: None).cancel()
        sizes = len(world.loop._timers)
        await asyncio.sleep(61)
        return sizes

    assert simulate(scenario).value < 250


def test_a_cancelled_callback_does_not_run() -> None:
    """Whether soon or later, cancelled before or at its instant."""

    async def scenario(world: World) -> list[str]:
        loop = asyncio.get_running_loop()
        ran: list[str] = []
        loop.call_soon(ran.append, "soon").cancel()
        loop.call_later(1, ran.append, "later").cancel()
        second = loop.call_later(2, ran.append, "second")
        loop.call_later(2, ran.append, "last")
        loop.call_at(loop.time() + 1.5, second.cancel)
        await asyncio.sleep(3)
        return ran

    assert simulate(scenario).value == ["last"]


def test_task_groups_cancel_in_the_order_of_creation() -> None:
    """TaskGroup keeps its tasks in a set; theirs is an order of numbers, not of memory addresses."""

    async def sleeper(number: int, order: list[int]) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            order.append(number)

    async def run_group(order: list[int]) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(sleeper(number, order))
            await asyncio.sleep(1)
            raise ValueError("stop")

    async def scenario(world: World) -> list[int]:
        order: list[int] = []
        with pytest.raises(ExceptionGroup):
            await run_group(order)
        return order

    ballast = [object() for _ in range(1000)]
    first = simulate(scenario).value
    del ballast[::3]  # other addresses for the next run's tasks
    assert simulate(scenario).value == first
    assert sorted(first) == list(range(20))


def test_sets_of_futures_have_one_order() -> None:
    """asyncio.wait hands back a set; its order is the same in every run."""

    async def scenario(world: World) -> list[str]:
        tasks = [asyncio.create_task(asyncio.sleep(1, str(number))) for number in range(30)]
        done, _ = await asyncio.wait(tasks)
        return [task.result() for task in done]

    assert simulate(scenario).value == simulate(scenario).value


def test_tasks_are_named_by_the_simulation() -> None:
    """asyncio numbers tasks by process; a name in a trace must not depend on what ran before."""

    async def scenario(world: World) -> str:
        task = asyncio.create_task(asyncio.sleep(0))
        await task
        return task.get_name()

    assert simulate(scenario).value == simulate(scenario).value


def test_timeouts_work() -> None:
    """asyncio.timeout and wait_for see virtual time."""

    async def scenario(world: World) -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 12)
        return world.elapsed_ms

    assert simulate(scenario).value == 42_000


def test_virtual_time_is_limited() -> None:
    """A scenario that never ends fails when its time is up, naming who still waits."""

    async def scenario(world: World) -> None:
        for _ in itertools.count():
            await asyncio.sleep(1)

    with pytest.raises(LimitError, match=r"5000 ms of virtual time have passed\n  waits: scenario"):
        simulate(scenario, limit_ms=5_000)


def test_spinning_without_time_is_limited() -> None:
    """A loop that only yields fails, though virtual time never moves."""

    async def scenario(world: World) -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(LimitError, match="2000 callbacks ran without time moving"):
        simulate(scenario, options=SimulationOptions(instant_steps_max=2_000))


def test_a_task_left_running_is_a_leak() -> None:
    """A scenario that returns while a task of its runs on fails and names it."""

    async def scenario(world: World) -> None:
        world.host("c1").create_task(asyncio.sleep(1000), name="forgotten")

    with pytest.raises(LeakError, match=r"task forgotten on c1, at asyncio\.sleep"):
        simulate(scenario)


def test_tasks_that_are_about_to_end_are_no_leak() -> None:
    """What is cancelled, or ends within the drain, gets its time."""

    async def scenario(world: World) -> None:
        world.start(asyncio.sleep(0.05), name="short")
        world.start(asyncio.sleep(1000), name="long").cancel()

    assert simulate(scenario).elapsed_ms == 50


def test_what_a_left_task_does_when_it_is_dropped_does_not_count() -> None:
    """After a failed run its coroutines are closed, awaits in their cleaning up included, without a warning."""
    seen: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            seen.append("cleaning up")
            await asyncio.sleep(1)

    async def scenario(world: World) -> None:
        world.start(stubborn(), name="stubborn")

    with pytest.raises(LeakError):
        simulate(scenario)
    assert seen == ["cleaning up"]


def test_cleanup_of_what_is_left_begins_no_real_loop() -> None:
    """`gather` makes one when none runs: the guard stops it half built, and a traceback is printed at its end."""
    refused: list[str] = []

    async def scenario(world: World) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            try:
                await asyncio.gather()
            except RuntimeError as error:
                refused.append(str(error))

    with Simulation(scenario) as run:
        run.advance_to(1000)
    assert refused == ["There is no current event loop in thread 'MainThread'."]


def test_an_exception_nobody_looks_at_fails_the_run() -> None:
    """A callback that raises, and a task that fails unseen, are found at the end."""

    def fail() -> None:
        raise ValueError("a callback's")

    async def fail_later() -> None:
        raise KeyError("a task's")

    async def with_callback(world: World) -> None:
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(1)

    async def with_task(world: World) -> None:
        world.start(fail_later(), name="fails")
        await asyncio.sleep(1)

    with pytest.raises(UnhandledError, match="a callback's") as caught:
        simulate(with_callback)
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(UnhandledError, match="never retrieved"):
        simulate(with_task)
    simulate(with_callback, errors_allowed=True)


def test_a_future_failed_by_a_host_that_then_crashed_is_no_fault() -> None:
    """The callback that would have read the exception is dropped with its host; on a live host it counts."""

    read: list[object] = []

    def fail() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda failed: read.append(failed.exception()))
        future.set_exception(ConnectionResetError("closed"))

    async def scenario(world: World, *, crashed: bool) -> None:
        host_context(world.host("c1").host).run(fail)
        if crashed:
            world.crash("c1")
        await asyncio.sleep(1)

    simulate(functools.partial(scenario, crashed=True))
    assert read == []
    simulate(functools.partial(scenario, crashed=False))
    assert [str(error) for error in read] == ["closed"]


def test_an_exception_handler_of_the_code_is_obeyed() -> None:
    """As on any loop, set_exception_handler takes what nobody caught."""

    async def scenario(world: World) -> list[str]:
        caught: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: caught.append(str(context["exception"])))
        loop.call_soon(dict[str, int]().__getitem__, "missing")
        await asyncio.sleep(1)
        return caught

    assert simulate(scenario).value == ["'missing'"]


def test_the_scenarios_own_failure_comes_out() -> None:
    """With the seed and the last events as notes."""

    async def scenario(world: World) -> None:
        world.record("just before")
        raise AssertionError("wrong order")

    with pytest.raises(AssertionError, match="wrong order") as caught:
        simulate(scenario, seed=3)
    assert "seed=3" in caught.value.__notes__[0]
    assert "just before" in caught.value.__notes__[-1]


def test_dropped_generators_are_closed() -> None:
    """An async generator left half way runs its cleaning up on the loop."""
    closed: list[int] = []

    async def count() -> AsyncIterator[int]:
        try:
            for number in range(10):
                yield number
        finally:
            await asyncio.sleep(0.001)
            closed.append(1)

    async def scenario(world: World) -> None:
        async for number in count():
            if number == 3:
                break
        await asyncio.sleep(1)

    simulate(scenario)
    assert closed == [1]


def test_debug_mode_works() -> None:
    """With options.debug futures remember where they were made, and nothing else changes."""

    async def scenario(world: World) -> bool:
        await asyncio.sleep(1)
        return asyncio.get_running_loop().get_debug()

    plain: Outcome[bool] = simulate(scenario)
    debug = simulate(scenario, options=SimulationOptions(debug=True))
    assert (plain.value, debug.value) == (False, True)
    assert plain.trace_hash == debug.trace_hash


async def test_a_simulation_does_not_run_inside_a_running_loop() -> None:
    """Calling simulate() from a coroutine is refused in so many words."""

    async def scenario(world: World) -> None:
        """Nothing."""

    with pytest.raises(RuntimeError, match="inside a running event loop"):
        simulate(scenario)
