"""What a run that cannot go on says of the tasks that wait."""

import asyncio

import pytest

from lockstep.simulation import World, simulate
from lockstep.simulation.errors import DeadlockError


def test_a_deadlock_names_who_waits_and_where() -> None:
    """Instead of hanging, the run fails with each task and its line."""

    async def wait_for_nothing() -> None:
        await asyncio.Event().wait()

    async def scenario(world: World) -> None:
        await world.host("c1").run(wait_for_nothing(), name="lonely")

    with pytest.raises(DeadlockError) as caught:
        simulate(scenario, seed=77)
    place = f"(test_waiting_tasks.py:{wait_for_nothing.__code__.co_firstlineno + 1})"
    assert f"lonely on c1, at wait_for_nothing {place} > asyncio.Event.wait\n" in f"{caught.value}\n"
    assert "scenario on no host" in str(caught.value)
    assert any("seed=77" in note for note in caught.value.__notes__)


def test_a_waiting_task_is_told_without_lines_of_the_standard_library() -> None:
    """They differ between versions of Python. What stands behind it again, as in a group of tasks, is told."""

    async def inner() -> None:
        async with asyncio.timeout(None):
            await asyncio.Queue[int]().get()

    async def scenario(world: World) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(inner(), name="inner")

    with pytest.raises(DeadlockError) as caught:
        simulate(scenario)
    first, scene, task = str(caught.value).splitlines()
    begin = scenario.__code__.co_firstlineno
    assert first == "no callback is ready and no timer is set"
    where = f"scenario (test_waiting_tasks.py:{begin + 1}) > asyncio.TaskGroup.__aexit__"
    assert scene == f"  waits: scenario on no host, at {where}"
    assert task == f"  waits: inner on no host, at inner (test_waiting_tasks.py:{begin - 2}) > asyncio.Queue.get"
