"""Fenced locks at the client: epochs, leases, connections, brokers without a fence (docs/fencing.md)."""

import pytest

from lockstep.client import ConsumerConfig
from lockstep.client.consumer.ownership.lock_requests import LockReply, Queues
from lockstep.client.consumer.ownership.lock_states import LockState, QueueLock
from lockstep.client.consumer.ownership.period_end import EndCause
from lockstep.client.errors import ConsumerError
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.locks import LockOkBody
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.connections.endpoint import Endpoint
from tests.client.ownership.fenced_stage import GROUP, LEASE_MS, RIVAL, Fenced, fenced_on, requests
from tests.client.ownership.locks_stage import answer, grant
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ
MARGIN_MS = LEASE_MS // 20


@on_stage
async def test_an_epoch_is_learned_from_a_grant_and_presented_from_then_on(stage: Stage) -> None:
    """A new claimant presents 0, a renewal the epoch, and so does the unlock; after it the next claim is a new one."""
    broker, table, fenced = await fenced_on(stage)
    queue = queue_at(0)
    [owned] = await fenced.own(queue)
    assert owned.hold.epoch == table.held[queue].epoch > 0
    await fenced.locks.lock_all()
    fenced.ends.begin(owned, EndCause.HANDOVER)
    await stage.world.sleep_ms(100)
    assert queue not in table.held
    await fenced.own(queue)
    assert requests(broker, LOCK) == [{queue: 0}, {queue: owned.hold.epoch}, {queue: 0}]
    assert requests(broker, UNLOCK) == [{queue: owned.hold.epoch}]


@on_stage
async def test_a_lease_counts_from_the_request_less_a_margin(stage: Stage) -> None:
    """No call begins in its last twentieth, however late the answer came."""
    _, _, fenced = await fenced_on(stage)
    await fenced.own(queue_at(1))  # the connection is there
    asked_ms = stage.client.now_ms()
    stage.world.hold("broker-a", "client")
    stage.world.loop.call_later(0.5, stage.world.release, "broker-a", "client")
    [owned] = await fenced.own(queue_at(0))
    assert stage.client.now_ms() >= asked_ms + 500
    assert owned.hold.lease_end_ms == asked_ms + LEASE_MS
    assert owned.hold.is_trusted(asked_ms + LEASE_MS - MARGIN_MS)
    assert not owned.hold.is_trusted(asked_ms + LEASE_MS - MARGIN_MS + 1)


@on_stage
async def test_a_lease_is_renewed_after_a_third_of_it(stage: Stage) -> None:
    """One request a broker; without an answer it is sent again after each twelfth, under the same epoch."""
    broker, table, fenced = await fenced_on(stage)
    queues = [queue_at(0), queue_at(1)]
    owned = await fenced.own(*queues)
    begin_ms = stage.world.elapsed_ms
    fenced.locks.watch.start()
    await stage.world.sleep_ms(LEASE_MS // 3 - 100)
    assert len(broker.requests(LOCK)) == 1
    broker.answers(LOCK, None)
    await stage.world.sleep_ms(200)
    assert len(broker.requests(LOCK)) == 2
    await stage.world.sleep_ms(LEASE_MS // 12)
    assert requests(broker, LOCK)[1:] == 2 * [{pq.queue: pq.hold.epoch for pq in owned}]
    broker.on[LOCK] = table.lock
    await stage.world.sleep_ms(2 * LEASE_MS)
    assert all(map(fenced.holds, owned))
    assert stage.world.elapsed_ms - begin_ms > 2 * LEASE_MS
    assert fenced.done == []


@on_stage
async def test_a_lease_that_ends_unrenewed_ends_the_period(stage: Stage) -> None:
    """To the millisecond, by the clock of the client; the offset is still offered, then the queue is unlocked."""
    broker, table, fenced = await fenced_on(stage)
    queue = queue_at(0)
    [owned] = await fenced.own(queue)
    fenced.member.offsets.update(queue, 5)
    fenced.locks.watch.start()
    broker.answers(LOCK, None)
    await stage.world.sleep_ms(owned.hold.lease_end_ms - stage.client.now_ms() - 1)
    assert not fenced.done
    await stage.world.sleep_ms(2)
    assert fenced.done[:2] == [("ends", queue, EndCause.LEASE_ENDED), ("cancelled", queue)]
    assert owned.life.lost
    await stage.world.sleep_ms(100)
    assert table.offsets == {queue: 5}
    assert (queue in fenced.table, queue in table.held) == (False, False)
    assert fenced.done[2:] == [("on_lost", queue, owned.hold.epoch), ("rebalance",)]


@on_stage
async def test_a_lease_ends_while_the_machine_sleeps(stage: Stage) -> None:
    """Timers stand still meanwhile; within a second after waking the period is over, and no call begins before."""
    _, table, fenced = await fenced_on(stage)
    [owned] = await fenced.own(queue_at(0))
    fenced.locks.watch.start()
    await stage.world.sleep_ms(100)
    stage.world.suspend_for("client", LEASE_MS + 20_000)
    await stage.world.sleep_ms(1)
    assert stage.client.now_ms() > owned.hold.lease_end_ms
    assert not fenced.holds(owned)
    table.take(queue_at(0))
    await stage.world.sleep_ms(1000)
    assert owned.life.lost


@on_stage
async def test_no_call_begins_after_the_connection_ended(stage: Stage) -> None:
    """Until a renewal is answered on a new one: at once after the broker is back, without waiting for a third."""
    broker, _, fenced = await fenced_on(stage)
    [owned] = await fenced.own(queue_at(0))
    fenced.locks.watch.start()
    await stage.world.sleep_ms(10)
    broker.stop()
    await stage.world.sleep_ms(10)
    assert not fenced.holds(owned)
    await stage.world.sleep_ms(3000)
    assert not fenced.holds(owned)
    await broker.start()
    await stage.world.sleep_ms(700)
    assert fenced.holds(owned)
    assert fenced.done == []


@on_stage
async def test_an_answer_of_a_connection_that_has_ended_is_no_renewal(stage: Stage) -> None:
    """It was sent before the end: the broker may have given the queue away since."""
    broker, table, fenced = await fenced_on(stage)
    [owned] = await fenced.own(queue_at(0))

    def last_answer(command: RemotingCommand) -> None:
        broker.endpoints[-1].reply(table.lock(command))
        broker.endpoints[-1].close("test")

    broker.on[LOCK] = last_answer
    await fenced.locks.lock_all()
    await stage.world.sleep_ms(10)
    assert not fenced.holds(owned)


def end_connections_after_answers(fenced: Fenced) -> None:
    """When an answer to a lock request was read, the connection ends before anybody acts on it."""
    ask = fenced.locks._requests.lock

    async def ask_and_end(broker_name: str, queues: Queues, over: Endpoint | None = None) -> LockReply | None:
        reply = await ask(broker_name, queues, over)
        if over is None and reply is not None:
            reply.endpoint.abort("test")
            await fenced.stage.world.sleep_ms(1)
        return reply

    fenced.locks._requests.lock = ask_and_end  # type: ignore[method-assign]  # a test's own


@on_stage
async def test_the_end_of_a_connection_that_is_noticed_before_its_last_answer(stage: Stage) -> None:
    """The answer is no renewal, and no new period begins with it."""
    _, _, fenced = await fenced_on(stage)
    [owned] = await fenced.own(queue_at(0))
    end_connections_after_answers(fenced)
    assert await fenced.own(queue_at(1)) == []
    assert fenced.locks.refusals[queue_at(1)].why.startswith("granted without a fence, over a connection that has end")
    await fenced.locks.lock_all()
    assert not fenced.holds(owned)


@on_stage
async def test_a_grant_whose_lease_is_over_begins_no_period(stage: Stage) -> None:
    """The machine slept, for example, before anybody acted on the answer."""
    _, _, fenced = await fenced_on(stage)
    ask = fenced.locks._requests.lock

    async def ask_and_sleep(broker_name: str, queues: Queues, over: Endpoint | None = None) -> LockReply | None:
        reply = await ask(broker_name, queues, over)
        await stage.world.sleep_ms(LEASE_MS)
        return reply

    fenced.locks._requests.lock = ask_and_sleep  # type: ignore[method-assign]  # a test's own
    assert await fenced.own(queue_at(0)) == []


@on_stage
async def test_an_epoch_that_has_ended_here_is_not_presented_again(stage: Stage) -> None:
    """Not even when its unlock was refused: a broker that lost its table would begin a second period of one epoch."""
    broker, table, fenced = await fenced_on(stage)
    queue = queue_at(0)
    [owned] = await fenced.own(queue)
    broker.answers(UNLOCK, ResponseCode.SYSTEM_ERROR)
    assert fenced.locks.hands_over(owned, "another member has it")
    await stage.world.sleep_ms(100)
    assert fenced.locks._of(queue).epoch == owned.hold.epoch
    assert table.held[queue].epoch == owned.hold.epoch
    await fenced.own(queue)
    assert requests(broker, LOCK) == [{queue: 0}, {queue: 0}]


@pytest.mark.parametrize("away_ms", [5_000, 50_000])
@pytest.mark.parametrize("asks", [True, False])
@on_stage
async def test_a_broker_that_comes_back_is_told_what_was_given_up(stage: Stage, away_ms: int, asks: bool) -> None:
    """It kept the lock, with a whole lease from its start on; also when the client asks first, or gave up its tries.

    The client may have the queue again at once, under another epoch, and the unlock is not repeated.
    """
    broker, table, fenced = await fenced_on(stage)
    queue = queue_at(0)
    [owned] = await fenced.own(queue)
    broker.stop()
    await stage.world.sleep_ms(10)
    assert fenced.locks.hands_over(owned, "another member has it")
    await stage.world.sleep_ms(away_ms)
    table.held[queue] = table.held[queue]._replace(end_ms=stage.client.now_ms() + LEASE_MS)
    await broker.start()
    if not asks:
        await fenced.instance.heartbeat_all()
        assert table.held == {}
    [again] = await fenced.own(queue)
    assert again.hold.epoch == table.held[queue].epoch != owned.hold.epoch
    await stage.world.sleep_ms(30_000)
    assert requests(broker, UNLOCK) == [{queue: owned.hold.epoch}]


@on_stage
async def test_a_lock_that_is_used_after_all_is_not_unlocked(stage: Stage) -> None:
    """No period had begun when its unlock was refused, so its epoch is presented again. Its calls may run now."""
    broker, table, fenced = await fenced_on(stage)
    queue = queue_at(0)
    await fenced.locks.lock([queue])
    broker.answers(UNLOCK, ResponseCode.SYSTEM_ERROR)
    fenced.locks.unlock(queue)
    await stage.world.sleep_ms(100)
    [owned] = await fenced.own(queue)
    assert owned.hold.epoch == table.held[queue].epoch
    broker.on[UNLOCK] = table.unlock
    broker.stop()
    await stage.world.sleep_ms(10)
    await broker.start()
    await fenced.instance.heartbeat_all()
    assert table.held[queue].epoch == owned.hold.epoch
    assert fenced.holds(owned)
    assert len(broker.requests(UNLOCK)) == 1


@on_stage
async def test_a_late_answer_to_an_unlock_forgets_no_later_lock(stage: Stage) -> None:
    """The broker has moved meanwhile. What the client could not give back there is unlocked when it comes back."""
    old, table, fenced = await fenced_on(stage)
    queue, unanswered = queue_at(0), list[RemotingCommand]()
    await fenced.locks.lock([queue])
    first = table.held[queue].epoch
    old.stop()
    await stage.world.sleep_ms(10)
    fenced.locks.unlock(queue)
    await old.start()
    old.on[UNLOCK] = unanswered.append
    connecting = fenced.instance.runtime.create_task(fenced.instance.heartbeat_all(), name="comes back")
    await stage.world.sleep_ms(100)
    asked = old.endpoints[-1]

    new = await stage.broker("elsewhere")
    new.name, new.on = old.name, {**new.on, LOCK: table.lock, UNLOCK: table.unlock}
    stage.route_to({new.name: 4})
    await fenced.instance.routes.fetch(TOPIC)
    await fenced.locks.lock([queue])
    later = table.held[queue].epoch
    new.answers(UNLOCK, ResponseCode.SYSTEM_ERROR)
    fenced.locks.unlock(queue)
    await stage.world.sleep_ms(100)
    asked.reply(unanswered[0].reply(ResponseCode.SUCCESS))
    await connecting

    new.stop()
    new.on[UNLOCK] = table.unlock
    await stage.world.sleep_ms(10)
    await new.start()
    await fenced.instance.heartbeat_all()
    assert requests(new, UNLOCK) == [{queue: first}, {queue: later}, {queue: later}]
    assert table.held == {}


def test_a_refusal_of_an_earlier_epoch_does_not_touch_the_lock() -> None:
    """It came late, and the client has the queue under a later epoch."""
    lock = QueueLock(LockState.HELD, epoch=7)
    assert lock.fenced(6).lock == lock
    assert lock.fenced(7).lock.state is LockState.FREE


@on_stage
async def test_a_grant_under_another_epoch_begins_a_new_period(stage: Stage) -> None:
    """Somebody else may have had the queue in between: what is cached here is dropped."""
    _, table, fenced = await fenced_on(stage)
    queue = queue_at(0)
    [owned] = await fenced.own(queue)
    fenced.locks._take([(queue, fenced.locks._of(queue).fenced(owned.hold.epoch))])  # as after a refusal
    del table.held[queue]
    await fenced.locks.lock([queue])
    assert fenced.causes(queue) == [EndCause.NEW_EPOCH]
    await stage.world.sleep_ms(10)
    assert queue not in fenced.table
    assert table.held[queue].epoch != owned.hold.epoch
    [again] = await fenced.own(queue)
    assert again.hold.epoch == table.held[queue].epoch, "the new lock is kept"


@pytest.mark.parametrize("name", ["FENCED", "NOT_HELD", "STALE"])
@on_stage
async def test_a_renewal_that_is_refused_ends_the_period(stage: Stage, name: str) -> None:
    """With the broker's reason; the epoch is not presented again."""
    broker, table, fenced = await fenced_on(stage)
    queue = queue_at(0)
    [owned] = await fenced.own(queue)
    if name == "NOT_HELD":
        del table.held[queue]
    else:
        table.take(queue, RIVAL if name == "FENCED" else fenced.instance.client_id)
    await fenced.locks.lock_all()
    assert fenced.causes(queue) == [EndCause[name]]
    assert fenced.locks._of(queue).state is LockState.FREE
    await stage.world.sleep_ms(10)
    await fenced.own(queue)
    assert requests(broker, LOCK)[-1] == {queue: 0}
    assert owned.life.dropped
    assert requests(broker, UNLOCK) == []


@on_stage
async def test_a_late_grant_brings_its_epoch(stage: Stage) -> None:
    """The answer of a request that was given up: the unlock that follows frees this lock and no other."""
    broker, table, fenced = await fenced_on(stage)
    queue = queue_at(0)
    broker.answers(LOCK, None)
    assert await fenced.own(queue) == []
    [asked] = broker.requests(LOCK)
    fenced.locks.unlock(queue)
    await stage.world.sleep_ms(100)
    broker.endpoints[-1].reply(table.lock(asked))
    await stage.world.sleep_ms(100)
    assert [epochs[queue] > 0 for epochs in requests(broker, UNLOCK)] == [False, True]
    assert queue not in table.held


# Brokers without fenced locks ---------------------------------------------------------------------------------


@on_stage
async def test_a_broker_without_fenced_locks_if_the_broker_can(stage: Stage) -> None:
    """Its locks are RocketMQ's, and one log event says so."""
    broker, _, fenced = await fenced_on(stage, required=False)
    answer(broker, grant())
    [owned] = await fenced.own(queue_at(0))
    await fenced.own(queue_at(1))
    assert (owned.hold.epoch, owned.hold.lease_ms) == (0, 0)
    assert fenced.holds(owned)
    [(level, fields)] = [(at, fields) for at, event, fields in stage.log.events if event == "fencing_not_supported"]
    assert level == "warning"
    assert (fields["broker"], fields["group"]) == ("broker-a", GROUP)
    await stage.world.sleep_ms(ConsumerConfig().lock_max_live_time_ms + 1)
    assert not fenced.holds(owned), "the time of RocketMQ's lock counts"


@on_stage
async def test_a_broker_without_fenced_locks_that_are_required(stage: Stage) -> None:
    """Its queues are not consumed."""
    broker, _, fenced = await fenced_on(stage)
    answer(broker, grant())
    assert await fenced.own(queue_at(0)) == []
    assert stage.events("error") == ["fencing_not_supported"]
    with pytest.raises(ConsumerError, match="these brokers have no fenced locks: broker-a; "):
        await fenced.locks.check_brokers()


@on_stage
async def test_a_stranger_gets_no_epochs(stage: Stage) -> None:
    """A broker that did not agree gets RocketMQ's bytes."""
    broker, _, fenced = await fenced_on(stage, agrees=False, required=False)
    answer(broker, grant())
    await fenced.own(queue_at(0))
    fenced.locks.unlock(queue_at(0))
    await stage.world.sleep_ms(100)
    assert requests(broker, LOCK) + requests(broker, UNLOCK) == 2 * [{queue_at(0): -1}]
    assert all(b"epoch" not in command.body for command in broker.seen)


@on_stage
async def test_a_broker_that_loses_its_fence_ends_the_periods(stage: Stage) -> None:
    """It was started again in the other mode: the epochs mean nothing any more."""
    broker, _, fenced = await fenced_on(stage, required=False)
    [owned] = await fenced.own(queue_at(0))
    ok = LockOkBody((queue_at(0),))
    broker.on[LOCK] = lambda command: command.reply(ResponseCode.SUCCESS, body=encode_body(ok, command.serialize_type))
    await fenced.locks.lock_all()
    await stage.world.sleep_ms(10)
    assert fenced.causes(queue_at(0)) == [EndCause.NO_FENCING]
    assert owned.life.dropped
    [again] = await fenced.own(queue_at(0))
    assert again.hold.epoch == 0


@on_stage
async def test_a_broker_is_asked_whether_it_has_fenced_locks(stage: Stage) -> None:
    """With a request for no queue; one that does not answer may have them."""
    broker, table, fenced = await fenced_on(stage)
    await fenced.locks.check_brokers()
    assert (requests(broker, LOCK), table.held) == ([{}], {})
    broker.answers(LOCK, None)
    await fenced.locks.check_brokers()


@on_stage
async def test_a_lease_is_renewed_while_a_reset_waits_for_a_call(stage: Stage) -> None:
    """Only the owner may move the offset, so the lease must last until the call has ended."""
    _, table, fenced = await fenced_on(stage)
    [owned] = await fenced.own(queue_at(0))
    owned.life.dropped = owned.life.resetting = True
    end_ms = table.held[queue_at(0)].end_ms
    await stage.world.sleep_ms(1_000)
    await fenced.locks.lock_all()
    assert table.held[queue_at(0)].end_ms >= end_ms + 1_000
