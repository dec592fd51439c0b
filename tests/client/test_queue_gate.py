"""QueueGate: generations of a process queue and administrators, never two at a time."""

import asyncio

from lockstep.client.consumer.dispatch.queue_mutex import QueueGate
from lockstep.client.consumer.process_queue import ProcessQueue
from lockstep.protocol.model import MessageQueue

QUEUE = MessageQueue("T", "b0", 0)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def closing(gate: QueueGate[str], entered: list[str], name: str) -> None:
    async with gate.closed():
        entered.append(name)


async def test_an_administrator_waits_for_the_user() -> None:
    """It enters when the last call at work is over; what was held meanwhile starts after it."""
    started: list[str] = []
    entered: list[str] = []
    gate = QueueGate[str](started.append)
    gate.user = user = ProcessQueue(QUEUE, 1, 0)
    assert gate.is_open_to(user)
    task = asyncio.create_task(closing(gate, entered, "a"))
    await settle()
    assert (entered, gate.is_open_to(user)) == ([], False)
    gate.held.append("work")
    gate.leave()
    assert started == []
    await task
    assert (entered, started) == (["a"], ["work"])
    assert gate.is_open_to(user)


async def test_one_that_gives_up_harms_nobody() -> None:
    """Cancelled while it waited: the user leaves as ever, and the next administrator waits for it."""
    entered: list[str] = []
    gate = QueueGate[str](lambda _: None)
    gate.user = ProcessQueue(QUEUE, 1, 0)
    first = asyncio.create_task(closing(gate, entered, "first"))
    await settle()
    second = asyncio.create_task(closing(gate, entered, "second"))
    await settle()
    first.cancel()
    await settle()
    assert (first.cancelled(), entered) == (True, [])
    gate.leave()
    await second
    assert entered == ["second"]


async def test_leaving_after_everyone_gave_up() -> None:
    gate = QueueGate[str](lambda _: None)
    gate.user = ProcessQueue(QUEUE, 1, 0)
    task = asyncio.create_task(closing(gate, [], "only"))
    await settle()
    task.cancel()
    await settle()
    gate.leave()
    assert gate.is_open_to(ProcessQueue(QUEUE, 2, 0))
