"""Requests of administrators to a name server (wire.md 2.7).

Topics: codes 205, 216, 224, 304, 311 to 313, 327; key-value configs: 100, 101, 102, 219; settings: 318, 319.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.fronts.remoting.admin.settings import encode_settings, updated_settings
from lockstep.broker.fronts.remoting.in_steps import AnswerSteps, answer_in_steps
from lockstep.broker.fronts.remoting.name_server.route import list_topics
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.broker.name_server.name_server import NameServer, NameServerFull
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.name_server import KvTable, SystemTopicList
from lockstep.protocol.codes import ResponseCode
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
from lockstep.remoting.settings import as_properties

__all__ = [
    "add_write_perm",
    "delete_kv",
    "delete_topic",
    "get_config",
    "get_kv",
    "list_kv",
    "put_kv",
    "system_topics",
    "topics_by_cluster",
    "unit_subscribed_topics",
    "unit_subscribed_ununit_topics",
    "unit_topics",
    "update_config",
    "wipe_write_perm",
]

_UNIT: Final = 1  # bits of topicSysFlag, for RocketMQ deployments that are split into units
_UNIT_SUB: Final = 2

# Topics ----------------------------------------------------------------------------------------------------------


def wipe_write_perm(
    server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    (broker_name,) = command.decode_header(BrokerNameRequestHeader)

    def steps() -> AnswerSteps:
        count = yield from server.wipe_write_perm(broker_name)
        return command.reply(ResponseCode.SUCCESS, GetWritePermResponseHeader(wipe_topic_count=count))

    return answer_in_steps(server, connection, command, steps())


def add_write_perm(
    server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    (broker_name,) = command.decode_header(BrokerNameRequestHeader)

    def steps() -> AnswerSteps:
        count = yield from server.add_write_perm(broker_name)
        return command.reply(ResponseCode.SUCCESS, GetWritePermResponseHeader(add_topic_count=count))

    return answer_in_steps(server, connection, command, steps())


def delete_topic(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    server.delete_topic(*command.decode_header(DeleteTopicInNameServerRequestHeader))
    return command.reply(ResponseCode.SUCCESS)


def topics_by_cluster(
    server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    (cluster,) = command.decode_header(GetTopicsByClusterRequestHeader)
    return list_topics(server, connection, command, partial(server.has_topic, server.brokers_of_cluster(cluster)))


def system_topics(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    body = SystemTopicList(*server.system_topics())
    return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))


def unit_topics(
    server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    return _topics_where(server, connection, command, lambda flag: bool(flag & _UNIT))


def unit_subscribed_topics(
    server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    return _topics_where(server, connection, command, lambda flag: bool(flag & _UNIT_SUB))


def unit_subscribed_ununit_topics(
    server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    return _topics_where(server, connection, command, lambda flag: flag & (_UNIT | _UNIT_SUB) == _UNIT_SUB)


def _topics_where(
    server: NameServer, connection: Connection, command: RemotingCommand, wanted: Callable[[int], bool]
) -> RemotingCommand | None:
    return list_topics(server, connection, command, lambda topic: wanted(server.sys_flag(topic)))


# Key-value configs and settings -----------------------------------------------------------------------------------


def put_kv(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    try:
        server.put_kv(*command.decode_header(PutKvConfigRequestHeader), connection, now_ms)
    except NameServerFull as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
    return command.reply(ResponseCode.SUCCESS)


def get_kv(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    namespace, key = command.decode_header(GetKvConfigRequestHeader)
    value = server.kv_configs.get(namespace, key)
    if value is None:
        raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}")
    return command.reply(ResponseCode.SUCCESS, GetKvConfigResponseHeader(value))


def delete_kv(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    server.kv_configs.delete(*command.decode_header(DeleteKvConfigRequestHeader))
    return command.reply(ResponseCode.SUCCESS)


def list_kv(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    (namespace,) = command.decode_header(GetKvListRequestHeader)
    table = server.kv_configs.namespace(namespace)
    if table is None:
        raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
    return command.reply(ResponseCode.SUCCESS, body=encode_body(KvTable(dict(table)), command.serialize_type))


def get_config(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    return command.reply(ResponseCode.SUCCESS, body=encode_settings(as_properties(server.config)))


def update_config(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Change settings that may change at run time. The others are ignored."""
    server.config, _ = updated_settings(server.config, command.body)
    return command.reply(ResponseCode.SUCCESS)
