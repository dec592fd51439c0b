"""Requests of administrators to a name server: key-value configs, topic lists, permissions, settings (wire.md 2.7)."""

from collections.abc import Callable
from typing import Any

import pytest

from lockstep.broker.config import BrokerConfig
from lockstep.broker.name_server.config import NameServerConfig
from lockstep.broker.name_server.name_server import BrokerIdentity, NameServer
from lockstep.protocol.bodies.broker import DataVersion, TopicConfig, TopicConfigs, TopicList, TopicRouteData
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.name_server import KvTable, SystemTopicList
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import (
    BrokerNameRequestHeader,
    DeleteKvConfigRequestHeader,
    DeleteTopicInNameServerRequestHeader,
    GetKvConfigRequestHeader,
    GetKvConfigResponseHeader,
    GetKvListRequestHeader,
    GetTopicsByClusterRequestHeader,
    GetWritePermResponseHeader,
    PutKvConfigRequestHeader,
)
from lockstep.protocol.headers.messaging import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from tests.broker.helpers import NOW_MS, FakeConnection, ask_name_server

R, C = RequestCode, ResponseCode
A = BrokerIdentity("C1", "broker-a", 0, "10.0.0.1:10911")
B = BrokerIdentity("C2", "broker-b", 0, "10.0.0.2:10911")
TOPICS = (TopicConfig("T"), TopicConfig("TBW102", 8, 8, 7), TopicConfig("unit", topic_sys_flag=1))


class World:
    """A name server with two brokers of two clusters; the second has one more topic, whose units subscribe."""

    def __init__(self, encoding: SerializeType) -> None:
        self.encoding = encoding
        self.server = NameServer()
        self.server.register(A, TopicConfigs(DataVersion(1, NOW_MS), TOPICS), FakeConnection(), NOW_MS)
        more = (*TOPICS, TopicConfig("sub", topic_sys_flag=2), TopicConfig("both", topic_sys_flag=3))
        self.server.register(B, TopicConfigs(DataVersion(1, NOW_MS), more), FakeConnection(), NOW_MS)
        self.ask: Callable[..., RemotingCommand] = ask_name_server(self.server, encoding, FakeConnection())

    def topic_list(self, code: int, header: tuple[Any, ...] | None = None) -> tuple[str, ...]:
        reply = self.ask(code, header)
        assert reply.code == 0
        return decode_body(TopicList, reply.body, self.encoding).topic_list

    def perms(self, topic: str) -> dict[str, int]:
        route = self.server.route(topic)
        return {data.broker_name: data.perm for data in route.queue_datas} if route else {}


@pytest.fixture
def world(header_encoding: SerializeType) -> World:
    return World(header_encoding)


def test_a_key_is_put_read_and_deleted(world: World) -> None:
    """An unknown key is QUERY_NOT_FOUND with RocketMQ's remark; deleting it is no error."""
    get = GetKvConfigRequestHeader("ns", "k")
    absent = world.ask(R.GET_KV_CONFIG, get)
    assert (absent.code, absent.remark) == (C.QUERY_NOT_FOUND, "No config item, Namespace: ns Key: k")
    assert world.ask(R.PUT_KV_CONFIG, PutKvConfigRequestHeader("ns", "k", "v")).code == 0
    reply = world.ask(R.GET_KV_CONFIG, get)
    assert (reply.code, reply.decode_header(GetKvConfigResponseHeader).value) == (0, "v")
    for _ in range(2):
        assert world.ask(R.DELETE_KV_CONFIG, DeleteKvConfigRequestHeader("ns", "k")).code == 0
    assert world.ask(R.GET_KV_CONFIG, get).code == C.QUERY_NOT_FOUND


def test_a_namespace_is_listed(world: World) -> None:
    """All its keys; a namespace without keys is not found."""
    assert world.ask(R.GET_KVLIST_BY_NAMESPACE, GetKvListRequestHeader("ns")).code == C.QUERY_NOT_FOUND
    for key, value in [("a", "1"), ("b", "2")]:
        world.ask(R.PUT_KV_CONFIG, PutKvConfigRequestHeader("ns", key, value))
    reply = world.ask(R.GET_KVLIST_BY_NAMESPACE, GetKvListRequestHeader("ns"))
    assert decode_body(KvTable, reply.body, world.encoding).table == {"a": "1", "b": "2"}


def test_order_configs_are_told_to_brokers_and_in_routes_only_when_they_are_enabled(world: World) -> None:
    """With orderMessageEnable off, the default, routes never show them; registrations always do."""
    register = RegisterBrokerRequestHeader("broker-a", A.broker_addr, "C1", "", 0)
    assert world.ask(R.REGISTER_BROKER, register).body == b""
    world.ask(R.PUT_KV_CONFIG, PutKvConfigRequestHeader("ORDER_TOPIC_CONFIG", "T", "broker-a:4"))
    reply = world.ask(R.REGISTER_BROKER, register)
    assert decode_body(KvTable, reply.body, world.encoding).table == {"T": "broker-a:4"}

    def order_conf(topic: str) -> str | None:
        route = world.ask(R.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic))
        return decode_body(TopicRouteData, route.body, world.encoding).order_topic_conf

    assert order_conf("T") is None
    assert world.ask(R.UPDATE_NAMESRV_CONFIG, None, b"orderMessageEnable=true").code == 0
    assert (order_conf("T"), order_conf("unit")) == ("broker-a:4", None)


def test_a_name_server_is_given_its_settings_by_the_brokers_program() -> None:
    """Those that concern it."""
    config = BrokerConfig(name_server_port=1234, order_message_enable=True, broker_expired_timeout_ms=99_000)
    assert config.name_server == NameServerConfig("127.0.0.1", 1234, True, 99_000)


def test_settings_are_lines_and_only_live_ones_can_be_changed(world: World) -> None:
    """Other settings and wrong values change nothing; the request succeeds as in RocketMQ."""
    lines = world.ask(R.GET_NAMESRV_CONFIG).body.decode().splitlines()
    assert "listenPort=9876" in lines
    assert "orderMessageEnable=false" in lines
    for body in (b"listenPort=1", b"orderMessageEnable=maybe", b"nonsense", b"\xff=1"):
        assert world.ask(R.UPDATE_NAMESRV_CONFIG, None, body).code == 0
        assert world.ask(R.GET_NAMESRV_CONFIG).body.decode().splitlines() == lines
    assert world.ask(R.UPDATE_NAMESRV_CONFIG, None, b"listenPort=1\norderMessageEnable=true").code == 0
    assert world.server.config.order_message_enable


def test_topics_are_listed_by_cluster_and_by_unit(world: World) -> None:
    """An unknown cluster has none; bits of topicSysFlag mark units."""
    assert world.topic_list(R.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader("C1")) == ("T", "TBW102", "unit")
    assert "sub" in world.topic_list(R.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader("C2"))
    assert world.topic_list(R.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader("nowhere")) == ()
    assert world.topic_list(R.GET_UNIT_TOPIC_LIST) == ("both", "unit")
    assert world.topic_list(R.GET_HAS_UNIT_SUB_TOPIC_LIST) == ("both", "sub")
    assert world.topic_list(R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == ("sub",)


def test_system_topics_of_a_name_server_are_the_names_of_clusters_and_brokers(world: World) -> None:
    """And the address of one broker, where there is any."""
    reply = world.ask(R.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    body = decode_body(SystemTopicList, reply.body, world.encoding)
    assert body == SystemTopicList(("C1", "C2", "broker-a", "broker-b"), A.broker_addr)
    empty = ask_name_server(NameServer(), world.encoding, FakeConnection())(R.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert decode_body(SystemTopicList, empty.body, world.encoding) == SystemTopicList(())


def test_a_topic_is_deleted_everywhere_or_in_one_cluster(world: World) -> None:
    """Until its broker registers a new version; an unknown one is no error."""
    assert world.ask(R.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNameServerRequestHeader("T", "C1")).code == 0
    assert world.perms("T") == {"broker-b": 6}
    for _ in range(2):
        assert world.ask(R.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNameServerRequestHeader("T")).code == 0
    unknown = world.ask(R.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("T"))
    assert unknown.code == C.TOPIC_NOT_EXIST
    assert str(unknown.remark).startswith("No topic route info in name server for the topic: T\n")
    world.server.register(A, TopicConfigs(DataVersion(2, NOW_MS), TOPICS), FakeConnection(), NOW_MS)
    assert world.perms("T") == {"broker-a": 6}


def test_a_broker_loses_and_gets_the_permission_to_be_written_to(world: World) -> None:
    """On every topic it has; afterwards it is exactly 6, also where it was 7. Of an unknown broker there are none."""
    wiped = world.ask(R.WIPE_WRITE_PERM_OF_BROKER, BrokerNameRequestHeader("broker-a"))
    assert wiped.decode_header(GetWritePermResponseHeader) == (3, None)
    assert (world.perms("T"), world.perms("TBW102")) == (
        {"broker-a": 4, "broker-b": 6},
        {"broker-a": 5, "broker-b": 7},
    )
    added = world.ask(R.ADD_WRITE_PERM_OF_BROKER, BrokerNameRequestHeader("broker-a"))
    assert added.decode_header(GetWritePermResponseHeader) == (None, 3)
    assert world.perms("TBW102") == {"broker-a": 6, "broker-b": 7}
    nobody = world.ask(R.WIPE_WRITE_PERM_OF_BROKER, BrokerNameRequestHeader("nobody"))
    assert nobody.decode_header(GetWritePermResponseHeader) == (0, None)
