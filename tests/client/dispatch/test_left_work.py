"""A listener that returns while work of its call goes on is named; one that awaits its work is not."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.client import ConsumeOrderlyContext, MessageExt, MessageQueue
from lockstep.client.consumer.left_work import LeftWork
from lockstep.client.consumer.listener import ORDERLY, ListenerCall
from lockstep.remoting.host.clocks import boot_ns
from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.client.dispatch.test_listener import AtOnce
from tests.client.messages import messages_at
from tests.remoting.helpers import RecordingLog

QUEUE = MessageQueue("T", "broker-a", 3)
Listener = Callable[[list[MessageExt], Any], Any]


async def told(listener: Listener, *, calls: int = 5, clock_ns: Callable[[], int] = boot_ns) -> list[str]:
    """What is warned of after some calls."""
    runtime, log = AsyncioRuntime(clock_ns=clock_ns), RecordingLog()
    pool = runtime.new_worker_pool("listener", 2)
    try:
        call = ListenerCall(listener, pool, log, ORDERLY, left=LeftWork(runtime, log, "shop"))
        for _ in range(calls):
            await call(messages_at(7), ConsumeOrderlyContext(QUEUE), AtOnce())
    finally:
        pool.close()
    return [str(fields["work"]) for _, event, fields in log.events if event == "listener_left_work"]


async def test_a_task_that_nobody_awaits() -> None:
    """Once, with its function and its line, whatever else is awaited."""
    left = set()

    async def save() -> None:
        await asyncio.sleep(60)

    async def listen(_messages: list[MessageExt], _context: Any) -> None:
        left.add(asyncio.create_task(save()))
        await asyncio.sleep(0)

    (work,) = await told(listen, calls=20)
    assert work.startswith("task test_a_task_that_nobody_awaits.<locals>.save (test_left_work.py:")
    for task in left:
        task.cancel()


@pytest.mark.each_loop
async def test_a_timer_that_nobody_waits_for() -> None:
    """Of the user's own function: those of libraries keep connections alive and end waits."""

    def save() -> None:
        pass

    async def listen(_messages: list[MessageExt], _context: Any) -> None:
        asyncio.get_running_loop().call_later(0.05, save)

    if not hasattr(asyncio.get_running_loop(), "_scheduled"):
        assert await told(listen) == []  # uvloop shows nobody its timers
        return
    (work,) = await told(listen)
    assert work.startswith("timer test_a_timer_that_nobody_waits_for.<locals>.save (")


async def test_work_of_a_plain_listener() -> None:
    """A thread, and a coroutine that it gives to the loop."""
    loop, done, tasks = asyncio.get_running_loop(), threading.Event(), list[asyncio.Task[Any]]()

    async def send() -> None:
        tasks.extend(filter(None, [asyncio.current_task()]))
        await asyncio.sleep(60)

    def wait() -> None:
        done.wait()

    def listen(_messages: list[MessageExt], _context: Any) -> None:
        threading.Thread(target=wait).start()
        asyncio.run_coroutine_threadsafe(send(), loop)

    work = await told(listen)
    done.set()
    for task in tasks:
        task.cancel()
    assert [one.partition(" (")[0].replace("test_work_of_a_plain_listener.<locals>.", "") for one in work] == [
        "task send",
        "thread wait",
    ]


async def awaits(_messages: list[MessageExt], _context: Any) -> None:
    await asyncio.gather(*[asyncio.sleep(0) for _ in range(3)])
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0))
    async with asyncio.timeout(60):
        await asyncio.to_thread(int)


async def cancels(_messages: list[MessageExt], _context: Any) -> None:
    asyncio.create_task(asyncio.sleep(60)).cancel()


async def starts_once(_messages: list[MessageExt], context: Any) -> None:
    if not STARTED:
        STARTED.append(asyncio.create_task(asyncio.sleep(60)))


STARTED: list[asyncio.Task[None]] = []


@pytest.mark.parametrize("listener", [awaits, cancels, starts_once])
async def test_what_is_no_work_left(listener: Listener) -> None:
    """What is awaited or cancelled, and a task that lives on for all calls."""
    assert await told(listener) == []


@pytest.mark.parametrize(("step_ms", "warned"), [(1000, 1), (0, 0)])
async def test_a_late_mistake_is_found_too(step_ms: int, warned: int) -> None:
    """After the first calls one call a second is looked at."""
    left, now_ms = list[asyncio.Task[None]](), [0]

    async def listen(_messages: list[MessageExt], _context: Any) -> None:
        now_ms[0] += step_ms
        left.append(asyncio.create_task(asyncio.sleep(60)))
        if len(left) <= 20:
            left[-1].cancel()

    work = await told(listen, calls=250, clock_ns=lambda: now_ms[0] * 1_000_000)
    for task in left:
        task.cancel()
    assert len(work) == warned
