"""What the product waits with takes as many turns of the event loop with each version of Python, so that a seed is one
run with all of them. `asyncio.wait_for`, and `asyncio.gather` with futures that are done, take more with 3.11.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lockstep.simulation import World, simulate
from tests.rows import by_row

Story = Callable[[], Awaitable[None]]


async def nap() -> None:
    await asyncio.sleep(0.1)


async def timeout_that_holds() -> None:
    async with asyncio.timeout(1):
        await nap()


async def timeout_that_ends() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await nap()


async def timeout_at_the_same_moment() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await nap()


async def timeout_in_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), asyncio.timeout(0.05):
            await nap()


async def gather() -> None:
    await asyncio.gather(nap(), nap())


async def shield() -> None:
    await asyncio.shield(nap())


async def wait() -> None:
    await asyncio.wait([asyncio.create_task(nap())])


async def wait_that_ends() -> None:
    task = asyncio.create_task(nap())
    assert await asyncio.wait([task], timeout=0.05) == (set(), {task})
    await task


async def event() -> None:
    happened = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, happened.set)
    await happened.wait()


async def take_turns(turn: asyncio.Lock | asyncio.Semaphore) -> None:
    """Three ask for their turn, and the second one is cancelled while it waits."""

    async def one() -> None:
        async with turn:
            await nap()

    tasks = [asyncio.create_task(one()) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    for task in (tasks[0], tasks[2]):
        await task


async def lock() -> None:
    await take_turns(asyncio.Lock())


async def semaphore() -> None:
    await take_turns(asyncio.Semaphore(1))


STEPS: dict[Story, int] = {
    timeout_that_holds: 3,
    timeout_that_ends: 3,
    timeout_at_the_same_moment: 4,
    timeout_in_a_timeout: 4,
    gather: 10,
    shield: 7,
    wait: 6,
    wait_that_ends: 7,
    event: 3,
    lock: 13,
    semaphore: 13,
}


@by_row("story, steps", STEPS.items(), ids=[story.__name__ for story in STEPS])
def test_waiting_takes_equal_turns(story: Story, steps: int) -> None:
    """The callbacks from the first to the last are as many as with Python 3.11."""

    async def scenario(_: World) -> None:
        await story()

    assert simulate(scenario).steps == steps
