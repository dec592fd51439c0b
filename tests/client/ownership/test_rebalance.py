"""Rebalance, rule by rule (wire.md 12.3): which queues are added and dropped, in which order, and which stay."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.client.consumer.ownership.life import PeriodLife
from lockstep.protocol.codes import ResponseCode
from tests.client.messages import messages_at
from tests.client.ownership.rebalancing import FIRST, IDS, LAST, LOCK, UNLOCK, UPDATE, Rebalancing, rebalancing
from tests.client.periods import period
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

# Taking ------------------------------------------------------------------------------------------------------


@on_stage
async def test_a_new_queue_is_locked_first(stage: Stage) -> None:
    """Granted: a process queue of a new period, locked, and pulled; refused: asked again at the next round."""
    it = await rebalancing(stage)
    it.taken = [queue_at(2)]
    await it.run()
    assert it.owned == [0, 1, 3]
    assert it.asked(LOCK) == [tuple(queue_at(i) for i in range(4))]
    assert [(pq.queue.queue_id, pq.period, pq.hold.locked, pq.positioned) for pq in it.added] == [
        (0, 1, True, False),
        (1, 2, True, False),
        (3, 3, True, False),
    ]
    assert it.changed == [TOPIC]
    assert it.events() == [("acquired", 0), ("acquired", 1), ("acquired", 3)]
    it.taken = []
    await it.run()
    assert it.asked(LOCK)[1:] == [(queue_at(2),)]
    assert it.added[-1].period == 4


@on_stage
async def test_nothing_to_change(stage: Stage) -> None:
    """The same members and queues: no lock request, no notice, no new process queue."""
    it = await rebalancing(stage)
    await it.run()
    before = dict(it.table)
    await it.run()
    assert it.table == before
    assert (len(it.asked(LOCK)), it.changed) == (1, [TOPIC])


@on_stage
async def test_members_are_sorted(stage: Stage) -> None:
    """Every member must see the same order, whatever order the broker lists them in."""
    it = await rebalancing(stage)
    it.members = [it.me, LAST, FIRST]
    await it.run()
    assert it.owned == [2]  # of three members the first has 0 and 1, this one 2, the last 3


@on_stage
async def test_offsets_of_an_earlier_period_are_forgotten(stage: Stage) -> None:
    """A new owner begins where the broker says, not where this process once was."""
    it = await rebalancing(stage)
    it.offsets.update(queue_at(0), 77)
    await it.run()
    assert it.offsets.in_memory(queue_at(0)) == -1


# Staying as it is --------------------------------------------------------------------------------------------


def stays(break_it: Callable[[Rebalancing], None]) -> Callable[[], None]:
    """Whatever `break_it` does to the second round, the queues of the first are kept."""

    @on_stage
    async def play(stage: Stage) -> None:
        it = await rebalancing(stage)
        await it.run()
        before = dict(it.table)
        break_it(it)
        await it.run()
        assert it.table == before
        assert it.owned == [0, 1, 2, 3]
        assert it.asked(UNLOCK) == []

    return play


def test_without_a_member_list_everything_stays() -> None:
    """A broker that knows no member has just started."""
    stays(lambda it: setattr(it, "members", []))()


def test_a_client_that_is_not_listed_drops_nothing() -> None:
    """It registers and looks again; Java drops every queue of the topic here."""

    def forget(it: Rebalancing) -> None:
        it.members = [FIRST, LAST]

    stays(forget)()


def test_a_silent_broker_changes_nothing() -> None:
    """No answer is no news."""
    stays(lambda it: it.broker.answers(IDS, None))()


def test_an_answer_that_is_nonsense_changes_nothing() -> None:
    """A body that is no member list."""

    def garble(it: Rebalancing) -> None:
        it.broker.on[IDS] = lambda command: command.reply(ResponseCode.SUCCESS, body=b"\xff")

    stays(garble)()


@on_stage
async def test_a_topic_without_a_route(stage: Stage) -> None:
    """It is a warning for a user's topic, and none for a retry topic without messages."""
    it = await rebalancing(stage)
    it.subscribed = ["Nowhere", "%RETRY%tower", TOPIC]
    await it.run()
    assert it.owned == [0, 1, 2, 3]
    warnings = [fields["topic"] for level, _, fields in stage.log.events if level == "warning"]
    assert warnings == ["Nowhere"]


# Leaving -----------------------------------------------------------------------------------------------------


async def give_half_away(stage: Stage, prepare: Callable[[Rebalancing], Any] = lambda _: None) -> Rebalancing:
    """Four queues are owned, then another member comes and gets 2 and 3."""
    it = await rebalancing(stage)
    await it.run()
    prepare(it)
    it.members = [it.me, LAST]
    await it.run()
    return it


@on_stage
async def test_a_queue_for_another_is_dropped_committed_and_unlocked(stage: Stage) -> None:
    """In this order, so that the next owner begins where this one ended."""
    it = await give_half_away(stage, lambda it: it.offsets.update(queue_at(3), 41))
    assert it.owned == [0, 1]
    assert all(pq.life.dropped == (pq.queue.queue_id >= 2) for pq in it.added)
    codes = [command.code for command in it.broker.seen if command.code in (UPDATE, UNLOCK)]
    assert codes == [UNLOCK, UPDATE, UNLOCK], "queue 2 had nothing to commit"
    assert it.committed() == [(3, 41)]
    assert it.asked(UNLOCK) == [(queue_at(2),), (queue_at(3),)]
    assert it.offsets.in_memory(queue_at(3)) == -1
    assert it.changed == [TOPIC, TOPIC]
    assert it.events()[4:] == [("dropped", 2), ("dropped", 3), ("committed", 3)]


@on_stage
async def test_a_queue_with_messages_is_unlocked_20_s_later(stage: Stage) -> None:
    """The delay lets the running call end."""
    it = await give_half_away(stage, lambda it: [pq.cache.put_messages(messages_at(0)) for pq in it.added])
    await stage.world.sleep_ms(19_900)
    assert it.asked(UNLOCK) == []
    await stage.world.sleep_ms(200)
    assert it.asked(UNLOCK) == [(queue_at(2),), (queue_at(3),)]


@on_stage
async def test_a_queue_that_came_back_is_not_unlocked(stage: Stage) -> None:
    """It is in use again and needs its lock; another member's queue has no lock of this client."""
    it = await give_half_away(stage, lambda it: [pq.cache.put_messages(messages_at(0)) for pq in it.added])
    await stage.world.sleep_ms(10_000)
    it.members = [it.me]
    it.taken = [queue_at(3)]
    await it.run()
    assert it.owned == [0, 1, 2]
    await stage.world.sleep_ms(30_000)
    assert it.asked(UNLOCK) == []


@on_stage
async def test_a_running_listener_holds_its_queue_back(stage: Stage) -> None:
    """Waited for a second; then dropped, not unlocked, not committed, and tried again at the next round."""

    def start_listener(it: Rebalancing) -> None:
        it.table[queue_at(2)].life.listener_running = True
        it.offsets.update(queue_at(2), 41)

    it = await give_half_away(stage, start_listener)
    held = it.table[queue_at(2)]
    assert (held.life.dropped, held.life.try_unlock_times) == (True, 1)
    assert it.asked(UNLOCK) == [(queue_at(3),)]
    assert it.committed() == []
    held.life.listener_returned()
    await it.run()
    assert queue_at(2) not in it.table
    assert it.asked(UNLOCK) == [(queue_at(3),), (queue_at(2),)]
    assert it.committed() == [(2, 41)]


class WatchedLife(PeriodLife):
    """A running listener returns `ends_after_ms` after the rebalance began to wait for it."""

    ends_after_ms = 0

    async def listener_idle(self, timeout_ms: int) -> bool:
        asyncio.get_running_loop().call_later(self.ends_after_ms / 1000, self.listener_returned)
        return await super().listener_idle(timeout_ms)


@pytest.mark.parametrize(("ends_after_ms", "unlock_tries"), [(999, 0), (1001, 1)])
@on_stage
async def test_a_rebalance_waits_1_000_ms_for_a_running_listener(
    stage: Stage, ends_after_ms: int, unlock_tries: int
) -> None:
    """A call that ends within that time loses its queue in this round, a later one in the next (wire.md 12.3)."""

    def start_listener(it: Rebalancing) -> None:
        now_ms = stage.client.now_ms()
        held = it.table[queue_at(2)] = period(queue_at(2), now_ms, 9)
        held.life = life = WatchedLife()
        life.ends_after_ms, life.listener_running = ends_after_ms, True

    it = await give_half_away(stage, start_listener)
    left = it.table.get(queue_at(2))
    assert (left.life.try_unlock_times if left else 0) == unlock_tries
    assert (queue_at(2) in it.table) == bool(unlock_tries)


@on_stage
async def test_a_queue_that_comes_back_under_its_running_listener(stage: Stage) -> None:
    """It was dropped and could not be removed: it is added again as soon as the listener has returned, and not only
    when its pull counts as expired."""
    it = await give_half_away(stage, lambda it: setattr(it.table[queue_at(2)].life, "listener_running", True))
    held = it.table[queue_at(2)]
    it.members = [it.me]
    await it.run()
    assert it.table[queue_at(2)] is held
    held.life.listener_returned()
    await it.run()
    assert it.table[queue_at(2)] is not held
    assert it.owned == [0, 1, 2, 3]


@on_stage
async def test_a_queue_that_was_not_pulled_for_120_s(stage: Stage) -> None:
    """Its pull loop is stuck: the queue gets a new process queue, and keeps its lock because it stays with this
    client."""
    it = await rebalancing(stage, 1)
    await it.run()
    (stuck,) = it.added
    stuck.last_pull_ms = stage.client.now_ms() - 119_000
    await it.run()
    assert it.added == [stuck]
    stuck.last_pull_ms = stage.client.now_ms() - 120_001
    await it.run()
    assert stuck.life.dropped
    assert it.table[queue_at(0)] is it.added[1]
    await stage.world.sleep_ms(30_000)
    assert it.asked(UNLOCK) == []


@on_stage
async def test_a_queue_whose_lock_had_run_out_comes_back_with_the_next_round(stage: Stage) -> None:
    """It ended when its lock was granted again. Without a new period nobody would pull it for 120 s."""
    it = await rebalancing(stage, 1)
    await it.run()
    (ended,) = it.added
    ended.life.outlived_lock = True
    it.rebalance.drop(ended, "its lock had run out")
    await it.run()
    assert it.table[queue_at(0)] is it.added[1]


@on_stage
async def test_an_owner_that_lost_its_lock_commits_nothing(stage: Stage) -> None:
    """Its offset could go backwards over the new owner's."""

    def lose(it: Rebalancing) -> None:
        it.offsets.update(queue_at(2), 41)
        it.table[queue_at(2)].hold.locked = False
        it.offsets.update(queue_at(3), 42)
        it.table[queue_at(3)].hold.last_lock_ms -= 30_001

    it = await give_half_away(stage, lose)
    assert it.committed() == []
    assert it.asked(UNLOCK) == [(queue_at(2),), (queue_at(3),)]


@on_stage
async def test_a_topic_that_is_not_subscribed_any_more(stage: Stage) -> None:
    """Its queues are left as those for another: dropped, committed, unlocked. RocketMQ forgets them: their last
    offsets are lost, and their locks live on for 60 s (wire.md 12.3)."""
    it = await rebalancing(stage)
    await it.run()
    it.offsets.update(queue_at(0), 41)
    it.subscribed = []
    await it.run()
    assert it.table == {}
    assert all(pq.life.dropped for pq in it.added)
    assert it.committed() == [(0, 41)]
    assert it.asked(UNLOCK) == [(queue_at(i),) for i in range(4)]


@on_stage
async def test_a_topic_that_is_left_while_its_listener_runs(stage: Stage) -> None:
    """Dropped at once; committed and unlocked in the first round after the listener has returned."""
    it = await rebalancing(stage, 1)
    await it.run()
    (left,) = it.added
    left.life.listener_running = True
    it.subscribed = []
    await it.run()
    assert (left.life.dropped, it.asked(UNLOCK)) == (True, [])
    left.life.listener_returned()
    await it.run()
    assert (it.table, it.asked(UNLOCK)) == ({}, [(queue_at(0),)])


@on_stage
async def test_broadcasting_asks_nobody(stage: Stage) -> None:
    """All queues are this client's, whoever else is there; no member list is asked for."""
    it = await rebalancing(stage, strategy=None)
    it.members = []
    await it.run()
    assert it.owned == [0, 1, 2, 3]
    assert it.broker.requests(IDS) == []


@on_stage
async def test_a_queue_that_is_taken_out_meanwhile(stage: Stage) -> None:
    """While the round waits for one queue's listener, another queue leaves the table: the round goes on."""

    def prepare(it: Rebalancing) -> None:
        it.table[queue_at(2)].life.listener_running = True
        stage.world.loop.call_later(0.5, it.table.pop, queue_at(3))

    it = await give_half_away(stage, prepare)
    assert it.owned == [0, 1]
    assert stage.events("error") == []


@on_stage
async def test_commits_are_recorded_when_they_can_be_sent(stage: Stage) -> None:
    """A record of a commit that never left would let the judge expect too much of the next owner."""
    it = await rebalancing(stage)
    await it.run()
    it.offsets.update(queue_at(0), 5)
    it.broker.stop()
    await stage.world.sleep_ms(10)
    it.rebalance.persist(it.added)
    assert "committed" not in [event for event, _ in it.events()]
