"""Heartbeats and membership: codes 34, 35, 38, 46 and our LIST_CONSUMER_GROUPS (wire.md 9)."""

from typing import Final, NamedTuple

from lockstep.broker.catalog.members import ClientChannel
from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.in_steps import AnswerSteps, answer_in_steps, reply_in_steps
from lockstep.broker.fronts.remoting.refusal import check_filters_by, check_limit
from lockstep.broker.messages.filters import compiled
from lockstep.broker.request_body import CLIENT_ID_LENGTH_MAX, check_name_length, read_body
from lockstep.protocol.bodies.broker import ConsumerIdList
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.heartbeat import ClientConfigBody, ConsumerData, HeartbeatData, UnreadHeartbeat
from lockstep.protocol.bodies.rows import BodySteps, encode_table
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.filter import FilterError, is_tag_type
from lockstep.protocol.headers.messaging import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from lockstep.protocol.names import check_group

__all__ = ["check_client_config", "heartbeat", "list_consumer_groups", "list_consumers", "unregister_client"]

# Groups of consumers that one step registers: each may create a topic, and is logged.
_GROUPS_A_STEP: Final = 4
_PRODUCERS_A_STEP: Final = 256
_TOPICS_LOGGED_MAX: Final = 20


def heartbeat(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand | None:
    """Register the client, notify the members of changed groups, and answer.

    Notices and answer wait until name servers know the group's retry topic, so that a notified member finds it. They
    leave together: a Java client that is notified before the answer pulls from the next broker before that broker has
    its heartbeat.
    """
    unread = read_body(UnreadHeartbeat, command)
    check_limit(broker, connection, "heartbeat_groups_max", unread.group_count, now_ms)
    check_limit(broker, connection, "heartbeat_subscriptions_max", unread.subscription_count, now_ms)
    data = unread.read()
    _check_names(data)
    channel = ClientChannel(data.client_id, command.language, command.version, now_ms)
    groups = [consumer.group_name for consumer in data.consumer_data_set]
    broker.ownership.bind(connection, data.client_id, groups, now_ms)
    return answer_in_steps(broker, connection, command, _heartbeat_steps(broker, connection, command, data, channel))


def _heartbeat_steps(
    broker: Broker, connection: Connection, command: RemotingCommand, data: HeartbeatData, channel: ClientChannel
) -> AnswerSteps:
    _check_memberships(broker, connection, data, channel.last_update_ms)
    changed = []
    for number, consumer in enumerate(data.consumer_data_set, 1):
        if _register_consumer(broker, connection, consumer, channel):
            changed.append(consumer.group_name)
        if number % _GROUPS_A_STEP == 0:
            yield None
    for number, producer in enumerate(data.producer_data_set, 1):
        broker.members.producers.register(producer.group_name, connection, channel)
        if number % _PRODUCERS_A_STEP == 0:
            yield None
    if changed and broker.catalog.topics_registered is not None:
        yield broker.catalog.topics_registered
    for number, group in enumerate(changed, 1):
        yield from broker.notices(group)
        if number % _GROUPS_A_STEP == 0:
            yield None
    return command.reply(ResponseCode.SUCCESS)


def _check_names(data: HeartbeatData) -> None:
    """Raises BodyError for names longer than RocketMQ's clients allow: tables keep them."""
    check_name_length("clientID", data.client_id, CLIENT_ID_LENGTH_MAX)
    for producer in data.producer_data_set:
        check_name_length("groupName", producer.group_name)


def _check_memberships(broker: Broker, connection: Connection, data: HeartbeatData, now_ms: int) -> None:
    """Raises Refusal when there would be too many memberships; then the heartbeat changes nothing."""
    consumers, producers = broker.members.consumers.memberships, broker.members.producers.memberships
    new = consumers.new_count(connection, (consumer.group_name for consumer in data.consumer_data_set))
    new += producers.new_count(connection, (producer.group_name for producer in data.producer_data_set))
    if new:
        of_connection = len(consumers.of(connection)) + len(producers.of(connection))
        check_limit(broker, connection, "groups_per_connection_max", of_connection + new, now_ms)
        check_limit(broker, connection, "memberships_max", consumers.count + producers.count + new, now_ms)
    growth = broker.members.consumers.character_growth(data.consumer_data_set)
    if growth:
        characters = broker.members.consumers.characters + growth
        check_limit(broker, connection, "subscription_characters_max", characters, now_ms)


def _register_consumer(broker: Broker, connection: Connection, consumer: ConsumerData, channel: ClientChannel) -> bool:
    """Register one consumer. Returns whether members or subscriptions changed."""
    group, now_ms = consumer.group_name, channel.last_update_ms
    try:
        check_group(group)
    except LocalProtocolError as error:
        broker.log.warning("heartbeat_group_invalid", peer=connection.address, reason=str(error))
        return False
    config = broker.catalog.groups.find(group, now_ms)
    if config is not None:  # otherwise its pulls are refused
        broker.catalog.topics.ensure_retry_topic(group, config.retry_queue_nums, now_ms)
    if broker.config.property_filter:  # compiling costs time
        broker.messages.filters.register(group, consumer.subscriptions, now_ms)
    changed = broker.members.consumers.register(consumer, connection, channel)
    if broker.members.consumers.groups[group].newly_different(connection, consumer.subscriptions, now_ms):
        why = "the members subscribe to different topics or tags: they miss messages, and queues may have no owner"
        broker.log.warning("subscriptions_differ", group=group, client_id=channel.client_id, why=why)
    if not changed:
        return False
    subscribed = [subscription.topic for subscription in consumer.subscriptions[:_TOPICS_LOGGED_MAX]]
    broker.log.info("consumer_group_changed", group=group, client_id=channel.client_id, topics=subscribed)
    return True


def unregister_client(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    header = command.decode_header(UnregisterClientRequestHeader)
    if header.consumer_group:
        broker.ownership.client_left(header.consumer_group, header.client_id, connection, now_ms)
    return answer_in_steps(broker, connection, command, _unregister_steps(broker, connection, command, header))


def _unregister_steps(
    broker: Broker, connection: Connection, command: RemotingCommand, header: UnregisterClientRequestHeader
) -> AnswerSteps:
    if header.producer_group:
        broker.members.producers.unregister(header.producer_group, connection)
    if header.consumer_group:
        departure = broker.members.consumers.unregister(header.consumer_group, connection)
        if departure is not None:
            yield from broker.on_departure(departure)
    return command.reply(ResponseCode.SUCCESS)


def list_consumers(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """A group without members is an error, as in RocketMQ: its clients then keep their queues."""
    header = command.decode_header(GetConsumerListByGroupRequestHeader)
    client_ids = broker.members.consumers.client_ids(header.consumer_group)
    if not client_ids:
        remark = f"no consumer of group {header.consumer_group!r} is online here"
        return command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
    reply = command.reply(ResponseCode.SUCCESS, body=encode_body(ConsumerIdList(client_ids), command.serialize_type))
    reply.ext_fields = {}
    return reply


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
