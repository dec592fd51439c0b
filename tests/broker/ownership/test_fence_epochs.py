"""Requests under an epoch: FENCED, NOT_HELD and STALE, and what a period may still do after its lease."""

from collections.abc import Callable

import pytest

from lockstep.broker.ownership.denial import Act, Reason
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
)
from tests.broker.ownership.fence_clients import Ours, World, committed, next_offset, refused
from tests.broker.ownership.fences import fenced

C = ResponseCode
LEASE_MS = 60_000

Request = Callable[[Ours, int], RemotingCommand | None]
ACTS: dict[Act, Request] = {
    Act.COMMIT: lambda client, epoch: client.commit(2, epoch),
    Act.PULL: lambda client, epoch: client.pull(0, epoch),
    Act.SEND_BACK: lambda client, epoch: client.send_back(0, epoch),
    Act.DEAD_LETTER: lambda client, epoch: client.dead_letter(epoch),
    Act.RESET: lambda client, epoch: client.reset(1, epoch),
}
every_act = pytest.mark.parametrize("act", ACTS)


def code_of(client: Ours, act: Act, epoch: int) -> int:
    reply = ACTS[act](client, epoch)
    assert reply is not None, "the request waits"
    return reply.code


@pytest.fixture
def world() -> World:
    world = World()
    world.send(3)
    return world


@every_act
def test_the_owner_may_do_everything(world: World, act: Act) -> None:
    """Under the epoch of its last grant, renewed or not."""
    client = world.ours("a")
    assert client.lock()
    first = client.epoch
    assert client.lock(first)
    assert client.epoch == first
    assert code_of(client, act, first) == C.SUCCESS
    assert not refused(world)


@every_act
def test_a_replaced_owner_is_fenced(world: World, act: Act) -> None:
    """When another client has the queue, and also when that one has left it again."""
    first, second = world.ours("a"), world.ours("b")
    assert first.lock()
    assert first.commit(1).code == C.SUCCESS
    world.wait(LEASE_MS)
    assert second.lock()
    assert second.epoch > first.epoch
    assert code_of(first, act, first.epoch) == C.FENCED
    assert committed(world) == 1
    assert refused(world) == {(act, Reason.FENCED): 1}


@every_act
def test_without_an_owner_the_answer_is_not_held(world: World, act: Act) -> None:
    """After the owner's unlock."""
    client = world.ours("a")
    assert client.lock()
    client.unlock()
    assert code_of(client, act, client.epoch) == C.NOT_HELD
    assert refused(world) == {(act, Reason.NOT_HELD): 1}


@every_act
def test_an_older_epoch_of_the_same_client_is_stale(world: World, act: Act) -> None:
    """The client has lost the queue and got it again; the request is of its earlier period."""
    client = world.ours("a")
    assert client.lock()
    before = client.epoch
    client.unlock()
    assert client.lock()
    assert code_of(client, act, before) == C.STALE
    assert refused(world) == {(act, Reason.STALE): 1}


@every_act
def test_an_epoch_is_its_owners_alone(world: World, act: Act) -> None:
    """Another client that presents it is fenced."""
    owner, other = world.ours("a"), world.ours("b")
    assert owner.lock()
    assert code_of(other, act, owner.epoch) == C.FENCED
    assert committed(world) == -1
    assert refused(world) == {(act, Reason.FENCED): 1}


@pytest.mark.parametrize("act", [Act.PULL, Act.RESET])
def test_nothing_begins_in_a_period_that_has_ended(world: World, act: Act) -> None:
    """Also when the request was read before a timer noticed the end."""
    client = world.ours("a")
    assert client.lock()
    fenced(world.broker).table.due(world.now_ms + LEASE_MS)
    assert code_of(client, act, client.epoch) == C.NOT_HELD


@pytest.mark.parametrize(("act", "code"), [
    (Act.COMMIT, C.SUCCESS),
    (Act.SEND_BACK, C.SUCCESS),
    (Act.DEAD_LETTER, C.SUCCESS),
    (Act.PULL, C.NOT_HELD),
    (Act.RESET, C.NOT_HELD),
])  # fmt: skip
def test_after_the_lease_what_was_handled_may_still_be_stored(world: World, act: Act, code: int) -> None:
    """Nobody has owned the queue since. But nothing new is begun: no pull and no reset."""
    client = world.ours("a")
    assert client.lock()
    world.wait(LEASE_MS - 1)
    assert code_of(client, act, client.epoch) == C.SUCCESS
    world.wait(LEASE_MS)
    assert code_of(client, act, client.epoch) == code


def test_a_fenced_pull_does_not_commit(world: World) -> None:
    """Its commit flag counts for nothing."""
    first, second = world.ours("a"), world.ours("b")
    assert first.lock()
    world.wait(LEASE_MS)
    assert second.lock()
    reply = first.pull(3, commit=3)
    assert reply is not None
    assert reply.code == C.FENCED
    assert committed(world) == -1
    assert second.pull(3, commit=2) is None
    assert committed(world) == 2


def test_a_held_pull_ends_with_its_period(world: World) -> None:
    """By the client's own unlock, and by a new epoch of its own."""
    client = world.ours("a")
    assert client.lock()
    assert client.pull(3) is None
    client.unlock()
    assert [reply.code for reply in client.late()] == [C.NOT_HELD]
    assert client.lock()
    assert client.pull(3) is None
    assert client.reset(3).code == C.SUCCESS
    assert [reply.code for reply in client.late()] == [C.STALE]


def test_a_message_after_the_takeover_is_not_given_to_the_owner_before(world: World) -> None:
    """Its pull was held since before its lease ended."""
    first, second = world.ours("a"), world.ours("b")
    assert first.lock()
    world.wait(LEASE_MS - 1)
    assert first.pull(3) is None
    for peer in world.peers:
        peer.now_ms += 1  # the lease ends, and no timer has run yet
    assert second.lock()
    assert [reply.code for reply in first.late()] == [C.NOT_HELD]
    assert second.pull(3) is None
    world.send()
    assert not first.late()
    assert [next_offset(reply) for reply in second.late()] == [(C.SUCCESS, 4)]


def test_a_pull_held_beyond_its_lease_gets_nothing(world: World) -> None:
    """Also while nobody else wants the queue: the message waits for a renewed lock."""
    client = world.ours("a")
    assert client.lock()
    world.wait(LEASE_MS - 1)
    assert client.pull(3) is None
    world.wait(1)
    world.send()
    assert [reply.code for reply in client.late()] == [C.NOT_HELD]


def test_pulls_of_other_groups_and_queues_go_on(world: World) -> None:
    """A change of the owner ends the pulls of its group and queue alone."""
    client, other = world.ours("a"), world.java("b")
    assert client.lock()
    assert client.pull(3) is None
    assert other.pull(3, group="H") is None
    client.unlock()
    assert not other.late()
    world.send()
    assert [next_offset(reply) for reply in other.late()] == [(C.SUCCESS, 4)]


def test_a_fence_is_never_an_answer_without_an_offset(world: World) -> None:
    """What a fenced client asks next, where to begin, is answered with the committed offset."""
    first, second = world.ours("a"), world.ours("b")
    assert first.lock()
    assert first.commit(2).code == C.SUCCESS
    world.wait(LEASE_MS)
    assert second.lock()
    assert first.commit(3).code == C.FENCED
    query = QueryConsumerOffsetRequestHeader("G", "T", 0)
    for client in (first, second):
        reply = client.peer.answer(RequestCode.QUERY_CONSUMER_OFFSET, query)
        assert (reply.code, reply.decode_header(OffsetResponseHeader).offset) == (C.SUCCESS, 2)


def test_the_next_owner_reads_what_was_committed_before_the_unlock(world: World) -> None:
    """Requests of one connection are handled in order: the last commit of a period is stored when the queue is free."""
    first, second = world.ours("a"), world.ours("b")
    assert first.lock()
    assert first.commit(3).code == C.SUCCESS
    first.unlock()
    assert second.lock()
    reply = second.peer.answer(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader("G", "T", 0))
    assert reply.decode_header(OffsetResponseHeader).offset == 3
    assert first.commit(1).code == C.FENCED


def test_a_remark_names_the_owner(world: World) -> None:
    """An operator sees in the client's log where the queue is."""
    first, second = world.ours("a"), world.ours("10.0.0.5@7")
    assert first.lock()
    world.wait(LEASE_MS)
    assert second.lock()
    assert "'10.0.0.5@7'" in str(first.commit(3).remark)
