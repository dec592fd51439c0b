"""What administrators ask of a name server about topics: codes 205, 216, 224, 304, 311 to 313, 327 (wire.md 2.7)."""

from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.name_server.name_server import NameServer
from lockstep.protocol.bodies.broker import TopicList
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.name_server import SystemTopicList
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import (
    BrokerNameRequestHeader,
    DeleteTopicInNameServerRequestHeader,
    GetTopicsByClusterRequestHeader,
    GetWritePermResponseHeader,
)

__all__ = [
    "add_write_perm",
    "delete_topic",
    "system_topics",
    "topics_by_cluster",
    "unit_subscribed_topics",
    "unit_subscribed_ununit_topics",
    "unit_topics",
    "wipe_write_perm",
]

_UNIT: Final = 1  # bits of topicSysFlag, of deployments that RocketMQ splits into units
_UNIT_SUB: Final = 2


def wipe_write_perm(
    server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    (broker_name,) = command.decode_header(BrokerNameRequestHeader)
    count = server.wipe_write_perm(broker_name)
    return command.reply(ResponseCode.SUCCESS, GetWritePermResponseHeader(wipe_topic_count=count))


def add_write_perm(
    server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    (broker_name,) = command.decode_header(BrokerNameRequestHeader)
    count = server.add_write_perm(broker_name)
    return command.reply(ResponseCode.SUCCESS, GetWritePermResponseHeader(add_topic_count=count))


def delete_topic(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    server.delete_topic(*command.decode_header(DeleteTopicInNameServerRequestHeader))
    return command.reply(ResponseCode.SUCCESS)


def topics_by_cluster(
    server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    (cluster,) = command.decode_header(GetTopicsByClusterRequestHeader)
    return _topic_list(command, server.topics_of_cluster(cluster))


def system_topics(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    body = SystemTopicList(*server.system_topics())
    return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))


def unit_topics(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    return _topic_list(command, server.topics_where(lambda flag: bool(flag & _UNIT)))


def unit_subscribed_topics(
    server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    return _topic_list(command, server.topics_where(lambda flag: bool(flag & _UNIT_SUB)))


def unit_subscribed_ununit_topics(
    server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    return _topic_list(command, server.topics_where(lambda flag: flag & (_UNIT | _UNIT_SUB) == _UNIT_SUB))


def _topic_list(command: RemotingCommand, topics: tuple[str, ...]) -> RemotingCommand:
    return command.reply(ResponseCode.SUCCESS, body=encode_body(TopicList(topics), command.serialize_type))
