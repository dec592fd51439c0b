"""Who is there: codes 34, 35, 38, 46 and our LIST_CONSUMER_GROUPS (wire.md 9)."""

from lockstep.broker.connection import Connection
from lockstep.broker.consumer_filters import compiled
from lockstep.broker.consumer_manager import ClientChannel
from lockstep.broker.core import Broker
from lockstep.broker.processors.refusal import check_filters_by
from lockstep.protocol.bodies import ConsumerGroupList, ConsumerIdList
from lockstep.protocol.body_codec import decode_body, encode_body
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.filter import FilterError, is_tag_type
from lockstep.protocol.headers import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from lockstep.protocol.heartbeat import ClientConfigBody, ConsumerData, HeartbeatData
from lockstep.protocol.names import check_group

__all__ = ["check_client_config", "heartbeat", "list_consumer_groups", "list_consumers", "unregister_client"]


def heartbeat(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """A group's retry topic is in every route table before the reply leaves; notices leave before it too."""
    data = decode_body(HeartbeatData, command.body, command.serialize_type)
    channel = ClientChannel(data.client_id, command.language, command.version, now_ms)
    for consumer in data.consumer_data_set:
        _register_consumer(broker, connection, consumer, channel, now_ms)
    for producer in data.producer_data_set:
        broker.producers.register(producer.group_name, connection, channel)
    return command.reply(ResponseCode.SUCCESS)


def _register_consumer(
    broker: Broker, connection: Connection, consumer: ConsumerData, channel: ClientChannel, now_ms: int
) -> None:
    group = consumer.group_name
    try:
        check_group(group)
    except LocalProtocolError as error:
        broker.log.warning("heartbeat of a group that cannot be", peer=connection.address, reason=str(error))
        return
    config = broker.groups.find(group, now_ms)
    if config is not None:  # else its pulls will be told that the group is not there
        broker.topics.ensure_retry_topic(group, config.retry_queue_nums, now_ms)
    if broker.config.property_filter:  # to compile takes time, which nobody may take for nothing
        broker.filters.register(group, consumer.subscriptions, now_ms)
    if broker.consumers.register(consumer, connection, channel):
        subscribed = [subscription.topic for subscription in consumer.subscriptions]
        broker.log.info("consumer group changed", group=group, client_id=channel.client_id, topics=subscribed)
        broker.notify_consumer_ids_changed(group)


def unregister_client(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    header = command.decode_header(UnregisterClientRequestHeader)
    if header.producer_group:
        broker.producers.unregister(header.producer_group, connection)
    if header.consumer_group:
        departure = broker.consumers.unregister(header.consumer_group, connection)
        if departure is not None:
            broker.on_departure(departure)
    return command.reply(ResponseCode.SUCCESS)


def list_consumers(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """A group without members is an error, as in RocketMQ: clients take it as "unknown" and keep what they have."""
    header = command.decode_header(GetConsumerListByGroupRequestHeader)
    client_ids = broker.consumers.client_ids(header.consumer_group)
    if not client_ids:
        remark = f"no consumer of group {header.consumer_group!r} is online here"
        return command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
    reply = command.reply(ResponseCode.SUCCESS, body=encode_body(ConsumerIdList(client_ids), command.serialize_type))
    reply.ext_fields = {}
    return reply


def list_consumer_groups(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    """Groups that are online or have offsets, each with the topics of either."""
    topics: dict[str, set[str]] = {group: set(known) for group, known in broker.offsets.groups().items()}
    for group, members in broker.consumers.groups.items():
        topics.setdefault(group, set()).update(members.subscriptions)
    body = ConsumerGroupList({group: tuple(sorted(topics[group])) for group in sorted(topics)})
    return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))


def check_client_config(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    """Can this broker filter as the client wants? By tags it can; SQL92 is off in RocketMQ's defaults."""
    subscription = decode_body(ClientConfigBody, command.body, command.serialize_type).subscription
    if subscription is not None and not is_tag_type(subscription.expression_type):
        check_filters_by(broker.config, subscription.expression_type)
        try:
            compiled(subscription.expression_type, subscription.sub_string)
        except FilterError as error:
            return command.reply(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark=str(error))
    return command.reply(ResponseCode.SUCCESS)
