"""Lock and unlock requests whose answers are late, missing or out of order (wire.md 7.3)."""

from collections.abc import Callable

from lockstep.client import ConsumerConfig
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.codes import ResponseCode
from tests.client.ownership.locks_stage import LOCK, UNLOCK, UNLOCK_DELAY_MS, answer, body_of, grant, locks_on
from tests.client.stage import FakeBroker, Stage, on_stage, queue_at


@on_stage
async def test_an_unlock_timer_never_fires_inside_a_lock_call(stage: Stage) -> None:
    """It has the grant of one broker and waits for another: the timer of an earlier call must not free the first."""
    first, second, locks = await locks_on(stage, unlock_delay_ms=500)
    both = [queue_at(0), queue_at(0, "broker-b")]
    await locks.locks.lock(both)  # the connections are there
    second.answers(LOCK, None)
    first.seen.clear()
    earlier = stage.client.create_task(locks.locks.lock([queue_at(0)]), name="lock")
    calling = stage.client.create_task(locks.locks.lock(both), name="lock")
    await earlier  # nobody takes it: its unlock is due in 500 ms
    assert list(await calling) == [queue_at(0)]
    locks.add(queue_at(0))
    await stage.world.sleep_ms(UNLOCK_DELAY_MS)
    assert first.requests(UNLOCK) == []


@on_stage
async def test_a_lock_waits_for_the_answer_to_an_unlock(stage: Stage) -> None:
    """Apache's broker may handle the unlock after the lock, and free a queue whose lock this client trusts."""
    first, _, locks = await locks_on(stage)
    await locks.locks.lock([queue_at(0)])
    first.answers(UNLOCK, None)
    locks.locks.unlock(queue_at(0))
    begin_ms, asked = stage.world.elapsed_ms, len(first.requests(LOCK))
    assert list(await locks.locks.lock([queue_at(0), queue_at(1)])) == [queue_at(1)]
    assert 1000 <= stage.world.elapsed_ms - begin_ms < 1100, "as long as a lock request waits"
    assert [body_of(command).mq_set for command in first.requests(LOCK)[asked:]] == [(queue_at(1),)]
    locks.locks.unlock(queue_at(1))
    (unlock,) = [command for command in first.requests(UNLOCK) if body_of(command).mq_set == (queue_at(0),)]
    first.endpoints[-1].reply(unlock.reply(ResponseCode.SUCCESS))
    assert list(await locks.locks.lock([queue_at(0)])) == [queue_at(0)]


def late_lock(broker: FakeBroker) -> Callable[[], None]:
    """The broker gets lock requests and does nothing; what is returned grants them all."""
    broker.answers(LOCK, None)

    def grant_all() -> None:
        for command in broker.requests(LOCK):
            body = encode_body(grant()(command), command.serialize_type)
            broker.endpoints[-1].reply(command.reply(ResponseCode.SUCCESS, body=body))
        answer(broker, grant())

    return grant_all


@on_stage
async def test_a_lock_that_is_granted_late_is_given_back(stage: Stage) -> None:
    """However late: also behind the unlock that was sent when its time was over."""
    first, _, locks = await locks_on(stage)
    grant_late = late_lock(first)
    assert await locks.locks.lock([queue_at(0)]) == {}
    await stage.world.sleep_ms(UNLOCK_DELAY_MS + 5000)
    assert len(first.requests(UNLOCK)) == 1
    grant_late()
    await stage.world.sleep_ms(1000)
    assert len(first.requests(UNLOCK)) == 2
    assert stage.events("warning")[-1] == "lock_answered_late"
    await stage.world.sleep_ms(4 * UNLOCK_DELAY_MS)
    assert len(first.requests(UNLOCK)) == 2, "all is settled"


@on_stage
async def test_many_late_answers_are_one_line_a_minute(stage: Stage) -> None:
    """After a partition many answers arrive at once; the next log event has the number of the others."""
    first, _, locks = await locks_on(stage)
    for count, then_ms in ((3, 61_000), (1, 1000)):
        grant_late = late_lock(first)
        for queue_id in range(count):
            await locks.locks.lock([queue_at(queue_id)])
        grant_late()
        await stage.world.sleep_ms(then_ms)
        first.seen.clear()
    lines = [fields for _, event, fields in stage.log.events if event == "lock_answered_late"]
    assert [fields["more_before"] for fields in lines] == [0, 2]


@on_stage
async def test_a_lock_request_whose_connection_ended_is_undone_later(stage: Stage) -> None:
    """No answer can arrive, and the broker may still handle the request: the queue is unlocked when that is no longer
    possible."""
    first, _, locks = await locks_on(stage)
    late_lock(first)
    await locks.locks.lock([queue_at(0)])
    locks.locks.unlock(queue_at(0))
    await stage.world.sleep_ms(1000)
    first.endpoints[-1].abort("test")
    await stage.world.sleep_ms(1000)
    answer(first, grant())
    await locks.locks.lock([queue_at(1)])  # a new connection
    locks.add(queue_at(1))
    await stage.world.sleep_ms(60_000)
    freed = [body_of(command).mq_set for command in first.requests(UNLOCK)]
    assert freed[-1] == (queue_at(0),)
    assert 2 <= len(freed) <= 3
    await stage.world.sleep_ms(60_000)
    assert len(first.requests(UNLOCK)) == len(freed), "all is settled"


@on_stage
async def test_an_unlock_may_come_before_a_lock_of_an_ended_connection(stage: Stage) -> None:
    """The unlock is answered over a new connection while the broker may still handle the lock: another one follows."""
    first, _, locks = await locks_on(stage)
    late_lock(first)
    await locks.locks.lock([queue_at(0)])
    first.endpoints[-1].abort("test")
    await stage.world.sleep_ms(100)
    ended_ms = stage.world.elapsed_ms
    answer(first, grant())
    await locks.locks.lock([queue_at(1)])  # a new connection
    locks.add(queue_at(1))
    locks.locks.unlock(queue_at(0))
    await stage.world.sleep_ms(100)
    assert len(first.requests(UNLOCK)) == 1
    await stage.world.sleep_ms(ended_ms + ConsumerConfig().lock_settle_ms - stage.world.elapsed_ms)
    assert [body_of(command).mq_set for command in first.requests(UNLOCK)] == [(queue_at(0),)] * 2


@on_stage
async def test_a_lock_waits_for_an_unlock_of_an_ended_connection(stage: Stage) -> None:
    """The broker may still handle the unlock: the queue is asked for when that is no longer possible."""
    first, _, locks = await locks_on(stage)
    await locks.locks.lock([queue_at(0)])
    first.answers(UNLOCK, None)
    locks.locks.unlock(queue_at(0))
    await stage.world.sleep_ms(100)
    first.endpoints[-1].abort("test")
    first.answers(UNLOCK, ResponseCode.SUCCESS)
    assert list(await locks.locks.lock([queue_at(0), queue_at(1)])) == [queue_at(1)]
    await stage.world.sleep_ms(ConsumerConfig().lock_settle_ms)
    assert list(await locks.locks.lock([queue_at(0)])) == [queue_at(0)]


@on_stage
async def test_a_shutdown_waits_for_locks_without_an_answer(stage: Stage) -> None:
    """Granted late, they are unlocked before the client goes."""
    first, _, locks = await locks_on(stage)
    grant_late = late_lock(first)
    await locks.locks.lock([queue_at(0)])
    stage.world.loop.call_later(3, grant_late)
    begin_ms = stage.world.elapsed_ms
    await locks.locks.unlock_all([])
    assert 3000 <= stage.world.elapsed_ms - begin_ms < 3100
    assert [body_of(command).mq_set for command in first.requests(UNLOCK)] == [(queue_at(0),)] * 2
    assert stage.events("warning") == ["lock_request_failed", "lock_answered_late"]


@on_stage
async def test_a_shutdown_that_cannot_settle_a_lock_says_so(stage: Stage) -> None:
    """It waits `await_termination_ms`, unlocks once more, and the log names the queue."""
    first, _, locks = await locks_on(stage)
    late_lock(first)
    await locks.locks.lock([queue_at(0)])
    begin_ms = stage.world.elapsed_ms
    await locks.locks.unlock_all([])
    assert 5000 <= stage.world.elapsed_ms - begin_ms < 5100
    assert [body_of(command).mq_set for command in first.requests(UNLOCK)] == [(queue_at(0),)] * 2
    assert stage.events("warning") == ["lock_request_failed", "lock_unsettled"]
    assert await locks.locks.lock([queue_at(0)]) == {}, "nothing is asked for any more"


@on_stage
async def test_an_unlock_without_an_answer_is_sent_again(stage: Stage) -> None:
    """When it cannot be handled any more. Until it is answered the queue is not asked for, and else never again."""
    first, _, locks = await locks_on(stage)
    await locks.locks.lock([queue_at(0)])
    first.answers(UNLOCK, None, ResponseCode.SUCCESS)
    locks.locks.unlock(queue_at(0))
    config = ConsumerConfig()
    await stage.world.sleep_ms(config.broker_lock_life_ms + config.lock_settle_ms - 100)
    assert len(first.requests(UNLOCK)) == 1
    await stage.world.sleep_ms(200)
    assert len(first.requests(UNLOCK)) == 2
    assert list(await locks.locks.lock([queue_at(0)])) == [queue_at(0)]


@on_stage
async def test_an_unlock_that_failed_is_tried_again(stage: Stage) -> None:
    """The broker was busy, or its connection ended first; not for ever."""
    first, _, locks = await locks_on(stage)
    await locks.locks.lock([queue_at(0)])
    first.answers(UNLOCK, ResponseCode.SYSTEM_BUSY)
    locks.locks.unlock(queue_at(0))
    await stage.world.sleep_ms(UNLOCK_DELAY_MS + 100)
    assert len(first.requests(UNLOCK)) == 2
    await stage.world.sleep_ms(10 * UNLOCK_DELAY_MS)
    assert len(first.requests(UNLOCK)) == 4
    assert stage.events("warning") == ["unlock_failed"] * 4 + ["unlock_given_up"]
    await locks.locks.lock([queue_at(0)])
    first.answers(UNLOCK, None)
    locks.locks.unlock(queue_at(0))
    await stage.world.sleep_ms(100)
    first.endpoints[-1].abort("test")
    await stage.world.sleep_ms(100)
    answer(first, grant())
    await locks.locks.lock([queue_at(1)])  # a new connection
    await stage.world.sleep_ms(UNLOCK_DELAY_MS + 100)
    freed = [body_of(command).mq_set for command in first.requests(UNLOCK)]
    assert freed.count((queue_at(0),)) == 6
    assert queue_at(0) in await locks.locks.lock([queue_at(0)])
