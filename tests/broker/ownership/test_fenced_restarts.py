"""Fenced locks after a restart of the broker: kept locks, and the grace period without them (docs/fencing.md)."""

from lockstep.broker.ownership.answers import FenceAnswer
from lockstep.broker.ownership.changes import ChangeCause
from lockstep.broker.ownership.fenced.locks import StoredLock
from lockstep.protocol.epochs import COUNTER_MAX, boot_of, make_epoch
from lockstep.protocol.model import MessageQueue
from tests.broker.helpers import NOW_MS
from tests.broker.ownership.fences import LEASE_MS, QUEUE, Fences

# After a restart --------------------------------------------------------------------------------------------------


def kept(client_id: str, epoch: int, *, fenced: bool = True, lease_ms: int = LEASE_MS) -> StoredLock:
    return StoredLock("G", QUEUE, client_id, fenced, epoch, lease_ms, NOW_MS - 5000)


def test_a_kept_lock_has_its_lease_once_more() -> None:
    """Its owner renews by client id and epoch; others wait for the whole lease from the start."""
    fences = Fences()
    epoch = make_epoch(NOW_MS - 1, 7)
    fences.locks.restore([kept("a", epoch)], NOW_MS - 1, NOW_MS)
    assert fences.ask("b", 0, NOW_MS).wait_ms == LEASE_MS
    assert fences.ask("a", 0, NOW_MS + 1).wait_ms == LEASE_MS - 1
    assert not fences.renews("a", epoch - 1, NOW_MS)
    assert not fences.renews("b", epoch, NOW_MS)
    assert fences.renews("a", epoch, NOW_MS + LEASE_MS - 1)
    assert next(iter(fences.locks.rows(NOW_MS))).held_ms == 5000
    assert fences.seen == [], "no owner has changed"


def test_the_end_of_a_kept_lock_that_was_renewed_is_noticed() -> None:
    """Without a claim of another client too: an owner that fell silent must leave its group."""
    fences = Fences()
    epoch = make_epoch(NOW_MS - 1, 7)
    fences.locks.restore([kept("a", epoch)], NOW_MS - 1, NOW_MS)
    assert fences.renews("a", epoch, NOW_MS + 10)
    fences.locks.due(NOW_MS + LEASE_MS)
    assert fences.due_ms() == NOW_MS + 10 + LEASE_MS


def test_a_kept_lock_that_nobody_renews_goes_to_another() -> None:
    """With an epoch above the kept one, although the wall clock stands still."""
    fences = Fences(boot=NOW_MS)
    epoch = make_epoch(NOW_MS, COUNTER_MAX)
    fences.locks.restore([kept("a", epoch)], NOW_MS, NOW_MS)
    assert not fences.claim("b", NOW_MS + LEASE_MS - 1)
    assert fences.claim("b", NOW_MS + LEASE_MS) > epoch


def test_a_kept_lock_of_an_unmodified_owner_is_renewed_by_its_name() -> None:
    """It sends no epoch."""
    fences = Fences()
    fences.locks.restore([kept("java", make_epoch(5, 5), fenced=False)], NOW_MS - 1, NOW_MS)
    assert not fences.claim_legacy("other", NOW_MS)
    assert fences.claim_legacy("java", NOW_MS) == make_epoch(5, 5)


def test_a_kept_lease_is_the_longer_one() -> None:
    """The broker may run with another lease now, or may have granted a longer one than it kept."""
    fences = Fences()
    fences.locks.restore([kept("a", make_epoch(5, 5), lease_ms=2 * LEASE_MS)], NOW_MS - 1, NOW_MS)
    assert not fences.claim("b", NOW_MS + 2 * LEASE_MS - 1)
    fences.locks.restore([kept("a", make_epoch(5, 5), lease_ms=10)._replace(consumer_group="H")], 5, NOW_MS)
    assert next(iter(fences.locks.rows(NOW_MS, "H"))).remaining_ms == LEASE_MS - 1


def test_in_the_grace_period_the_first_who_presents_an_epoch_has_the_queue() -> None:
    """Claims and unmodified clients wait for its end, and are told then."""
    fences = Fences(boot=NOW_MS)
    fences.locks.begin_grace(NOW_MS + LEASE_MS)
    epoch = make_epoch(NOW_MS + 5000, 9)  # of a start whose clock was ahead
    assert fences.ask("b", 0, NOW_MS + 1)[2:5] == (None, 0, LEASE_MS - 1)
    assert not fences.claim_legacy("java", NOW_MS + 1)
    assert fences.check("a", epoch, NOW_MS + 1) == "NOT_HELD", "a commit does not take a queue"
    assert fences.renews("a", epoch, NOW_MS + 2)
    assert not fences.renews("zombie", epoch - 1, NOW_MS + 2)
    assert fences.check("a", epoch, NOW_MS + 2) == "OK"
    fences.locks.due(NOW_MS + LEASE_MS - 1)
    assert (fences.woken(), fences.due_ms()) == ([], NOW_MS + LEASE_MS)
    other = MessageQueue("T", "broker-a", 1)
    assert not fences.claim("b", NOW_MS + LEASE_MS - 1, other)
    fences.locks.due(NOW_MS + LEASE_MS)
    assert sorted(fences.woken()) == ["b", "java"]
    later = fences.claim("b", NOW_MS + LEASE_MS, other)
    assert later > epoch
    assert boot_of(later) == NOW_MS + 5001
    assert fences.seen[0][3:6] == ("a", epoch, ChangeCause.RECLAIMED)


def test_after_the_grace_period_an_unknown_epoch_is_not_held() -> None:
    """As in a broker in memory, which has lost its log with its table."""
    fences = Fences()
    fences.locks.begin_grace(NOW_MS + 10)
    assert fences.ask("a", make_epoch(5, 5), NOW_MS + 10).fence is FenceAnswer.NOT_HELD
    assert Fences().ask("a", make_epoch(5, 5), NOW_MS).fence is FenceAnswer.NOT_HELD


def test_an_epoch_of_the_far_future_is_not_reclaimed() -> None:
    """A peer cannot use up the boots."""
    fences = Fences()
    fences.locks.begin_grace(NOW_MS + LEASE_MS)
    assert not fences.renews("a", make_epoch((1 << 42) - 1, COUNTER_MAX), NOW_MS)
    assert boot_of(fences.claim("b", NOW_MS + LEASE_MS)) == NOW_MS
