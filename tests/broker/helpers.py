"""A broker without sockets: connections that record, a log that records, and calls that go through the real codecs."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.pull import wake_held_pulls
from lockstep.broker.fronts.remoting.answers import Answers
from lockstep.broker.fronts.remoting.dispatch import NAME_SERVER_HANDLERS, dispatch
from lockstep.broker.fronts.remoting.notices import RemotingNotices
from lockstep.broker.name_server.name_server import NameServer
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.codec import WireBody, encode_body
from lockstep.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from lockstep.protocol.codes import RequestCode, SerializeType
from lockstep.protocol.command import RemotingCommand, decode_command, encode_command
from lockstep.protocol.frame import FrameDecoder
from lockstep.protocol.headers.messaging import PullMessageRequestHeader, SendMessageRequestHeaderV2
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RemotingError
from tests.remoting import helpers as remoting

__all__ = [
    "ENCODINGS",
    "NOW_MS",
    "FakeConnection",
    "Peer",
    "RecordingLog",
    "ask_name_server",
    "consumer",
    "heartbeat_of",
    "over_the_wire",
    "pull_header",
    "queues_of",
    "send_header",
]

NOW_MS = 1_700_000_000_000
ENCODINGS = (SerializeType.JSON, SerializeType.MSGPACK, SerializeType.ROCKETMQ)


Then = Callable[[RemotingCommand | RemotingError], None]


class RecordingLog(remoting.RecordingLog):
    """It can be asked for the names of its events."""

    def names(self, level: str | None = None) -> list[str]:
        return [event for at, event, _ in self.events if level in (None, at)]


class FakeConnection:
    """Keeps what is written to it."""

    def __init__(self, address: str = "127.0.0.1:50000", serialize_type: int = SerializeType.JSON) -> None:
        self.address = address
        self.read_at_ms = NOW_MS
        self.serialize_type: int = serialize_type
        self.is_open = True
        self.write_paused = False
        self.ended_by_peer = True
        self.replies: list[RemotingCommand] = []
        self.pushed: list[RemotingCommand] = []
        self.asked: list[tuple[RemotingCommand, int, Then]] = []
        self.aborted = ""
        self.on_reply: Callable[[], None] | None = None
        self._waiting: list[Callable[[], None]] = []

    def reply(self, reply: RemotingCommand) -> None:
        self.replies.append(over_the_wire(reply))
        if self.on_reply is not None:
            self.on_reply()

    def when_writable(self, then: "Callable[[], None]") -> None:
        self._waiting.append(then)

    def drain(self) -> None:
        """The peer has read all."""
        self.write_paused = False
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()

    def send_one_way(self, command: RemotingCommand) -> None:
        self.pushed.append(command)

    def request_then(self, command: RemotingCommand, timeout_ms: int, then: "Then") -> None:
        """The test calls `then`."""
        self.asked.append((command, timeout_ms, then))

    def abort(self, reason: str) -> None:
        self.is_open = False
        self.aborted = reason


def over_the_wire(command: RemotingCommand) -> RemotingCommand:
    """What the other side reads: encoded and decoded again."""
    decoder = FrameDecoder()
    decoder.feed(encode_command(command) + command.body)
    frame = decoder.next_frame()
    assert frame is not None
    return decode_command(frame)


class Peer:
    """A broker, and one client's connection to it under one encoding. `call` is one request and its reply."""

    def __init__(
        self,
        encoding: SerializeType = SerializeType.JSON,
        *,
        broker: Broker | None = None,
        connection: FakeConnection | None = None,
        **settings: Any,
    ) -> None:
        self.encoding = encoding
        self.topic_changes = 0
        self.log = RecordingLog()
        config = replace(BrokerConfig(), **settings)
        self.broker = broker or Broker(config, random.Random(7), self.log, NOW_MS)
        self.broker.front = RemotingNotices()
        self._answers = Answers(self.broker)
        self.broker.catalog.on_topics_changed = self._on_topics_changed
        self.connection = connection or FakeConnection()
        self.now_ms = NOW_MS

    def _on_topics_changed(self, topics: Sequence[TopicConfig]) -> None:
        self.topic_changes += 1

    def beside(self, address: str = "127.0.0.1:50001") -> "Peer":
        """Another client of the same broker."""
        peer = Peer(self.encoding, broker=self.broker, connection=FakeConnection(address))
        peer.log = self.log
        return peer

    def call(
        self,
        code: int,
        header: tuple[Any, ...] | None = None,
        body: bytes | WireBody = b"",
        **command_fields: Any,
    ) -> RemotingCommand | None:
        """None: the broker has not answered yet."""
        if not isinstance(body, bytes):
            body = encode_body(body, self.encoding)
        command = RemotingCommand(code, header, body, serialize_type=self.encoding, **command_fields)
        self.connection.read_at_ms = self.now_ms
        reply = self._answers.answer(self.connection, over_the_wire(command))
        wake_held_pulls(self.broker, self.now_ms)
        return over_the_wire(reply) if reply is not None else None

    def answer(
        self, code: int, header: tuple[Any, ...] | None = None, body: bytes | WireBody = b"", **command_fields: Any
    ) -> RemotingCommand:
        reply = self.call(code, header, body, **command_fields)
        assert reply is not None, "no answer"
        return reply

    def make_topics(self, *topics: str, queue_nums: int = 4) -> None:
        for topic in topics:
            self.broker.catalog.topics.put(TopicConfig(topic, queue_nums, queue_nums), self.now_ms)

    def send(self, topic: str = "T", body: bytes = b"x", **fields: Any) -> RemotingCommand:
        return self.answer(RequestCode.SEND_MESSAGE_V2, send_header(topic, **fields), body)

    def send_many(self, count: int, topic: str = "T", **fields: Any) -> None:
        for i in range(count):
            assert self.send(topic, b"%d" % i, **fields).code == 0

    def pull(self, offset: int, **fields: Any) -> RemotingCommand | None:
        return self.call(RequestCode.PULL_MESSAGE, pull_header(offset, **fields))

    def heartbeat(self, client_id: str = "c1", *consumers: ConsumerData) -> RemotingCommand:
        return self.answer(RequestCode.HEART_BEAT, None, heartbeat_of(client_id, *consumers))


def ask_name_server(server: NameServer, encoding: SerializeType, connection: FakeConnection) -> Callable[..., Any]:
    """A function (code, header, body, now_ms) -> reply, through the codecs."""

    def ask(
        code: int, header: tuple[Any, ...] | None = None, body: bytes | WireBody = b"", now_ms: int = NOW_MS
    ) -> RemotingCommand:
        data = body if isinstance(body, bytes) else encode_body(body, encoding)
        command = over_the_wire(RemotingCommand(code, header, data, serialize_type=encoding))
        reply = dispatch(NAME_SERVER_HANDLERS, server, connection, command, now_ms)
        assert reply is not None
        return over_the_wire(reply)

    return ask


def send_header(topic: str = "T", **fields: Any) -> SendMessageRequestHeaderV2:
    header = SendMessageRequestHeaderV2("PG", topic, "TBW102", 4, 0, 0, NOW_MS - 5, 0)
    return header._replace(**fields)


def pull_header(offset: int, **fields: Any) -> PullMessageRequestHeader:
    """With the subscription in the request, so that no heartbeat is needed; without leave to wait."""
    header = PullMessageRequestHeader("G", "T", 0, offset, 32, 4, 0, 15_000, 0, "*")
    return header._replace(**fields)


def consumer(group: str, *subscriptions: SubscriptionData) -> ConsumerData:
    return ConsumerData(
        group,
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscriptions,
    )


def heartbeat_of(client_id: str, *consumers: ConsumerData, producers: tuple[str, ...] = ()) -> HeartbeatData:
    return HeartbeatData(client_id, tuple(ProducerData(group) for group in producers), consumers)


def queues_of(topic: str, count: int, broker_name: str = "broker-a") -> tuple[MessageQueue, ...]:
    return tuple(MessageQueue(topic, broker_name, queue_id) for queue_id in range(count))
