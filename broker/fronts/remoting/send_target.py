"""The topic and queue of a send: RocketMQ's checks, in its order (wire.md 4.7), and dead letters (10.3)."""

from typing import Final, NamedTuple

from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import TOPIC_LENGTH_MAX, Permission, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.headers.messaging import SendMessageRequestHeader
from lockstep.protocol.names import RESERVED_TOPICS, RETRY_PREFIX, check_topic

__all__ = ["SendTarget", "limit_of_retries", "send_target"]

# V3_4_9: older clients send no limit (wire.md 1.4).
_HONOURS_MAX_RECONSUME_TIMES: Final = 121

_WRITE: Final = int(Permission.WRITE)


class SendTarget(NamedTuple):
    topic: str
    queue_id: int
    dead_letter: bool = False


def send_target(broker: Broker, command: RemotingCommand, header: SendMessageRequestHeader, now_ms: int) -> SendTarget:
    """Choose the queue, and create the topic if needed. Raises Refusal."""
    topic, queue_id = header.topic, header.queue_id
    config = broker.catalog.topics.get(topic)
    if config is None or topic in RESERVED_TOPICS:
        config = _create(broker, header, now_ms)
    elif config.order and not broker.config.broker_permission & _WRITE:
        raise Refusal(ResponseCode.NO_PERMISSION, f"the broker may not be written to, and topic {topic!r} is ordered")
    if queue_id >= max(config.read_queue_nums, config.write_queue_nums):
        remark = f"topic {topic!r} has no queue {queue_id}: it has {config.write_queue_nums} write queues"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    if queue_id < 0:
        queue_id = _any_queue(broker, config)
    if topic.startswith(RETRY_PREFIX):
        return _retry_target(broker, command, header, queue_id, now_ms)
    return SendTarget(topic, queue_id)


def limit_of_retries(command: RemotingCommand, asked: int | None, group: SubscriptionGroupConfig) -> int:
    """The number of retries: as requested by a client that is new enough, else as the group's configuration says."""
    if asked is not None and command.version >= _HONOURS_MAX_RECONSUME_TIMES:
        return asked
    return group.retry_max_times


def _create(broker: Broker, header: SendMessageRequestHeader, now_ms: int) -> TopicConfig:
    topic = header.topic
    try:
        check_topic(topic)
    except LocalProtocolError as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
    if topic in RESERVED_TOPICS:
        raise Refusal(ResponseCode.NO_PERMISSION, f"topic {topic!r} belongs to the broker; clients may not send to it")
    try:
        config = broker.catalog.topics.create_by_send(
            topic, header.default_topic, header.default_topic_queue_nums, broker.config.retry_queue_nums, now_ms
        )
    except LocalProtocolError as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
    if config is None:
        remark = f"topic {topic!r} does not exist here, and sends may not create it"
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
    broker.log.info("topic_created_by_send", topic=topic, queues=config.write_queue_nums)
    broker.catalog.on_created_by_send(config)
    return config


def _any_queue(broker: Broker, config: TopicConfig) -> int:
    if config.write_queue_nums <= 0:
        raise Refusal(ResponseCode.SYSTEM_ERROR, f"topic {config.topic_name!r} has no write queue")
    return broker.rng.randrange(config.write_queue_nums)


def _retry_target(
    broker: Broker, command: RemotingCommand, header: SendMessageRequestHeader, queue_id: int, now_ms: int
) -> SendTarget:
    """The retry topic, or the dead letter topic when the message has no retries left.

    RocketMQ does not clear the delay of a dead letter, so it appears up to two hours later (wire.md 10.3). The setting
    `dead_letter_at_once` corrects that.
    """
    group = header.topic.removeprefix(RETRY_PREFIX)
    group_config = broker.catalog.groups.find(group, now_ms)
    if group_config is None:
        raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, broker.catalog.groups.why_absent(group))
    if len(header.topic) > TOPIC_LENGTH_MAX:
        # A group's name may be longer than a topic's.
        remark = f"topic {header.topic!r} has {len(header.topic)} characters; at most {TOPIC_LENGTH_MAX} can be stored"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
    max_reconsume_times = limit_of_retries(command, header.max_reconsume_times, group_config)
    reconsume_times = header.reconsume_times or 0
    if reconsume_times < max_reconsume_times:
        return SendTarget(header.topic, queue_id)
    config = broker.catalog.topics.ensure_dead_letter_topic(group, now_ms)
    broker.log.info("dead_letter", group=group, topic=config.topic_name, reconsume_times=reconsume_times)
    return SendTarget(config.topic_name, _any_queue(broker, config), dead_letter=True)
