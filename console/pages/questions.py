"""What pages ask the brokers when they are opened. Each question ends soon: a broker that is gone leaves a gap."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from lockstep.client.admin.at_once import at_once
from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.tolerance import FAILURES
from lockstep.client.errors import TopicNotFoundError
from lockstep.console.console import PATIENCE_S, Console
from lockstep.protocol.bodies.pop import DeliveryTableBody
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.names import dead_letter_topic

__all__ = ["answer_of", "answers_of", "dead_letters", "deliveries", "group_config", "whole_answer"]

_AT_ONCE: Final = 16
T = TypeVar("T")


async def answer_of(question: Awaitable[T]) -> T | None:
    """The answer; None when none came in time, or when the broker refused."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await question
    except FAILURES:
        return None


async def answers_of(questions: Sequence[Awaitable[T]]) -> list[T | None]:
    """The answers in the order of the questions, some asked at once."""
    return await at_once(answer_of, questions, at_most=_AT_ONCE)


async def whole_answer(console: Console, question: Callable[[AdminClient], Awaitable[T]]) -> T | None:
    """The answer when no broker is missing from it; None at once when one is known to be gone."""
    admin = console.tolerant_admin()
    answer = await answer_of(question(admin))
    return None if admin.left_out else answer


async def deliveries(console: Console, group: str) -> DeliveryTableBody | None:
    """What a group popped and did not acknowledge; None: the brokers do not say, as Apache's."""
    return await whole_answer(console, lambda admin: admin.list_deliveries(group))


async def group_config(console: Console, group: str) -> SubscriptionGroupConfig | None:
    """The settings of a group; None: the brokers do not say, as those of RocketMQ 4."""
    return await answer_of(console.tolerant_admin().group_config(group))


async def dead_letters(console: Console, group: str) -> int | None:
    """How many dead letters a group has; None: the brokers do not say."""

    async def count(admin: AdminClient) -> int:
        try:
            stats = await admin.topic_stats(dead_letter_topic(group))
        except TopicNotFoundError:
            return 0
        return sum(of.message_count for of in stats.values())

    return await whole_answer(console, count)
