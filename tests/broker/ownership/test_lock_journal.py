"""The journal of owners: what LIST_LOCK_CHANGES tells, with both kinds of locks."""

import pytest

from lockstep.broker.ownership.changes import ChangeCause, OwnerChange
from lockstep.broker.ownership.journal import LockJournal
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.lock_changes import LockChangesBody
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.messaging import ListLockChangesRequestHeader
from tests.broker.helpers import ENCODINGS, NOW_MS, Peer, queues_of

LIFE_MS = 60_000
QUEUE, OTHER = queues_of("T", 2)


def changes(peer: Peer, cursor: int = 0, group: str | None = None, count_max: int | None = None) -> LockChangesBody:
    header = ListLockChangesRequestHeader(cursor, group, count_max)
    reply = peer.answer(RequestCode.LIST_LOCK_CHANGES, header)
    assert reply.code == ResponseCode.SUCCESS
    return decode_body(LockChangesBody, reply.body, peer.encoding)


def lock(peer: Peer, client_id: str, *, group: str = "G", epochs: tuple[int, ...] | None = None) -> None:
    peer.answer(RequestCode.LOCK_BATCH_MQ, None, LockBatchBody(group, client_id, (QUEUE,), epochs))


def unlock(peer: Peer, client_id: str) -> None:
    peer.answer(RequestCode.UNLOCK_BATCH_MQ, None, LockBatchBody("G", client_id, (QUEUE,)))


@pytest.mark.parametrize("encoding", ENCODINGS[:2], ids=lambda encoding: encoding.name)
def test_owners_of_a_faithful_lock(encoding: object) -> None:
    """Grant, refusal (once), takeover with the time since the last renewal, unlock, and the next grant."""
    peer = Peer(encoding)  # type: ignore[arg-type]
    lock(peer, "a")
    peer.now_ms += 20_000
    lock(peer, "a")  # a renewal is no change
    lock(peer, "b")
    lock(peer, "b")
    peer.now_ms += LIFE_MS + 1
    lock(peer, "b")
    unlock(peer, "b")
    peer.now_ms += 250
    lock(peer, "a")
    body = changes(peer)
    assert [(one.old, one.new, one.cause, one.rest_ms) for one in body.changes] == [
        (None, "a", "granted", 0),
        ("a", "b", "refused", 0),
        ("a", "b", "taken over", LIFE_MS + 1),
        ("b", None, "unlocked", 0),
        (None, "a", "granted", 250),
    ]
    assert {one.epoch for one in body.changes} == {None}
    assert [one.number for one in body.changes] == [0, 1, 2, 3, 4]
    assert (body.started_ms, body.now_ms, body.first, body.next_cursor) == (NOW_MS, peer.now_ms, 0, 5)


def test_an_owner_that_comes_back_after_its_life() -> None:
    """Its own lock had expired: it is granted again, not taken over."""
    peer = Peer()
    lock(peer, "a")
    peer.now_ms += LIFE_MS + 1
    lock(peer, "a")
    assert [(one.cause, one.old, one.new) for one in changes(peer).changes[1:]] == [("granted again", "a", "a")]


def test_owners_of_a_fenced_lock() -> None:
    """With epochs; a lease that ends is a change, and the rest of the queue counts from the last renewal."""
    peer = Peer(ENCODINGS[1], lock_mode="fenced")
    lock(peer, "a", epochs=(0,))
    lock(peer.beside(), "b", epochs=(0,))
    peer.now_ms += LIFE_MS
    peer.broker.ownership.end_due(peer.now_ms)
    beside = peer.beside()
    beside.now_ms = peer.now_ms + 40
    lock(beside, "b", epochs=(0,))
    found = changes(beside).changes
    assert [(one.old, one.new, one.cause, one.rest_ms) for one in found] == [
        (None, "a", "granted", 0),
        ("a", "b", "refused", 0),
        ("a", None, "lease ended", 0),
        ("a", "b", "taken over", LIFE_MS + 40),
    ]
    first, last = found[0].epoch, found[-1].epoch
    assert first is not None
    assert last is not None
    assert last > first
    assert found[2].epoch == first


def test_a_cursor_reads_on() -> None:
    """Only what is new, some at a time, of one group; a cursor that is too old or of no sense begins at the oldest."""
    peer = Peer(lock_changes_max=3)
    for group in ("G", "H", "G2"):
        lock(peer, "a", group=group)
    first = changes(peer, count_max=2)
    assert [one.consumer_group for one in first.changes] == ["G", "H"]
    rest = changes(peer, first.next_cursor)
    assert [one.consumer_group for one in rest.changes] == ["G2"]
    assert changes(peer, rest.next_cursor).changes == ()
    of_group = changes(peer, group="H")
    assert [one.number for one in of_group.changes] == [1]
    assert of_group.next_cursor == 3
    lock(peer, "a", group="G3")
    kept = changes(peer, 0)
    assert (kept.first, [one.number for one in kept.changes]) == (1, [1, 2, 3])
    assert len(changes(peer, 99).changes) == 3
    refused = peer.answer(RequestCode.LIST_LOCK_CHANGES, ListLockChangesRequestHeader(0, None, 0))
    assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_ERROR, "countMax must be above 0, not 0")


def test_what_the_journal_remembers_has_a_bound() -> None:
    """Queues without an owner, and clients that were refused, are as many as the changes at most."""
    journal = LockJournal(10, NOW_MS, 3000)
    for number in range(50):
        journal.owner_changed(OwnerChange(f"G{number}", QUEUE, "a", None, 0, ChangeCause.UNLOCKED, NOW_MS))
        for client in range(40):
            journal.refused(f"G{number}", OTHER, f"c{client}", "a", NOW_MS)
    assert len(journal) == 10
    assert max(len(journal._rests), len(journal._refused)) <= 10
    assert max(map(len, journal._refused.values())) <= 16


def test_a_lost_connection_is_a_sign() -> None:
    """A queue whose owner's connection ended rested for the lock delay and what came after it."""
    journal = LockJournal(10, NOW_MS, 3000)
    journal.owner_changed(OwnerChange("G", QUEUE, "a", None, 7, ChangeCause.CONNECTION_LOST, NOW_MS, NOW_MS - 12_000))
    journal.owner_changed(OwnerChange("G", QUEUE, "a", "b", 8, ChangeCause.TAKEN_OVER, NOW_MS + 30))
    changes, _ = journal.since(1, None, 10)
    assert [one.rest_ms for one in changes] == [3030]
