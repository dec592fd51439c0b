"""How a period under a fenced lock ends: each cause and each answer, in each state of the period (docs/fencing.md)."""

from dataclasses import dataclass
from typing import cast

import pytest

from lockstep.client.consumer.ownership.first_offset import FirstOffset
from lockstep.client.consumer.ownership.period_end import ANSWERS, CAUSES, EndCause, PeriodEnd
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.ownership.rebalance import Rebalance
from lockstep.client.consumer.ownership.reset import OffsetReset
from lockstep.client.errors import SendError, SendOutcome
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.remoting.errors import RequestRefused
from tests.client.ownership.fenced_stage import LEASE_MS, RIVAL, Fenced, FencedTable, fenced_on, requests
from tests.client.stage import FakeBroker, Stage, on_stage, queue_at
from tests.rows import by_row

QUEUE = queue_at(0)
UNLOCK, UPDATE = RequestCode.UNLOCK_BATCH_MQ, RequestCode.UPDATE_CONSUMER_OFFSET
STATES = ("idle", "listener runs", "is handed over", "over", "replaced")


@dataclass
class Period:
    """One period of a queue, whose last handled message was at offset 4."""

    stage: Stage
    broker: FakeBroker
    table: FencedTable
    fenced: Fenced
    owned: ProcessQueue

    @classmethod
    async def begin(cls, stage: Stage) -> "Period":
        broker, table, fenced = await fenced_on(stage)
        [owned] = await fenced.own(QUEUE)
        fenced.member.offsets.update(QUEUE, 5)
        return cls(stage, broker, table, fenced, owned)

    async def enter(self, state: str) -> None:
        if state in ("listener runs", "is handed over"):
            self.owned.life.listener_running = True
        if state == "is handed over":
            self.fenced.ends.begin(self.owned, EndCause.HANDOVER)
        if state in ("over", "replaced"):
            self.fenced.ends.begin(self.owned, EndCause.HANDOVER)
            await self.stage.world.sleep_ms(50)
        if state == "replaced":
            await self.fenced.own(QUEUE)

    async def quiet(self) -> None:
        await self.stage.world.sleep_ms(50)

    @property
    def commits(self) -> int:
        return len(self.broker.requests(UPDATE))


def refused(code: int) -> RequestRefused:
    return RequestRefused("broker-a", "PULL_MESSAGE", code, "owned by somebody")


@by_row("state", STATES)
@by_row("answer", ANSWERS.values())
@on_stage
async def test_each_answer_in_each_state(stage: Stage, answer: EndCause, state: str) -> None:
    """It ends the period of its epoch and no other one: no commit, no unlock, and on_lost is called once."""
    period = await Period.begin(stage)
    fenced, owned = period.fenced, period.owned
    await period.enter(state)
    before, commits, unlocks = fenced.table.get(QUEUE), period.commits, len(period.broker.requests(UNLOCK))
    fenced.done.clear()
    assert fenced.locks.refused(owned, refused(ResponseCode[answer.name]))
    if state in ("over", "replaced"):
        assert fenced.table.get(QUEUE) is before
        assert before is None or not before.life.is_over
        assert [entry for entry in fenced.done if entry[0] != "ends"] == []
        return
    assert owned.life.lost
    assert owned.life.dropped
    assert ("cancelled", QUEUE) in fenced.done
    if owned.life.listener_running:
        await period.quiet()
        assert fenced.table[QUEUE] is owned, "the queue stays in the table until its call has ended"
        owned.life.listener_returned()
    await period.quiet()
    assert QUEUE not in fenced.table
    assert (period.commits, len(period.broker.requests(UNLOCK))) == (commits, unlocks)
    assert fenced.done.count(("on_lost", QUEUE, owned.hold.epoch)) == 1
    asks = CAUSES[answer].asks or state == "is handed over"
    assert (("rebalance",) in fenced.done) == asks


def _as(kind: str, code: int) -> Exception:
    if kind == "send":
        return SendError("no", SendOutcome.REFUSED, msg_id="1", code=code)
    return refused(code)


@pytest.mark.parametrize("kind", ["request", "send"])
@pytest.mark.parametrize("code", [ResponseCode.FENCED, ResponseCode.SYSTEM_ERROR, ResponseCode.QUERY_NOT_FOUND])
@on_stage
async def test_only_three_codes_end_a_period(stage: Stage, kind: str, code: ResponseCode) -> None:
    """Of a pull or a dead letter; any other error changes nothing."""
    period = await Period.begin(stage)
    assert period.fenced.locks.refused(period.owned, _as(kind, code)) == (code in ANSWERS)
    assert period.owned.life.lost == (code in ANSWERS)
    await period.quiet()


@pytest.mark.parametrize("code", ANSWERS)
@on_stage
async def test_none_of_them_is_no_offset(stage: Stage, code: int) -> None:
    """A query that is answered so is an error: consume_from_where is not asked."""
    period = await Period.begin(stage)
    member = period.fenced.member
    period.broker.answers(RequestCode.QUERY_CONSUMER_OFFSET, code)
    first_offset = FirstOffset(member.instance, member.group, member.config, member.offsets)
    with pytest.raises(RequestRefused):
        await first_offset(period.owned)
    asked = {command.code for command in period.broker.seen}
    assert not asked & {RequestCode.GET_MAX_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP}


@on_stage
async def test_a_handover_drains_first(stage: Stage) -> None:
    """The running call ends, its commit is answered, and only then the queue is dropped and unlocked, at once."""
    period = await Period.begin(stage)
    fenced, owned = period.fenced, period.owned
    owned.life.listener_running = True
    assert fenced.locks.hands_over(owned, "allocated to another consumer")
    await stage.world.sleep_ms(2 * LEASE_MS // 3)
    assert (owned.life.draining, owned.life.dropped, period.commits) == (True, False, 0)
    await fenced.locks.lock_all()
    assert fenced.holds(owned), "its lease is renewed while the call runs"
    answer = period.broker.on.pop(UPDATE)
    period.broker.answers(UPDATE, None)
    fenced.member.offsets.update(QUEUE, 6)
    owned.life.listener_returned()
    await period.quiet()
    assert (owned.life.dropped, period.broker.requests(UNLOCK)) == (False, []), "the commit is not answered yet"
    [commit] = period.broker.requests(UPDATE)
    reply = answer(commit)
    assert reply is not None
    period.broker.endpoints[-1].reply(reply)
    await period.quiet()
    assert period.table.offsets == {QUEUE: 6}
    assert (owned.life.dropped, QUEUE in fenced.table, QUEUE in period.table.held) == (True, False, False)
    assert not owned.life.lost
    assert fenced.done[-2:] == [("rebalance",), ("on_lost", QUEUE, owned.hold.epoch)]
    [unlock] = requests(period.broker, UNLOCK)
    assert unlock == {QUEUE: owned.hold.epoch}


@on_stage
async def test_a_last_commit_without_an_answer_is_sent_twice(stage: Stage) -> None:
    """Under the same epoch; then the queue is given up all the same."""
    period = await Period.begin(stage)
    period.broker.answers(UPDATE, None)
    period.fenced.ends.begin(period.owned, EndCause.HANDOVER)
    await stage.world.sleep_ms(7000)
    assert period.commits == 2
    assert QUEUE not in period.table.held
    assert "offset_not_stored" in stage.events("warning")


@on_stage
async def test_a_last_commit_that_cannot_be_recorded(stage: Stage) -> None:
    """The queue leaves the table and is unlocked all the same; else no member of the group would get it again."""
    period = await Period.begin(stage)
    trace = period.fenced.member.trace
    assert trace is not None

    def full(*_: object, **_fields: object) -> None:
        raise OSError(28, "No space left on device")

    trace.queue_event = full  # type: ignore[method-assign]  # a test's own
    period.fenced.ends.begin(period.owned, EndCause.HANDOVER)
    await period.quiet()
    assert (period.owned.life.dropped, QUEUE in period.fenced.table, QUEUE in period.table.held) == (True, False, False)
    assert period.table.offsets == {QUEUE: 5}


@on_stage
async def test_a_last_commit_that_is_fenced(stage: Stage) -> None:
    """It is not repeated, the offset of the next owner stays, and its lock too."""
    period = await Period.begin(stage)
    period.table.take(QUEUE, RIVAL)
    period.table.offsets[QUEUE] = 60
    period.fenced.ends.begin(period.owned, EndCause.LEASE_ENDED)
    await period.quiet()
    assert period.commits == 1
    assert period.table.offsets == {QUEUE: 60}
    assert period.table.held[QUEUE].client_id == RIVAL
    assert period.broker.requests(UNLOCK) == []
    assert QUEUE not in period.fenced.table


@on_stage
async def test_a_periodic_commit_that_is_fenced_ends_the_period(stage: Stage) -> None:
    """It has the epoch and the client id, and its answer is looked at."""
    period = await Period.begin(stage)
    period.fenced.locks.commit([period.owned])
    await period.quiet()
    assert period.table.offsets == {QUEUE: 5}
    period.table.take(QUEUE, RIVAL)
    period.fenced.locks.commit([period.owned])
    await period.quiet()
    assert period.fenced.causes(QUEUE) == [EndCause.FENCED]


@on_stage
async def test_a_late_answer_does_not_touch_the_next_period(stage: Stage) -> None:
    """A commit of the old epoch is answered STALE when the queue has come back: the new period goes on."""
    period = await Period.begin(stage)
    period.broker.answers(UPDATE, None)
    period.fenced.locks.commit([period.owned])
    await period.quiet()
    [commit] = period.broker.requests(UPDATE)
    assert period.fenced.locks.refused(period.owned, refused(ResponseCode.NOT_HELD))
    del period.table.held[QUEUE]
    await period.quiet()
    [again] = await period.fenced.own(QUEUE)
    period.broker.endpoints[-1].reply(commit.reply(ResponseCode.STALE))
    await period.quiet()
    assert period.fenced.table[QUEUE] is again
    assert not again.life.is_over
    await period.fenced.locks.lock_all()
    assert period.fenced.holds(again)


@on_stage
async def test_the_end_of_a_period_leaves_the_next_one_alone(stage: Stage) -> None:
    """A call of the old period ends when the queue has come back: its new lock and offset stay."""
    period = await Period.begin(stage)
    await period.enter("listener runs")
    period.fenced.ends.begin(period.owned, EndCause.NEW_EPOCH)
    [again] = await period.fenced.own(QUEUE)
    period.fenced.member.offsets.update(QUEUE, 9)
    period.owned.life.listener_returned()
    await period.quiet()
    assert period.fenced.table[QUEUE] is again
    assert period.fenced.member.offsets.in_memory(QUEUE) == 9


@on_stage
async def test_a_reset_begins_a_new_epoch(stage: Stage) -> None:
    """The broker moves the offset under the old epoch, and the next lock request presents the new one."""
    period = await Period.begin(stage)
    assert await period.fenced.locks.reset_offset(period.owned, 2)
    assert period.table.offsets == {QUEUE: 2}
    del period.fenced.table[QUEUE]
    period.fenced.locks.unlock_later(QUEUE)
    [again] = await period.fenced.own(QUEUE)
    assert again.hold.epoch == period.table.held[QUEUE].epoch > period.owned.hold.epoch


@on_stage
async def test_a_reset_that_is_fenced(stage: Stage) -> None:
    """The offset stays, and the period ends."""
    period = await Period.begin(stage)
    period.table.take(QUEUE, RIVAL)
    assert not await period.fenced.locks.reset_offset(period.owned, 2)
    assert period.table.offsets == {}
    assert period.fenced.causes(QUEUE) == [EndCause.FENCED]
    assert "offset_reset_refused" in stage.events("warning")
    await period.quiet()


@pytest.mark.parametrize("answered", [True, False])
@on_stage
async def test_a_queue_that_was_reset_is_given_back(stage: Stage, answered: bool) -> None:
    """Its next round may give it to another member, which must not wait for the end of the lease."""
    period = await Period.begin(stage)
    if not answered:
        period.broker.answers(RequestCode.RESET_OWN_OFFSET, None)
    await period.fenced.locks.lock_all()  # from here on no timer of the first lock call unlocks it
    period.owned.life.dropped = True
    member, locks = period.fenced.member, period.fenced.locks
    await OffsetReset(member, locks, cast("Rebalance", None), lambda: None).correct(period.owned, range(2, 2), 2, 0)
    assert QUEUE not in period.fenced.table
    await stage.world.sleep_ms(LEASE_MS // 2)
    assert QUEUE not in period.table.held


def test_two_causes_join() -> None:
    """What one of them forbids is not done; what one of them needs is done."""
    joined = CAUSES[EndCause.HANDOVER].joined(CAUSES[EndCause.FENCED])
    assert joined == PeriodEnd(cancels=True, stores=False, unlocks=False, asks=True)
    assert CAUSES[EndCause.FENCED].joined(CAUSES[EndCause.NOT_HELD]).asks
