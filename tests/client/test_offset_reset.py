"""Queues that begin anew at an offset somebody else chose (wire.md 12.9): whose locks are asked for, and until when."""

from lockstep.client.offset_reset import OffsetReset
from lockstep.client.process_queue import ProcessQueue
from tests.client.rebalancing import LOCK, UNLOCK, Rebalancing, rebalancing
from tests.client.stage import Stage, on_stage, queue_at


def reset_of(it: Rebalancing) -> OffsetReset:
    return OffsetReset(it.instance, it.table, it.locks, it.offsets, it.rebalance, done=lambda: None, trace=it.trace)


async def owner_of_one(stage: Stage) -> tuple[Rebalancing, ProcessQueue]:
    it = await rebalancing(stage, 1)
    await it.run()
    return it, it.table[queue_at(0)]


@on_stage
async def test_a_reset_queue_is_given_back_unless_it_is_taken_again(stage: Stage) -> None:
    """The next round may give it to another, who must not wait until its lock expires."""
    it, first = await owner_of_one(stage)
    await reset_of(it).restart({first: 7})
    await it.run()
    await stage.world.sleep_ms(30_000)
    assert it.committed() == [(0, 7)]
    assert (it.owned, it.asked(UNLOCK)) == ([0], [])
    await reset_of(it).restart({it.table[queue_at(0)]: 8})
    await stage.world.sleep_ms(30_000)
    assert (it.owned, it.asked(UNLOCK)) == ([], [(queue_at(0),)])


@on_stage
async def test_what_left_the_table_meanwhile_is_not_asked_for(stage: Stage) -> None:
    """It is another's by now, and its lock with it; nothing is asked of a client that ends, either."""
    it, gone = await owner_of_one(stage)
    asked = it.asked(LOCK)
    del it.table[queue_at(0)]
    await reset_of(it).restart({gone: 7})
    it.table[queue_at(0)] = gone
    ending = reset_of(it)
    ending.stop()
    await ending.restart({gone: 7})
    assert (it.asked(LOCK), it.committed()) == (asked, [])
