"""Groups and their members: codes 200, 201, 203, 204, 207, 328, 352 (wire.md 2.4)."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from lockstep.broker.catalog.members import ClientChannel
from lockstep.broker.connection import Connection
from lockstep.broker.core import groups as core
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.after import After, What
from lockstep.broker.fronts.remoting.in_steps import reply_in_steps
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.broker.peer import Peer
from lockstep.broker.request_body import read_body
from lockstep.protocol.bodies import client as client_bodies
from lockstep.protocol.bodies.client import ConsumerConnection, ProducerConnection, ProducerInfo
from lockstep.protocol.bodies.codec import encode_body, encode_part
from lockstep.protocol.bodies.config import SubscriptionGroupWrapper
from lockstep.protocol.bodies.rows import BodySteps, encode_table
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import LanguageCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import (
    ConsumerGroupRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    ProducerGroupRequestHeader,
)

__all__ = [
    "consumer_connections",
    "delete_group",
    "group_config",
    "group_configs",
    "producer_connections",
    "producers",
    "put_group",
]

_LANGUAGES: Final = {int(language): language for language in LanguageCode}


# Configurations ---------------------------------------------------------------------------------------------------


def put_group(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> After:
    core.put_group(broker, connection, read_body(SubscriptionGroupConfig, command), now_ms)
    return After(command.reply(ResponseCode.SUCCESS), What.GROUPS)


def group_configs(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    def body() -> BodySteps:
        configs = SubscriptionGroupWrapper(broker.catalog.groups.data_version, tuple(broker.catalog.groups.groups))
        return configs.encode_in_steps(command.serialize_type)

    return reply_in_steps(broker, connection, command, body)


def group_config(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """The configuration of one group; the admin tools of RocketMQ 5 request it."""
    (group,) = command.decode_header(GetSubscriptionGroupConfigRequestHeader)
    config = broker.catalog.groups.get(group)
    if config is None:
        raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"the subscription group[{group}] not exist")
    return command.reply(ResponseCode.SUCCESS, body=encode_part(config.to_wire_of_5(), command.serialize_type))


def delete_group(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> After:
    header = command.decode_header(DeleteSubscriptionGroupRequestHeader)
    core.delete_group(broker, connection, header.group_name, header.remove_offset, now_ms)
    return After(command.reply(ResponseCode.SUCCESS), What.GROUPS)


# Connections ------------------------------------------------------------------------------------------------------


def consumer_connections(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    (group,) = command.decode_header(ConsumerGroupRequestHeader)
    members = broker.members.consumers.groups.get(group)
    if members is None:
        raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
    shown = [_shown(peer, channel) for peer, channel in members.channels.items()]
    if command.serialize_type == SerializeType.MSGPACK:  # RocketMQ's tools know no more
        shown = [
            one._replace(
                joined_ago_ms=now_ms - of.first_update_ms,
                heard_ago_ms=now_ms - of.last_update_ms,
                client_type=of.client_type or None,
            )
            for one, of in zip(shown, members.channels.values(), strict=True)
        ]
    body = ConsumerConnection(
        tuple(shown),
        dict(members.subscriptions),
        members.consume_type,
        members.message_model,
        members.consume_from_where,
    )
    return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))


def producer_connections(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    (group,) = command.decode_header(ProducerGroupRequestHeader)
    channels = broker.members.producers.groups.get(group)
    if channels is None:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
    body = ProducerConnection(tuple(_shown(peer, channel) for peer, channel in channels.items()))
    return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))


def producers(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand | None:
    """All producers of all groups."""

    def body() -> BodySteps:
        rows = ((group, _Producers(channels)) for group, channels in tuple(broker.members.producers.groups.items()))
        return encode_table({}, "data", rows, command.serialize_type)

    return reply_in_steps(broker, connection, command, body)


class _Producers(NamedTuple):
    """A row of a ProducerTable, read when the row is encoded."""

    channels: Mapping[Peer, ClientChannel]

    def to_wire(self) -> list[dict[str, Any]]:
        return [
            ProducerInfo(
                channel.client_id, f"/{peer.address}", _language(channel), channel.version, channel.last_update_ms
            ).to_wire()
            for peer, channel in self.channels.items()
        ]


def _shown(peer: Peer, channel: ClientChannel) -> client_bodies.Connection:
    return client_bodies.Connection(channel.client_id, peer.address, _language(channel), channel.version)


def _language(channel: ClientChannel) -> LanguageCode:
    return _LANGUAGES.get(channel.language, LanguageCode.OTHER)
