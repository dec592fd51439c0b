"""Which offsets a broker stores: of possible groups, of existing queues, and up to a limit (wire.md 8.2)."""

from collections.abc import Callable, Generator
from typing import Any

import pytest

from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.admin import CloneGroupOffsetRequestHeader
from lockstep.protocol.headers.messaging import UpdateConsumerOffsetRequestHeader
from tests.broker.helpers import NOW_MS, Peer

R, C = RequestCode, ResponseCode


@pytest.mark.parametrize(
    ("group", "topic", "queue_id", "committed", "code", "remark"),
    [
        ("G", "nowhere", 0, 7, C.TOPIC_NOT_EXIST, "Topic 'nowhere' not exist!"),
        ("G", "T", 4, 7, C.SYSTEM_ERROR, "topic T has queues 0 to 3, not 4"),
        ("G", "T", -1, 7, C.SYSTEM_ERROR, "topic T has queues 0 to 3, not -1"),
        ("G", "T", 0, -2, C.SYSTEM_ERROR, "an offset must be at least 0, or -1 for none, not -2"),
        ("no group", "T", 0, 7, C.SYSTEM_ERROR, "group 'no group' may hold only the characters % | a-z A-Z 0-9 _ -"),
        ("", "T", 0, 7, C.SYSTEM_ERROR, "a group name must not be empty"),
    ],
)
def test_an_offset_of_what_cannot_be_is_refused(
    group: str, topic: str, queue_id: int, committed: int, code: ResponseCode, remark: str
) -> None:
    """The answer says why, nothing is stored, and a pull that brings such an offset is answered without it."""
    peer = Peer()
    peer.make_topics("T")
    reply = peer.answer(R.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(group, topic, queue_id, committed))
    assert (reply.code, reply.remark) == (code, remark)
    assert len(peer.broker.catalog.offsets) == 0


def test_a_pull_brings_no_offset_that_cannot_be() -> None:
    """The pull is answered as without it, and a log event names the ignored offset."""
    peer = Peer()
    peer.send()
    reply = peer.pull(0, sys_flag=5, commit_offset=-2)
    assert reply is not None
    assert reply.code == C.SUCCESS
    assert len(peer.broker.catalog.offsets) == 0
    (fields,) = [fields for _, event, fields in peer.log.events if event == "pull_commit_refused"]
    assert fields["reason"] == "an offset must be at least 0, or -1 for none, not -2"


def test_minus_one_is_an_offset_that_is_none() -> None:
    """As ali-ons writes it (wire.md 8.1): stored, and then the group has no offset."""
    peer = Peer()
    peer.make_topics("T")
    assert peer.answer(R.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader("G", "T", 0, -1)).code == 0
    assert peer.broker.catalog.offsets.query("G", "T", 0) == -1


def test_offsets_have_a_bound_and_those_of_deleted_topics_make_room() -> None:
    """A full table accepts new values of known entries, refuses others with the setting's name, and logs that."""
    peer = Peer(offset_entries_max=2)
    peer.make_topics("T", "old")

    def commit(group: str, topic: str) -> int:
        return peer.answer(R.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(group, topic, 0, 7)).code

    assert [commit("G", "T"), commit("G", "old"), commit("H", "T"), commit("G", "T")] == [0, 0, C.SYSTEM_ERROR, 0]
    assert peer.log.names("warning") == ["limit_met"]
    peer.broker.catalog.topics.delete("old", NOW_MS)
    assert commit("H", "T") == 0
    assert len(peer.broker.catalog.offsets) == 2
    assert peer.broker.catalog.offsets.topics_of("G") == ["T"]


def filled(**settings: Any) -> Peer:
    """A broker whose table of offsets is full, half of it with those of a topic that is deleted."""
    peer = Peer(offset_entries_max=2000, **settings)
    peer.make_topics("T", "old")
    for number in range(1000):
        for topic in ("T", "old"):
            assert committed(peer, f"G{number}", topic) == 0
    return peer


def committed(peer: Peer, group: str, topic: str) -> int:
    return peer.answer(R.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(group, topic, 0, 7)).code


def test_offsets_of_deleted_topics_are_forgotten_in_steps() -> None:
    """The commit that reaches the limit may be refused; a commit after the steps finds room, and no request waited for
    them."""
    peer, turns = filled(), list[Callable[[], None]]()
    peer.broker.work.soon = turns.append
    peer.broker.catalog.topics.delete("old", NOW_MS)
    assert committed(peer, "new", "T") in (0, C.SYSTEM_ERROR)
    assert len(peer.broker.catalog.offsets) > 1001
    while turns:
        turns.pop(0)()
    assert len(peer.broker.catalog.offsets) in (1000, 1001)
    assert committed(peer, "new", "T") == 0
    assert ("info", "offsets_of_deleted_topics_forgotten", {"count": 1000}) in peer.log.events


def test_a_full_table_is_not_looked_through_for_every_commit() -> None:
    """Only when a topic was deleted since the last time: a refusal costs little, however many topics there are."""
    peer, looks = filled(), list[int]()
    offsets = peer.broker.catalog.offsets
    forget_topics = offsets.forget_topics

    def counting(is_gone: Callable[[str], bool]) -> Generator[None, None, int]:
        looks.append(len(offsets))
        return forget_topics(is_gone)

    offsets.forget_topics = counting  # type: ignore[method-assign]
    assert [committed(peer, "new", "T") for _ in range(5)] == [C.SYSTEM_ERROR] * 5
    assert len(looks) == 1
    peer.broker.catalog.topics.delete("old", NOW_MS)
    assert committed(peer, "new", "T") == 0
    assert len(looks) == 2


def test_offsets_that_are_cloned_have_the_same_bound() -> None:
    """Offsets of deleted topics make room for them too; offsets that the group has need none."""
    peer = filled()

    def cloned(to_group: str) -> int:
        return peer.answer(R.CLONE_GROUP_OFFSET, CloneGroupOffsetRequestHeader("G0", to_group, "T", True)).code

    assert [cloned("new"), cloned("G1")] == [C.SYSTEM_ERROR, 0]
    peer.broker.catalog.topics.delete("old", NOW_MS)
    assert cloned("new") == 0
    assert peer.broker.catalog.offsets.query("new", "T", 0) == 7
