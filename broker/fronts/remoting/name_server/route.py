"""Registrations and routes at the name server: codes 103, 104, 105, 106, 206, 322 (wire.md 2.7)."""

import zlib
from collections.abc import Callable
from functools import partial
from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.fronts.remoting.in_steps import AnswerSteps, answer_in_steps, reply_in_steps
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.broker.name_server.kv_config import ORDER_TOPIC_CONFIG
from lockstep.broker.name_server.name_server import BrokerIdentity, NameServer, NameServerFull
from lockstep.broker.name_server.registration_body import decode_compressed_registration
from lockstep.broker.request_body import read_body
from lockstep.protocol.bodies.broker import DataVersion, TopicConfigs, TopicList, TopicRouteData
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.name_server import KvTable, RegisterBrokerBody
from lockstep.protocol.bodies.rows import NAMES_A_STEP, BodySteps, encode_list
from lockstep.protocol.codes import MASTER_ID, PROTOCOL_VERSION, TOPIC_LENGTH_MAX, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import (
    GetRouteInfoRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
)

__all__ = [
    "all_topics",
    "cluster_info",
    "get_route",
    "list_topics",
    "query_data_version",
    "register_broker",
    "route_reply",
    "unregister_broker",
]

_TOPICS_AT_ONCE_MAX: Final = 1000

# RocketMQ's remark: some clients match it, and people search for it.
_NO_ROUTE: Final = (
    "No topic route info in name server for the topic: {}\n"
    "See http://rocketmq.apache.org/docs/faq/ for further details."
)


def register_broker(
    server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    header = command.decode_header(RegisterBrokerRequestHeader)
    if header.body_crc32 and header.body_crc32 != zlib.crc32(command.body) & 0x7FFFFFFF:
        return command.reply(
            ResponseCode.SYSTEM_ERROR, remark="the crc32 of the body differs from the one in the header"
        )
    return answer_in_steps(server, connection, command, _register(server, connection, command, header, now_ms))


def _register(
    server: NameServer,
    connection: Connection,
    command: RemotingCommand,
    header: RegisterBrokerRequestHeader,
    now_ms: int,
) -> AnswerSteps:
    if header.compressed:
        configs = yield from decode_compressed_registration(command.body)
    elif command.body:
        configs = yield from read_body(RegisterBrokerBody, command).read_in_steps()
    else:
        configs = TopicConfigs(DataVersion(0, 0), ())
    identity = BrokerIdentity(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr)
    owner = server.taken_by(identity)
    if owner is not None:
        remark = (
            f"broker name {identity.broker_name!r} with id {identity.broker_id} is taken by {owner}; choose another"
        )
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    if not connection.is_open:
        # A registration without a connection would never be removed.
        raise Refusal(ResponseCode.SYSTEM_ERROR, "the connection is closed")
    try:
        master_addr = yield from server.register_in_steps(identity, configs, connection, now_ms)
    except NameServerFull as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
    reply_header = RegisterBrokerResponseHeader(None, None if header.broker_id == MASTER_ID else master_addr)
    order_confs = server.kv_configs.namespace(ORDER_TOPIC_CONFIG)
    body = encode_body(KvTable(dict(order_confs)), command.serialize_type) if order_confs is not None else b""
    return command.reply(ResponseCode.SUCCESS, reply_header, body)


def _identity(command: RemotingCommand) -> BrokerIdentity:
    header = command.decode_header(UnregisterBrokerRequestHeader)
    return BrokerIdentity(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr)


def unregister_broker(
    server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    server.unregister(_identity(command), connection)
    return command.reply(ResponseCode.SUCCESS)


def query_data_version(
    server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    identity = _identity(command)
    asked = read_body(DataVersion, command)
    known = server.touch(identity, now_ms)
    body = encode_body(known, command.serialize_type) if known is not None else b""
    return command.reply(ResponseCode.SUCCESS, QueryDataVersionResponseHeader(known != asked), body)


def get_route(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    return route_reply(command, partial(server.route_for, connection))


def route_reply(command: RemotingCommand, route_of: Callable[[str], TopicRouteData | None]) -> RemotingCommand:
    """The route of a topic, in strict JSON for clients of every version (wire.md 1.5)."""
    topic = command.decode_header(GetRouteInfoRequestHeader).topic
    route = route_of(topic)
    if route is None:
        remark = _NO_ROUTE.format(topic[:TOPIC_LENGTH_MAX])
        return command.reply(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
    if command.version > PROTOCOL_VERSION:
        # Some clients of RocketMQ 5 require this member.
        brokers = tuple(data._replace(enable_acting_master=False) for data in route.broker_datas)
        route = route._replace(broker_datas=brokers)
    return command.reply(ResponseCode.SUCCESS, body=encode_body(route, command.serialize_type))


def cluster_info(server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    return command.reply(ResponseCode.SUCCESS, body=encode_body(server.cluster_info(), command.serialize_type))


def all_topics(
    server: NameServer, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    return list_topics(server, connection, command, server.is_routed)


def list_topics(
    server: NameServer, connection: Connection, command: RemotingCommand, wanted: Callable[[str], bool]
) -> RemotingCommand | None:
    """Answer with the topics that are accepted by `wanted`: there may be 200,000, so many are listed in steps."""
    if server.topics_count <= _TOPICS_AT_ONCE_MAX:
        found = TopicList(tuple(filter(wanted, server.topics())))
        return command.reply(ResponseCode.SUCCESS, body=encode_body(found, command.serialize_type))

    def steps() -> BodySteps:
        topics = yield from server.topics_in_steps(wanted)
        return (yield from encode_list({}, "topicList", topics, command.serialize_type, NAMES_A_STEP))

    return reply_in_steps(server, connection, command, steps)
