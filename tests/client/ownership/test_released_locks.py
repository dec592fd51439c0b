"""LOCKS_RELEASED: a broker says that queues are free, and a member asks for its own (docs/fencing.md)."""

from typing import Any

import pytest

from lockstep.protocol.codes import RequestCode
from tests.client.ownership.rebalancing import FIRST, LOCK, rebalancing
from tests.client.stage import TOPIC, Stage, on_stage, queue_at


@on_stage
async def test_only_what_was_refused_is_asked_for(stage: Stage) -> None:
    """Once a notice, and without asking for the members first; a queue of its own or of others is left alone."""
    it = await rebalancing(stage)
    it.taken = [queue_at(1), queue_at(2)]
    await it.run()
    members_asked = len(it.broker.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP))
    await it.rebalance.take_released([queue_at(0), queue_at(1), queue_at(9)])
    assert it.asked(LOCK)[1:] == [(queue_at(1),)], "refused again"
    it.taken = []
    await it.rebalance.take_released([queue_at(1)])
    await it.rebalance.take_released([queue_at(1)])
    assert it.asked(LOCK)[2:] == [(queue_at(1),)]
    assert it.owned == [0, 1, 3]
    assert it.changed == [TOPIC, TOPIC]
    assert len(it.broker.requests(RequestCode.GET_CONSUMER_LIST_BY_GROUP)) == members_asked


@on_stage
async def test_a_topic_that_is_not_subscribed_any_more_is_not_asked_for(stage: Stage) -> None:
    """Nor is a queue taken twice that a notice names twice."""
    it = await rebalancing(stage)
    it.taken = [queue_at(1), queue_at(2)]
    await it.run()
    it.taken = []
    await it.rebalance.take_released([queue_at(1), queue_at(1)])
    assert [process_queue.queue.queue_id for process_queue in it.added] == [0, 3, 1]
    it.subscribed = []
    await it.rebalance.take_released([queue_at(2)])
    assert it.asked(LOCK)[1:] == [(queue_at(1),)]


@on_stage
async def test_a_queue_that_is_owned_is_not_taken_again(stage: Stage) -> None:
    """Also when the trace failed as its period began, so that the queue still counts as refused."""
    it = await rebalancing(stage)
    it.taken = [queue_at(1)]
    await it.run()
    it.taken = []
    write = it.trace.queue_event

    def full(event: str, *where: Any, **fields: Any) -> None:
        raise OSError(28, "No space left on device")

    it.trace.queue_event = full  # type: ignore[method-assign]  # a test's own
    with pytest.raises(OSError, match="No space"):
        await it.rebalance.take_released([queue_at(1)])
    it.trace.queue_event = write  # type: ignore[method-assign]
    period = it.table[queue_at(1)]
    await it.rebalance.take_released([queue_at(1)])
    assert it.table[queue_at(1)] is period, "two periods of one queue"


@on_stage
async def test_a_queue_that_is_anothers_share_by_now_is_not_asked_for(stage: Stage) -> None:
    """It was refused while it was this member's share; its release is for the member whose share it is."""
    it = await rebalancing(stage)
    it.taken = [queue_at(1), queue_at(2)]
    await it.run()
    it.members = [FIRST, it.me]
    await it.run()
    asked = it.asked(LOCK)
    await it.rebalance.take_released([queue_at(1)])
    assert it.asked(LOCK) == asked
