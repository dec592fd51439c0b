"""at_once: one question about many things, asked together, so that a silent peer costs its own time only."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, TypeVar

__all__ = ["AT_ONCE", "at_once"]

# Questions under way. More would only wait for each other at one broker.
AT_ONCE: Final = 32
T = TypeVar("T")
R = TypeVar("R")


class _Failed(NamedTuple):
    error: Exception


async def at_once(act: Callable[[T], Awaitable[R]], items: Iterable[T], *, at_most: int = AT_ONCE) -> list[R]:
    """Return what `act` returns for each item, in the order of the items; `at_most` of them run at the same time.

    Raises:
        Exception: What a loop would raise: the error of the first item, by the order of the items, that fails. Those
            before it were waited for. Those after it are cancelled, and have ended too.
    """
    todo = list(items)
    if len(todo) == 1:
        return [await act(todo[0])]
    room = asyncio.Semaphore(at_most)

    async def one(item: T) -> R | _Failed:
        async with room:
            try:
                return await act(item)
            except Exception as error:
                return _Failed(error)

    found, failed = list[R](), None
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(item)) for item in todo]
        for task in tasks:
            answer = await task
            if isinstance(answer, _Failed):
                failed = answer.error
                break
            found.append(answer)
        for task in tasks[len(found) :]:
            task.cancel()
    if failed is not None:
        raise failed
    return found
