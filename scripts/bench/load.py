"""Messages at a rate, which the simulator can send too."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from time import monotonic
from typing import NamedTuple

from lockstep.client import Message, Producer

__all__ = ["Load", "sending"]


class Load(NamedTuple):
    """Args:
    rate: messages a second, with `keys` in turn.
    work_ms: of a message.
    """

    queues: int
    rate: float
    keys: int
    work_ms: int


@asynccontextmanager
async def sending(load: Load, producer: Producer, topic: str) -> AsyncIterator[None]:
    """Send until the block ends. A send that failed fails it there."""
    task = asyncio.create_task(_send(load, producer, topic))
    try:
        yield
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _send(load: Load, producer: Producer, topic: str) -> None:
    """Each message at its time, whatever earlier ones took."""
    began = monotonic()
    for number in count():
        await asyncio.sleep(max(began + number / load.rate - monotonic(), 0))
        await producer.send(Message(topic, str(number).encode()), sharding_key=f"key{number % load.keys}")
