"""Heartbeats and membership: codes 34, 35, 38, 46 and our LIST_CONSUMER_GROUPS (wire.md 9)."""

from functools import lru_cache
from typing import Final, NamedTuple

from lockstep.broker.catalog.members import ClientChannel
from lockstep.broker.connection import Connection
from lockstep.broker.core import register as core
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.wanted import check_filters_by
from lockstep.broker.fronts.remoting.in_steps import AnswerSteps, answer_in_steps, reply_in_steps
from lockstep.broker.fronts.remoting.owners import list_owners
from lockstep.broker.messages.filters import compiled
from lockstep.broker.request_body import CLIENT_ID_LENGTH_MAX, DIALECT_BYTES_MAX, check_name_length, read_body
from lockstep.broker.sliced_work import Steps
from lockstep.protocol.bodies.broker import ConsumerIdList
from lockstep.protocol.bodies.codec import decode_body, encode_body
from lockstep.protocol.bodies.heartbeat import ClientConfigBody, HeartbeatData, UnreadHeartbeat
from lockstep.protocol.bodies.rows import BodySteps, encode_table
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.filter import FilterError, is_tag_type
from lockstep.protocol.headers.messaging import ListOwnersRequestHeader, UnregisterClientRequestHeader

__all__ = ["check_client_config", "heartbeat", "list_consumer_groups", "list_consumers", "unregister_client"]

# So many heartbeats are remembered, each of at most so many bytes, which are some ten groups: 4 MB in all.
_REMEMBERED_MAX: Final = 512
_BYTES_MAX: Final = 2048
_LISTS_MAX: Final = 16  # lists of members


def heartbeat(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand | None:
    """Answer and notices leave together: a Java client that is notified before the answer pulls from the next broker
    before that broker has its heartbeat.
    """
    if len(command.body) <= _BYTES_MAX:
        unread, data = _read_short(command.body, command.serialize_type)
    else:
        unread, data = read_body(UnreadHeartbeat, command), None
    core.check_size(broker, connection, unread.group_count, unread.subscription_count, now_ms)
    if data is None:
        # A long one only now: to read one with too many groups costs time and memory.
        data = unread.read()
    _check_names(data)
    groups = [consumer.group_name for consumer in data.consumer_data_set]
    is_known = data.fingerprint != 0 and broker.members.consumers.has_fingerprint(data.fingerprint, connection, groups)
    is_light = data.fingerprint != 0 and data.without_subscriptions
    channel = ClientChannel(
        data.client_id,
        command.language,
        command.version,
        now_ms,
        # A light one says nothing that this connection has not said: it shall send all again.
        fingerprint=data.fingerprint if is_known or not is_light else 0,
        is_light=is_light,
    )
    producers = [producer.group_name for producer in data.producer_data_set]
    steps = core.register(broker, connection, channel, data.consumer_data_set, producers)
    # Clients of RocketMQ 4 get no fields, unless the broker answers as RocketMQ 5.
    fields = None
    if data.fingerprint or broker.config.rocketmq == "5":
        fields = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false" if is_known else "true"}
    return answer_in_steps(broker, connection, command, _success_after(steps, command, fields))


@lru_cache(_REMEMBERED_MAX)
def _read_short(body: bytes, serialize_type: int) -> tuple[UnreadHeartbeat, HeartbeatData]:
    """A client sends the same body every 30 s. Raises BodyError."""
    unread = decode_body(UnreadHeartbeat, body, serialize_type, dialect_bytes_max=DIALECT_BYTES_MAX)
    return unread, unread.read()


def _success_after(steps: Steps, command: RemotingCommand, fields: dict[str, str] | None = None) -> AnswerSteps:
    yield from steps
    reply = command.reply(ResponseCode.SUCCESS)
    reply.ext_fields = fields
    return reply


def _check_names(data: HeartbeatData) -> None:
    """Raises BodyError for names longer than RocketMQ's clients allow: tables keep them."""
    check_name_length("clientID", data.client_id, CLIENT_ID_LENGTH_MAX)
    for producer in data.producer_data_set:
        check_name_length("groupName", producer.group_name)


def unregister_client(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    client_id, producer_group, consumer_group = command.decode_header(UnregisterClientRequestHeader)
    steps = core.unregister(broker, connection, client_id, consumer_group, producer_group, now_ms)
    return answer_in_steps(broker, connection, command, _success_after(steps, command))


def list_consumers(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """A group without members is an error, as in RocketMQ: its clients then keep their queues."""
    header = command.decode_header(ListOwnersRequestHeader)
    client_ids = broker.members.consumers.client_ids(header.consumer_group)
    if not client_ids:
        remark = f"no consumer of group {header.consumer_group!r} is online here"
        return command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
    if header.owners:  # a client of ours, which agreed
        owners = broker.ownership.owners(header.consumer_group)
        if owners is not None:
            return list_owners(broker, connection, command, header.consumer_group, client_ids, owners)
    reply = command.reply(ResponseCode.SUCCESS, body=_encoded(client_ids, command.serialize_type))
    reply.ext_fields = {}
    return reply


@lru_cache(_LISTS_MAX)
def _encoded(client_ids: tuple[str, ...], serialize_type: int) -> bytes:
    """After a change all members ask."""
    return encode_body(ConsumerIdList(client_ids), serialize_type)


def list_consumer_groups(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Groups with members or offsets, each with its topics."""

    def body() -> BodySteps:
        groups = dict.fromkeys((*broker.catalog.offsets.groups(), *broker.members.consumers.groups))
        rows = ((group, _Topics(broker, group)) for group in groups)
        return encode_table({}, "groups", rows, command.serialize_type)

    return reply_in_steps(broker, connection, command, body)


class _Topics(NamedTuple):
    """A row of a ConsumerGroupList, read when the row is encoded."""

    broker: Broker
    group: str

    def to_wire(self) -> list[str]:
        members = self.broker.members.consumers.groups.get(self.group)
        return sorted({*self.broker.catalog.offsets.topics_of(self.group), *(members.subscriptions if members else ())})


def check_client_config(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    """Check a filter. Tags are always allowed; SQL92 is off in RocketMQ's defaults."""
    subscription = read_body(ClientConfigBody, command).subscription
    if subscription is not None and not is_tag_type(subscription.expression_type):
        check_filters_by(broker.config, subscription.expression_type)
        try:
            compiled(subscription.expression_type, subscription.sub_string)
        except FilterError as error:
            return command.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark=str(error))
    return command.reply(ResponseCode.SUCCESS)
