"""The owners of queues in the list of members, for an allocation that moves only what must move."""

from collections.abc import Callable
from typing import Any

import pytest

from lockstep.broker import shared_answers
from lockstep.broker.fronts.remoting import owners
from lockstep.protocol.bodies.broker import ConsumerIdList, QueueOwner
from lockstep.protocol.bodies.codec import decode_body, encode_part
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.bodies.rows import BodySteps, encode_list
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.errors import BodyError, LocalProtocolError
from lockstep.protocol.headers.messaging import ListOwnersRequestHeader
from tests.broker.helpers import ENCODINGS, Peer, consumer, queues_of

R = RequestCode
MSGPACK = SerializeType.MSGPACK


def listed(peer: Peer, *, owners: bool | None = True) -> ConsumerIdList:
    reply = peer.answer(R.GET_CONSUMER_LIST_BY_GROUP, ListOwnersRequestHeader("G", owners))
    assert reply.code == 0
    return decode_body(ConsumerIdList, reply.body, peer.encoding)


def two_members(encoding: SerializeType, lock_mode: str) -> tuple[Peer, Peer]:
    """a has queue 0 and b has queue 1 and one of another topic."""
    first = Peer(encoding, lock_mode=lock_mode)
    second = first.beside()
    subscriptions = [SubscriptionData.parse(topic, "*", 1) for topic in ("T", "U")]
    for peer, client_id in ((first, "a"), (second, "b")):
        peer.heartbeat(client_id, consumer("G", *subscriptions))
    for peer, client_id, topic, count in ((first, "a", "T", 1), (second, "b", "T", 2), (second, "b", "U", 1)):
        epochs = (0,) * count if lock_mode == "fenced" else None
        peer.answer(R.LOCK_BATCH_MQ, None, LockBatchBody("G", client_id, queues_of(topic, count), epochs))
        second.now_ms += 1000
    return first, second


def test_a_member_that_asks_gets_the_owners_among_the_members(header_encoding: SerializeType) -> None:
    """With the time when each period began; an answer that is kept counts until a lock or a member changes."""
    first, second = two_members(header_encoding, "fenced")
    at_ms = first.now_ms
    rows = (QueueOwner("T", 0, 0, at_ms), QueueOwner("T", 1, 1, at_ms + 1000), QueueOwner("U", 0, 1, at_ms + 2000))
    for _ in range(2):
        assert listed(first) == (("a", "b"), rows)
    second.answer(R.LOCK_BATCH_MQ, None, LockBatchBody("G", "b", queues_of("U", 2)[1:], (0,)))
    assert listed(first) == (("a", "b"), (*rows, QueueOwner("U", 1, 1, at_ms + 3000)))
    first.broker.on_closed(second.connection)  # its locks stay in the table
    assert listed(first) == (("a",), rows[:1])


@pytest.mark.parametrize(("lock_mode", "asked"), [("faithful", True), ("fenced", None), ("fenced", False)])
def test_others_get_the_members_alone(header_encoding: SerializeType, lock_mode: str, asked: bool | None) -> None:
    """RocketMQ's clients, which do not ask, and all whose broker has no fenced locks."""
    first, _ = two_members(header_encoding, lock_mode)
    assert listed(first, owners=asked) == (("a", "b"), None)


def test_members_with_other_encodings_get_the_same(header_encoding: SerializeType) -> None:
    """The answer that is kept is of one encoding: bytes of another one would stop the rebalance of the group."""
    first, _ = two_members(header_encoding, "fenced")
    others = [Peer(encoding, broker=first.broker, connection=first.connection) for encoding in ENCODINGS]
    assert [listed(peer) for peer in others] == 3 * [listed(first)]


def test_few_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one for each group that a member names."""
    monkeypatch.setattr(shared_answers, "_ANSWERS_MAX", 2)
    first, _ = two_members(MSGPACK, "fenced")
    for encoding in ENCODINGS:
        listed(Peer(encoding, broker=first.broker, connection=first.connection))
    assert [encoding for _, encoding in first.broker.owner_lists._answers] == [*ENCODINGS[-2:]]


def test_an_answer_is_written_once_for_all_who_ask_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand members ask in one moment. What is too long for a frame is refused to each."""
    first, second = two_members(MSGPACK, "fenced")
    work, turns, written = first.broker.work, list[Callable[[], None]](), list[int]()
    work.soon = turns.append

    def too_long(*_: object) -> BodySteps:
        written.append(1)
        yield None
        raise LocalProtocolError("too long")

    def counted(*asked: Any) -> BodySteps:
        written.append(0)
        return encode_list(*asked)

    for write, code, times in ((too_long, ResponseCode.SYSTEM_ERROR, 2), (counted, ResponseCode.SUCCESS, 1)):
        monkeypatch.setattr(owners, "encode_list", write)
        for peer in (first, second):
            assert peer.call(R.GET_CONSUMER_LIST_BY_GROUP, ListOwnersRequestHeader("G", True)) is None
        while turns:
            turns.pop(0)()
        assert len(written) == times
        written.clear()
        assert [peer.connection.replies.pop().code for peer in (first, second)] == [code, code]
    assert listed(first) == listed(second)


@pytest.mark.parametrize("row", [5, ["T", 0, 0], ["T", "x", 0, 5], [None, 0, 0, 5]])
def test_a_wrong_owner_is_refused(row: object) -> None:
    """It has a topic and three numbers."""
    body = encode_part({"consumerIdList": ["a"], "owners": [row]}, MSGPACK)
    with pytest.raises(BodyError):
        decode_body(ConsumerIdList, body, MSGPACK)
