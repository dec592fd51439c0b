"""How the ownership of a fenced queue ends: connections, leases, unmodified clients (docs/fencing.md)."""

import pytest

from lockstep.broker.ownership.answers import FenceAnswer
from lockstep.broker.ownership.changes import ChangeCause
from lockstep.broker.ownership.fenced.index import TAKEN_AT_ONCE_MAX
from lockstep.protocol.model import MessageQueue
from tests.broker.helpers import NOW_MS
from tests.broker.ownership.fences import DELAY_MS, LEASE_MS, LEGACY_MS, Fences

# The end of a connection ------------------------------------------------------------------------------------------


def test_a_lost_connection_begins_the_lock_delay() -> None:
    """A rival is refused 1 ms before the delay ends; at its end those who wait are told, and pulls are NOT_HELD."""
    fences = Fences()
    epoch = fences.claim("a", NOW_MS)
    fences.ended("a", NOW_MS + 10_000)
    over_ms = NOW_MS + 10_000 + DELAY_MS
    assert fences.ask("b", 0, over_ms - 1)[2:5] == ("a", 12_999, 1)
    assert next(iter(fences.locks.rows(over_ms - 1)))[4:] == (0, 12_999, epoch, True, 1)
    assert fences.due_ms() == over_ms
    fences.locks.due(over_ms - 1)
    assert fences.woken() == []
    fences.locks.due(over_ms)
    assert (fences.woken(), fences.due_ms()) == (["b"], None)
    assert fences.check("a", epoch, over_ms, pull=True) == "NOT_HELD"
    assert fences.check("a", epoch, over_ms) == "OK"
    assert not fences.renews("a", epoch, over_ms)
    assert fences.claim("b", over_ms) > epoch
    causes = [ChangeCause.GRANTED, ChangeCause.CONNECTION_LOST, ChangeCause.TAKEN_OVER]
    assert [change.cause for change in fences.seen] == causes


def test_who_waited_before_the_connection_ended_is_told_when_the_delay_ends() -> None:
    """The end that was awaited was that of the lease, and it comes earlier now."""
    fences = Fences()
    fences.claim("a", NOW_MS)
    assert not fences.claim("b", NOW_MS + 1000)
    fences.ended("a", NOW_MS + 2000)
    assert fences.due_ms() == NOW_MS + 2000 + DELAY_MS
    fences.locks.due(NOW_MS + 2000 + DELAY_MS)
    assert fences.woken() == ["b"]


def test_the_delay_never_outlasts_the_lease() -> None:
    """A connection that ends 1 s before the lease does gives 1 s of delay."""
    fences = Fences()
    fences.claim("a", NOW_MS)
    fences.ended("a", NOW_MS + LEASE_MS - 1000)
    assert not fences.claim("b", NOW_MS + LEASE_MS - 1)
    assert fences.claim("b", NOW_MS + LEASE_MS)


def test_a_connection_that_ends_after_the_lease_is_not_why_it_ended() -> None:
    """The cause is the lease, and no delay begins."""
    fences = Fences()
    fences.claim("a", NOW_MS)
    fences.ended("a", NOW_MS + LEASE_MS)
    assert [change.cause for change in fences.seen] == [ChangeCause.GRANTED, ChangeCause.LEASE_ENDED]


def test_an_end_that_the_broker_decided_on_starts_no_delay() -> None:
    """The lease alone counts."""
    fences = Fences()
    fences.claim("a", NOW_MS)
    fences.ended("a", NOW_MS, by_peer=False)
    fences.ended("a", NOW_MS)  # the socket's own end follows
    assert fences.due_ms() == NOW_MS + LEASE_MS
    assert not fences.claim("b", NOW_MS + LEASE_MS - 1)


def test_a_renewal_over_another_connection_cancels_the_delay() -> None:
    """Also when the renewal comes first: the end of the older connection is nothing then."""
    fences = Fences()
    epoch = fences.claim("a", NOW_MS)
    fences.ended("a", NOW_MS + 1000)
    assert fences.renews("a", epoch, NOW_MS + 1000 + DELAY_MS - 1, connection="a2")
    assert next(iter(fences.locks.rows(NOW_MS + 5000))).draining is False
    fences.locks.due(NOW_MS + 1000 + DELAY_MS)
    assert not fences.claim("b", NOW_MS + 1000 + DELAY_MS)
    assert fences.renews("a", epoch, NOW_MS + 6000, connection="a3")
    fences.ended("a2", NOW_MS + 6001)
    assert not fences.claim("b", NOW_MS + 6001 + DELAY_MS)


@pytest.mark.parametrize(("ended_after_ms", "over_after_ms"), [(0, LEGACY_MS), (20_000, LEGACY_MS), (40_000, 40_000)])
def test_the_delay_of_an_unmodified_owner_counts_from_its_last_renewal(ended_after_ms: int, over_after_ms: int) -> None:
    """31 s after it, when Java's client has stopped trusting its lock; at once when that has passed."""
    fences = Fences()
    fences.claim_legacy("a", NOW_MS)
    fences.claim_legacy("a", NOW_MS + 5000)
    renewed_ms = NOW_MS + 5000
    fences.ended("a", renewed_ms + ended_after_ms)
    if over_after_ms > ended_after_ms:
        assert not fences.claim_legacy("b", renewed_ms + over_after_ms - 1)
    assert fences.claim_legacy("b", renewed_ms + over_after_ms)


def test_unregistering_frees_at_once() -> None:
    """Over the connection of the last renewal; a stale process of the same name frees nothing."""
    fences = Fences()
    epoch = fences.claim("a", NOW_MS)
    fences.claim("b", NOW_MS)
    fences.left("a", NOW_MS, connection="another")
    fences.left("a", NOW_MS, group="H")
    fences.left("z", NOW_MS, connection="a")
    assert fences.check("a", epoch, NOW_MS, pull=True) == "OK"
    fences.left("a", NOW_MS)
    assert (fences.woken(), len(fences.locks), fences.locks.changes[ChangeCause.LEFT]) == (["b"], 0, 1)


def test_a_connection_that_ended_is_not_told() -> None:
    """Neither one that waits nor one that was to be told in this loop turn."""
    fences = Fences()
    epoch = fences.claim("a", NOW_MS)
    fences.claim("b", NOW_MS)
    fences.claim("c", NOW_MS)
    fences.ended("b", NOW_MS)
    fences.unlock("a", epoch, NOW_MS)
    fences.ended("c", NOW_MS)
    assert fences.woken() == []


def test_those_who_wait_are_told_when_the_lease_ends() -> None:
    """A renewal puts the time off."""
    fences = Fences()
    epoch = fences.claim("a", NOW_MS)
    fences.claim("b", NOW_MS)
    assert fences.renews("a", epoch, NOW_MS + 20_000)
    assert fences.due_ms() == NOW_MS + LEASE_MS
    fences.locks.due(NOW_MS + LEASE_MS)
    assert (fences.woken(), fences.due_ms()) == ([], NOW_MS + 20_000 + LEASE_MS)
    fences.locks.due(NOW_MS + 20_000 + LEASE_MS)
    assert (fences.woken(), fences.due_ms()) == (["b"], None)


def test_many_ends_at_once_do_not_keep_the_loop() -> None:
    """A bounded number ends in each turn of the loop; the rest is still due, and a claim ends its lock by itself."""
    fences, over_ms = Fences(), NOW_MS + LEASE_MS
    queues = [MessageQueue("T", "broker-a", number) for number in range(5 * TAKEN_AT_ONCE_MAX // 2)]
    for queue in queues:
        fences.claim("a", NOW_MS, queue)
    ended = []
    while fences.due_ms() == over_ms:
        fences.seen.clear()
        fences.locks.due(over_ms)
        ended.append(len(fences.seen))
        if len(ended) == 1:
            assert fences.claim("b", over_ms, queues[-1])
    assert ended == [TAKEN_AT_ONCE_MAX, TAKEN_AT_ONCE_MAX, TAKEN_AT_ONCE_MAX // 2 - 1]


# Unmodified clients -----------------------------------------------------------------------------------------------


def test_an_unmodified_owner_renews_by_its_client_id() -> None:
    """Its epoch stays the same; another client and a claim of ours under its name are refused."""
    fences = Fences()
    epoch = fences.claim_legacy("java", NOW_MS)
    assert fences.claim_legacy("java", NOW_MS + 20_000) == epoch
    assert not fences.claim_legacy("other", NOW_MS + 20_000)
    assert not fences.claim("java", NOW_MS + 20_000)
    assert fences.claim_legacy("java", NOW_MS + 20_000 + LEASE_MS) > epoch


def test_a_lock_of_ours_is_not_renewed_by_its_name_alone() -> None:
    """An unmodified request has no epoch, so it does not renew what has one, nor unlock it."""
    fences = Fences()
    epoch = fences.claim("a", NOW_MS)
    assert not fences.claim_legacy("a", NOW_MS)
    (refused,) = fences.unlock("a", None, NOW_MS)
    assert refused.fence is FenceAnswer.FENCED
    assert fences.check("a", epoch, NOW_MS, pull=True) == "OK"


def test_an_unmodified_unlock_waits_for_the_last_commit() -> None:
    """The queue is free with the commit; those who wait are told then."""
    fences = Fences()
    fences.claim_legacy("java", NOW_MS)
    fences.claim("b", NOW_MS)
    assert fences.unlock("java", None, NOW_MS + 10) == []
    assert not fences.claim("b", NOW_MS + 11)
    assert fences.woken() == []
    fences.locks.committed("G", "T", 0, NOW_MS + 12)
    assert (fences.woken(), len(fences.locks)) == (["b"], 0)
    fences.claim("b", NOW_MS + 13)
    fences.locks.committed("G", "T", 0, NOW_MS + 14)
    assert len(fences.locks) == 1, "a commit frees only what was unlocked"


def test_an_unmodified_unlock_does_not_lengthen_the_lease() -> None:
    """Half a second before its end it leaves half a second for the last commit."""
    fences = Fences()
    fences.claim_legacy("a", NOW_MS)
    fences.unlock("a", None, NOW_MS + LEASE_MS - 500)
    assert not fences.claim("b", NOW_MS + LEASE_MS - 1)
    assert fences.claim("b", NOW_MS + LEASE_MS)


def test_an_unmodified_unlock_waits_for_a_second_at_most() -> None:
    """A commit need not come; another unlock does not put the end off."""
    fences = Fences()
    fences.claim_legacy("java", NOW_MS)
    fences.unlock("java", None, NOW_MS)
    assert fences.due_ms() == NOW_MS + 1000
    fences.unlock("java", None, NOW_MS + 500)
    assert not fences.claim("b", NOW_MS + 999)
    fences.locks.due(NOW_MS + 1000)
    assert (fences.woken(), len(fences.locks)) == (["b"], 0)


@pytest.mark.parametrize("end", ["leaves", "connection"])
def test_an_unmodified_client_that_goes_after_its_unlock_frees_at_once(end: str) -> None:
    """No commit of it can come any more."""
    fences = Fences()
    fences.claim_legacy("java", NOW_MS)
    fences.unlock("java", None, NOW_MS)
    if end == "leaves":
        fences.left("java", NOW_MS)
    else:
        fences.ended("java", NOW_MS)
    assert fences.claim("b", NOW_MS)


def test_an_unmodified_client_that_locks_again_begins_another_period() -> None:
    """Before its unlock has taken effect."""
    fences = Fences()
    epoch = fences.claim_legacy("java", NOW_MS)
    fences.unlock("java", None, NOW_MS)
    again = fences.claim_legacy("java", NOW_MS + 1)
    assert again > epoch
    assert fences.removed == [epoch]
    fences.locks.due(NOW_MS + 1000)
    assert not fences.claim("b", NOW_MS + LEASE_MS)
    assert [change.cause for change in fences.seen] == [ChangeCause.GRANTED, ChangeCause.UNLOCKED, ChangeCause.GRANTED]
