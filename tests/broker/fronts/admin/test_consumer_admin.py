"""The progress of groups: codes 43, 45, 208, 303, 308, 314, 317 (wire.md 2.4)."""

import pytest

from lockstep.protocol.bodies.admin import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.config import ConsumerOffsetTable, DelayOffsetTable, QueryCorrectionOffsetBody
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.headers.admin import (
    CloneGroupOffsetRequestHeader,
    ConsumeStatsRequestHeader,
    GetBrokerConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetRequestHeader,
)
from lockstep.protocol.headers.messaging import CreateTopicRequestHeader, UpdateConsumerOffsetRequestHeader
from lockstep.protocol.model import MessageQueue
from tests.broker.helpers import NOW_MS, Peer, consumer

R, C = RequestCode, ResponseCode
Q0, Q1 = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)
INT64_MAX = 2**63 - 1


@pytest.fixture
def peer(header_encoding: SerializeType) -> Peer:
    """With a topic of two queues: three messages in the first, stored 1 s apart, and none in the second."""
    peer = Peer(header_encoding)
    peer.answer(R.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader("T", "TBW102", 2, 2, 6))
    for _ in range(3):
        peer.send("T")
        peer.now_ms += 1000
    return peer


def commit(peer: Peer, group: str, offset: int, topic: str = "T", queue_id: int = 0) -> None:
    header = UpdateConsumerOffsetRequestHeader(group, topic, queue_id, offset)
    assert peer.answer(R.UPDATE_CONSUMER_OFFSET, header).code == 0


def stats(peer: Peer, group: str, topic: str | None = None) -> ConsumeStats:
    reply = peer.answer(R.GET_CONSUME_STATS, ConsumeStatsRequestHeader(group, topic))
    assert reply.code == 0
    return decode_body(ConsumeStats, reply.body, peer.encoding)


def test_stored_offsets_are_listed_by_topic_and_group(peer: Peer) -> None:
    """In the form of their file; delay levels likewise."""
    commit(peer, "G", 2)
    commit(peer, "G", 1, queue_id=1)
    body = decode_body(ConsumerOffsetTable, peer.answer(R.GET_ALL_CONSUMER_OFFSET).body, peer.encoding)
    assert body.offset_table == {"T@G": {0: 2, 1: 1}}
    delays = decode_body(DelayOffsetTable, peer.answer(R.GET_ALL_DELAY_OFFSET).body, peer.encoding)
    assert delays.offset_table == dict(peer.broker.messages.delays.offsets)


def test_how_far_a_group_is_in_every_queue(peer: Peer) -> None:
    """Its offset, the queue's end, and the store time of its last committed message; a missing value is 0.

    Our own tools are also given the store time of the oldest message behind that offset.
    """
    commit(peer, "G", 2)
    oldest_ms = NOW_MS + 2000 if peer.encoding is SerializeType.MSGPACK else None
    first = OffsetWrapper(3, 2, NOW_MS + 1000, oldest_ms)
    assert stats(peer, "G").offset_table == {Q0: first, Q1: OffsetWrapper(0, 0, 0)}
    assert stats(peer, "G", "T") == stats(peer, "G")
    assert stats(peer, "G", "nowhere").offset_table == {}
    assert stats(peer, "nobody").offset_table == {}


def test_a_topic_that_an_online_group_no_longer_subscribes_to_is_left_out(peer: Peer) -> None:
    """Until the group has no members."""
    commit(peer, "G", 2)
    peer.heartbeat("a", consumer("G", SubscriptionData.parse("other", "*", 1)))
    assert stats(peer, "G").offset_table == {}
    peer.broker.on_closed(peer.connection)
    assert len(stats(peer, "G").offset_table) == 2


def test_the_rate_of_a_group_is_that_of_its_pulls(peer: Peer) -> None:
    """Messages a second, of the last minute's samples."""
    commit(peer, "G", 2)
    peer.pull(0)
    peer.broker.sample(peer.now_ms)
    assert stats(peer, "G").consume_tps == pytest.approx(0.3)


def test_every_group_with_a_configuration_is_in_the_brokers_statistics(peer: Peer) -> None:
    """Those without offsets are empty; the difference is summed over all."""
    peer.heartbeat("a", consumer("G", SubscriptionData.parse("T", "*", 1)))
    commit(peer, "G", 1)
    reply = peer.answer(R.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsRequestHeader())
    body = decode_body(ConsumeStatsList, reply.body, peer.encoding)
    by_group = dict(body.consume_stats_list)
    assert by_group["TOOLS_CONSUMER"] == ()
    assert by_group["G"][0].offset_table[Q0].consumer_offset == 1
    assert (body.broker_addr, body.total_diff) == ("127.0.0.1:10911", 2)
    ordered = peer.answer(R.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsRequestHeader(True))
    assert dict(decode_body(ConsumeStatsList, ordered.body, peer.encoding).consume_stats_list)["G"] == ()


def test_the_time_span_of_a_groups_consumption(peer: Peer) -> None:
    """First, last and last consumed message, and how long the next one has waited; an empty queue has -1."""
    commit(peer, "G", 2)
    reply = peer.answer(R.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanRequestHeader("T", "G"))
    assert decode_body(QueryConsumeTimeSpanBody, reply.body, peer.encoding).consume_time_span_set == (
        QueueTimeSpan(Q0, NOW_MS, NOW_MS + 2000, NOW_MS + 1000, 1000),
        QueueTimeSpan(Q1, -1, -1, -1, 0),
    )
    unknown = peer.answer(R.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanRequestHeader("nowhere", "G"))
    assert unknown.code == C.TOPIC_NOT_EXIST


def test_correction_offsets_are_the_lowest_of_all_groups(peer: Peer) -> None:
    """A compared group that is itself the lowest has the largest number; groups can be left out, and lose nothing."""

    def corrections(compared: str, left_out: str | None = None) -> dict[int, int]:
        header = QueryCorrectionOffsetRequestHeader(compared, "T", left_out)
        reply = peer.answer(R.QUERY_CORRECTION_OFFSET, header)
        return dict(decode_body(QueryCorrectionOffsetBody, reply.body, peer.encoding).correction_offsets)

    commit(peer, "slow", 1)
    commit(peer, "fast", 3)
    assert corrections("nobody") == {0: 1}
    assert corrections("fast") == {0: 3}
    assert corrections("slow", "slow") == {0: INT64_MAX}
    assert peer.broker.catalog.offsets.query("slow", "T", 0) == 1


@pytest.mark.parametrize("topic", [None, "T"])
def test_a_group_is_given_anothers_offsets(peer: Peer, topic: str | None) -> None:
    """Of one topic or of all; one that the online source no longer reads only if it is to count as offline."""
    commit(peer, "G", 2)
    peer.heartbeat("a", consumer("G", SubscriptionData.parse("other", "*", 1)))
    assert peer.answer(R.CLONE_GROUP_OFFSET, CloneGroupOffsetRequestHeader("G", "H", topic)).code == 0
    assert peer.broker.catalog.offsets.query("H", "T", 0) == -1
    assert peer.answer(R.CLONE_GROUP_OFFSET, CloneGroupOffsetRequestHeader("G", "H", topic, True)).code == 0
    assert peer.broker.catalog.offsets.query("H", "T", 0) == 2
