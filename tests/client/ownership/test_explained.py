"""What a rebalance says of each queue at the edges: many queues, many members, silent brokers, strategies that fail."""

from collections.abc import Sequence
from typing import Any

from lockstep.client import MessageQueue, allocate_averagely
from tests.client.ownership.rebalancing import FIRST, LAST, LOCK, Rebalancing, rebalancing
from tests.client.stage import TOPIC, Stage, on_stage, queue_at


def told(it: Rebalancing) -> list[dict[str, Any]]:
    return [fields for _, event, fields in it.stage.log.events if event == "rebalanced"]


@on_stage
async def test_many_queues_are_counted(stage: Stage) -> None:
    """A field of the log names twenty; the trace and the running info have all."""
    it = await rebalancing(stage, queues=25)
    await it.run()
    [one] = told(it)
    assert one["share_after"].endswith("broker-a:19 and 5 more")
    assert one["locked"].endswith("broker-a:19 and 5 more (the first rebalance of this member)")
    assert it.rebalance.explanations.text().count('"did":"locked"') == 25


@on_stage
async def test_no_owner_is_reckoned_of_many_members(stage: Stage) -> None:
    """The strategy would run once for each of them."""
    it = await rebalancing(stage, queues=2)
    await it.run()
    it.members = [*(f"0{number:02}" for number in range(40)), it.me]
    await it.run()
    assert told(it)[-1]["dropped"].startswith("broker-a:0 broker-a:1 (allocated to another member: 000 joined")


@on_stage
async def test_a_silent_broker_is_the_reason(stage: Stage) -> None:
    """Nothing is known of the lock then; the next round is asked anew."""
    it = await rebalancing(stage, queues=1)
    it.broker.answers(LOCK, None)
    await it.run()
    assert told(it)[-1]["refused"] == "broker-a:0 (its broker did not answer)"


@on_stage
async def test_a_strategy_that_fails_for_others_names_no_owner(stage: Stage) -> None:
    """The round itself goes on: it asks the strategy for this member alone."""

    def strategy(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id == LAST:
            raise RuntimeError("not my business")
        return allocate_averagely(group, client_id, queues, client_ids)

    it = await rebalancing(stage, queues=2, strategy=strategy)
    await it.run()
    it.members = [it.me, LAST]
    await it.run()
    assert told(it)[-1]["dropped"] == f"broker-a:1 (allocated to another member: {LAST} joined)"
    assert it.owned == [0]


@on_stage
async def test_a_round_with_an_error_hides_no_joiner(stage: Stage) -> None:
    """It began and did not end: the next round says who joined since the last one that ended."""
    it = await rebalancing(stage, queues=2)
    await it.run()
    it.members = [it.me, LAST]
    it.rebalance.explanations.begin(TOPIC, [queue_at(0), queue_at(1)], it.members, allocate_averagely)
    await it.run()
    assert (told(it)[-1]["joined"], told(it)[-1]["dropped"]) == (
        LAST,
        f"broker-a:1 (allocated to {LAST}: {LAST} joined)",
    )
    it.members = [it.me]
    it.rebalance.explanations.begin(TOPIC, [queue_at(0), queue_at(1)], [FIRST, it.me], allocate_averagely)
    await it.run()
    assert (told(it)[-1]["joined"], told(it)[-1]["left"]) == ("", LAST)


@on_stage
async def test_a_refusal_that_goes_on_is_no_event(stage: Stage) -> None:
    """Until the lock is free: then it says so."""
    it = await rebalancing(stage, queues=1)
    it.taken = [queue_at(0)]
    for _ in range(3):
        await it.run()
    levels = [level for level, event, _ in stage.log.events if event == "lock_refused"]
    assert (len(told(it)), levels) == (1, ["info", "debug", "debug"])
    it.taken = []
    await it.run()
    assert told(it)[-1]["locked"] == "broker-a:0 (its lock is free now)"
    assert told(it)[-1]["topic"] == TOPIC


@on_stage
async def test_a_refusal_ends_with_the_share(stage: Stage) -> None:
    """A queue that was refused and went to another member is nothing that this member has to explain."""
    it = await rebalancing(stage, queues=2)
    it.taken = [queue_at(1)]
    await it.run()
    assert '"did":"refused"' in it.rebalance.explanations.text()
    it.members = [it.me, LAST]
    await it.run()
    assert '"did":"refused"' not in it.rebalance.explanations.text()
    assert told(it)[-1]["share_after"] == "broker-a:0"


@on_stage
async def test_a_round_reckons_a_strategy_once_for_each_member(stage: Stage) -> None:
    """Not once more for each queue that moves: a strategy may take milliseconds, and hundreds of queues may move."""
    calls = []

    def strategy(
        group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        calls.append(client_id)
        return allocate_averagely(group, client_id, queues, client_ids)

    it = await rebalancing(stage, queues=20, strategy=strategy)
    await it.run()
    it.members = [it.me, LAST]
    calls.clear()
    await it.run()
    assert len(it.owned) == 10
    assert sorted(calls) == sorted([it.me, it.me, LAST])
    assert told(it)[-1]["dropped"].endswith(f"(allocated to {LAST}: {LAST} joined)")


@on_stage
async def test_a_queue_released_after_its_topic_was_left_waits_for_the_next_round(stage: Stage) -> None:
    """The topic is subscribed again, but no round has begun: nothing is known of its members yet."""
    it = await rebalancing(stage, queues=1)
    it.taken = [queue_at(0)]
    await it.run()
    it.subscribed = []
    await it.run()
    it.subscribed = [TOPIC]
    await it.rebalance.take_released([queue_at(0)])
    assert len(it.asked(LOCK)) == 1
    it.taken = []
    await it.run()
    assert it.owned == [0]
