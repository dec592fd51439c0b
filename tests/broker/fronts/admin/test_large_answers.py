"""Answers about all groups, topics and queues: in steps between which others are served, and never longer than a frame
(wire.md 2.4)."""

from collections.abc import Callable

import pytest

from lockstep.broker.catalog.members import ClientChannel
from lockstep.broker.messages.pop.port import Found, Order
from lockstep.broker.sliced_work import STEPS_A_TURN
from lockstep.protocol.bodies.admin import ConsumeStats, ConsumeStatsList, OffsetWrapper
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.codec import decode_body, encode_body
from lockstep.protocol.bodies.config import SubscriptionGroupWrapper
from lockstep.protocol.bodies.locks import LockBatchBody
from lockstep.protocol.bodies.subscription_group import BUILT_IN_GROUPS
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.headers.admin import (
    ConsumeStatsRequestHeader,
    GetBrokerConsumeStatsRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetRequestHeader,
    QueryMessageRequestHeader,
    ResetOffsetRequestHeader,
    TopicRequestHeader,
)
from lockstep.protocol.headers.messaging import ListLocksRequestHeader
from lockstep.protocol.headers.pop import ListDeliveriesRequestHeader
from lockstep.protocol.model import MessageQueue
from tests.broker.helpers import NOW_MS, Peer, consumer
from tests.rows import each_row

R = RequestCode
GROUPS = 2000
LARGE = {
    R.GET_BROKER_CONSUME_STATS: GetBrokerConsumeStatsRequestHeader(False),
    R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: None,
    R.GET_ALL_CONSUMER_OFFSET: None,
    R.GET_ALL_TOPIC_CONFIG: None,
    R.GET_ALL_PRODUCER_INFO: None,
    R.LIST_CONSUMER_GROUPS: None,
    R.GET_TOPIC_STATS_INFO: TopicRequestHeader("T"),
    R.GET_CONSUME_STATS: ConsumeStatsRequestHeader("G7", "T"),
    R.QUERY_CONSUME_TIME_SPAN: QueryConsumeTimeSpanRequestHeader("T", "G7"),
    R.QUERY_TOPIC_CONSUME_BY_WHO: TopicRequestHeader("U"),
    R.QUERY_CORRECTION_OFFSET: QueryCorrectionOffsetRequestHeader("G7", "U"),
    R.QUERY_CONSUME_QUEUE: QueryConsumeQueueRequestHeader("T", 0, 0, 2000, "G7"),
    R.LIST_LOCKS: ListLocksRequestHeader("G7"),
    R.LIST_DELIVERIES: ListDeliveriesRequestHeader("G7"),
    R.INVOKE_BROKER_TO_RESET_OFFSET: ResetOffsetRequestHeader("T", "G7", -1, True),
}


class Turns:
    """The turns of a loop, run by the test."""

    def __init__(self, peer: Peer) -> None:
        self._soon: list[Callable[[], None]] = []
        peer.broker.work.soon = self._soon.append

    def run(self) -> int:
        """How many there were until nothing was left to do."""
        count = 0
        while self._soon:
            count += 1
            self._soon.pop(0)()
        return count


class OneMessage:
    """A queue that has one message."""

    def read(self, queue_offset: int, count_max: int) -> Found:
        return Found([0], b"", 1)

    def at(self, queue_offset: int) -> bytes:
        return b""


def filled() -> Peer:
    """With many groups, each with an offset, a producer and a topic, and a topic of many queues."""
    peer = Peer()
    broker = peer.broker
    broker.catalog.topics.put(TopicConfig("T", 2000, 2000), NOW_MS)
    for number in range(GROUPS):
        group = f"G{number}"
        broker.catalog.groups.find(group, NOW_MS)
        broker.catalog.topics.ensure_retry_topic(group, 1, NOW_MS)
        broker.catalog.offsets.commit(group, f"%RETRY%{group}", 0, number)
    broker.catalog.topics.put(TopicConfig("U", 16, 16), NOW_MS)
    for number in range(2000):
        broker.catalog.offsets.commit("G7", "T", number, number)
        for queue_id in range(16):
            broker.catalog.offsets.commit(f"G{number}", "U", queue_id, number)
    queues = tuple(MessageQueue("T", "b", number) for number in range(2000))
    for number in range(2000):
        queue = broker.messages.pops.fifo.queue("P", "G7", number, NOW_MS)
        order = Order("c", None, 1, NOW_MS, 10_000)
        queue.pop(order, 0, OneMessage(), NOW_MS)
    broker.ownership.lock(LockBatchBody("G7", "c", queues), peer.connection, NOW_MS)
    broker.members.consumers.register(consumer("G7"), peer.connection, peer_channel())
    peer.send_many(2000)
    return peer


def test_a_large_answer_takes_many_turns_of_the_loop() -> None:
    """None of them has more than its few steps; the answer is that of a broker without a loop."""
    peer = filled()
    for number in range(GROUPS):
        peer.broker.members.producers.register(f"P{number}", peer.connection, peer_channel())
    wholes = {code: peer.answer(code, header) for code, header in LARGE.items()}
    turns = Turns(peer)
    with each_row() as row:
        for code, whole in wholes.items():
            with row(code.name):
                peer.connection.replies.clear()
                assert peer.call(code, LARGE[code]) is None
                assert turns.run() >= 2000 // 64 // STEPS_A_TURN
                (late,) = peer.connection.replies
                assert (late.code, late.body, late.ext_fields) == (ResponseCode.SUCCESS, whole.body, whole.ext_fields)


def peer_channel() -> ClientChannel:
    return ClientChannel("p", 0, 409, NOW_MS)


def test_many_large_answers_to_one_peer_wait_for_their_turn() -> None:
    """As a tool with threads has them in flight: all are answered, in order. Another peer does not wait for all."""
    peer = filled()
    turns, other = Turns(peer), peer.beside()
    for _ in range(40):
        assert peer.call(R.GET_CONSUME_STATS, LARGE[R.GET_CONSUME_STATS]) is None
        assert peer.call(R.GET_TOPIC_STATS_INFO, LARGE[R.GET_TOPIC_STATS_INFO]) is None
    assert other.call(R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG) is None
    others_at: list[int] = []
    other.connection.on_reply = lambda: others_at.append(len(peer.connection.replies))
    turns.run()
    replies = peer.connection.replies
    assert [reply.code for reply in replies] == [ResponseCode.SUCCESS] * 80
    assert [reply.opaque for reply in replies] == sorted(reply.opaque for reply in replies)
    assert others_at[0] < 40


def test_large_answers_wait_until_the_peer_takes_them() -> None:
    """A peer that asks and does not read costs the memory of one answer, not of all; a peer that is gone, none."""
    peer = filled()
    turns = Turns(peer)
    for _ in range(3):
        assert peer.call(R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG) is None
    peer.connection.write_paused = True
    turns.run()
    assert len(peer.connection.replies) == 1  # it had begun before
    peer.connection.drain()
    turns.run()
    assert len(peer.connection.replies) == 3


def test_more_requests_than_any_tool_has_in_flight_are_refused() -> None:
    """The table of those that wait has a bound."""
    peer = filled()
    Turns(peer)
    for _ in range(1024):
        assert peer.call(R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG) is None
    assert peer.answer(R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).code == ResponseCode.SYSTEM_BUSY


def test_an_answer_longer_than_a_frame_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a remark that says so, on the way."""
    peer = filled()
    turns = Turns(peer)
    monkeypatch.setattr("lockstep.protocol.bodies.rows.BodyRows.__init__.__defaults__", (10_000,))
    assert peer.call(R.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsRequestHeader(False)) is None
    turns.run()
    (late,) = peer.connection.replies
    assert late.code == ResponseCode.SYSTEM_ERROR
    assert "over 10000 bytes, more than a frame can carry" in (late.remark or "")


@pytest.mark.parametrize("encoding", [SerializeType.JSON, SerializeType.MSGPACK])
def test_the_statistics_of_all_groups_are_what_their_body_says(encoding: SerializeType) -> None:
    """Byte for byte as if they were written at once, groups without offsets too."""
    peer = Peer(encoding)
    peer.send_many(3, "T", queue_id=1)
    peer.broker.catalog.groups.find("G", NOW_MS)
    peer.broker.catalog.offsets.commit("G", "T", 1, 2)
    reply = peer.answer(R.GET_BROKER_CONSUME_STATS, GetBrokerConsumeStatsRequestHeader(False))
    table = {MessageQueue("T", "broker-a", number): OffsetWrapper() for number in range(4)}
    table[MessageQueue("T", "broker-a", 1)] = OffsetWrapper(3, 2, NOW_MS)
    stats = ((group, ()) for group in BUILT_IN_GROUPS)
    body = ConsumeStatsList((*stats, ("G", (ConsumeStats(table),))), peer.broker.address, 1)
    assert decode_body(ConsumeStatsList, reply.body, encoding) == body
    if encoding is SerializeType.JSON:
        assert reply.body == encode_body(body, encoding)


def test_configs_of_groups_come_whole() -> None:
    """Two thousand and those that are built in."""
    reply = filled().answer(R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    body = decode_body(SubscriptionGroupWrapper, reply.body, SerializeType.JSON)
    assert len(body.groups) == GROUPS + len(BUILT_IN_GROUPS)


def test_a_query_by_key_looks_at_the_log_in_steps() -> None:
    """A log of 3 MiB without the key, and one with very many messages of another topic, take more than a turn each."""
    peer = Peer()
    for _ in range(12):
        peer.send(body=bytes(256 * 1024))
    peer.send("U", b"first")
    peer.send_many(2000, properties="KEYS\x01many\x02")
    peer.send("U", b"last")  # between these two lie all messages with the key
    turns = Turns(peer)
    for key, topic in [("absent", "T"), ("many", "U")]:
        header = QueryMessageRequestHeader(topic, key, 64, 0, NOW_MS)
        peer.connection.replies.clear()
        peer.call(R.QUERY_MESSAGE, header)
        assert turns.run() >= 1
        assert [reply.code for reply in peer.connection.replies] == [ResponseCode.QUERY_NOT_FOUND]
