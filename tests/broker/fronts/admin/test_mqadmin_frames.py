"""Our broker gets the recorded frames of RocketMQ's admin tool: codes and members of the replies must agree."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lockstep.broker.fronts.remoting.answers import Answers
from lockstep.broker.fronts.remoting.dispatch import NAME_SERVER_HANDLERS, dispatch
from lockstep.broker.name_server.name_server import BrokerIdentity, NameServer
from lockstep.protocol.bodies.broker import TopicConfigs
from lockstep.protocol.bodies.fastjson import loads
from lockstep.protocol.codes import RequestCode, SerializeType, request_name
from lockstep.protocol.command import RemotingCommand, decode_command
from lockstep.protocol.frame import FrameDecoder
from lockstep.protocol.headers.messaging import CreateTopicRequestHeader, UpdateConsumerOffsetRequestHeader
from tests.broker.helpers import NOW_MS, FakeConnection, Peer, consumer, heartbeat_of, over_the_wire
from tests.rows import by_row

R = RequestCode
RECORDING = Path(__file__).parents[3] / "vectors" / "mqadmin-4.9.8.jsonl"
GROUPS = ("JG1", "CG1", "NG1", "bench_cg_3866350160640", "bench_cg_3871114763497")
TABLES = ("brokerAddrTable", "clusterAddrTable", "brokerAddrs", "filterServerTable")  # their names are data
NOT_COMPARED = {R.PULL_MESSAGE, R.QUERY_MESSAGE}  # their bodies are messages; other tests have them


class Exchange(NamedTuple):
    port: str
    request: RemotingCommand
    reply: RemotingCommand


def exchanges() -> Iterator[Exchange]:
    """Every request of the recording that has its reply there, in the order of the requests."""
    waiting: dict[tuple[str, int], RemotingCommand] = {}
    for line in RECORDING.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        decoder = FrameDecoder()
        decoder.feed(bytes.fromhex(row["hex"]))
        frame = decoder.next_frame()
        assert frame is not None
        command = decode_command(frame)
        if not command.is_reply:
            waiting[row["link"], command.opaque] = command
        elif (row["link"], command.opaque) in waiting:
            yield Exchange(row["link"].split("#")[0], waiting.pop((row["link"], command.opaque)), command)


def world() -> tuple[Peer, NameServer]:
    """A broker with the topics and groups of the recording, and a name server that knows it."""
    peer = Peer(SerializeType.JSON)
    for topic in ("TopicO", "TopicC", "TopicN", "Bench64"):
        peer.answer(R.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader(topic, "TBW102", 2, 2, 6))
        for queue_id in (0, 1):
            assert peer.send(topic, queue_id=queue_id, properties="KEYS\x01k1").code == 0
    for group in GROUPS:
        peer.answer(R.HEART_BEAT, None, heartbeat_of("a", consumer(group)))
        for topic in ("TopicO", f"%RETRY%{group}"):
            header = UpdateConsumerOffsetRequestHeader(group, topic, 0, 1)
            peer.answer(R.UPDATE_CONSUMER_OFFSET, header)
    header = UpdateConsumerOffsetRequestHeader("JG1", "TopicO", 1, 1)
    peer.answer(R.UPDATE_CONSUMER_OFFSET, header)
    peer.pull(0, consumer_group="JG1", topic="TopicO")
    peer.broker.on_closed(peer.connection)
    server = NameServer()
    identity = BrokerIdentity("DefaultCluster", "broker-a", 0, "127.0.0.1:10911")
    topics = TopicConfigs.of(peer.broker.catalog.topics.data_version, peer.broker.catalog.topics.topics)
    server.register(identity, topics, FakeConnection(), NOW_MS)
    return peer, server


def shape(value: Any, name: str = "") -> Any:
    """What a reader of a body relies on: members and kinds, with names that are data put aside."""
    if isinstance(value, dict):
        names_are_data = name in TABLES or any(key.startswith("{") for key in value) or name == "group"
        if names_are_data:
            return {"*": shape(next(iter(value.values())))} if value else {}
        return {key: shape(member, key) for key, member in value.items()}
    if isinstance(value, list):
        if name == "consumeStatsList":
            return [shape(max((entry for entry in value), key=lambda entry: len(str(entry))), "group")]
        return [shape(value[0])] if value else []
    return type(value).__name__


REPLIES = list(exchanges())


def test_the_recording_has_what_this_is_about() -> None:
    """Of both ports, and a good many request codes."""
    assert len(REPLIES) > 80
    assert len({exchange.request.code for exchange in REPLIES}) >= 18


def ask(peer: Peer, server: NameServer, exchange: Exchange) -> RemotingCommand:
    if exchange.port == "BR":
        reply = Answers(peer.broker).answer(peer.connection, exchange.request)
    else:
        reply = dispatch(NAME_SERVER_HANDLERS, server, peer.connection, exchange.request, NOW_MS)
    assert reply is not None
    return over_the_wire(reply)


@by_row("exchange", REPLIES, ids=[f"{i}-{request_name(exchange.request.code)}" for i, exchange in enumerate(REPLIES)])
def test_a_recorded_request_is_answered_as_rocketmq_did(exchange: Exchange) -> None:
    """The same code, the same extFields, a remark where there was one, the same members in the body."""
    peer, server = world()
    reply = ask(peer, server, exchange)
    recorded = exchange.reply
    assert reply.code == recorded.code
    assert set(reply.ext_fields or {}) == set(recorded.ext_fields or {})
    if recorded.code != 0:
        assert reply.remark == recorded.remark
    if exchange.request.code not in NOT_COMPARED:
        assert bool(reply.body) == bool(recorded.body)
        if recorded.body:
            assert shape(loads(reply.body)) == shape(loads(recorded.body))
