"""Offsets under fenced locks go back only by a reset: an administrator's, or the owner's own."""

import pytest

from lockstep.broker.ownership.denial import Act, Reason
from lockstep.protocol.bodies.client import ResetOffsetBody
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import CloneGroupOffsetRequestHeader, ResetOffsetRequestHeader
from lockstep.protocol.headers.messaging import (
    ResetOwnOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.broker.ownership.fence_clients import Java, World, committed, next_offset, refused
from tests.broker.ownership.fences import fenced

C = ResponseCode
MARK_MS, LEASE_MS = 30_000, 60_000
START, END = 0, -1  # timestamps of the request


@pytest.fixture
def world() -> World:
    """Ten messages, and an offset of each queue, without which RocketMQ resets none."""
    world = World()
    world.send(10)
    for queue_id in range(4):
        world.broker.catalog.offsets.commit("G", "T", queue_id, 0)
    return world


def reset(world: World, timestamp: int, *, force: bool = True) -> RemotingCommand:
    header = ResetOffsetRequestHeader("T", "G", timestamp, force)
    return world.admin.answer(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)


def member(world: World, client_id: str = "a") -> Java:
    """An owner that has committed 5."""
    client = world.java(client_id)
    client.heartbeat()
    assert client.lock()
    client.commit(5)
    return client


# Commits that go back -------------------------------------------------------------------------------------------


def test_a_commit_that_goes_back_is_not_stored(world: World) -> None:
    """Alone or with a pull, of an owner of either kind. The pull is answered."""
    java = member(world)
    java.commit(4)
    assert next_offset(java.pull(0, commit=3)) == (C.SUCCESS, 10)
    java.commit(5)
    assert committed(world) == 5
    world.wait(LEASE_MS)
    ours = world.ours("b")
    assert ours.lock()
    reply = ours.commit(4)
    assert reply.code == C.SYSTEM_ERROR
    assert "5" in str(reply.remark)
    assert next_offset(ours.pull(0, commit=4)) == (C.SUCCESS, 10)
    assert committed(world) == 5
    assert refused(world) == {(Act.COMMIT, Reason.BACKWARDS): 4}


def test_a_stored_offset_beyond_the_end_may_be_corrected(world: World) -> None:
    """The broker lost its newest messages. The client's pull is answered 21, and it commits the end (wire.md 12.6)."""
    java = member(world)
    world.broker.catalog.offsets.commit("G", "T", 0, 11)
    java.commit(10)
    assert committed(world) == 10
    java.commit(9)
    assert committed(world) == 10


def test_a_commit_beyond_the_end_is_not_stored(world: World) -> None:
    """The log lost what the client handled. New messages will have these offsets, and the next owner must get them."""
    java = member(world)
    java.commit(11)
    assert committed(world) == 5
    java.commit(10)
    assert committed(world) == 10
    world.wait(LEASE_MS)
    ours = world.ours("b")
    assert ours.lock()
    reply = ours.commit(12)
    assert reply.code == C.SYSTEM_ERROR
    assert "ends at 10, and 12 is beyond it" in str(reply.remark)
    ours.pull(10, commit=11)
    assert committed(world) == 10
    assert refused(world) == {(Act.COMMIT, Reason.BEYOND_END): 3}


def test_without_a_lock_any_offset_is_stored(world: World) -> None:
    """Groups without locks are RocketMQ's."""
    java = world.java("a")
    java.commit(5)
    java.commit(2)
    assert committed(world) == 2


# An administrator's reset -----------------------------------------------------------------------------------------


def test_the_broker_stores_a_reset_and_the_owner_confirms_it(world: World) -> None:
    """Until the owner commits exactly the new offset, nothing else is stored; its next commits go on from there."""
    java = member(world)
    assert reset(world, START).code == C.SUCCESS
    assert [push.code for push in java.connection.pushed] == [
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    ]
    assert committed(world) == 0
    java.commit(6)
    assert next_offset(java.pull(6, commit=7)) == (C.SUCCESS, 10)
    assert committed(world) == 0
    world.wait(10_000)
    java.commit(0)
    java.commit(3)
    assert committed(world) == 3
    assert refused(world) == {(Act.COMMIT, Reason.RESET): 2}


def test_an_owner_that_does_not_know_that_its_lock_ended_undoes_no_reset(world: World) -> None:
    """Its requests arrive late and together: a renewal, which begins another period, and a commit of before."""
    java = member(world)
    world.wait(LEASE_MS)
    assert reset(world, START).code == C.SUCCESS
    assert java.lock()
    java.commit(6)
    assert committed(world) == 0
    java.commit(0)
    java.commit(1)
    assert committed(world) == 1
    assert refused(world) == {(Act.COMMIT, Reason.RESET): 1}


def test_an_owner_that_reclaims_its_queue_undoes_no_reset(world: World) -> None:
    """The broker had lost its lock table when the offset was reset; the owner goes on where it was."""
    locks, ours = fenced(world.broker).table, world.ours("a")
    locks.begin_grace(world.now_ms + LEASE_MS)
    world.broker.catalog.offsets.commit("G", "T", 0, 0)
    fenced(world.broker).checks.reset("G", "T", {0: 0}, world.now_ms)
    assert ours.lock(epoch=locks.epochs.next())
    assert ours.commit(6).code == C.SYSTEM_ERROR
    assert committed(world) == 0
    ours.commit(0)
    ours.commit(1)
    assert committed(world) == 1


def test_a_forward_reset_is_not_taken_back(world: World) -> None:
    """The owner is behind the new offset; what it commits until it knows is lower."""
    java = member(world)
    assert reset(world, END).code == C.SUCCESS
    java.commit(7)
    world.wait(MARK_MS)
    java.commit(8)
    assert committed(world) == 10


@pytest.mark.parametrize(("waited_ms", "stored"), [(MARK_MS - 1, 0), (MARK_MS, 7)])
def test_an_owner_that_never_confirms_is_waited_for_30_s(world: World, waited_ms: int, stored: int) -> None:
    """The notice to it was lost. Then its commits are stored again."""
    java = member(world)
    reset(world, START)
    world.wait(waited_ms)
    java.commit(7)
    assert committed(world) == stored


def test_marks_do_not_stay(world: World) -> None:
    """The broker's scan of each 10 s removes those whose time is over."""
    member(world)
    reset(world, START)
    assert len(fenced(world.broker).checks.resets) == 4
    world.wait(MARK_MS)
    world.broker.scan(world.now_ms)
    assert len(fenced(world.broker).checks.resets) == 0


def test_a_refused_commit_in_a_reset_says_why(world: World) -> None:
    """To a caller that wants an answer."""
    java = member(world)
    reset(world, START)
    reply = java.commit(6, one_way=False)
    assert reply is not None
    assert reply.code == C.SYSTEM_ERROR
    assert "was reset" in str(reply.remark)


def test_the_next_owner_begins_at_the_reset(world: World) -> None:
    """A new period reads the stored offset, so it need not confirm it."""
    member(world, "a")
    reset(world, START)
    world.wait(LEASE_MS)
    assert reset(world, START).code == C.SUCCESS
    ours = world.ours("b")
    assert ours.lock()
    assert ours.commit(2).code == C.SUCCESS
    assert committed(world) == 2


def test_without_members_a_reset_is_stored_where_somebody_owned_the_queue(world: World) -> None:
    """RocketMQ's answer is 206 and the caller commits. The last owner's lock would refuse that commit."""
    java = member(world)
    world.broker.on_closed(java.connection)
    reply = reset(world, START)
    assert reply.code == C.SUCCESS
    assert set(decode_body(ResetOffsetBody, reply.body, reply.serialize_type).offset_table.values()) == {0}
    assert committed(world) == 0


def test_without_members_and_locks_the_caller_must_commit(world: World) -> None:
    """As in RocketMQ: 206, and nothing has changed."""
    world.broker.catalog.offsets.commit("G", "T", 0, 5)
    assert reset(world, START).code == C.CONSUMER_NOT_ONLINE
    assert committed(world) == 5
    world.java("a").commit(0)
    assert committed(world) == 0


def test_a_group_without_locks_is_reset_by_its_members(world: World) -> None:
    """Concurrent consumers: the broker's offset stays until they commit."""
    java = world.java("a")
    java.heartbeat()
    java.commit(5)
    assert reset(world, START).code == C.SUCCESS
    assert committed(world) == 5
    java.commit(0)
    assert committed(world) == 0


def test_cloned_offsets_are_a_reset_too(world: World) -> None:
    """CLONE_GROUP_OFFSET into a group whose queue has an owner."""
    java = member(world)
    world.broker.catalog.offsets.commit("H", "T", 0, 2)
    header = CloneGroupOffsetRequestHeader("H", "G", "T", True)
    assert world.admin.answer(RequestCode.CLONE_GROUP_OFFSET, header).code == C.SUCCESS
    java.commit(6)
    assert committed(world) == 2
    java.commit(2)
    java.commit(4)
    assert committed(world) == 4


def test_the_admin_client_sets_the_offset_of_any_queue(world: World) -> None:
    """`lockstep offset seek`, of a group whose last owner did not unlock: the request says that it is a reset."""
    java = member(world)
    admin = world.peer(SerializeType.MSGPACK)
    header = UpdateConsumerOffsetRequestHeader("G", "T", 0, 2)
    assert admin.answer(RequestCode.UPDATE_CONSUMER_OFFSET, header).code == C.SYSTEM_ERROR
    assert admin.answer(RequestCode.UPDATE_CONSUMER_OFFSET, header._replace(reset=True)).code == C.SUCCESS
    java.commit(6)
    assert committed(world) == 2


# The owner's own reset --------------------------------------------------------------------------------------------


def test_an_owner_resets_under_its_epoch(world: World) -> None:
    """Back or forward. A new epoch begins, so a late commit of the one before is refused."""
    ours = world.ours("a")
    assert ours.lock()
    before = ours.epoch
    assert ours.commit(8).code == C.SUCCESS
    reply = ours.reset(3)
    grant = reply.decode_header(ResetOwnOffsetResponseHeader)
    assert grant.lock_epoch > before
    assert grant.lease_ms == LEASE_MS
    assert committed(world) == 3
    assert ours.commit(9, before).code == C.STALE
    assert ours.commit(4, grant.lock_epoch).code == C.SUCCESS
    assert committed(world) == 4


def test_an_owners_reset_ends_that_of_an_administrator(world: World) -> None:
    """Our clients answer the notice of a reset so."""
    ours = world.ours("a")
    assert ours.lock()
    assert ours.commit(8).code == C.SUCCESS
    assert reset(world, START).code == C.SUCCESS
    assert ours.commit(9).code == C.SYSTEM_ERROR
    assert ours.reset(0).code == C.SUCCESS
    assert ours.commit(1).code == C.SUCCESS
    assert committed(world) == 1


def test_a_reset_that_cannot_be_stored_changes_nothing(world: World) -> None:
    """Below -1 an offset is invalid. The period goes on under its epoch."""
    ours = world.ours("a")
    assert ours.lock()
    assert ours.reset(-2).code == C.SYSTEM_ERROR
    assert ours.commit(1).code == C.SUCCESS


def test_an_owner_does_not_reset_beyond_the_end_of_its_queue(world: World) -> None:
    """New messages would be skipped. The end itself, and an offset that is stored already, are taken."""
    ours = world.ours("a")
    assert ours.lock()
    before = ours.epoch
    reply = ours.reset(11)
    assert reply.code == C.SYSTEM_ERROR
    assert "ends at 10" in (reply.remark or "")
    assert refused(world) == {(Act.RESET, Reason.BEYOND_END): 1}
    assert (committed(world), ours.epoch) == (0, before)
    assert ours.commit(1).code == C.SUCCESS
    assert ours.reset(10).code == C.SUCCESS
    assert committed(world) == 10
    world.broker.catalog.offsets.commit("G", "T", 0, 12)
    assert ours.reset(12).code == C.SUCCESS, "as a commit of it: the broker lost messages, and its pull says so"
    assert ours.reset(0).code == C.SUCCESS
