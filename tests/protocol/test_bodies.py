"""Bodies of locks, lists, routes and registrations: round trips, lenient reading, errors that name the member."""

from typing import Any

import msgpack
import pytest

from lockstep.protocol.bodies.broker import (
    BrokerData,
    ClusterInfo,
    ConsumerGroupList,
    ConsumerIdList,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigs,
    TopicList,
    TopicRouteData,
)
from lockstep.protocol.bodies.codec import WireBody, decode_body, encode_body
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody, LockTableBody
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.errors import BodyError
from lockstep.protocol.model import MessageQueue
from tests.rows import by_row

QUEUE = MessageQueue("TopicO", "broker-a", 3)
QUEUE_WIRE = {"topic": "TopicO", "brokerName": "broker-a", "queueId": 3}
ROUTE = TopicRouteData(
    (QueueData("broker-b", 2, 1, 6), QueueData("broker-a", 1, 2, 6), QueueData("broker-c", 9, 9, 0)),
    (BrokerData("broker-a", "C", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}), BrokerData("broker-b", "C", {1: "x:1"})),
)


def test_lock_bodies_are_rocketmqs() -> None:
    """The members and their order are those of wire.md 7.1."""
    queue = b'{"brokerName":"broker-a","queueId":3,"topic":"TopicO"}'
    lock = LockBatchBody("G", "10.0.0.5@1", (QUEUE,))
    assert encode_body(lock, 0) == b'{"clientId":"10.0.0.5@1","consumerGroup":"G","mqSet":[' + queue + b"]}"
    assert encode_body(LockOkBody((QUEUE,)), 0) == b'{"lockOKMQSet":[' + queue + b"]}"


def test_members_nobody_knows_are_ignored() -> None:
    """RocketMQ 5 adds onlyThisBroker to lock requests, and others may add what they like."""
    wire = {"clientId": "c", "consumerGroup": "G", "mqSet": [QUEUE_WIRE | {"more": {}}], "onlyThisBroker": True}
    assert LockBatchBody.from_wire(wire) == LockBatchBody("G", "c", (QUEUE,))


def test_missing_lists_are_empty() -> None:
    """fastjson leaves out null lists."""
    assert LockOkBody.from_wire({}) == LockOkBody(())
    assert LockBatchBody.from_wire({"clientId": "c", "consumerGroup": "G"}) == LockBatchBody("G", "c", ())
    assert ConsumerIdList.from_wire({"consumerIdList": None}) == ConsumerIdList(())
    assert TopicRouteData.from_wire({}) == TopicRouteData((), ())


def test_numbers_as_text() -> None:
    """C++ writes some numbers as text."""
    assert LockOkBody.from_wire({"lockOKMQSet": [QUEUE_WIRE | {"queueId": "3"}]}) == LockOkBody((QUEUE,))


def test_unquoted_broker_ids() -> None:
    """Routes for old clients, and cluster info always, name broker ids without quotes (wire.md 1.5)."""
    route = b'{"brokerDatas":[{"brokerAddrs":{0:"h:1",2:"h:2"},"brokerName":"b","cluster":"C"}],"queueDatas":[]}'
    assert decode_body(TopicRouteData, route, 0).broker_datas == (BrokerData("b", "C", {0: "h:1", 2: "h:2"}),)


@by_row(
    "body_class, wire",
    [
        (LockBatchBody, {"clientId": "c", "mqSet": [QUEUE_WIRE]}),
        (LockBatchBody, {"clientId": "c", "consumerGroup": "G", "mqSet": None}),
        (LockBatchBody, {"clientId": ["c"], "consumerGroup": "G"}),
        (LockBatchBody, {"clientId": "c", "consumerGroup": "G", "mqSet": {}}),
        (LockOkBody, {"lockOKMQSet": [5]}),
        (LockOkBody, {"lockOKMQSet": [QUEUE_WIRE | {"queueId": "three"}]}),
        (LockOkBody, {"lockOKMQSet": [QUEUE_WIRE | {"queueId": 2**64}]}),
        (LockTableBody, {"lockTable": [{}]}),
        (ConsumerIdList, {"consumerIdList": ["a", 5]}),
        (TopicList, {"topicList": "T"}),
        (ConsumerGroupList, {}),
        (ConsumerGroupList, {"groups": {"G": "T"}}),
        (TopicRouteData, {"queueDatas": [{"brokerName": "b"}]}),
        (TopicRouteData, {"brokerDatas": [{"brokerName": "b", "brokerAddrs": []}]}),
        (BrokerData, {"brokerName": "b", "brokerAddrs": {"zero": "h:1"}}),
        (BrokerData, {"brokerName": "b", "brokerAddrs": {"9" * 30: "h:1"}}),
        (BrokerData, {"brokerName": "b", "brokerAddrs": {"0": ["h:1"]}}),
        (BrokerData, {"brokerName": "b", "brokerAddrs": {"0": None}}),
        (ClusterInfo, {"brokerAddrTable": {"b": None}}),
        (TopicConfigs, {"topicConfigSerializeWrapper": {"topicConfigTable": {}}}),
        (TopicConfig, {"topicName": "T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "order": "yes"}),
    ],
)
def test_what_is_wrong_is_a_body_error(body_class: type[WireBody], wire: Any) -> None:
    """A member that is missing, of another kind or out of range is refused."""
    with pytest.raises(BodyError):
        body_class.from_wire(wire)


@pytest.mark.parametrize(
    ("body_class", "wire"),
    [
        (ClusterInfo, {"brokerAddrTable": {"b": BrokerData("b", "C", {}).to_wire(), b"c": {}}}),
        (ConsumerGroupList, {"groups": {b"G": ["T"]}}),
        (BrokerData, {"brokerName": "b", "brokerAddrs": {b"0": "h:1"}}),
        (TopicConfigs, {"topicConfigSerializeWrapper": {"topicConfigTable": {b"T": TopicConfig("T").to_wire()}}}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_names_that_are_bytes(body_class: type[WireBody], wire: Any) -> None:
    """msgpack allows keys of bytes; where keys are names they must be text."""
    with pytest.raises(BodyError):
        decode_body(body_class, msgpack.packb(wire), SerializeType.MSGPACK)


def test_queues_of_a_route_are_sorted() -> None:
    """All members of a group must see one order of queues: by broker name, then id (wire.md 12.3)."""
    assert ROUTE.readable_queues("T") == [
        MessageQueue("T", "broker-a", 0),
        MessageQueue("T", "broker-b", 0),
        MessageQueue("T", "broker-b", 1),
    ]


def test_only_queues_of_a_master_are_writable() -> None:
    """A broker whose master is away takes no sends, and permission decides too (wire.md 12.11)."""
    assert ROUTE.writable_queues("T") == [MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)]


def test_masters_in_a_route() -> None:
    """The master is id 0, and may be away."""
    assert ROUTE.broker_datas[0].master_addr == "10.0.0.1:10911"
    assert ROUTE.broker_datas[1].master_addr is None


@pytest.mark.parametrize(
    ("perm", "readable", "writable"), [(0, False, False), (2, False, True), (4, True, False), (7, True, True)]
)
def test_permissions(perm: int, readable: bool, writable: bool) -> None:
    """Bit 4 reads, bit 2 writes, bit 1 says nothing about either."""
    data = QueueData("b", 1, 1, perm)
    assert (data.readable, data.writable) == (readable, writable)


@pytest.mark.parametrize(
    ("body_class", "wire"),
    [
        (ClusterInfo, {"brokerAddrTable": {"a": BrokerData("b", "C", {}).to_wire()}}),
        (TopicConfigs, {"topicConfigSerializeWrapper": {
            "dataVersion": {"counter": 0, "timestamp": 0}, "topicConfigTable": {"T": TopicConfig("U").to_wire()}}}),
    ],
    ids=["cluster", "topics"],
)  # fmt: skip
def test_a_table_that_calls_its_rows_otherwise(body_class: type[WireBody], wire: Any) -> None:
    """A row under a name that is not its own is refused: the two could be taken for one, or one for two."""
    with pytest.raises(BodyError, match="stands under the name"):
        body_class.from_wire(wire)


def test_tables_are_read_in_the_order_of_names() -> None:
    """JSON and msgpack give one order, whatever the writer's was."""
    names = ["b", "a", "c"]
    table = {name: BrokerData(name, "C", {}).to_wire() for name in names}
    assert [b.broker_name for b in ClusterInfo.from_wire({"brokerAddrTable": table}).brokers] == sorted(names)
    configs = TopicConfigs.of(DataVersion(0, 0), [TopicConfig(name) for name in names])
    assert [c.topic_name for c in TopicConfigs.from_wire(configs.to_wire()).topics] == sorted(names)


def test_cluster_table_lists_brokers_by_cluster() -> None:
    """ClusterInfo is written as the two tables that admin tools read."""
    info = ClusterInfo((BrokerData("a", "C1", {0: "x:1"}), BrokerData("b", "C1", {}), BrokerData("c", "C2", {})))
    assert info.to_wire()["clusterAddrTable"] == {"C1": ["a", "b"], "C2": ["c"]}


@by_row(
    "order_conf, queues",
    [
        ("b:2;a:1", [("b", 0), ("b", 1), ("a", 0)]),  # in its own order, and b has no master
        ("a:0", [("a", 0), ("a", 1)]),
        (None, [("a", 0), ("a", 1)]),
        ("", [("a", 0), ("a", 1)]),
        ("b:two", [("a", 0), ("a", 1)]),
        ("b:2;", [("a", 0), ("a", 1)]),
        ("b", [("a", 0), ("a", 1)]),
        ("b:999999", [("a", 0), ("a", 1)]),
    ],
)
def test_an_order_configuration_names_the_queues_to_send_to(
    order_conf: str | None, queues: list[tuple[str, int]]
) -> None:
    """Whoever is away; one that says nothing or makes no sense is as none. Readers do not look at it."""
    route = TopicRouteData(
        (QueueData("a", 2, 2, 6), QueueData("b", 2, 2, 6)), (BrokerData("a", "c", {0: "10.0.0.1:1"}),), order_conf
    )
    assert route.writable_queues("T") == [MessageQueue("T", *queue) for queue in queues]
    assert [queue.broker_name for queue in route.readable_queues("T")] == ["a", "a", "b", "b"]
