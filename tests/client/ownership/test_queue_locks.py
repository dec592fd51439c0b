"""The client's side of the broker's locks (wire.md 7.3): requested, granted, refused, unanswered."""

import asyncio
from collections.abc import Awaitable

from lockstep.client.consumer.ownership.lock_port import Grant
from lockstep.protocol.codes import ResponseCode
from tests.client.ownership.locks_stage import (
    GROUP,
    LIVE_MS,
    LOCK,
    UNLOCK,
    UNLOCK_DELAY_MS,
    answer,
    body_of,
    grant,
    locks_on,
)
from tests.client.stage import Stage, on_stage, queue_at


@on_stage
async def test_one_request_a_broker(stage: Stage) -> None:
    """It has sorted queues, the group and the client's id; the result joins the answers of both brokers."""
    first, second, locks = await locks_on(stage)
    answer(second, grant(queue_at(1, "broker-b")))
    wanted = [queue_at(2), queue_at(1, "broker-b"), queue_at(0), queue_at(0, "broker-b")]
    granted = await locks.locks.lock(wanted)
    assert sorted(granted) == [queue_at(0), queue_at(2), queue_at(0, "broker-b")]
    assert [body_of(command)[:3] for command in first.requests(LOCK)] == [
        (GROUP, locks.instance.client_id, (queue_at(0), queue_at(2)))
    ]
    assert [body_of(command).mq_set for command in second.requests(LOCK)] == [
        (queue_at(0, "broker-b"), queue_at(1, "broker-b"))
    ]


@on_stage
async def test_thousands_of_queues_are_asked_for_in_several_requests(stage: Stage) -> None:
    """A broker with fenced locks takes 1,024 queues in one. So are renewals and unlocks, each queue once."""
    first, _, locks = await locks_on(stage)
    wanted = [queue_at(number) for number in range(2500)]
    assert sorted(await locks.locks.lock(wanted)) == wanted
    for queue in wanted:
        locks.add(queue)
    await locks.locks.lock_all()
    await locks.locks.unlock_all(wanted)
    for code, times in ((LOCK, 2), (UNLOCK, 1)):
        asked = [body_of(command).mq_set for command in first.requests(code)]
        assert [len(queues) for queues in asked] == [1000, 1000, 500] * times
        assert sorted(queue for queues in asked for queue in queues) == sorted(wanted * times)


@on_stage
async def test_a_lock_counts_from_when_it_was_asked_for(stage: Stage) -> None:
    """However late its answer is read: a client that stood still meanwhile must not trust the lock longer."""
    first, _, locks = await locks_on(stage)
    await locks.locks.lock([queue_at(0)])  # the connection is there
    asked_ms = stage.client.now_ms()
    stage.world.hold("broker-a", "client")
    stage.world.loop.call_later(0.5, stage.world.release, "broker-a", "client")
    granted = await locks.locks.lock([queue_at(0)])
    assert granted == {queue_at(0): Grant(asked_ms)}
    assert stage.client.now_ms() >= asked_ms + 500
    held = locks.add(queue_at(1))
    stage.world.hold("broker-a", "client")
    asked_ms = stage.client.now_ms() + 100
    stage.world.loop.call_later(0.9, stage.world.release, "broker-a", "client")
    await stage.world.sleep_ms(100)
    await locks.locks.lock_all()
    assert held.hold.last_lock_ms == asked_ms
    assert len(first.requests(LOCK)) == 3


@on_stage
async def test_a_queue_that_is_not_granted(stage: Stage) -> None:
    """It is just not among those granted, and a broker that refuses or is silent grants nothing."""
    first, second, locks = await locks_on(stage)
    answer(first, grant(queue_at(0)))
    assert await locks.locks.lock([queue_at(0)]) == {}
    first.answers(LOCK, ResponseCode.SYSTEM_ERROR)
    second.answers(LOCK, None)
    begin_ms = stage.world.elapsed_ms
    assert await locks.locks.lock([queue_at(0), queue_at(0, "broker-b")]) == {}
    assert 1000 <= stage.world.elapsed_ms - begin_ms < 1100, "a lock is asked for with a limit of 1 s"


@on_stage
async def test_renewing_all(stage: Stage) -> None:
    """Granted locks live on; a requested and not granted lock is lost and logged once; dropped queues are left out."""
    first, _, locks = await locks_on(stage)
    kept, lost, dropped, elsewhere = (
        locks.add(queue) for queue in (queue_at(0), queue_at(1), queue_at(2), queue_at(0, "broker-b"))
    )
    dropped.life.dropped = True
    answer(first, grant(queue_at(1)))
    await stage.world.sleep_ms(20_000)
    for _ in range(2):
        await locks.locks.lock_all()
    now_ms = stage.client.now_ms()
    assert [pq.hold.is_younger(now_ms, 100) for pq in (kept, lost, dropped, elsewhere)] == [True, False, False, True]
    assert not lost.hold.locked
    assert [body_of(command).mq_set for command in first.requests(LOCK)] == [(queue_at(0), queue_at(1))] * 2
    assert [(record["event"], record["queue_id"]) for record in locks.traced()] == [("lock_lost", 1)]
    assert stage.events("warning") == ["lock_lost"]


@on_stage
async def test_a_silent_broker_changes_nothing(stage: Stage) -> None:
    """The local view runs out by itself 30 s after the last grant; the other broker's locks are renewed."""
    first, _, locks = await locks_on(stage)
    silent, renewed = locks.add(queue_at(0)), locks.add(queue_at(0, "broker-b"))
    first.answers(LOCK, None)
    granted_ms = silent.hold.last_lock_ms
    await stage.world.sleep_ms(20_000)
    await locks.locks.lock_all()
    assert silent.hold.locked
    assert silent.hold.last_lock_ms == granted_ms
    assert silent.hold.is_trusted(granted_ms + LIVE_MS)
    assert not silent.hold.is_trusted(granted_ms + LIVE_MS + 1)
    assert renewed.hold.last_lock_ms >= granted_ms + 20_000
    assert locks.traced() == []


@on_stage
async def test_a_lock_that_was_lost_and_reacquired(stage: Stage) -> None:
    """Another client may have owned the queue in between: its process queue ends, it is not simply locked again."""
    first, _, locks = await locks_on(stage)
    refused, run_out = locks.add(queue_at(0)), locks.add(queue_at(1))
    answer(first, grant(queue_at(0)))
    await locks.locks.lock_all()
    answer(first, grant())
    await locks.locks.lock([queue_at(0)])
    assert locks.reacquired == [refused]
    assert not refused.hold.locked
    await stage.world.sleep_ms(60_000)
    await locks.locks.lock_all()
    assert locks.reacquired == [refused, refused, run_out]
    assert refused.life.outlived_lock
    assert run_out.life.outlived_lock


@on_stage
async def test_a_renewal_after_a_gap_that_cost_no_lock(stage: Stage) -> None:
    """Not trusted any more, but no broker has given it to another client yet: the period goes on."""
    _, _, locks = await locks_on(stage)
    owned = locks.add(queue_at(0))
    await stage.world.sleep_ms(45_000)
    assert not owned.hold.is_trusted(stage.client.now_ms())
    await locks.locks.lock_all()
    assert locks.reacquired == []
    assert owned.hold.is_trusted(stage.client.now_ms())


@on_stage
async def test_a_new_connection_renews_the_locks_of_its_own_broker(stage: Stage) -> None:
    """A broker grants a queue of any name: the lock of another broker's queue would be worth nothing."""
    first, second, locks = await locks_on(stage)
    for broker in ("broker-a", "broker-b"):
        locks.add(queue_at(0, broker))
    endpoint = await locks.instance.dialer.endpoint(first.address)
    await locks.locks.lock_all_over(first.address, endpoint)
    assert [body_of(command).mq_set for command in first.requests(LOCK)] == [(queue_at(0),)]
    assert second.requests(LOCK) == []


@on_stage
async def test_a_grant_of_a_queue_that_was_given_up_is_not_taken(stage: Stage) -> None:
    """Its unlock is on its way: a period that began with the grant would run without a lock."""
    first, _, locks = await locks_on(stage)
    await locks.locks.lock([queue_at(1)])  # the connection is there
    stage.world.hold("broker-a", "client")
    asking = stage.client.create_task(locks.locks.lock([queue_at(0)]), name="lock")
    await stage.world.sleep_ms(100)
    locks.locks.unlock(queue_at(0))
    stage.world.release("broker-a", "client")
    assert await asking == {}
    assert locks.locks.refusals[queue_at(0)].why == "given up before the answer came"
    await stage.world.sleep_ms(100)
    assert [body_of(command).mq_set for command in first.requests(UNLOCK)] == [(queue_at(0),)]


@on_stage
async def test_a_queue_that_leaves_the_table_during_a_renewal(stage: Stage) -> None:
    """The other queues are renewed."""
    _, _, locks = await locks_on(stage)
    kept = locks.add(queue_at(0))
    locks.add(queue_at(1))
    await stage.world.sleep_ms(5000)
    renewing = stage.client.create_task(locks.locks.lock_all(), name="renew")
    del locks.table[queue_at(1)]
    await renewing
    assert kept.hold.is_younger(stage.client.now_ms(), 1000)


@on_stage
async def test_unlocking_at_a_rebalance(stage: Stage) -> None:
    """The rebalance does not wait for the answer, but a new lock request does. No connection is made for an unlock."""
    first, _, locks = await locks_on(stage)
    locks.locks.unlock(queue_at(0))
    assert first.endpoints[1:] == []
    await locks.locks.lock([queue_at(0)])
    locks.locks.unlock(queue_at(0))
    await stage.world.until(lambda: first.requests(UNLOCK))
    (command,) = first.requests(UNLOCK)
    assert not command.is_one_way
    assert body_of(command)[:3] == (GROUP, locks.instance.client_id, (queue_at(0),))


@on_stage
async def test_unlocking_at_a_shutdown(stage: Stage) -> None:
    """Each broker's answer is waited for, a second at most; one that is silent does not keep the other's queues."""
    first, second, locks = await locks_on(stage)
    first.answers(UNLOCK, None)
    await locks.locks.unlock_all([queue_at(0, "broker-b"), queue_at(1), queue_at(0)])
    assert [body_of(command).mq_set for command in first.requests(UNLOCK)] == [(queue_at(0), queue_at(1))]
    assert [body_of(command).mq_set for command in second.requests(UNLOCK)] == [(queue_at(0, "broker-b"),)]
    assert not any(command.is_one_way for command in (*first.requests(UNLOCK), *second.requests(UNLOCK)))
    assert stage.events("warning") == ["unlock_failed"]


@on_stage
async def test_a_shutdown_does_not_wait_for_delayed_unlocks(stage: Stage) -> None:
    """They are sent at once: after it their timers would not fire, and the queues stay locked until they expire."""
    first, _, locks = await locks_on(stage)
    await locks.locks.lock([queue_at(0)])
    locks.locks.unlock_later(queue_at(0))
    await locks.locks.unlock_all([])
    assert [body_of(command).mq_set for command in first.requests(UNLOCK)] == [(queue_at(0),)]


@on_stage
async def test_no_lock_is_asked_for_after_a_shutdown_has_begun(stage: Stage) -> None:
    """Nobody would unlock the queue."""
    first, _, locks = await locks_on(stage)
    locks.add(queue_at(0))
    await locks.locks.lock_all()
    leaving = stage.client.create_task(locks.locks.unlock_all([queue_at(0)]), name="unlock all")
    await stage.world.sleep_ms(0)
    assert await locks.locks.lock([queue_at(1)]) == {}
    await leaving
    await locks.locks.lock_all()
    assert len(first.requests(LOCK)) == 1


@on_stage
async def test_an_unlock_never_overtakes_a_lock(stage: Stage) -> None:
    """Apache's broker handles requests of one connection in parallel: a renewal after an unlock would lock again. This
    also holds at a shutdown, when the caller no longer waits for the renewal."""
    first, _, locks = await locks_on(stage)
    locks.add(queue_at(0))
    await locks.locks.lock([queue_at(0)])  # the connection is there
    for unlock in (lambda queues: locks.locks.unlock(*queues), locks.locks.unlock_all):
        stage.world.hold("broker-a", "client")
        renewing = stage.client.create_task(locks.locks.lock_all(), name="renew")
        await stage.world.sleep_ms(100)
        renewing.cancel()
        told = stage.client.create_task(_awaited(unlock([queue_at(0)])), name="unlock")
        await stage.world.sleep_ms(100)
        assert first.requests(UNLOCK) == []
        stage.world.release("broker-a", "client")
        await stage.world.until(lambda: first.requests(UNLOCK))
        await told
        first.seen.clear()


@on_stage
async def test_a_shutdown_waits_for_the_lock_call_under_way(stage: Stage) -> None:
    """What it grants is unlocked while there is a connection; else the queue is locked until its lock expires."""
    first, _, locks = await locks_on(stage)
    locks.add(queue_at(0))
    await locks.locks.lock([queue_at(0)])  # the connection is there
    stage.world.hold("broker-a", "client")
    renewing = stage.client.create_task(locks.locks.lock_all(), name="renew")
    await stage.world.sleep_ms(100)
    leaving = stage.client.create_task(locks.locks.unlock_all([queue_at(0)]), name="leave")
    await stage.world.sleep_ms(100)
    assert not leaving.done()
    stage.world.release("broker-a", "client")
    await asyncio.gather(renewing, leaving)
    assert [body_of(command).mq_set for command in first.requests(UNLOCK)] == [(queue_at(0),)]


async def _awaited(answer: Awaitable[None] | None) -> None:
    if answer is not None:
        await answer


@on_stage
async def test_a_queue_that_is_asked_for_again_is_not_unlocked(stage: Stage) -> None:
    """Neither by an unlock that waits for a renewal, nor by one whose timer fires before the lock's answer."""
    first, _, locks = await locks_on(stage)
    await locks.locks.lock([queue_at(0)])  # the connection is there
    locks.add(queue_at(0))
    stage.world.hold("broker-a", "client")
    renewing = stage.client.create_task(locks.locks.lock_all(), name="renew")
    await stage.world.sleep_ms(100)
    del locks.table[queue_at(0)]
    locks.locks.unlock(queue_at(0))
    again = stage.client.create_task(locks.locks.lock([queue_at(0)]), name="lock")
    await stage.world.sleep_ms(100)
    stage.world.release("broker-a", "client")
    await renewing
    assert queue_at(0) in await again
    locks.add(queue_at(0))
    del locks.table[queue_at(0)]
    locks.locks.unlock_later(queue_at(0))
    await stage.world.sleep_ms(UNLOCK_DELAY_MS - 100)
    stage.world.hold("broker-a", "client")
    again = stage.client.create_task(locks.locks.lock([queue_at(0)]), name="lock")
    await stage.world.sleep_ms(200)
    stage.world.release("broker-a", "client")
    assert queue_at(0) in await again
    locks.add(queue_at(0))
    await stage.world.sleep_ms(2 * UNLOCK_DELAY_MS)
    assert first.requests(UNLOCK) == []


@on_stage
async def test_a_lock_that_was_not_answered_is_given_back(stage: Stage) -> None:
    """The broker may have granted it: without an unlock no other client would get the queue until the lock expires."""
    first, _, locks = await locks_on(stage)
    first.answers(LOCK, None)
    assert await locks.locks.lock([queue_at(0), queue_at(1)]) == {}
    locks.add(queue_at(1))  # it came by another request
    await stage.world.sleep_ms(UNLOCK_DELAY_MS + 100)
    assert [body_of(command).mq_set for command in first.requests(UNLOCK)] == [(queue_at(0),)]


@on_stage
async def test_a_lock_that_nobody_took_is_given_back(stage: Stage) -> None:
    """The caller may no longer want it when it is granted; a refused lock belongs to another client."""
    first, _, locks = await locks_on(stage)
    answer(first, grant(queue_at(1)))
    assert list(await locks.locks.lock([queue_at(0), queue_at(1)])) == [queue_at(0)]
    await stage.world.sleep_ms(UNLOCK_DELAY_MS + 100)
    assert [body_of(command).mq_set for command in first.requests(UNLOCK)] == [(queue_at(0),)]


@on_stage
async def test_an_unlock_is_repeated_after_a_renewal_without_an_answer(stage: Stage) -> None:
    """At once, and again when the broker must have handled the renewal."""
    first, _, locks = await locks_on(stage)
    await locks.locks.lock([queue_at(0)])  # the connection is there
    locks.add(queue_at(0))
    first.answers(LOCK, None)
    renewing = stage.client.create_task(locks.locks.lock_all(), name="renew")
    await stage.world.sleep_ms(100)
    del locks.table[queue_at(0)]
    locks.locks.unlock(queue_at(0))
    await renewing
    await stage.world.sleep_ms(100)
    assert len(first.requests(UNLOCK)) == 1
    await stage.world.sleep_ms(UNLOCK_DELAY_MS)
    assert [body_of(command).mq_set for command in first.requests(UNLOCK)] == [(queue_at(0),)] * 2
