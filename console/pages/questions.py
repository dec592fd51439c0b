"""What pages ask the brokers when they are opened. Each question ends soon: a broker that is gone leaves a gap."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

from lockstep.client.errors import TopicNotFoundError
from lockstep.console.console import FAILURES, Console
from lockstep.protocol.names import dead_letter_topic

__all__ = ["answer_of", "answers_of", "dead_letters"]

_PATIENCE_S: Final = 2.0
_AT_ONCE: Final = 16
T = TypeVar("T")


async def answer_of(question: Awaitable[T]) -> T | None:
    """The answer; None when none came in time, or when the broker refused."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await question
    except FAILURES:
        return None


async def answers_of(questions: Sequence[Awaitable[T]]) -> list[T | None]:
    """The answers in the order of the questions, some asked at once."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(question: Awaitable[T]) -> T | None:
        async with limit:
            return await answer_of(question)

    return list(await asyncio.gather(*map(one, questions)))


async def dead_letters(console: Console, group: str) -> int | None:
    """How many dead letters a group has; None: the brokers do not say."""

    async def count() -> int:
        try:
            stats = await console.admin.topic_stats(dead_letter_topic(group))
        except TopicNotFoundError:
            return 0
        return sum(of.max_offset - max(of.min_offset, 0) for of in stats.values())

    return await answer_of(count())
