"""The table of fenced locks: each rule at its boundary (docs/fencing.md)."""

import pytest

from lockstep.broker.ownership.answers import FenceAnswer, LockAnswer, LockOutcome
from lockstep.broker.ownership.changes import ChangeCause
from lockstep.broker.ownership.port import KEPT_LIVES
from lockstep.protocol.bodies.locks import LockGrant
from lockstep.protocol.epochs import COUNTER_MAX, make_epoch
from lockstep.protocol.model import MessageQueue
from tests.broker.helpers import NOW_MS, queues_of
from tests.broker.ownership.fences import LEASE_MS, QUEUE, Fences, steps_of

# Epochs -----------------------------------------------------------------------------------------------------------


def test_a_claim_gets_an_epoch_and_a_renewal_keeps_it() -> None:
    """A grant says epoch and lease; a renewal has the same epoch, so that equality is a sufficient check."""
    fences = Fences()
    answer = fences.ask("a", 0, NOW_MS)
    epoch = make_epoch(NOW_MS, 1)
    assert (answer.outcome, answer.grant) == (LockOutcome.GRANTED, LockGrant(epoch, LEASE_MS))
    renewed = fences.ask("a", epoch, NOW_MS + 20_000)
    assert (renewed.outcome, renewed.grant, renewed.age_ms) == (
        LockOutcome.RENEWED,
        LockGrant(epoch, LEASE_MS),
        20_000,
    )
    assert [(change.new, change.epoch, change.cause) for change in fences.seen] == [("a", epoch, ChangeCause.GRANTED)]


def test_each_period_has_a_later_epoch() -> None:
    """After an unlock, after a lease that ended, and for another owner."""
    fences = Fences()
    first = fences.claim("a", NOW_MS)
    assert fences.unlock("a", first, NOW_MS) == []
    second = fences.claim("a", NOW_MS)
    third = fences.claim("a", NOW_MS + LEASE_MS)
    fourth = fences.claim("b", NOW_MS + 2 * LEASE_MS)
    assert 0 < first < second < third < fourth


def test_a_full_counter_raises_the_boot() -> None:
    """The epoch after the last one of a boot is the first one of the next."""
    fences = Fences()
    last, after = 0, 0
    for _ in range(COUNTER_MAX):
        last = fences.locks.epochs.next()
    after = fences.locks.epochs.next()
    assert last == make_epoch(NOW_MS, COUNTER_MAX)
    assert after == make_epoch(NOW_MS + 1, 1)


# The lease --------------------------------------------------------------------------------------------------------


def test_a_lease_ends_at_its_millisecond() -> None:
    """A rival is refused 1 ms before, with owner and wait time, and gets the queue at the end; a pull ends then too."""
    fences = Fences()
    epoch = fences.claim("a", NOW_MS)
    refused = fences.ask("b", 0, NOW_MS + LEASE_MS - 1)
    assert (refused.outcome, refused.grant, refused.other, refused.wait_ms) == (LockOutcome.REFUSED, None, "a", 1)
    assert fences.check("a", epoch, NOW_MS + LEASE_MS - 1, pull=True) == "OK"
    assert fences.check("a", epoch, NOW_MS + LEASE_MS, pull=True) == "NOT_HELD"
    assert fences.check("a", epoch, NOW_MS + LEASE_MS) == "OK", "nobody else has had the queue"
    taken = fences.ask("b", 0, NOW_MS + LEASE_MS)
    assert (taken.outcome, taken.other, taken.age_ms) == (LockOutcome.TAKEN_OVER, "a", LEASE_MS)
    assert fences.check("a", epoch, NOW_MS + LEASE_MS) == "FENCED"
    assert [change.cause for change in fences.seen] == [
        ChangeCause.GRANTED,
        ChangeCause.LEASE_ENDED,
        ChangeCause.TAKEN_OVER,
    ]


@pytest.mark.parametrize(("late_ms", "renewed"), [(-1, True), (0, False)])
def test_an_ended_period_is_not_renewed(late_ms: int, renewed: bool) -> None:
    """A renewal that comes too late is NOT_HELD, and the claim after it begins another period."""
    fences = Fences()
    epoch = fences.claim("a", NOW_MS)
    answer = fences.ask("a", epoch, NOW_MS + LEASE_MS + late_ms)
    assert (answer.grant is not None, answer.fence is FenceAnswer.NOT_HELD) == (renewed, not renewed)
    if not renewed:
        again = fences.ask("a", 0, NOW_MS + LEASE_MS + late_ms)
        assert again.outcome is LockOutcome.REACQUIRED
        assert Fences.epoch_of(again) > epoch


@pytest.mark.parametrize(("late_ms", "renewed"), [(-1, True), (0, False)])
def test_an_ended_period_is_not_renewed_with_others(late_ms: int, renewed: bool) -> None:
    """Also not by a request for many queues, each under its epoch, before any timer has noticed the end."""
    fences = Fences()
    epoch = fences.claim("a", NOW_MS)
    assert fences.renews("a", epoch, NOW_MS + LEASE_MS + late_ms) is renewed


def test_a_period_that_has_ended_stays_ended() -> None:
    """Also for a request that was read before a timer noticed the end: others have been told already."""
    fences = Fences()
    epoch = fences.claim("a", NOW_MS)
    assert not fences.claim("b", NOW_MS)
    fences.locks.due(NOW_MS + LEASE_MS)
    assert fences.woken() == ["b"]
    assert fences.check("a", epoch, NOW_MS + LEASE_MS - 1, pull=True) == "NOT_HELD"
    assert not fences.renews("a", epoch, NOW_MS + LEASE_MS - 1)


def test_who_waits_for_many_queues_is_found_in_steps() -> None:
    """To free a queue costs the same for any number of clients that wait; each is told once of all its queues."""
    fences, queues = Fences(), queues_of("T", 40)
    granted = fences.locks.try_lock_batch("G", "a", queues, [0] * 40, fences.connection("a"), NOW_MS)
    waiting = [f"w{number}" for number in range(50)]
    for name in waiting:
        fences.locks.try_lock_batch("G", name, queues, [0] * 40, fences.connection(name), NOW_MS)
    epochs = [Fences.epoch_of(answer) for answer in granted]
    assert fences.locks.unlock_batch("G", "a", queues, epochs, NOW_MS) == []
    fences.ended("w7", NOW_MS)
    steps = fences.locks.waiters.take()
    next(steps)
    late = MessageQueue("T", "broker-a", 99)
    epoch = fences.claim("a", NOW_MS, late)
    assert not fences.claim("w3", NOW_MS, late)
    fences.locks.unlock_batch("G", "a", [late], [epoch], NOW_MS)
    told = steps_of(steps)
    assert [(woken.connection.address, woken.queues) for woken in told] == [
        (name, tuple(queues)) for name in waiting if name != "w7"
    ]
    assert [woken.queues for woken in fences.take_woken()] == [(late,)]
    fences.claim("a", NOW_MS)
    assert not fences.claim("w3", NOW_MS)
    assert fences.waiting_count() == 1, "who was told may wait again"


def test_a_claim_under_ones_own_name_waits_like_any_other() -> None:
    """Another process, or another period, of the same client id is another claimant."""
    fences = Fences()
    fences.claim("a", NOW_MS)
    refused = fences.ask("a", 0, NOW_MS + 1)
    assert (refused.outcome, refused.other, refused.wait_ms) == (LockOutcome.REFUSED, "a", LEASE_MS - 1)


# Answers to what comes under an epoch -----------------------------------------------------------------------------


def test_the_three_answers() -> None:
    """By whether another client, nobody or the same client has the queue now."""
    fences = Fences()
    assert fences.check("a", make_epoch(NOW_MS, 1), NOW_MS) == "NOT_HELD"
    first = fences.claim("a", NOW_MS)
    assert fences.check("b", first, NOW_MS) == "FENCED"
    assert fences.check("a", first + 1, NOW_MS) == "FENCED", "an epoch that was never given"
    fences.unlock("a", first, NOW_MS)
    assert fences.check("a", first, NOW_MS) == "NOT_HELD"
    second = fences.claim("a", NOW_MS)
    assert fences.check("a", first, NOW_MS) == "STALE"
    assert fences.ask("a", first, NOW_MS).fence is FenceAnswer.STALE
    fences.unlock("a", second, NOW_MS)
    fences.claim("b", NOW_MS)
    assert fences.check("a", second, NOW_MS) == "FENCED"
    assert fences.ask("a", second, NOW_MS) == LockAnswer(QUEUE, LockOutcome.REFUSED, "b", fence=FenceAnswer.FENCED)
    assert fences.locks.refusals == {FenceAnswer.FENCED: 4, FenceAnswer.NOT_HELD: 2, FenceAnswer.STALE: 2}


def test_a_fenced_renewal_does_not_disturb_the_owner() -> None:
    """A zombie that asks again and again neither renews nor shortens the lock of its successor."""
    fences = Fences()
    old = fences.claim("zombie", NOW_MS)
    new = fences.claim("b", NOW_MS + LEASE_MS)
    for passed_ms in range(0, LEASE_MS, 1000):
        assert not fences.renews("zombie", old, NOW_MS + LEASE_MS + passed_ms)
    assert fences.check("b", new, NOW_MS + 2 * LEASE_MS - 1, pull=True) == "OK"
    assert fences.check("b", new, NOW_MS + 2 * LEASE_MS, pull=True) == "NOT_HELD"


# Unlock -----------------------------------------------------------------------------------------------------------


def test_an_unlock_frees_at_once_and_wakes_who_waits() -> None:
    """Each waiting connection is told once, with its queues, and not the owner."""
    fences = Fences()
    epoch = fences.claim("a", NOW_MS)
    fences.claim("b", NOW_MS + 1)
    fences.claim("b", NOW_MS + 2)
    fences.claim("c", NOW_MS + 2)
    assert fences.waiting_count() == 2
    assert fences.woken() == []
    fences.unlock("a", epoch, NOW_MS + 3)
    assert fences.locks.waiters.any_woken
    assert fences.take_woken() == [("G", fences.connection(name), True, (QUEUE,)) for name in ("b", "c")]
    assert (fences.woken(), fences.waiting_count()) == ([], 0)
    assert fences.claim("c", NOW_MS + 3) > epoch


@pytest.mark.parametrize("stale_client", ["a", "b"])
def test_a_stale_unlock_frees_nobody(stale_client: str) -> None:
    """The unlock of an earlier period, of the same client or another, changes nothing and says who has the queue."""
    fences = Fences()
    old = fences.claim("a", NOW_MS)
    fences.unlock("a", old, NOW_MS)
    owner = "a" if stale_client == "a" else "c"
    new = fences.claim(owner, NOW_MS)
    (refused,) = fences.unlock(stale_client, old, NOW_MS)
    fence = FenceAnswer.STALE if stale_client == "a" else FenceAnswer.FENCED
    assert (refused.outcome, refused.fence, refused.other) == (LockOutcome.REFUSED, fence, owner)
    assert fences.check(owner, new, NOW_MS, pull=True) == "OK"
    (refused,) = fences.locks.unlock_batch("H", "a", [QUEUE], [old], NOW_MS)
    assert (refused.fence, refused.other) == (FenceAnswer.NOT_HELD, None)


# A reset, and a grant that is not kept ----------------------------------------------------------------------------


def test_a_reset_of_the_owner_begins_an_epoch() -> None:
    """It renews the lock; what comes under the older epoch is STALE, and nobody else can do it."""
    fences = Fences()
    epoch = fences.claim("a", NOW_MS)
    grant = fences.resets("a", epoch, NOW_MS + 30_000)
    assert isinstance(grant, LockGrant)
    assert (grant.epoch > epoch, grant.lease_ms) == (True, LEASE_MS)
    assert fences.check("a", epoch, NOW_MS + 30_000) == "STALE"
    assert fences.check("a", grant.epoch, NOW_MS + 30_000 + LEASE_MS - 1, pull=True) == "OK"
    assert fences.seen[-1][2:6] == ("a", "a", grant.epoch, ChangeCause.RESET)
    for client_id, presented, answer in (("a", epoch, FenceAnswer.STALE), ("b", grant.epoch, FenceAnswer.FENCED)):
        assert (
            fences.locks.begin_epoch("G", ("T", 0), client_id, presented, fences.connection("a"), NOW_MS + 30_000)
            is answer
        )
    late_ms = NOW_MS + 30_000 + LEASE_MS
    assert (
        fences.locks.begin_epoch("G", ("T", 0), "a", grant.epoch, fences.connection("a"), late_ms)
        is FenceAnswer.NOT_HELD
    )


def test_a_grant_that_is_withdrawn_frees_the_queue() -> None:
    """Only the period that was granted: one that followed stays."""
    fences = Fences()
    epoch = fences.claim("a", NOW_MS)
    fences.locks.withdraw("G", QUEUE, epoch, NOW_MS)
    assert fences.locks.changes[ChangeCause.WITHDRAWN] == 1
    later = fences.claim("b", NOW_MS)
    fences.locks.withdraw("G", QUEUE, epoch, NOW_MS)
    assert fences.check("b", later, NOW_MS, pull=True) == "OK"


# Bounds -----------------------------------------------------------------------------------------------------------


def test_the_table_is_bounded() -> None:
    """In a full table the oldest lock makes room if it has ended; a group has its own limit."""
    fences = Fences(entries_max=2, entries_per_group_max=2)
    first, second, third = queues_of("T", 3)
    fences.claim("a", NOW_MS, first)
    fences.claim("a", NOW_MS + 1, second)
    assert fences.ask("a", 0, NOW_MS + 2, third).outcome is LockOutcome.TABLE_FULL
    assert fences.ask("a", 0, NOW_MS + LEASE_MS, third).outcome is LockOutcome.GRANTED
    assert [row.queue for row in tuple(fences.locks.rows(NOW_MS))] == [second, third]
    small = Fences(entries_per_group_max=1)
    small.claim("a", NOW_MS, first)
    assert small.ask("a", 0, NOW_MS, second).outcome is LockOutcome.TABLE_FULL


def test_locks_without_an_owner_are_forgotten_after_ten_leases() -> None:
    """Until then a commit of the last period is taken."""
    fences = Fences()
    epoch = fences.claim("a", NOW_MS)
    late_ms = NOW_MS + KEPT_LIVES * LEASE_MS
    assert fences.locks.expire(late_ms, 100) == 0
    assert fences.check("a", epoch, late_ms) == "OK"
    assert fences.locks.expire(late_ms + 1, 100) == 1
    assert (fences.check("a", epoch, late_ms + 1), fences.removed) == ("NOT_HELD", [epoch])


def test_all_are_told_when_a_queue_is_freed_twice_in_one_turn() -> None:
    """Those of the first time too: their turn to be told has not come yet."""
    fences = Fences()
    first = fences.claim("a", NOW_MS)
    assert not fences.claim("b", NOW_MS)
    fences.unlock("a", first, NOW_MS)
    second = fences.claim("c", NOW_MS)
    assert not fences.claim("d", NOW_MS)
    fences.unlock("c", second, NOW_MS)
    assert fences.woken() == ["b", "d"]


def test_who_waits_is_bounded() -> None:
    """Above the limit a claim is refused all the same, but it is not told."""
    fences = Fences(entries_max=1)
    epoch = fences.claim("a", NOW_MS)
    fences.claim("b", NOW_MS)
    fences.claim("c", NOW_MS)
    fences.unlock("a", epoch, NOW_MS)
    assert fences.woken() == ["b"]
    fences.claim("a", NOW_MS)
    fences.claim("c", NOW_MS)
    assert fences.waiting_count() == 1, "who was told leaves room"


def test_ends_that_are_put_off_do_not_pile_up() -> None:
    """A lock that is gone leaves no time behind."""
    fences = Fences()
    for _ in range(50):
        epoch = fences.claim("a", NOW_MS)
        fences.claim("b", NOW_MS)
        fences.unlock("a", epoch, NOW_MS)
        assert len(fences.locks._due._locks) <= 1
