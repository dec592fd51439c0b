"""Topics as administrators see and change them: codes 17, 21, 202, 215, 300, 305, 351 (wire.md 2.4, 8.4)."""

import json

import pytest

from lockstep.protocol.bodies.admin import GroupList, TopicOffset, TopicStatsTable
from lockstep.protocol.bodies.broker import TopicConfig, TopicList
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.config import TopicConfigWrapper
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.headers.admin import DeleteTopicRequestHeader, TopicRequestHeader
from lockstep.protocol.headers.messaging import CreateTopicRequestHeader, UpdateConsumerOffsetRequestHeader
from lockstep.protocol.model import MessageQueue
from tests.broker.helpers import NOW_MS, Peer, consumer

R, C = RequestCode, ResponseCode
ORDERS = CreateTopicRequestHeader("orders", "TBW102", 2, 2, 6)


@pytest.fixture
def peer(header_encoding: SerializeType) -> Peer:
    return Peer(header_encoding)


def test_topics_are_created_and_changed_by_command(peer: Peer) -> None:
    """A second equal command changes nothing; impossible ones are refused with the reason."""
    for _ in range(2):
        assert peer.answer(R.UPDATE_AND_CREATE_TOPIC, ORDERS).code == 0
    assert peer.topic_changes == 1
    assert peer.send("orders", queue_id=1).code == 0
    reply = peer.answer(R.UPDATE_AND_CREATE_TOPIC, ORDERS._replace(topic="no good"))
    assert (reply.code, "no good" in str(reply.remark)) == (C.SYSTEM_ERROR, True)
    assert peer.topic_changes == 1


@pytest.mark.parametrize("topic", ["TBW102", "broker-a", "DefaultCluster", "DefaultCluster_REPLY_TOPIC"])
def test_system_topics_are_nobodys_to_change_or_delete(peer: Peer, topic: str) -> None:
    """SYSTEM_ERROR, and they stay as they are."""
    before = peer.broker.catalog.topics.get(topic)
    create = peer.answer(R.UPDATE_AND_CREATE_TOPIC, ORDERS._replace(topic=topic))
    delete = peer.answer(R.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic))
    assert (create.code, delete.code) == (C.SYSTEM_ERROR, C.SYSTEM_ERROR)
    assert (peer.broker.catalog.topics.get(topic), peer.topic_changes) == (before, 0)


def test_a_deleted_topic_takes_its_messages_and_offsets(peer: Peer) -> None:
    """Groups keep offsets of other topics. Deleting an unknown topic is no error."""
    peer.send_many(3)
    peer.answer(R.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader("G", "T", 0, 2))
    peer.broker.catalog.offsets.commit("G", "other", 0, 1)
    for _ in range(2):
        assert peer.answer(R.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("T")).code == 0
    assert peer.broker.catalog.topics.get("T") is None
    assert peer.broker.messages.store.max_offset("T", 0) == 0
    assert peer.broker.catalog.offsets.all() == {("other", "G"): {0: 1}}


def test_all_topics_are_listed_as_their_file_has_them(peer: Peer) -> None:
    """With the version that name servers compare."""
    peer.answer(R.UPDATE_AND_CREATE_TOPIC, ORDERS)
    body = decode_body(TopicConfigWrapper, peer.answer(R.GET_ALL_TOPIC_CONFIG).body, peer.encoding)
    assert body.data_version == (1, NOW_MS)
    by_name = {config.topic_name: config for config in body.topics}
    assert (by_name["orders"].read_queue_nums, by_name["SCHEDULE_TOPIC_XXXX"].write_queue_nums) == (2, 18)


def test_one_topic_is_told_to_the_tools_of_rocketmq_5(peer: Peer) -> None:
    """Its configuration; an unknown topic is TOPIC_NOT_EXIST (wire.md 13)."""
    peer.answer(R.UPDATE_AND_CREATE_TOPIC, ORDERS)
    reply = peer.answer(R.GET_TOPIC_CONFIG, TopicRequestHeader("orders"))
    assert decode_body(TopicConfig, reply.body, peer.encoding) == TopicConfig("orders", 2, 2, 6)
    assert peer.answer(R.GET_TOPIC_CONFIG, TopicRequestHeader("nowhere")).code == C.TOPIC_NOT_EXIST


def told(peer: Peer, topic: str) -> TopicConfig:
    reply = peer.answer(R.GET_TOPIC_CONFIG, TopicRequestHeader(topic))
    return decode_body(TopicConfig, reply.body, peer.encoding)


def test_a_topic_has_a_message_type(peer: Peer) -> None:
    """As tools of RocketMQ 5 set it; what one of 4 changes later leaves it."""
    assert peer.answer(R.UPDATE_AND_CREATE_TOPIC, ORDERS._replace(attributes="+message.type=FIFO")).code == 0
    assert told(peer, "orders").message_type == "FIFO"
    assert peer.answer(R.UPDATE_AND_CREATE_TOPIC, ORDERS._replace(write_queue_nums=3)).code == 0
    assert told(peer, "orders") == TopicConfig("orders", 2, 3, 6, attributes=(("message.type", "FIFO"),))
    mixed = peer.answer(R.UPDATE_AND_CREATE_TOPIC, ORDERS._replace(attributes="+message.type=MIXED"))
    assert (mixed.code, mixed.remark) == (C.INVALID_PARAMETER, "MIXED message type is not supported.")
    wrong = peer.answer(R.UPDATE_AND_CREATE_TOPIC, ORDERS._replace(attributes="+color=red"))
    assert (wrong.code, wrong.remark) == (C.SYSTEM_ERROR, "unsupported key: color")
    assert told(peer, "orders").message_type == "FIFO"


def test_a_topic_without_attributes_is_listed_as_by_rocketmq_4() -> None:
    """Only the call that 4 does not have tells that there are none."""
    peer = Peer(SerializeType.JSON)
    peer.answer(R.UPDATE_AND_CREATE_TOPIC, ORDERS)
    assert b"attributes" not in peer.answer(R.GET_ALL_TOPIC_CONFIG).body
    assert peer.answer(R.GET_TOPIC_CONFIG, TopicRequestHeader("orders")).body == (
        b'{"attributes":{},"order":false,"perm":6,"readQueueNums":2,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"orders","topicSysFlag":0,"writeQueueNums":2}'
    )


def test_the_statistics_of_a_topic_are_the_bounds_of_its_queues(peer: Peer) -> None:
    """A queue without messages has zeros; an unknown topic is TOPIC_NOT_EXIST in RocketMQ's words."""
    peer.answer(R.UPDATE_AND_CREATE_TOPIC, ORDERS)
    peer.now_ms += 7
    peer.send_many(3, "orders", queue_id=1)
    reply = peer.answer(R.GET_TOPIC_STATS_INFO, TopicRequestHeader("orders"))
    assert decode_body(TopicStatsTable, reply.body, peer.encoding).offset_table == {
        MessageQueue("orders", "broker-a", 0): TopicOffset(0, 0, 0),
        MessageQueue("orders", "broker-a", 1): TopicOffset(0, 3, NOW_MS + 7),
    }
    unknown = peer.answer(R.GET_TOPIC_STATS_INFO, TopicRequestHeader("nowhere"))
    assert (unknown.code, unknown.remark) == (C.TOPIC_NOT_EXIST, "topic[nowhere] not exist")


def test_the_statistics_are_written_as_rocketmqs_tools_read_them() -> None:
    """Queues are members' names, as objects (wire.md 1.5)."""
    peer = Peer(SerializeType.JSON)
    peer.answer(R.UPDATE_AND_CREATE_TOPIC, ORDERS._replace(write_queue_nums=1))
    assert peer.answer(R.GET_TOPIC_STATS_INFO, TopicRequestHeader("orders")).body == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:'
        b'{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}}}'
    )


def test_who_consumes_a_topic_are_those_online_and_those_with_offsets(peer: Peer) -> None:
    """Each group once; without groups the list is empty."""
    peer.make_topics("T")
    peer.heartbeat("a", consumer("online", SubscriptionData.parse("T", "*", 1)))
    for group in ("offline", "online"):
        peer.answer(R.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader(group, "T", 0, 1))

    def groups(topic: str) -> tuple[str, ...]:
        reply = peer.answer(R.QUERY_TOPIC_CONSUME_BY_WHO, TopicRequestHeader(topic))
        return decode_body(GroupList, reply.body, peer.encoding).group_list

    assert (groups("T"), groups("nowhere")) == (("offline", "online"), ())


def test_system_topics_are_listed(peer: Peer) -> None:
    """RocketMQ's and those with the names of this broker and its cluster."""
    reply = peer.answer(R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    listed = set(decode_body(TopicList, reply.body, peer.encoding).topic_list)
    assert {"TBW102", "SELF_TEST_TOPIC", "broker-a", "DefaultCluster"} <= listed


def test_the_built_in_topics_are_in_the_json_of_code_21() -> None:
    """Its members are those of topics.json (wire.md 8.4)."""
    wire = json.loads(Peer().answer(R.GET_ALL_TOPIC_CONFIG).body)
    assert set(wire) == {"dataVersion", "topicConfigTable"}
    assert wire["topicConfigTable"]["TBW102"] == {
        "order": False,
        "perm": 7,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "TBW102",
        "topicSysFlag": 0,
        "writeQueueNums": 8,
    }
