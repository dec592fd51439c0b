"""The topic and queue of a send: RocketMQ's checks, in its order (wire.md 4.7), and dead letters (10.3)."""

from typing import Final, NamedTuple, Protocol

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Reason, Refused
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.codes import TOPIC_LENGTH_MAX, Permission
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.names import RESERVED_TOPICS, RETRY_PREFIX, check_topic, is_journal
from lockstep.protocol.tuples import new_tuple

__all__ = ["SendTarget", "Target", "send_target"]

_WRITE: Final = int(Permission.WRITE)


class Target(Protocol):
    """Where a send shall go.

    `queue_id` below 0: any queue. A topic that is missing is created like `default_topic`, with as many queues at most.
    """

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def default_topic(self) -> str: ...
    @property
    def default_topic_queue_nums(self) -> int: ...
    @property
    def reconsume_times(self) -> int | None: ...


class SendTarget(NamedTuple):
    topic: str
    queue_id: int
    dead_letter: bool = False


def send_target(broker: Broker, send: Target, now_ms: int, retries_max: int | None = None) -> SendTarget:
    """Choose the queue, and create the topic if needed.

    Args:
        retries_max: For a retry topic: more retries make a dead letter. None: as many as its group has.

    Raises:
        Refused: The topic may not be written to, or has no such queue.
    """
    topic, queue_id = send.topic, send.queue_id
    config = broker.catalog.topics.get(topic)
    if config is None or topic in RESERVED_TOPICS:
        config = _create(broker, send, now_ms)
    elif config.order and not broker.config.broker_permission & _WRITE:
        raise Refused(Reason.NOT_PERMITTED, f"the broker may not be written to, and topic {topic!r} is ordered")
    if queue_id >= max(config.read_queue_nums, config.write_queue_nums):
        remark = f"topic {topic!r} has no queue {queue_id}: it has {config.write_queue_nums} write queues"
        raise Refused(Reason.INVALID, remark)
    if queue_id < 0:
        queue_id = _any_queue(broker, config)
    if topic.startswith(RETRY_PREFIX):
        return _retry_target(broker, send, queue_id, retries_max, now_ms)
    if len(topic) > TOPIC_LENGTH_MAX:
        raise _too_long(topic)
    return new_tuple(SendTarget, (topic, queue_id, False))


def _create(broker: Broker, send: Target, now_ms: int) -> TopicConfig:
    topic = send.topic
    try:
        check_topic(topic)
    except LocalProtocolError as error:
        raise Refused(Reason.INVALID, str(error)) from None
    if topic in RESERVED_TOPICS or is_journal(topic):
        raise Refused(Reason.NOT_PERMITTED, f"topic {topic!r} belongs to the broker; clients may not send to it")
    try:
        config = broker.catalog.topics.create_by_send(
            topic, send.default_topic, send.default_topic_queue_nums, broker.config.retry_queue_nums, now_ms
        )
    except LocalProtocolError as error:
        raise Refused(Reason.INVALID, str(error)) from None
    if config is None:
        raise Refused(Reason.NO_TOPIC, f"topic {topic!r} does not exist here, and sends may not create it")
    broker.log.info("topic_created_by_send", topic=topic, queues=config.write_queue_nums)
    broker.catalog.on_created_by_send(config)
    return config


def _too_long(topic: str) -> Refused:
    """A group's name may be longer than a topic's, and so its retry and dead letter topics cannot be stored."""
    remark = f"topic {topic!r} has {len(topic)} characters; at most {TOPIC_LENGTH_MAX} can be stored"
    return Refused(Reason.ILLEGAL_MESSAGE, remark)


def _any_queue(broker: Broker, config: TopicConfig) -> int:
    if config.write_queue_nums <= 0:
        raise Refused(Reason.INVALID, f"topic {config.topic_name!r} has no write queue")
    return broker.rng.randrange(config.write_queue_nums)


def _retry_target(broker: Broker, send: Target, queue_id: int, retries_max: int | None, now_ms: int) -> SendTarget:
    """The retry topic, or the dead letter topic when the message has no retries left.

    RocketMQ does not clear the delay of a dead letter, so it appears up to two hours later (wire.md 10.3). The setting
    `dead_letter_at_once` corrects that.
    """
    group = send.topic.removeprefix(RETRY_PREFIX)
    group_config = broker.catalog.groups.find(group, now_ms)
    if group_config is None:
        raise Refused(Reason.NO_GROUP, broker.catalog.groups.why_absent(group))
    if len(send.topic) > TOPIC_LENGTH_MAX:
        raise _too_long(send.topic)
    reconsume_times = send.reconsume_times or 0
    if reconsume_times < (group_config.retry_max_times if retries_max is None else retries_max):
        return SendTarget(send.topic, queue_id)
    config = broker.catalog.topics.ensure_dead_letter_topic(group, now_ms)
    broker.log.info("dead_letter", group=group, topic=config.topic_name, reconsume_times=reconsume_times)
    return SendTarget(config.topic_name, _any_queue(broker, config), dead_letter=True)
