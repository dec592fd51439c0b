"""Send-back: checks in RocketMQ's order, retries that wait longer each time, dead letters (wire.md 10.1)."""

from typing import Any

import pytest

from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import SendMessageBackRequestHeader
from lockstep.protocol.messages.message import MessageExt, decode_messages
from tests.broker.fronts.test_send import stored
from tests.broker.helpers import NOW_MS, FakeConnection, Peer, pull_header

C = ResponseCode


@pytest.fixture
def peer(header_encoding: SerializeType) -> Peer:
    peer = Peer(header_encoding)
    peer.send(body=b"first")
    peer.send(body=b"poison", properties="UNIQ_KEY\x01U1\x02KEYS\x01k\x02TAGS\x01A", flag=9, sys_flag=1)
    return peer


def last_of(peer: Peer, topic: str, queue_id: int = 0) -> MessageExt:
    """Of a topic's queue; bodies as they are stored."""
    result = peer.broker.messages.store.get(topic, queue_id, 0, 1000, None)
    return decode_messages(result.body, unzip=False)[-1]


def poison_offset(peer: Peer) -> int:
    return last_of(peer, "T").commit_log_offset


def send_back(
    peer: Peer, offset: int | None = None, delay_level: int = 0, *, version: int = 409, **fields: Any
) -> RemotingCommand:
    at = poison_offset(peer) if offset is None else offset
    header = SendMessageBackRequestHeader(at, "G", delay_level)._replace(**fields)
    return peer.answer(RequestCode.CONSUMER_SEND_MSG_BACK, header, version=version)


def deliver(peer: Peer) -> int:
    """Let the next delayed message be delivered. Returns how long it waited, in ms."""
    due_ms = peer.broker.messages.delays.next_due_ms
    assert due_ms is not None
    peer.broker.messages.deliver_delayed(due_ms)
    waited_ms, peer.now_ms = due_ms - peer.now_ms, due_ms
    return waited_ms


def test_a_message_sent_back_comes_again_on_the_retry_topic(peer: Peer) -> None:
    """Ten seconds later, as it was, with one try more, its first topic and its first id (10.1, 10.2)."""
    before = last_of(peer, "T")
    reply = send_back(peer)
    assert (reply.code, reply.remark) == (0, None)
    assert peer.broker.messages.store.max_offset("%RETRY%G", 0) == 0
    assert deliver(peer) == 10_000
    message = last_of(peer, "%RETRY%G")
    assert (message.body, message.flag, message.sys_flag) == (b"poison", 9, 1)
    assert (message.born_timestamp, message.born_host) == (before.born_timestamp, before.born_host)
    assert message.reconsume_times == 1
    assert message.properties == {
        "UNIQ_KEY": "U1", "KEYS": "k", "TAGS": "A", "CLUSTER": "DefaultCluster", "RETRY_TOPIC": "T", "WAIT": "false",
        "DELAY": "3", "REAL_TOPIC": "%RETRY%G", "REAL_QID": "0", "ORIGIN_MESSAGE_ID": before.offset_message_id,
    }  # fmt: skip


def test_each_retry_waits_longer_until_the_message_is_a_dead_letter(peer: Peer) -> None:
    """10 s, 30 s, 1 min ... 2 h, then at once to %DLQ%G, its first topic and id still known."""
    first_id = last_of(peer, "T").offset_message_id
    waits, at = [], poison_offset(peer)
    for _ in range(16):
        assert send_back(peer, at).code == 0
        waits.append(deliver(peer) // 1000)
        at = last_of(peer, "%RETRY%G").commit_log_offset
    assert waits == [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
    assert send_back(peer, at).code == 0
    letter = last_of(peer, "%DLQ%G")
    assert (letter.body, letter.reconsume_times, letter.queue_id) == (b"poison", 17, 0)
    assert (letter.properties["RETRY_TOPIC"], letter.properties["ORIGIN_MESSAGE_ID"]) == ("T", first_id)
    assert letter.properties["DELAY"] == "0"
    assert peer.broker.messages.delays.next_due_ms is None
    config = peer.broker.catalog.topics.get("%DLQ%G")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 1, 6)


def test_a_negative_level_is_a_dead_letter_at_once(peer: Peer) -> None:
    """The consumer's own decision, however often it was tried."""
    assert send_back(peer, delay_level=-1).code == 0
    assert last_of(peer, "%DLQ%G").reconsume_times == 1


def test_the_number_of_tries_stays_in_its_field(peer: Peer) -> None:
    """A producer can send a message with the largest number; sent back, it is a dead letter with that number."""
    peer.send(body=b"tried for ever", reconsume_times=2**31 - 1)
    assert send_back(peer, last_of(peer, "T").commit_log_offset).code == 0
    assert last_of(peer, "%DLQ%G").reconsume_times == 2**31 - 1


@pytest.mark.parametrize(("level", "wait_ms"), [(1, 1000), (18, 7_200_000), (99, 7_200_000)])
def test_a_level_above_zero_is_taken(peer: Peer, level: int, wait_ms: int) -> None:
    """Instead of the broker's own count."""
    assert send_back(peer, delay_level=level).code == 0
    assert deliver(peer) == wait_ms


@pytest.mark.parametrize(
    ("asked", "version", "dead"), [(0, 409, True), (0, 121, True), (0, 120, False), (None, 409, False), (5, 409, False)]
)
def test_the_clients_limit_counts_from_version_121_on(peer: Peer, asked: int | None, version: int, dead: bool) -> None:
    """Else the group's."""
    assert send_back(peer, max_reconsume_times=asked, version=version).code == 0
    assert peer.broker.messages.store.max_offset("%DLQ%G", 0) == int(dead)


def test_the_groups_limit_and_queues_count(peer: Peer) -> None:
    """retryMaxTimes and retryQueueNums of its configuration."""
    peer.broker.catalog.groups.put(SubscriptionGroupConfig("G", retry_queue_nums=3, retry_max_times=1), NOW_MS)
    for _ in range(30):
        assert send_back(peer, delay_level=1).code == 0
    peer.broker.messages.deliver_delayed(NOW_MS + 1000)
    counts = [peer.broker.messages.store.max_offset("%RETRY%G", queue_id) for queue_id in range(3)]
    assert sum(counts) == 30
    assert all(counts)
    queue = peer.broker.messages.store.entries("%RETRY%G", 0, 0, 1)[0].commit_log_offset
    assert send_back(peer, queue).code == 0
    assert peer.broker.messages.store.max_offset("%DLQ%G", 0) == 1


def test_a_group_without_retry_queues_gives_up_at_once(peer: Peer) -> None:
    """Success, and nothing done, whatever message is named."""
    peer.broker.catalog.groups.put(SubscriptionGroupConfig("G", retry_queue_nums=0), NOW_MS)
    assert send_back(peer, 987_654).code == 0
    assert peer.broker.catalog.topics.get("%RETRY%G") is None


def test_what_cannot_be_sent_back_is_refused_in_order() -> None:
    """26 before 16 before the message is looked for; nothing is stored (wire.md 10.1)."""
    peer = Peer(auto_create_groups=False, broker_permission=4)
    peer.send()
    stored_bytes = peer.broker.messages.store.max_commit_log_offset
    assert send_back(peer, 1).code == C.SUBSCRIPTION_GROUP_NOT_EXIST
    peer.broker.catalog.groups.put(SubscriptionGroupConfig("G"), NOW_MS)
    assert send_back(peer, 1).code == C.NO_PERMISSION
    assert peer.broker.catalog.topics.get("%RETRY%G") is None
    writable = Peer()
    writable.broker.catalog.topics.put(TopicConfig("%RETRY%G", 1, 1, perm=4), NOW_MS)
    assert send_back(writable, 1).code == C.NO_PERMISSION
    writable.broker.catalog.topics.put(TopicConfig("%RETRY%G", 1, 1), NOW_MS)
    for at in (-1, 1, 10_000):
        reply = send_back(writable, at)
        assert reply.code == C.SYSTEM_ERROR
        assert str(at) in (reply.remark or "")
    assert peer.broker.messages.store.max_commit_log_offset == stored_bytes


def test_a_group_whose_retry_topic_has_too_long_a_name_cannot_retry(peer: Peer) -> None:
    """Groups may have 255 characters, topics 127."""
    assert send_back(peer, group="g" * 121).code == C.SYSTEM_ERROR
    assert send_back(peer, group="g" * 120).code == 0


def test_a_message_whose_properties_are_full_cannot_be_sent_back(peer: Peer) -> None:
    """The broker's own have no room; it stays where it is."""
    peer.send(properties="k\x01" + "v" * 32_700)
    assert send_back(peer).code == C.SYSTEM_ERROR
    assert peer.broker.messages.delays.next_due_ms is None


def test_a_dropped_message_cannot_be_sent_back() -> None:
    """Evicted between the pull and the send-back."""
    peer = Peer(memory_limit_bytes=6 << 20, segment_bytes=1 << 20, max_message_bytes=1 << 20)
    peer.send(body=b"poison")
    at = stored(peer)[0].commit_log_offset
    for _ in range(9):
        peer.send("filler", bytes(900_000))
    assert send_back(peer, at).code == C.SYSTEM_ERROR


def test_a_retry_wakes_a_parked_pull_of_the_group(peer: Peer) -> None:
    """The consumer gets it without asking again."""
    peer.broker.catalog.topics.ensure_retry_topic("G", 1, NOW_MS)
    waiter = Peer(peer.encoding, broker=peer.broker, connection=FakeConnection("127.0.0.1:50009"))
    assert waiter.call(RequestCode.PULL_MESSAGE, pull_header(0, topic="%RETRY%G", sys_flag=6)) is None
    send_back(peer)
    deliver(peer)
    peer.send("other")  # the end of a read wakes
    assert [reply.code for reply in waiter.connection.replies] == [0]
