"""The name server, core and requests (wire.md 2.7)."""

import json
import struct
import zlib

import pytest

from lockstep.broker.fronts.remoting.dispatch import NAME_SERVER_HANDLERS, dispatch
from lockstep.broker.name_server.config import NameServerConfig
from lockstep.broker.name_server.name_server import BrokerIdentity, NameServer, NameServerFull
from lockstep.protocol.bodies.broker import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigs,
    TopicList,
    TopicRouteData,
)
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.codes import PROTOCOL_VERSION, RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.headers.messaging import (
    GetRouteInfoRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
)
from tests.broker.helpers import ENCODINGS, NOW_MS, FakeConnection, RecordingLog, ask_name_server

A = BrokerIdentity("C", "broker-a", 0, "10.0.0.1:10911")
B = BrokerIdentity("C", "broker-b", 0, "10.0.0.2:10911")


def configs(counter: int, *topics: str) -> TopicConfigs:
    return TopicConfigs(DataVersion(counter, NOW_MS), tuple(TopicConfig(topic) for topic in topics))


def test_a_route_names_queues_and_brokers_of_every_registered_master() -> None:
    """Two brokers under one name server share a topic."""
    server = NameServer()
    server.register(A, configs(1, "T", "only-a"), FakeConnection(), NOW_MS)
    server.register(B, configs(1, "T"), FakeConnection(), NOW_MS)
    route = server.route("T")
    assert route is not None
    assert route.queue_datas == (QueueData("broker-a", 4, 4, 6), QueueData("broker-b", 4, 4, 6))
    assert [data.master_addr for data in route.broker_datas] == [A.broker_addr, B.broker_addr]
    assert server.topics() == ("T", "only-a")
    assert server.route("nowhere") is None


def test_topics_are_read_only_when_their_version_changed_and_stay_when_no_longer_named() -> None:
    """An equal version is not read; a topic absent later stays until its broker goes."""
    server, connection = NameServer(), FakeConnection()
    server.register(A, configs(1, "T"), connection, NOW_MS)
    server.register(A, configs(1, "T", "unread"), connection, NOW_MS)
    assert server.route("unread") is None
    server.register(A, configs(2, "U"), connection, NOW_MS)
    assert server.topics() == ("T", "U")


def test_slaves_bring_an_address_and_no_topics() -> None:
    """Only id 0 registers topics; a slave's answer names its master."""
    server = NameServer()
    slave = A._replace(broker_id=1, broker_addr="10.0.0.9:10911")
    assert server.register(slave, configs(1, "T"), FakeConnection(), NOW_MS) is None
    assert server.route("T") is None
    server.register(A, configs(1, "T"), FakeConnection(), NOW_MS)
    assert server.register(slave, configs(1), FakeConnection(), NOW_MS) == A.broker_addr
    route = server.route("T")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: A.broker_addr, 1: slave.broker_addr}


def test_a_slave_that_becomes_the_master_is_not_listed_twice() -> None:
    """One address has one id."""
    server = NameServer()
    server.register(A._replace(broker_id=1), configs(1), FakeConnection(), NOW_MS)
    server.register(A, configs(1, "T"), FakeConnection(), NOW_MS)
    assert server.cluster_info().brokers == (BrokerData("broker-a", "C", {0: A.broker_addr}),)


def test_a_broker_dies_with_its_connection_and_its_topics_with_it() -> None:
    """The other broker's queues stay."""
    server, connection = NameServer(), FakeConnection()
    server.register(A, configs(1, "T", "only-a"), connection, NOW_MS)
    server.register(B, configs(1, "T"), FakeConnection(), NOW_MS)
    assert server.on_closed(connection) == [A]
    assert server.topics() == ("T",)
    route = server.route("T")
    assert route is not None
    assert [data.broker_name for data in route.queue_datas] == ["broker-b"]


def test_a_silent_broker_lives_120_seconds_and_no_longer() -> None:
    """103 and 322 both count as signs of life; the broker of this process needs none."""
    server, connection = NameServer(NameServerConfig(broker_expired_timeout_ms=120_000)), FakeConnection()
    server.register(A, configs(1, "T"), connection, NOW_MS)
    server.register(B, configs(1, "T"), None, NOW_MS)
    assert server.touch(A, NOW_MS + 10_000) == DataVersion(1, NOW_MS)
    assert server.scan(NOW_MS + 130_000) == []
    assert server.scan(NOW_MS + 130_001) == [(A, connection)]
    assert server.scan(NOW_MS + 10**9) == []
    assert server.touch(A, NOW_MS) is None


def test_a_broker_that_moved_is_known_by_its_new_address() -> None:
    """The old address's goodbye, arriving late, does not remove the new one."""
    server = NameServer()
    server.register(A, configs(1, "T"), FakeConnection(), NOW_MS)
    moved = A._replace(broker_addr="10.0.0.7:10911")
    server.register(moved, configs(1, "T"), FakeConnection(), NOW_MS)
    assert not server.unregister(A, FakeConnection())
    assert server.cluster_info().brokers[0].master_addr == moved.broker_addr
    assert server.unregister(moved, FakeConnection())
    assert server.topics() == ()


def test_topics_that_went_and_came_again_are_listed_once() -> None:
    """In the order of their names, whatever went with a broker or was deleted in between."""
    server, connection = NameServer(), FakeConnection()
    server.register(A, configs(1, "b", "d", "a"), connection, NOW_MS)
    server.register(B, configs(1, "c"), FakeConnection(), NOW_MS)
    server.delete_topic("c", None)
    server.on_closed(connection)
    server.register(A, configs(1, "e", "a", "c"), FakeConnection(), NOW_MS)
    assert server.topics() == ("a", "c", "e")
    server.register(B, configs(2, "b", "a"), FakeConnection(), NOW_MS)
    assert server.topics() == ("a", "b", "c", "e")


def full_name_server() -> NameServer:
    return NameServer(NameServerConfig(brokers_max=1, routes_max=2, kv_configs_max=2), RecordingLog())


@pytest.mark.parametrize(
    ("identity", "topics", "setting"), [(B, ("T",), "brokers_max is 1"), (A, ("T", "V"), "routes_max is 2")]
)
def test_a_name_server_keeps_only_so_many(identity: BrokerIdentity, topics: tuple[str, ...], setting: str) -> None:
    """A registration beyond the limit is refused and changes nothing; known brokers may register again."""
    server = full_name_server()
    ask = ask_name_server(server, SerializeType.JSON, FakeConnection())
    server.register(A, configs(1, "T", "U"), FakeConnection(), NOW_MS)
    header = RegisterBrokerRequestHeader(identity.broker_name, identity.broker_addr, "C", "", 0)
    reply = ask(RequestCode.REGISTER_BROKER, header, configs(2, *topics))
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert setting in (reply.remark or "")
    assert (server.topics(), len(server.cluster_info().brokers)) == (("T", "U"), 1)
    known = RegisterBrokerRequestHeader(A.broker_name, A.broker_addr, "C", "", 0)
    assert ask(RequestCode.REGISTER_BROKER, known, configs(3, "T", "U")).code == ResponseCode.SUCCESS


def test_a_name_server_keeps_only_so_many_key_value_configs() -> None:
    """Namespaces count too, since they stay; known keys may be changed, and deleted ones make room."""
    server = full_name_server()
    server.put_kv("N", "k", "1", FakeConnection(), NOW_MS)
    server.put_kv("N", "k", "2", FakeConnection(), NOW_MS)
    with pytest.raises(NameServerFull, match="kv_configs_max is 2"):
        server.put_kv("N", "l", "1", FakeConnection(), NOW_MS)
    server.kv_configs.delete("N", "k")
    server.put_kv("N", "l", "1", FakeConnection(), NOW_MS)
    assert server.kv_configs.namespace("N") == {"l": "1"}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_requests_of_brokers_and_clients(encoding: SerializeType) -> None:
    """Register, ask for routes, the cluster, all topics, the version, and leave."""
    ask = ask_name_server(NameServer(), encoding, FakeConnection())
    register = RegisterBrokerRequestHeader("broker-a", A.broker_addr, "C", "", 0)
    reply = ask(RequestCode.REGISTER_BROKER, register, configs(1, "T"))
    assert (reply.code, reply.decode_header(RegisterBrokerResponseHeader)) == (0, (None, None))

    reply = ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("T"))
    route = decode_body(TopicRouteData, reply.body, encoding)
    assert route.queue_datas == (QueueData("broker-a", 4, 4, 6),)
    unknown = ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("U"))
    assert (unknown.code, unknown.body) == (ResponseCode.TOPIC_NOT_EXIST, b"")

    cluster = decode_body(ClusterInfo, ask(RequestCode.GET_BROKER_CLUSTER_INFO).body, encoding)
    assert cluster.brokers == (BrokerData("broker-a", "C", {0: A.broker_addr}),)
    topics = ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert decode_body(TopicList, topics.body, encoding) == (("T",),)

    me = UnregisterBrokerRequestHeader("broker-a", A.broker_addr, "C", 0)
    for version, changed in [(DataVersion(1, NOW_MS), False), (DataVersion(2, NOW_MS), True)]:
        reply = ask(RequestCode.QUERY_DATA_VERSION, me, version)
        assert reply.decode_header(QueryDataVersionResponseHeader).changed is changed
        assert decode_body(DataVersion, reply.body, encoding) == DataVersion(1, NOW_MS)
    assert ask(RequestCode.UNREGISTER_BROKER, me).code == 0
    assert ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("T")).code == 17
    reply = ask(RequestCode.QUERY_DATA_VERSION, me, DataVersion(1, NOW_MS))
    assert reply.decode_header(QueryDataVersionResponseHeader).changed is True


def test_a_route_is_the_json_that_every_client_reads() -> None:
    """Members in alphabetical order, broker ids in quotes (wire.md 1.5, 2.7)."""
    server = NameServer()
    server.register(A, configs(1, "T"), FakeConnection(), NOW_MS)
    reply = ask_name_server(server, SerializeType.JSON, FakeConnection())(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("T")
    )
    assert reply.body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"C"}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,'
        b'"topicSysFlag":0,"writeQueueNums":4}]}'
    )


def test_a_route_has_rocketmq_5s_member_for_who_speaks_that_version() -> None:
    """Rust's client reads no route without it; other clients do not get it."""
    server = NameServer()
    server.register(A, configs(1, "T"), FakeConnection(), NOW_MS)
    for version, told in [(PROTOCOL_VERSION, None), (474, False)]:
        asked = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("T"), version=version)
        reply = dispatch(NAME_SERVER_HANDLERS, server, FakeConnection(), asked, NOW_MS)
        assert reply is not None
        (data,) = decode_body(TopicRouteData, reply.body, SerializeType.JSON).broker_datas
        assert data == BrokerData("broker-a", "C", {0: A.broker_addr}, told)


def compressed(*topics: str) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack(">i", len(value)) + value.encode()

    plain = text(json.dumps({"counter": 3, "timestamp": NOW_MS})) + struct.pack(">i", len(topics))
    return zlib.compress(plain + b"".join(map(text, topics)) + text("[]"))


def test_a_compressed_registration_is_read() -> None:
    """compressed=true, with a checked crc32."""
    server = NameServer()
    ask = ask_name_server(server, SerializeType.JSON, FakeConnection())
    body = compressed("T 8 4 6 SINGLE_TAG")
    header = RegisterBrokerRequestHeader("broker-a", A.broker_addr, "C", "", 0, True, zlib.crc32(body) & 0x7FFFFFFF)
    assert ask(RequestCode.REGISTER_BROKER, header, body).code == 0
    route = server.route("T")
    assert route is not None
    assert route.queue_datas == (QueueData("broker-a", 8, 4, 6),)
    assert ask(RequestCode.REGISTER_BROKER, header._replace(body_crc32=1), body).code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(
    "body",
    [
        b"not zlib",
        compressed("T 8 4 6 SINGLE_TAG")[:-4],
        compressed("T eight 4 6 SINGLE_TAG"),
        compressed("T 8"),
        zlib.compress(struct.pack(">i", 100) + b"{}"),
        zlib.compress(b"\0\0"),
        zlib.compress(struct.pack(">i", 1025) + b'{"counter":3,"timestamp":1}'.ljust(1025) + bytes(4)),
    ],
)
def test_a_broken_compressed_registration_is_refused(body: bytes) -> None:
    """As a body error, which the endpoint answers with SYSTEM_ERROR."""
    header = RegisterBrokerRequestHeader("broker-a", A.broker_addr, "C", "", 0, True)
    with pytest.raises(BodyError):
        ask_name_server(NameServer(), SerializeType.JSON, FakeConnection())(RequestCode.REGISTER_BROKER, header, body)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"topicConfigSerializeWrapper":null}'])
def test_a_registration_without_topics_is_one_of_none(body: bytes) -> None:
    """As in RocketMQ: the broker is in the cluster, and no topic has a route."""
    server = NameServer()
    header = RegisterBrokerRequestHeader("broker-a", A.broker_addr, "C", "", 0)
    assert (
        ask_name_server(server, SerializeType.JSON, FakeConnection())(RequestCode.REGISTER_BROKER, header, body).code
        == 0
    )
    assert server.cluster_info().brokers == (BrokerData("broker-a", "C", {0: A.broker_addr}),)
    assert server.topics() == ()


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_nobody_takes_the_name_of_the_broker_in_this_process(encoding: SerializeType) -> None:
    """A second broker with the same default name is refused with a remark; routes stay."""
    server = NameServer()
    server.register(A, configs(1, "T"), None, NOW_MS)
    ask = ask_name_server(server, encoding, FakeConnection())
    reply = ask(RequestCode.REGISTER_BROKER, RegisterBrokerRequestHeader("broker-a", B.broker_addr, "C", "", 0))
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark == f"broker name 'broker-a' with id 0 is taken by {A.broker_addr}; choose another"
    assert server.cluster_info().brokers == (BrokerData("broker-a", "C", {0: A.broker_addr}),)
    slave = RegisterBrokerRequestHeader("broker-a", B.broker_addr, "C", "", 1)
    assert ask(RequestCode.REGISTER_BROKER, slave, configs(1)).code == ResponseCode.SUCCESS


def test_two_registrations_of_the_same_topics_do_not_keep_each_other_from_their_end() -> None:
    """A broker reconnects and registers while its first registration is in progress: every topic has a route
    afterwards."""
    server, names = NameServer(), [f"T{number}" for number in range(200)]
    first = server.register_in_steps(A, configs(1, *names), FakeConnection("10.0.0.1:1"), NOW_MS)
    next(first)
    server.register(A, configs(1, *names), FakeConnection("10.0.0.1:2"), NOW_MS)
    assert list(first)
    assert len(server.topics()) == 200


def test_a_registration_under_way_ends_when_its_broker_has_gone() -> None:
    """Topics that it has not registered yet are not registered."""
    server, connection = NameServer(), FakeConnection()
    first = server.register_in_steps(A, configs(1, *(f"T{number}" for number in range(200))), connection, NOW_MS)
    next(first)
    server.unregister(A, connection)
    assert list(first) == []
    assert server.topics() == ()
