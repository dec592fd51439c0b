"""Clients that send no epoch, fenced by their connection: their pulls wait, their commits are not stored."""

from typing import Any

import pytest

from lockstep.broker.ownership.denial import Act, Reason
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.name_server import KvTable
from lockstep.protocol.codes import RequestCode, ResponseCode
from tests.broker.helpers import FakeConnection
from tests.broker.ownership.fence_clients import Java, World, committed, next_offset, refused
from tests.broker.ownership.fences import fenced

C = ResponseCode
LEASE_MS, SUSPEND_MS = 60_000, 15_000


@pytest.fixture
def world() -> World:
    world = World()
    world.send(3)
    return world


def taken_over(world: World) -> tuple[Java, Java]:
    """A client that was stopped for 70 s, and the one that owns its queue since."""
    stopped, owner = world.java("10.0.0.5@1"), world.java("10.0.0.6@2")
    assert stopped.lock()
    stopped.commit(1)
    world.wait(70_000)
    assert owner.lock()
    return stopped, owner


def test_an_owner_notices_nothing(world: World) -> None:
    """Pulls, commits of both kinds and send-backs are answered as in faithful mode."""
    owner = world.java("a")
    assert owner.lock()
    assert next_offset(owner.pull(0)) == (C.SUCCESS, 3)
    assert owner.pull(3, commit=2) is None
    assert committed(world) == 2
    owner.commit(3)
    assert committed(world) == 3
    assert owner.send_back(0).code == C.SUCCESS
    world.send()
    assert [next_offset(reply) for reply in owner.late()] == [(C.SUCCESS, 4)]
    assert not refused(world)


def test_a_stopped_owner_that_wakes_up_moves_nothing(world: World) -> None:
    """70 s later another client owns the queue: neither a commit nor the flag of a pull is stored."""
    stopped, owner = taken_over(world)
    stopped.commit(3)
    assert stopped.pull(3, commit=3) is None
    assert committed(world) == 1
    owner.commit(2)
    assert committed(world) == 2
    assert refused(world) == {(Act.COMMIT, Reason.OTHER_OWNER): 1, (Act.PULL, Reason.OTHER_OWNER): 1}


def test_a_refused_pull_waits_and_ends_with_its_own_offset(world: World) -> None:
    """Messages that are there and messages that arrive do not end it, only its suspend time: 19, and no new offset."""
    stopped, _ = taken_over(world)
    assert stopped.pull(1) is None
    world.send()
    world.wait(SUSPEND_MS - 1)
    assert not stopped.late()
    world.wait(1)
    (reply,) = stopped.late()
    assert next_offset(reply) == (C.PULL_NOT_FOUND, 1)
    assert not reply.body


def test_a_refused_pull_that_may_not_wait_is_answered_at_once(world: World) -> None:
    """Without the suspend flag, as pull consumers send it."""
    stopped, _ = taken_over(world)
    assert next_offset(stopped.pull(1, wait=False)) == (C.PULL_NOT_FOUND, 1)


def test_refused_pulls_are_bounded() -> None:
    """As held ones: to those beyond the bound of a connection the broker is busy, so that they do not come at once."""
    world = World(held_pulls_per_connection_max=2)
    world.send(3)
    stopped, _ = taken_over(world)
    assert [stopped.pull(1) for _ in range(2)] == [None, None]
    busy = stopped.pull(1)
    assert busy is not None
    assert busy.code == C.SYSTEM_BUSY


def test_a_refused_commit_that_wants_an_answer_gets_an_error(world: World) -> None:
    """It names the owner, and what an administrator does instead."""
    stopped, _ = taken_over(world)
    reply = stopped.commit(3, one_way=False)
    assert reply is not None
    assert reply.code == C.SYSTEM_ERROR
    assert "'10.0.0.6@2'" in str(reply.remark)
    assert "lockstep offset reset" in str(reply.remark)
    assert committed(world) == 1


def test_a_pull_that_was_held_before_is_refused_from_then_on(world: World) -> None:
    """The last pull of an owner is held when another client gets the queue; it gets no message of the next period."""
    first, second = world.java("a"), world.java("b")
    assert first.lock()
    world.wait(LEASE_MS - 1)
    assert first.pull(3) is None
    world.wait(1)
    assert second.lock()
    world.send()
    assert not first.late()
    world.wait(SUSPEND_MS)
    assert [next_offset(reply) for reply in first.late()] == [(C.PULL_NOT_FOUND, 3)]


def test_a_refused_pull_ends_when_its_client_becomes_the_owner(world: World) -> None:
    """It need not wait any more: the client pulls again at once."""
    stopped, _ = taken_over(world)
    assert stopped.pull(1) is None
    world.wait(LEASE_MS)
    stopped.late()
    assert stopped.pull(1) is None
    assert stopped.lock()
    assert [next_offset(reply) for reply in stopped.late()] == [(C.PULL_NOT_FOUND, 1)]
    assert next_offset(stopped.pull(1)) == (C.SUCCESS, 3)


def test_a_connection_that_said_nothing_yet_owns_nothing(world: World) -> None:
    """A queue with an owner is refused to it. So it is when the owner's lease has ended, until the next owner."""
    owner, unknown = world.java("a"), world.java("b")
    assert owner.lock()
    for _ in range(2):
        unknown.commit(3)
        assert unknown.pull(0) is None
        assert committed(world) == -1
        world.wait(LEASE_MS)


def test_a_queue_that_never_had_an_owner_is_open_to_all(world: World) -> None:
    """Concurrent consumers lock nothing. A lock of another group or queue does not matter."""
    owner, other = world.java("a"), world.java("b")
    assert owner.lock()
    assert next_offset(other.pull(0, group="H")) == (C.SUCCESS, 3)
    other.commit(3, group="H")
    other.commit(1, group="H")
    assert committed(world, "H") == 1
    assert not refused(world)


@pytest.mark.parametrize("word", ["heartbeat", "lock", "unlock"])
def test_an_owner_is_known_again_by_its_first_word(world: World, word: str) -> None:
    """After a reconnect. A pull that came before is answered then, so that it is repeated."""
    owner = world.java("a")
    assert owner.lock()
    again = world.java("a")
    assert again.pull(0) is None
    getattr(again, word)()
    assert [next_offset(reply) for reply in again.late()] == [(C.PULL_NOT_FOUND, 0)]
    assert next_offset(again.pull(0)) == (C.SUCCESS, 3)
    again.commit(3)
    assert committed(world) == 3


def test_a_heartbeat_speaks_for_its_groups_alone(world: World) -> None:
    """The same client id in another group is another owner."""
    owner = world.java("a")
    assert owner.lock()
    other = world.java("a")
    other.heartbeat("H")
    assert other.pull(0) is None


def test_two_clients_of_one_connection_share_their_queues(world: World) -> None:
    """A proxy: the broker cannot tell them apart, so it asks whether the owner is one of them."""
    connection = FakeConnection("127.0.0.1:50099")
    one, two, stranger = world.java("a", connection), world.java("b", connection), world.java("c")
    one.heartbeat()
    two.heartbeat()
    assert one.lock()
    assert next_offset(two.pull(0)) == (C.SUCCESS, 3)
    assert stranger.pull(0) is None
    one.unlock()
    one.commit(1)
    assert stranger.lock()
    two.commit(3)
    assert committed(world) == 1


def test_a_closed_connection_is_forgotten(world: World) -> None:
    """Its refused pulls and its client ids; a connection object that comes later begins with none."""
    stopped, _ = taken_over(world)
    assert stopped.pull(1) is None
    world.broker.on_closed(stopped.connection)
    world.wait(SUSPEND_MS)
    assert not stopped.late()
    assert not fenced(world.broker).checks.clients.has(stopped.connection, "G", stopped.client_id)


def test_broadcasting_groups_are_not_fenced(world: World) -> None:
    """Orderly members lock queues there too, and each of them pulls all queues (wire.md 7.3)."""
    one, two = world.java("a"), world.java("b")
    one.heartbeat(model="BROADCASTING")
    two.heartbeat(model="BROADCASTING")
    assert one.lock()
    assert next_offset(two.pull(0)) == (C.SUCCESS, 3)
    assert not refused(world)


def test_an_unlock_before_the_last_commit_keeps_it(world: World) -> None:
    """Java's shutdown unlocks before it stores offsets. The commit is taken, and then the queue is free."""
    first, second = world.java("a"), world.java("b")
    assert first.lock()
    first.unlock()
    assert first.pull(3, commit=2) is None
    assert not second.lock()
    first.commit(3)
    assert committed(world) == 3
    assert second.lock()
    first.commit(2)
    assert committed(world) == 3


@pytest.mark.parametrize("gone", ["unlocked", "left"])
def test_an_offset_does_not_go_back_between_two_owners(world: World, gone: str) -> None:
    """A stopped owner wakes up when the next one has just given the queue away, and no client has locked it yet."""
    stopped, owner = taken_over(world)
    owner.commit(3)
    if gone == "unlocked":
        owner.unlock()
        owner.commit(3)  # the last one of an unmodified client, which frees the queue
    else:
        owner.unregister()
    stopped.commit(2)
    assert committed(world) == 3
    assert stopped.pull(1, commit=1) is not None, "the queue has no owner"
    assert committed(world) == 3
    assert refused(world)[Act.COMMIT, Reason.BACKWARDS] >= 1
    world.wait(11 * LEASE_MS)
    stopped.commit(2)
    assert committed(world) == 2, "the group is long gone"


def test_a_send_back_needs_the_queue_of_its_message(world: World) -> None:
    """Code 36 names a message, whose queue has an owner; Go's dead letters come so."""
    stopped, owner = taken_over(world)
    reply = stopped.send_back(0)
    assert reply.code == C.SYSTEM_ERROR
    assert "'10.0.0.6@2'" in str(reply.remark)
    assert owner.send_back(0).code == C.SUCCESS
    assert refused(world) == {(Act.SEND_BACK, Reason.OTHER_OWNER): 1}


def test_clients_of_both_kinds_fence_each_other(world: World) -> None:
    """A queue goes from a Java client to ours and back."""
    java, ours = world.java("a"), world.ours("b")
    assert java.lock()
    assert not ours.lock()
    world.wait(LEASE_MS)
    assert ours.lock()
    java.commit(3)
    assert committed(world) == -1
    assert ours.commit(2).code == C.SUCCESS
    ours.unlock()
    assert java.lock()
    assert ours.commit(3).code == C.FENCED
    java.commit(3)
    assert committed(world) == 3


def test_an_owner_with_epochs_must_present_them(world: World) -> None:
    """A request without one, over its own connection, may be of an earlier period."""
    ours = world.ours("a")
    assert ours.lock()
    assert ours.commit(1).code == C.SUCCESS
    plain = world.java("a", ours.peer.connection)
    reply = plain.commit(2, one_way=False)
    assert reply is not None
    assert reply.code == C.SYSTEM_ERROR
    assert "has no epoch" in str(reply.remark)
    assert plain.pull(0) is None
    assert committed(world) == 1


# --fence-legacy ---------------------------------------------------------------------------------------------------


def test_warn_serves_counts_and_logs() -> None:
    """What `refuse` would have refused, also a commit that goes back."""
    world = World(fence_legacy="warn")
    world.send(3)
    stopped, owner = taken_over(world)
    owner.commit(2)
    stopped.commit(1)
    assert committed(world) == 1
    assert next_offset(stopped.pull(0, commit=3)) == (C.SUCCESS, 3)
    assert committed(world) == 3
    owner.commit(1)
    assert committed(world) == 1
    assert not refused(world)
    served = world.broker.ownership.denials.served
    assert served == {
        (Act.PULL, Reason.OTHER_OWNER): 1,
        (Act.COMMIT, Reason.OTHER_OWNER): 1,
        (Act.COMMIT, Reason.BACKWARDS): 1,
    }
    assert world.admin.log.names("warning").count("fence_served_with_warning") == 3  # one for each kind in 10 s


def test_off_does_not_look_at_them() -> None:
    """Requests of unmodified clients are served as in faithful mode; those under an epoch are checked."""
    world = World(fence_legacy="off")
    world.send(3)
    stopped, owner = taken_over(world)
    owner.commit(3)
    stopped.commit(1)
    assert committed(world) == 1
    assert next_offset(stopped.pull(0)) == (C.SUCCESS, 3)
    assert not any(name.startswith("fence_") for name in world.admin.log.names())
    ours = world.ours("c")
    assert ours.commit(3, epoch=1).code == C.FENCED


def test_the_setting_changes_while_the_broker_runs() -> None:
    """An administrator looks with `warn` first, and then refuses."""
    world = World(fence_legacy="warn")
    world.send(3)
    stopped, _ = taken_over(world)
    stopped.commit(2)
    assert committed(world) == 2
    reply = world.admin.answer(RequestCode.UPDATE_BROKER_CONFIG, None, b"fence_legacy=refuse\n")
    assert reply.code == C.SUCCESS
    stopped.commit(3)
    assert committed(world) == 2


# Counters and log -------------------------------------------------------------------------------------------------


def test_refusals_are_logged_at_a_bounded_rate(world: World) -> None:
    """One event each 10 s for a kind, with the number of times since the last one."""

    def events() -> list[dict[str, Any]]:
        return [fields for _, event, fields in world.admin.log.events if event == "fence_refused"]

    stopped, owner = taken_over(world)
    for _ in range(5):
        stopped.commit(3)
    (first,) = events()
    assert (first["act"], first["reason"], first["times"]) == ("commit", "other_owner", 1)
    assert owner.client_id in first["why"]
    world.wait(10_000)
    stopped.commit(3)
    assert [event["times"] for event in events()] == [1, 5]


def test_runtime_info_has_the_counters(world: World) -> None:
    """Only on a broker with fenced locks, and only what happened."""
    stopped, _ = taken_over(world)
    stopped.commit(3)
    assert stopped.pull(1) is None
    reply = world.admin.answer(RequestCode.GET_BROKER_RUNTIME_INFO)
    table = decode_body(KvTable, reply.body, reply.serialize_type).table
    assert {name: value for name, value in table.items() if name.startswith("fence.")} == {
        "fence.refused.commit.other_owner": "1",
        "fence.refused.pull.other_owner": "1",
    }
