"""A reset of a queue whose lock another client has got meanwhile (client/consumer/ownership/reset.py)."""

from lockstep.client.consumer.ownership.reset import OffsetReset
from tests.client.ownership.rebalancing import UNLOCK, rebalancing
from tests.client.ownership.test_offset_reset import correct_to
from tests.client.stage import Stage, on_stage, queue_at


@on_stage
async def test_a_queue_that_is_not_ours_any_more_is_not_reset(stage: Stage) -> None:
    """Its new owner's offset and lock are not changed. The queue leaves the table, and the next rebalance asks for it
    as for any other. Queues that still belong to this client are reset."""
    it = await rebalancing(stage, 2)
    await it.run()
    lost, kept = it.table[queue_at(0)], it.table[queue_at(1)]
    lost.life.dropped = kept.life.dropped = True
    told: list[str] = []
    reset = OffsetReset(it.member, it.locks, it.rebalance, done=lambda: told.append("done"))
    it.taken = [queue_at(0)]
    await correct_to(reset, lost, 7)
    await correct_to(reset, kept, 8)
    await stage.world.sleep_ms(10)  # one-way requests arrive
    assert (it.table, it.committed(), told) == ({}, [(1, 8)], ["done", "done"])
    assert stage.events("warning") == ["offset_reset_refused"]
    await stage.world.sleep_ms(60_000)
    assert [queues for queues in it.asked(UNLOCK) if queue_at(0) in queues] == []
    assert it.offsets.in_memory(queue_at(0)) != 7
    it.taken = []
    await it.run()
    assert it.owned == [0, 1]
    assert it.table[queue_at(0)] is not lost
