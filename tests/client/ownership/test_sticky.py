"""The allocation that moves only what must move: shares, moves, and agreement while queues are on their way."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.client import (
    AllocateMachineRoomNearby,
    AllocateSticky,
    LitePullConsumer,
    MessageModel,
    MessageQueue,
    PushConsumer,
)
from lockstep.client.consumer.ownership.allocation.sticky import Owned
from lockstep.client.consumer.ownership.group_lists import GroupLists
from lockstep.protocol.bodies.broker import ConsumerIdList, QueueOwner, TopicRouteData
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.messaging import ListOwnersRequestHeader
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.settings import SettingError
from tests.client.ownership.rebalancing import FIRST, GROUP, LAST, rebalancing
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

IDS = RequestCode.GET_CONSUMER_LIST_BY_GROUP
View = dict[MessageQueue, tuple[str, int]]  # the owner of a queue, and since when
Shares = dict[str, list[MessageQueue]]
GONE = "of nobody"


def shares_of(view: View, queues: Sequence[MessageQueue], members: Sequence[str]) -> Shares:
    rows: dict[str, list[Owned]] = {}
    for queue, (owner, since_ms) in view.items():
        rows.setdefault(queue.broker_name, []).append(Owned(queue.queue_id, owner, since_ms))
    strategy = AllocateSticky().given(tuple((broker, tuple(owned)) for broker, owned in rows.items()))
    return {member: strategy(GROUP, member, queues, members) for member in members}


@st.composite
def groups(draw: st.DrawFn) -> tuple[View, list[MessageQueue], list[str]]:
    """A group with owned queues, free ones, and some of owners that are gone."""
    count = draw(st.integers(1, 24))
    queues = sorted(MessageQueue(TOPIC, f"broker-{place % 3}", place // 3) for place in range(count))
    members = [f"c{place:02}" for place in range(draw(st.integers(1, 8)))]
    owner = st.none() | st.tuples(st.sampled_from([*members, GONE]), st.integers(0, 5))
    view = {queue: one for queue in queues if (one := draw(owner)) is not None}
    return view, queues, members


@given(groups())
def test_each_queue_has_one_owner_and_shares_are_even(group: Any) -> None:
    """No two members differ by more than one queue."""
    view, queues, members = group
    shares = shares_of(view, queues, members)
    assert sorted(queue for share in shares.values() for queue in share) == queues
    sizes = [len(share) for share in shares.values()]
    assert max(sizes) - min(sizes) <= 1


@given(groups())
def test_only_what_must_move_moves(group: Any) -> None:
    """No even shares take fewer queues from members: the larger shares are for those that have most."""
    view, queues, members = group
    shares = shares_of(view, queues, members)
    moved = sum(owner in members and queue not in shares[owner] for queue, (owner, _) in view.items())
    owned = Counter(owner for owner, _ in view.values())
    most_first = sorted((owned[member] for member in members), reverse=True)
    size, longer = divmod(len(queues), len(members))
    assert moved == sum(max(0, has - size - (place < longer)) for place, has in enumerate(most_first))


@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_what_brokers_say_does_not_matter(group: Any, rng: Any) -> None:
    """Two members that hear it in another order agree."""
    view, queues, members = group
    rows = list(view.items())
    rng.shuffle(rows)
    assert shares_of(dict(rows), queues, members) == shares_of(view, queues, members)


@given(groups(), st.data())
def test_members_agree_while_queues_are_on_their_way(group: Any, data: Any) -> None:
    """Whatever has been given up or taken of an allocation, the next one is the same."""
    view, queues, members = group
    shares = shares_of(view, queues, members)
    for owner, share in shares.items():
        for queue in share:
            if view.get(queue, ("", 0))[0] == owner:
                continue
            step = data.draw(st.sampled_from(["waits", "given up", "taken"]))
            if step == "given up":
                view.pop(queue, None)
            elif step == "taken":
                view[queue] = owner, 9
    assert shares_of(view, queues, members) == shares


def test_a_queue_that_is_given_up_changes_no_share() -> None:
    """It has its place among those that are dealt, whether it still has an owner or not."""
    queues, members = [queue_at(number) for number in range(9)], ["c0", "c1", "c2"]
    view: View = dict.fromkeys(queues[:5], ("c0", 1))
    shares = shares_of(view, queues, members)
    assert shares == {"c0": queues[:3], "c1": queues[3:6], "c2": queues[6:]}
    del view[queues[4]]
    assert shares_of(view, queues, members) == shares


def test_who_comes_back_gets_its_queues_again() -> None:
    """Those that must give up queues give up what they got last."""
    queues = [queue_at(number) for number in range(12)]
    view: View = {queue: (f"c{place // 4}", 1) for place, queue in enumerate(queues)}
    without = shares_of(view, queues, ["c0", "c2"])
    assert without == {"c0": [*queues[:4], *queues[4:6]], "c2": [*queues[6:8], *queues[8:]]}
    moved: View = {
        queue: (owner, 1 if queue in view and view[queue][0] == owner else 2)
        for owner, share in without.items()
        for queue in share
    }
    assert shares_of(moved, queues, ["c0", "c1", "c2"])["c1"] == queues[4:8]


# What brokers say -------------------------------------------------------------------------------------------------


@on_stage
async def test_a_round_keeps_what_the_broker_says_this_member_owns(stage: Stage) -> None:
    """With AVG it would get the other half. A place that the list does not have is nobody's."""
    it = await rebalancing(stage, strategy=AllocateSticky())
    mine = [QueueOwner(TOPIC, number, 1, 5) for number in (0, 1)]
    strange = [QueueOwner(TOPIC, 2, 2, 1), QueueOwner(TOPIC, 3, -1, 1), QueueOwner("Other", 2, 0, 5)]
    it.broker.answers(IDS, ConsumerIdList((FIRST, it.me), (*mine, *strange)))
    await it.run()
    assert it.owned == [0, 1]
    assert it.rebalance.unsettled  # the others may have seen other owners
    await it.run()
    assert not it.rebalance.unsettled


async def lists_of(stage: Stage) -> tuple[GroupLists, TopicRouteData]:
    """Of a group with two brokers, each with a queue, both owned by a member that sorts last."""
    brokers = [await stage.broker(name, queues=1) for name in ("broker-a", "broker-b")]
    for number, broker in enumerate(brokers):
        broker.answers(IDS, ConsumerIdList((f"c{number}", LAST), (QueueOwner(TOPIC, 0, 1, number),)))
    stage.route_to({"broker-a": 1, "broker-b": 1})
    instance = stage.instance()
    route = await instance.routes.fetch(TOPIC)
    assert route is not None
    for broker in brokers:
        await instance.call_address(broker.address, RequestCode.HEART_BEAT)  # its answer agrees
    return GroupLists(instance, GROUP), route


@on_stage
async def test_each_broker_is_asked_for_its_owners(stage: Stage) -> None:
    """Who is known to one is a member; one answer serves all topics of a round."""
    lists, route = await lists_of(stage)
    members, owners = await lists.members_and_owners(TOPIC, route)
    assert sorted(members) == ["c0", "c1", LAST]
    assert owners == (("broker-a", (Owned(0, LAST, 0),)), ("broker-b", (Owned(0, LAST, 1),)))
    assert (await lists.members_and_owners("Other", route))[1] == (("broker-a", ()), ("broker-b", ()))
    for broker in stage.brokers:
        (asked,) = broker.requests(IDS)
        assert asked.decode_header(ListOwnersRequestHeader) == (GROUP, True)


@on_stage
async def test_a_broker_without_an_answer_has_the_owners_that_it_had(stage: Stage) -> None:
    """Its queues stay where they are; without any answer nothing is known."""
    lists, route = await lists_of(stage)
    _, before = await lists.members_and_owners(TOPIC, route)
    stage.brokers[0].answers(IDS, ResponseCode.SYSTEM_ERROR)
    stage.brokers[1].stop()
    lists.forget()
    assert await lists.members_and_owners(TOPIC, route) == ((), before)
    lists.forget()
    stage.brokers[0].stop()
    with pytest.raises(RemotingError):
        await lists.members_and_owners(TOPIC, route)


@on_stage
async def test_a_silent_broker_is_asked_once_a_round(stage: Stage) -> None:
    """Else a round, and a stop that waits for it, would take one timeout for each topic."""
    lists, route = await lists_of(stage)
    stage.brokers[0].answers(IDS, None)
    for count in (1, 2):
        for topic in (TOPIC, "Other"):
            assert len((await lists.members_and_owners(topic, route))[0]) == 2
        assert len(stage.brokers[0].requests(IDS)) == count
        lists.forget()


@on_stage
async def test_a_stranger_is_not_asked_for_owners(stage: Stage) -> None:
    """Apache's broker gets Apache's request."""
    broker = await stage.broker(agrees=False, queues=1)
    broker.answers(IDS, ConsumerIdList(("c0",)))
    instance = stage.instance()
    route = await instance.routes.fetch(TOPIC)
    assert route is not None
    members, owners = await GroupLists(instance, GROUP).members_and_owners(TOPIC, route)
    assert (members, owners) == (("c0",), (("broker-a", ()),))
    assert (broker.requests(IDS)[0].ext_fields or {}).keys() <= {"consumerGroup", "lockstep.serialize"}


# Who may have it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fenced", [False, "if the broker can"])
def test_it_is_for_fenced_locks(fenced: Any) -> None:
    """A broker without them names no owner, and members would agree on nothing."""
    with pytest.raises(SettingError, match="STICKY is for fenced=True"):
        PushConsumer("g", name_server="n:1", strategy=AllocateSticky(), fenced=fenced)
    with pytest.raises(SettingError, match="STICKY is for fenced=True"):
        LitePullConsumer("g", name_server="n:1", strategy=AllocateSticky())
    with pytest.raises(SettingError, match="BROADCASTING"):
        PushConsumer(
            "g",
            name_server="n:1",
            strategy=AllocateSticky(),
            fenced=True,
            message_model=MessageModel.BROADCASTING,
        )


def test_it_is_for_no_room() -> None:
    """Within a room it would not know the owners."""
    with pytest.raises(ValueError, match="STICKY"):
        AllocateMachineRoomNearby(str, str, AllocateSticky())
