"""QueueMutex: periods of a process queue and direct calls of administrators, one at a time."""

import asyncio

from lockstep.client.consumer.dispatch.queue_mutex import QueueMutex
from lockstep.protocol.model import MessageQueue
from tests.client.periods import period

QUEUE = MessageQueue("T", "b0", 0)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def reserve(mutex: QueueMutex[str], entered: list[str], name: str) -> None:
    async with mutex.exclusive():
        entered.append(name)


async def test_an_administrator_waits_for_the_user() -> None:
    """Its call begins when the last running call has ended; calls that were held back start after it."""
    started: list[str] = []
    entered: list[str] = []
    mutex = QueueMutex[str](started.append)
    mutex.user = user = period(QUEUE)
    assert mutex.is_free_for(user)
    task = asyncio.create_task(reserve(mutex, entered, "a"))
    await settle()
    assert (entered, mutex.is_free_for(user)) == ([], False)
    mutex.waiting.append("work")
    mutex.release()
    assert started == []
    await task
    assert (entered, started) == (["a"], ["work"])
    assert mutex.is_free_for(user)


async def test_one_that_gives_up_harms_nobody() -> None:
    """Cancelled while it waited: the user leaves as ever, and the next administrator waits for it."""
    entered: list[str] = []
    mutex = QueueMutex[str](lambda _: None)
    mutex.user = period(QUEUE)
    first = asyncio.create_task(reserve(mutex, entered, "first"))
    await settle()
    second = asyncio.create_task(reserve(mutex, entered, "second"))
    await settle()
    first.cancel()
    await settle()
    assert (first.cancelled(), entered) == (True, [])
    mutex.release()
    await second
    assert entered == ["second"]


async def test_leaving_after_everyone_gave_up() -> None:
    mutex = QueueMutex[str](lambda _: None)
    mutex.user = period(QUEUE)
    task = asyncio.create_task(reserve(mutex, [], "only"))
    await settle()
    task.cancel()
    await settle()
    mutex.release()
    assert mutex.is_free_for(period(QUEUE, number=2))
