"""A name server with many routes: what takes long is done in steps, between which others are answered."""

import gc
import struct
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from lockstep.broker.fronts.remoting.dispatch import NAME_SERVER_HANDLERS, dispatch
from lockstep.broker.name_server.config import NameServerConfig
from lockstep.broker.name_server.name_server import BrokerIdentity, NameServer, NameServerFull
from lockstep.broker.sliced_work import STEPS_A_TURN
from lockstep.protocol.bodies.broker import DataVersion, TopicConfig, TopicConfigs, TopicList
from lockstep.protocol.bodies.codec import decode_body, encode_body
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import (
    BrokerNameRequestHeader,
    DeleteTopicInNameServerRequestHeader,
    GetTopicsByClusterRequestHeader,
    GetWritePermResponseHeader,
)
from lockstep.protocol.headers.messaging import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from tests.broker.helpers import ENCODINGS, NOW_MS, FakeConnection, over_the_wire
from tests.rows import by_row

R = RequestCode
A = BrokerIdentity("C", "broker-a", 0, "10.0.0.1:10911")
B = BrokerIdentity("C", "broker-b", 0, "10.0.0.2:10911")
MANY = 20_000
OBJECTS_MAX = 200  # of the collector, that a table of many routes may add


class Turns:
    """A name server with a loop that the test turns."""

    def __init__(self, routes_max: int = 200_000) -> None:
        self.server = NameServer(NameServerConfig(routes_max=routes_max))
        self._soon: list[Callable[[], None]] = []
        self.server.work.soon = self._soon.append
        self.connection = FakeConnection()

    def turn(self) -> bool:
        """Returns whether there was something to do."""
        if not self._soon:
            return False
        self._soon.pop(0)()
        return True

    def run(self) -> int:
        """How many turns there were until nothing was left to do."""
        count = 0
        while self.turn():
            count += 1
        return count

    def ask(self, code: int, header: tuple[Any, ...] | None = None, body: bytes = b"", **fields: Any) -> Any:
        """None: it is not answered yet."""
        command = over_the_wire(RemotingCommand(code, header, body, **fields))
        return dispatch(NAME_SERVER_HANDLERS, self.server, self.connection, command, NOW_MS)

    def late(self) -> RemotingCommand:
        """The answer that came later."""
        (reply,) = self.connection.replies
        self.connection.replies.clear()
        return reply


def names(count: int) -> list[str]:
    return [f"topic-{number:06}" for number in range(count)]


def registered(identity: BrokerIdentity = A, count: int = MANY, **settings: int) -> Turns:
    turns = Turns(**settings)
    put(turns, identity, names(count))
    return turns


def put(turns: Turns, identity: BrokerIdentity, topics: list[str], version: int = 1) -> None:
    configs = TopicConfigs(
        DataVersion(version, NOW_MS), tuple(TopicConfig(topic, topic_sys_flag=1) for topic in topics)
    )
    turns.server.register(identity, configs, turns.connection, NOW_MS)


LISTS = {
    R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: None,
    R.GET_TOPICS_BY_CLUSTER: GetTopicsByClusterRequestHeader("C"),
    R.GET_UNIT_TOPIC_LIST: None,
}


@by_row("encoding", ENCODINGS)
@by_row("code", LISTS)
def test_a_list_of_many_topics_takes_many_turns(code: RequestCode, encoding: int) -> None:
    """The answer is that of one go. A client can read a route between two steps."""
    turns = registered()
    assert turns.ask(code, LISTS[code], serialize_type=encoding) is None
    turns.turn()
    assert turns.ask(R.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader("topic-000007")).code == ResponseCode.SUCCESS
    assert turns.run() >= 3
    reply = turns.late()
    assert reply.body == encode_body(TopicList(tuple(names(MANY))), encoding)


@pytest.mark.parametrize("code", [R.GET_HAS_UNIT_SUB_TOPIC_LIST, R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST])
def test_to_find_that_no_topic_is_wanted_takes_many_turns_too(code: RequestCode) -> None:
    """Each of the topics is looked at."""
    turns = registered()
    assert turns.ask(code) is None
    assert turns.run() >= 3
    assert decode_body(TopicList, turns.late().body, 0).topic_list == ()


def test_a_few_topics_are_listed_at_once() -> None:
    """So clients of a usual cluster may ask for as many lists at the same time as they like."""
    turns = registered(count=1000)
    for _ in range(50):
        assert len(decode_body(TopicList, turns.ask(R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body, 0).topic_list) == 1000


@pytest.mark.parametrize(("code", "perm"), [(R.WIPE_WRITE_PERM_OF_BROKER, 4), (R.ADD_WRITE_PERM_OF_BROKER, 6)])
def test_permissions_of_many_routes_are_changed_in_many_turns(code: RequestCode, perm: int) -> None:
    """The answer, with the number of topics, comes when all are changed. A topic that goes meanwhile stays away."""
    turns = registered()
    assert turns.ask(code, BrokerNameRequestHeader("broker-a")) is None
    turns.turn()
    gone = names(MANY)[-1]
    turns.ask(R.DELETE_TOPIC_IN_NAMESRV, DeleteTopicInNameServerRequestHeader(gone))
    assert turns.run() >= 2
    header = turns.late().decode_header(GetWritePermResponseHeader)
    assert MANY in header
    routes = [turns.server.route(topic) for topic in names(MANY)]
    assert routes.pop() is None
    assert {route.queue_datas[0].perm for route in routes if route is not None} == {perm}


def test_many_routes_of_a_broker_that_went_are_dropped_in_many_turns() -> None:
    """No client sees one of them any more, from the first moment."""
    turns = registered()
    put(turns, B, ["topic-000003", "other"])
    assert turns.server.on_closed(turns.connection) == [A, B]
    assert turns.server.topics() == ()
    assert turns.server.route("topic-000003") is None
    put(turns, B, ["other"], 2)
    assert turns.server.topics() == ("other",)
    assert turns.run() >= MANY // 1024 // STEPS_A_TURN
    assert turns.server.topics() == ("other",)
    assert list(turns.server._topics) == ["other"]  # nothing is left behind


def test_a_broker_that_comes_back_while_its_routes_are_dropped_keeps_what_it_registers() -> None:
    """And what it does not register again is gone; also if it goes and comes twice."""
    turns = registered()
    for version in (2, 3):
        turns.server.on_closed(turns.connection)
        turns.turn()
        put(turns, A, names(MANY)[:: 2 * version], version)
    turns.server.delete_topic("topic-000000", None)
    turns.run()
    assert turns.server.topics() == tuple(names(MANY)[::6][1:])
    assert sorted(turns.server._topics) == names(MANY)[::6][1:]
    turns.server.unregister(A, turns.connection)
    turns.run()
    put(turns, A, names(MANY), 4)  # the count of routes is right: all have room again
    assert len(turns.server.topics()) == MANY


def test_routes_that_are_dropped_count_when_there_are_too_many() -> None:
    """A peer that registers and goes again and again fills at most twice the room."""
    turns = registered(routes_max=MANY)
    turns.server.on_closed(turns.connection)
    put(turns, A, names(MANY), 2)
    turns.server.on_closed(turns.connection)
    with pytest.raises(NameServerFull, match="routes_max"):
        put(turns, A, names(MANY), 3)
    turns.run()
    put(turns, A, names(MANY), 3)


def compressed(topics: list[str]) -> bytes:
    def part(text: bytes) -> bytes:
        return struct.pack(">i", len(text)) + text

    parts = [part(b'{"counter":1,"timestamp":1}'), struct.pack(">i", len(topics))]
    return zlib.compress(b"".join(parts + [part(f"{topic} 4 4 6 0".encode()) for topic in topics] + [part(b"")]))


def test_the_collector_visits_no_object_for_each_route() -> None:
    """A full run of the garbage collector cannot be cut into steps: with 200,000 routes it took 70 ms."""
    turns = Turns()
    header = RegisterBrokerRequestHeader(A.broker_name, A.broker_addr, "C", "", 0, compressed=True)
    body = compressed(names(MANY))
    gc.collect()
    before = len(gc.get_objects())
    assert turns.ask(R.REGISTER_BROKER, header, body) is None
    while len(turns.server.topics()) < MANY // 2:
        turns.turn()
    gc.collect()
    assert len(gc.get_objects()) - before < OBJECTS_MAX
    turns.run()
    assert turns.late().code == ResponseCode.SUCCESS
    gc.collect()
    assert len(gc.get_objects()) - before < OBJECTS_MAX
    assert turns.server.topics() == tuple(names(MANY))
