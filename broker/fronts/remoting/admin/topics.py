"""Topics: create, list, measure, delete: codes 17, 21, 202, 215, 300, 305, 351 (wire.md 2.4)."""

from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core import topics as core
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.after import After, Answer, What
from lockstep.broker.fronts.remoting.in_steps import reply_in_steps
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.protocol.bodies.admin import TopicOffset
from lockstep.protocol.bodies.broker import TopicConfig, TopicList
from lockstep.protocol.bodies.codec import encode_body, encode_part
from lockstep.protocol.bodies.config import TopicConfigWrapper
from lockstep.protocol.bodies.queue_tables import queue_table
from lockstep.protocol.bodies.records import record_to_wire
from lockstep.protocol.bodies.rows import ROWS_A_STEP, BodyRows, BodySteps, encode_names
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import DeleteTopicRequestHeader, TopicRequestHeader
from lockstep.protocol.headers.messaging import CreateTopicRequestHeader
from lockstep.protocol.model import MessageQueue

__all__ = [
    "create_topic",
    "delete_topic",
    "groups_of_topic",
    "system_topics",
    "topic_config",
    "topic_configs",
    "topic_stats",
]

_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")


def create_topic(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> Answer:
    """Create or change a topic. It is answered when the name servers know the topic, as in RocketMQ.

    `order` is ignored, as in RocketMQ: name servers have the order configurations.
    """
    header = command.decode_header(CreateTopicRequestHeader)
    if header.topic_filter_type not in _FILTER_TYPES:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"topicFilterType must be one of {', '.join(_FILTER_TYPES)}")
    config = TopicConfig(
        header.topic, header.read_queue_nums, header.write_queue_nums, header.perm, header.topic_sys_flag
    )
    core.put_topic(broker, connection, config, header.attributes or "", now_ms)
    reply = command.reply(ResponseCode.SUCCESS, remark=f"topic {header.topic} is as requested")  # RocketMQ has one too
    # Also of a repeat: the first request may have failed to write the topic.
    return After(reply, What.ROUTES)


def delete_topic(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> After:
    (topic,) = command.decode_header(DeleteTopicRequestHeader)
    core.delete_topic(broker, connection, topic, now_ms)
    return After(command.reply(ResponseCode.SUCCESS), What.TOPICS)


def topic_configs(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    def body() -> BodySteps:
        configs = TopicConfigWrapper(broker.catalog.topics.data_version, tuple(broker.catalog.topics.topics))
        return configs.encode_in_steps(command.serialize_type)

    return reply_in_steps(broker, connection, command, body)


def topic_config(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """The configuration of one topic; the admin tools of RocketMQ 5 request it."""
    config = _known(broker, command)
    wire = {"attributes": {}, **config.to_wire()}  # 5 writes them always
    return command.reply(ResponseCode.SUCCESS, body=encode_part(wire, command.serialize_type))


def _known(broker: Broker, command: RemotingCommand) -> TopicConfig:
    (topic,) = command.decode_header(TopicRequestHeader)
    config = broker.catalog.topics.get(topic)
    if config is None:
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    return config


def topic_stats(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """The bounds of each write queue, and the store time of its last message: 0 for none."""
    config = _known(broker, command)
    return reply_in_steps(broker, connection, command, lambda: _stats_of(broker, config, command.serialize_type))


def _stats_of(broker: Broker, config: TopicConfig, serialize_type: int) -> BodySteps:
    topic, name, body = config.topic_name, broker.config.broker_name, BodyRows(serialize_type)
    for start in range(0, config.write_queue_nums, ROWS_A_STEP):
        table = {
            MessageQueue(topic, name, queue_id): _bounds(broker, topic, queue_id)
            for queue_id in range(start, min(start + ROWS_A_STEP, config.write_queue_nums))
        }
        body.add(queue_table(table, record_to_wire))
        yield None
    return (yield from body.finish({}, "offsetTable"))


def _bounds(broker: Broker, topic: str, queue_id: int) -> TopicOffset:
    low, high = broker.messages.store.min_offset(topic, queue_id), broker.messages.store.max_offset(topic, queue_id)
    return TopicOffset(low, high, broker.messages.store.store_timestamp(topic, queue_id, high - 1) or 0)


def groups_of_topic(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Groups that subscribe to a topic, and groups with offsets of it."""
    (topic,) = command.decode_header(TopicRequestHeader)

    def body() -> BodySteps:
        with_offsets = broker.catalog.offsets.groups_of(topic)
        members = broker.members.consumers.groups.items()
        online = [
            group
            for group, of in members
            if topic in of.subscriptions and (topic, group) not in broker.catalog.offsets.table
        ]
        return encode_names("groupList", [*with_offsets, *online], command.serialize_type)

    return reply_in_steps(broker, connection, command, body)


def system_topics(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    body = TopicList(broker.catalog.topics.system_topics())
    return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))
