"""What pages ask the brokers when they are opened. Each question ends soon: a broker that is gone leaves a gap."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final, TypeVar

from lockstep.client.admin.client import AdminClient
from lockstep.client.errors import TopicNotFoundError
from lockstep.console.console import FAILURES, Console
from lockstep.protocol.bodies.admin import TopicOffset
from lockstep.protocol.bodies.broker import BrokerData
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import dead_letter_topic

__all__ = ["answer_of", "answers_of", "dead_letters", "topic_stats"]

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


async def topic_stats(admin: AdminClient, topic: str) -> dict[MessageQueue, TopicOffset]:
    """The offsets of the topic's queues on all brokers that answer in time.

    Raises TopicNotFoundError, or one of FAILURES when none answers.
    """
    async with asyncio.timeout(_PATIENCE_S):
        route = await admin.route(topic)

    async def ask(broker: BrokerData) -> dict[MessageQueue, TopicOffset] | Exception:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await admin.at(broker).topic_stats(topic)
        except FAILURES as error:
            return error

    answers = await asyncio.gather(*map(ask, route.broker_datas))
    found = [answer for answer in answers if isinstance(answer, dict)]
    if answers and not found and isinstance(answers[0], Exception):
        raise answers[0]
    merged = {queue: of for answer in found for queue, of in answer.items()}
    return {queue: merged[queue] for queue in sorted(merged)}


async def dead_letters(console: Console, group: str) -> int | None:
    """How many dead letters a group has; None: the brokers do not say."""

    async def count() -> int:
        try:
            stats = await console.admin.topic_stats(dead_letter_topic(group))
        except TopicNotFoundError:
            return 0
        return sum(of.max_offset - max(of.min_offset, 0) for of in stats.values())

    return await answer_of(count())
