"""Queues that begin again at an offset that an administrator or the broker set (wire.md 12.9), and their locks."""

from collections.abc import Callable

from lockstep.client.consumer.cache.message_cache import MessageCache
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.ownership.reset import OffsetReset
from tests.client.messages import messages_at
from tests.client.ownership.rebalancing import FIRST, LOCK, UNLOCK, Rebalancing, rebalancing
from tests.client.stage import TOPIC, Stage, on_stage, queue_at


async def correct_to(reset: OffsetReset, process_queue: ProcessQueue, offset: int) -> None:
    """As after a pull whose offset was illegal, when the broker's lowest offset is the one that it gives."""
    process_queue.cache.next_offset = offset
    await reset.correct(process_queue, range(offset, offset), offset, 0)


def reset_of(it: Rebalancing) -> OffsetReset:
    return OffsetReset(it.member, it.locks, it.rebalance, done=lambda: None)


async def owner_of_one(stage: Stage) -> tuple[Rebalancing, ProcessQueue]:
    it = await rebalancing(stage, 1)
    await it.run()
    return it, it.table[queue_at(0)]


@on_stage
async def test_a_reset_queue_is_given_back_unless_it_is_taken_again(stage: Stage) -> None:
    """The next round may allocate it to another member, which must not wait until the lock expires."""
    it, first = await owner_of_one(stage)
    await correct_to(reset_of(it), first, 7)
    await it.run()
    await stage.world.sleep_ms(30_000)
    assert it.committed() == [(0, 7)]
    assert (it.owned, it.asked(UNLOCK)) == ([0], [])
    await correct_to(reset_of(it), it.table[queue_at(0)], 8)
    await stage.world.sleep_ms(30_000)
    assert (it.owned, it.asked(UNLOCK)) == ([], [(queue_at(0),)])


@on_stage
async def test_what_left_the_table_meanwhile_is_not_asked_for(stage: Stage) -> None:
    """It is another's by now, and its lock with it; nothing is asked of a client that ends, either."""
    it, gone = await owner_of_one(stage)
    asked = it.asked(LOCK)
    del it.table[queue_at(0)]
    await correct_to(reset_of(it), gone, 7)
    it.table[queue_at(0)] = gone
    ending = reset_of(it)
    ending.stop()
    await correct_to(ending, gone, 7)
    assert (it.asked(LOCK), it.committed()) == (asked, [])


@on_stage
async def test_a_reset_waits_for_the_running_listener(stage: Stage) -> None:
    """However long it runs: an unlock under it would let the next owner begin beside it."""
    it, busy = await owner_of_one(stage)
    asked = it.asked(LOCK)
    busy.life.listener_running = True
    reset_of(it).start(TOPIC, {queue_at(0): 7})
    await stage.world.sleep_ms(100_000)
    assert (it.asked(LOCK), it.asked(UNLOCK), it.committed()) == (asked, [], [])
    assert it.table == {queue_at(0): busy}
    assert stage.events("warning") == ["reset_waits_for_listener"]
    busy.life.listener_returned()
    await stage.world.sleep_ms(100)
    assert (it.table, it.committed()) == ({}, [(0, 7)])


@on_stage
async def test_a_stuck_listener_does_not_hold_other_resets_up(stage: Stage) -> None:
    """After 10 s the queues whose listener has ended begin anew."""
    it = await rebalancing(stage, 2)
    await it.run()
    stuck, busy = it.table[queue_at(0)], it.table[queue_at(1)]
    stuck.life.listener_running = busy.life.listener_running = True
    reset = reset_of(it)
    reset.start(TOPIC, {queue_at(0): 7, queue_at(1): 8})
    await stage.world.sleep_ms(5_000)
    busy.life.listener_returned()
    await stage.world.sleep_ms(6_000)
    assert (list(it.table), it.committed()) == ([queue_at(0)], [(1, 8)])
    reset.stop()
    await stage.world.sleep_ms(1)


@on_stage
async def test_a_rebalance_leaves_a_queue_to_its_reset(stage: Stage) -> None:
    """The handled offset must not be committed over the new one; after the reset the queue is given back."""
    it, busy = await owner_of_one(stage)
    it.offsets.update(queue_at(0), 100)
    busy.life.listener_running = True
    reset_of(it).start(TOPIC, {queue_at(0): 7})
    it.members = [FIRST, it.me]
    await it.run()
    assert it.table == {queue_at(0): busy}
    busy.life.listener_returned()
    await it.run()
    assert (it.table, it.committed()) == ({}, [(0, 7)])
    await stage.world.sleep_ms(20_000)
    assert it.asked(UNLOCK) == [(queue_at(0),)]


@on_stage
async def test_a_corrected_offset_waits_for_the_running_listener(stage: Stage) -> None:
    """So does a reset; a reset that arrives meanwhile replaces the correction."""
    it, busy = await owner_of_one(stage)
    busy.life.dropped, busy.cache.next_offset, busy.life.listener_running = True, 5, True
    reset = reset_of(it)
    correcting = stage.client.create_task(reset.correct(busy, range(5), 5, 10_000), name="correct")
    await stage.world.sleep_ms(5_000)
    reset.start(TOPIC, {queue_at(0): 7})
    await stage.world.sleep_ms(60_000)
    assert (it.asked(UNLOCK), it.committed(), list(it.table)) == ([], [], [queue_at(0)])
    busy.life.listener_returned()
    await correcting
    await stage.world.sleep_ms(100)
    assert (it.table, it.committed()) == ({}, [(0, 7)])


@on_stage
async def test_a_reset_that_fails_leaves_the_queue_to_the_rebalance(stage: Stage) -> None:
    """A trace that cannot be written, say: the queue must not stay dropped for ever."""
    it, busy = await owner_of_one(stage)

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space")

    it.trace.queue_event = fail  # type: ignore[method-assign]
    await correct_to(reset_of(it), busy, 7)
    assert not busy.life.resetting
    assert stage.events("error") == ["offset_reset_failed"]


async def corrected_during_a_call(stage: Stage, end: Callable[[MessageCache], object]) -> list[tuple[int, int]]:
    """The broker's log loses its offsets from 6 on during the call of offset 4. Returns what is committed."""
    it, busy = await owner_of_one(stage)
    busy.cache.put_messages(messages_at(4, 5, 6, 7))
    busy.cache.take_messages(1)
    busy.life.dropped, busy.cache.next_offset, busy.life.listener_running = True, 6, True
    correcting = stage.client.create_task(reset_of(it).correct(busy, range(6), 6, 0), name="correct")
    await stage.world.sleep_ms(5_000)
    busy.life.listener_returned()
    end(busy.cache)
    await correcting
    await stage.world.sleep_ms(100)
    return it.committed()


@on_stage
async def test_a_corrected_queue_begins_behind_the_call_that_ended(stage: Stage) -> None:
    """A call that ends well after the correction is not repeated."""
    assert await corrected_during_a_call(stage, MessageCache.commit) == [(0, 5)]


@on_stage
async def test_a_corrected_queue_begins_at_the_call_that_failed(stage: Stage) -> None:
    """None is skipped."""
    assert await corrected_during_a_call(stage, MessageCache.rollback) == [(0, 4)]


@on_stage
async def test_a_corrected_queue_begins_where_the_log_ends(stage: Stage) -> None:
    """The handled message, and those behind it, are not in the log any more."""
    it, busy = await owner_of_one(stage)
    busy.cache.put_messages(messages_at(4, 5, 6, 7))
    busy.cache.take_messages(1)
    busy.life.dropped, busy.cache.next_offset = True, 3
    busy.cache.commit()
    await reset_of(it).correct(busy, range(3), 3, 0)
    await stage.world.sleep_ms(100)
    assert it.committed() == [(0, 3)]
