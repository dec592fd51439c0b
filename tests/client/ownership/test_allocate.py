"""How a group shares the queues of a topic (wire.md 12.4): as Java does, and without gaps or overlaps."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.client import (
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateMachineRoomNearby,
    AllocateMessageQueueStrategy,
    MessageQueue,
    allocate_averagely,
    allocate_averagely_by_circle,
    strategy_name,
)

RECORDED = json.loads((Path(__file__).parents[2] / "vectors" / "allocations-4.9.8.json").read_text("ascii"))


def before_the_dash(text: str) -> str:
    return text.partition("-")[0]


def nearby(strategy: AllocateMessageQueueStrategy) -> AllocateMachineRoomNearby:
    return AllocateMachineRoomNearby(lambda queue: before_the_dash(queue.broker_name), before_the_dash, strategy)


# All that promise an owner to every queue.
COMPLETE: list[AllocateMessageQueueStrategy] = [
    allocate_averagely,
    allocate_averagely_by_circle,
    AllocateByConsistentHash(),
    nearby(allocate_averagely),
    nearby(allocate_averagely_by_circle),
    nearby(AllocateByConsistentHash(virtual_nodes=3)),
]
BY_NAME: dict[str, AllocateMessageQueueStrategy] = {
    **{strategy_name(strategy): strategy for strategy in COMPLETE},
    "MACHINE_ROOM": AllocateByMachineRoom(["hz", "nj"]),
}
ALL = list(BY_NAME.values())


def named(strategy: AllocateMessageQueueStrategy) -> str:
    return strategy_name(strategy)


def queues(count: int) -> list[MessageQueue]:
    return sorted(MessageQueue("T", f"{'hz@a' if i % 2 else 'sh@b'}-{i % 3}", i // 3) for i in range(count))


def clients(count: int) -> list[str]:
    return sorted(f"{'hz' if i % 3 else 'bj'}-10.0.0.{i:03}@1#1" for i in range(count))


def by_the_formula(n: int, c: int, i: int) -> list[MessageQueue]:
    """wire.md 12.4, AVG, word for word."""
    m = n % c
    size = 1 if n <= c else (n // c + 1 if i < m else n // c)
    start = i * size if m > 0 and i < m else i * size + m
    return queues(n)[start : start + min(size, n - start)] if n - start > 0 else []


@given(st.integers(1, 60), st.integers(1, 20))
def test_the_formula_of_wire_md(queue_count: int, client_count: int) -> None:
    """The same queues as Java's AllocateMessageQueueAveragely, for every member."""
    members = clients(client_count)
    for i, member in enumerate(members):
        mine = allocate_averagely("g", member, queues(queue_count), members)
        assert mine == by_the_formula(queue_count, client_count, i)


@pytest.mark.parametrize("name", sorted({row["name"] for row in RECORDED}))
def test_what_java_answered(name: str) -> None:
    """Every member's share is the one that rocketmq-client 4.9.8 computed, so that mixed groups agree; a client id
    that the broker lists twice among them."""
    rows = [row for row in RECORDED if row["name"] == name]
    assert len(rows) == 30
    for row in rows:
        shared = [MessageQueue("Aircraft", broker, queue_id) for broker, queue_id in row["queues"]]
        for client_id, share in zip(dict.fromkeys(row["clients"]), row["shares"], strict=True):
            mine = BY_NAME[name]("tower", client_id, shared, row["clients"])
            assert mine == [shared[index] for index in share], (client_id, row)


@pytest.mark.parametrize("strategy", COMPLETE, ids=named)
@given(st.integers(1, 60), st.integers(1, 20))
def test_every_queue_has_exactly_one_owner(
    strategy: AllocateMessageQueueStrategy, queue_count: int, client_count: int
) -> None:
    """Disjoint and complete, whatever the numbers."""
    members = clients(client_count)
    shares = [strategy("g", member, queues(queue_count), members) for member in members]
    assert sorted(queue for share in shares for queue in share) == queues(queue_count)


@pytest.mark.parametrize("strategy", [allocate_averagely, allocate_averagely_by_circle], ids=named)
@given(st.integers(0, 60), st.integers(1, 20))
def test_shares_are_even(strategy: AllocateMessageQueueStrategy, queue_count: int, client_count: int) -> None:
    """No two members differ by more than one queue, and the first have the more."""
    members = clients(client_count)
    sizes = [len(strategy("g", member, queues(queue_count), members)) for member in members]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("strategy", ALL, ids=named)
@given(st.integers(1, 30), st.integers(1, 8))
def test_asked_twice_the_answer_is_the_same(
    strategy: AllocateMessageQueueStrategy, queue_count: int, client_count: int
) -> None:
    """Equal input gives equal output, and the input is not changed."""
    members, shared = clients(client_count), queues(queue_count)
    first = strategy("g", members[0], shared, members)
    assert strategy("g", members[0], shared, members) == first
    assert (members, shared) == (clients(client_count), queues(queue_count))


@pytest.mark.parametrize("strategy", ALL, ids=named)
def test_who_is_no_member_gets_nothing(strategy: AllocateMessageQueueStrategy) -> None:
    """A client that the broker does not know yet must not take queues of others."""
    assert strategy("g", "hz-stranger", queues(8), clients(2)) == []


# Consistent hash ---------------------------------------------------------------------------------------------


@given(st.integers(2, 12), st.integers(1, 40))
def test_a_member_that_leaves_moves_only_its_own_queues(client_count: int, queue_count: int) -> None:
    """That is the purpose of the ring: no other member's queue moves."""
    strategy, members = AllocateByConsistentHash(), clients(client_count)
    gone = members[client_count // 2]
    stay = [member for member in members if member != gone]
    for member in stay:
        before = strategy("g", member, queues(queue_count), members)
        after = strategy("g", member, queues(queue_count), stay)
        assert set(before) <= set(after)


def test_the_ring_wraps_and_a_place_is_its_own_next() -> None:
    """A queue on a member's place is that member's; one behind the last place is the first one's."""
    places, queue = {"a-0": 10, "b-0": 20}, queues(1)

    def owners(at: int) -> list[str]:
        strategy = AllocateByConsistentHash(1, lambda key: places.get(key, at))
        return [member for member in ("a", "b") if strategy("g", member, queue, ["a", "b"])]

    assert [owners(at) for at in (9, 10, 11, 20, 21)] == [["a"], ["a"], ["b"], ["b"], ["a"]]


def test_a_ring_without_nodes_is_refused() -> None:
    """RocketMQ accepts it silently, and no member would own a queue."""
    with pytest.raises(ValueError, match="virtual_nodes must be 1 or more"):
        AllocateByConsistentHash(0)


# Rooms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker", "taken"),
    [("hz@a", True), ("hz@a@", True), ("sh@a", False), ("hz", False), ("hz@", False), ("hz@a@b", False), ("@a", False)],
)
def test_which_brokers_stand_in_a_room(broker: str, taken: bool) -> None:
    """`room@name` and nothing else, as Java splits it."""
    queue = MessageQueue("T", broker, 0)
    assert AllocateByMachineRoom(["hz"])("g", "me", [queue], ["me"]) == ([queue] if taken else [])


def test_a_room_without_members_is_shared_by_all() -> None:
    """All members share its queues; queues of a room with members belong to these alone."""
    shared = [MessageQueue("T", room, i) for room in ("bj-1", "hz-1") for i in range(2)]
    members = ["hz-1", "sh-1"]
    shares = [nearby(allocate_averagely)("g", member, shared, members) for member in members]
    assert shares == [[shared[2], shared[3], shared[0]], [shared[1]]]


@pytest.mark.parametrize("lost", ["broker", "client"])
def test_somebody_without_a_room(lost: str) -> None:
    """An error that names it: guessing would make two owners."""
    strategy = AllocateMachineRoomNearby(
        lambda _queue: "" if lost == "broker" else "hz", lambda _client: "" if lost == "client" else "hz"
    )
    with pytest.raises(ValueError, match=r"no machine room is known for (T@sh@b-0:0|me)"):
        strategy("g", "me", queues(1), ["me"])


# Configuration and names -------------------------------------------------------------------------------------


def test_by_configuration() -> None:
    """The queues written down, whatever the members are; of each topic its own."""
    written = [MessageQueue("T", "b", 1), MessageQueue("T", "b", 0), MessageQueue("U", "b", 0)]
    strategy = AllocateByConfig(written)
    of_t = [MessageQueue("T", "b", i) for i in range(4)]
    assert strategy("g", "me", of_t, []) == of_t[:2]
    assert strategy("g", "me", [MessageQueue("%RETRY%g", "b", 0)], ["me"]) == []


def mine(_group: str, _me: str, _queues: Sequence[MessageQueue], _members: Sequence[str]) -> list[MessageQueue]:
    return []


def test_names() -> None:
    """RocketMQ's getName(), and the name of a user's strategy."""
    ours: list[AllocateMessageQueueStrategy] = [*ALL, AllocateByConfig([])]
    assert [strategy_name(strategy) for strategy in ours] == [
        "AVG",
        "AVG_BY_CIRCLE",
        "CONSISTENT_HASH",
        "MACHINE_ROOM_NEARBY-AVG",
        "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE",
        "MACHINE_ROOM_NEARBY-CONSISTENT_HASH",
        "MACHINE_ROOM",
        "CONFIG",
    ]
    assert strategy_name(mine) == "mine"
    assert nearby(mine).name == "MACHINE_ROOM_NEARBY-mine"
