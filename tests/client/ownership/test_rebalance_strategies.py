"""Rebalance and its strategy (wire.md 12.3): the strategy's arguments, and results that are refused."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from lockstep.client import MessageQueue, allocate_averagely
from tests.client.messages import Panic
from tests.client.ownership.rebalancing import FIRST, GROUP, LAST, rebalancing
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

STRANGE = "ConsumerError: strategy dreamer gave queues that topic 'Aircraft' does not have:"


@on_stage
async def test_a_strategy_that_names_a_queue_twice(stage: Stage) -> None:
    """One process queue, or two would be pulled and only one known."""
    it = await rebalancing(stage, strategy=lambda _group, _me, queues, _members: [queues[0], queues[0]])
    await it.run()
    assert len(it.added) == 1


@on_stage
async def test_what_a_strategy_is_given(stage: Stage) -> None:
    """The consumer group, this client, the topic's queues and the members, both sorted."""
    given: list[tuple[Any, ...]] = []

    def strategy(*arguments: Any) -> list[MessageQueue]:
        given.append(arguments)
        return []

    it = await rebalancing(stage, queues=2, strategy=strategy)
    it.members = [LAST, it.me, FIRST]
    await it.run()
    assert given == [(GROUP, it.me, [queue_at(0), queue_at(1)], [FIRST, it.me, LAST])]


@pytest.mark.parametrize("error", [LookupError("no such room"), Panic("in Rust"), asyncio.CancelledError("mine")])
def test_a_strategy_that_fails(error: BaseException) -> None:
    """Its topic stays as it is, with an error in the log; the other topics are rebalanced."""

    def choosy(group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
        if queues[0].topic == TOPIC:
            raise error
        return allocate_averagely(group, me, queues, members)

    @on_stage
    async def play(stage: Stage) -> None:
        it = await rebalancing(stage, strategy=choosy)
        stage.route_to({"broker-a": 2}, "Other")
        it.subscribed = [TOPIC, "Other"]
        await it.run()
        assert sorted(it.table) == [queue_at(i, topic="Other") for i in range(2)]
        errors = [fields["error"] for level, _, fields in stage.log.events if level == "error"]
        assert errors == [f"{type(error).__name__}: {error}"]

    play()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([MessageQueue("Other", "broker-a", 0)], f"{STRANGE} Other@broker-a:0"),
        ([queue_at(0), queue_at(4)], f"{STRANGE} Aircraft@broker-a:4"),
        (None, "TypeError: 'NoneType' object is not iterable"),
    ],
    ids=["another topic's", "one too many", "nothing"],
)
def test_a_strategy_that_gives_what_is_not_there(given: Any, error: str) -> None:
    """One error a round names strategy and queues, and members keep their queues."""
    answers: list[Any] = [[queue_at(0), queue_at(1)], given]

    def dreamer(_group: str, _me: str, _queues: Sequence[MessageQueue], _members: Sequence[str]) -> Any:
        return answers.pop(0)

    @on_stage
    async def play(stage: Stage) -> None:
        it = await rebalancing(stage, strategy=dreamer)
        await it.run()
        before = dict(it.table)
        await it.run()
        assert (it.owned, it.table) == ([0, 1], before)
        assert [fields["error"] for level, _, fields in stage.log.events if level == "error"] == [error]

    play()
