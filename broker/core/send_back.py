"""Send back: a failed message is retried later, or becomes a dead letter (wire.md 10.1)."""

from typing import Final, Protocol

from lockstep.broker.core.append import place_later
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.owner import check_owner
from lockstep.broker.core.query import message_by_offset
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.messages.delays.service import record_of
from lockstep.broker.ownership.claim import Claim, OfMessage
from lockstep.broker.ownership.denial import Act
from lockstep.broker.peer import Peer
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import PROPERTIES_BYTES_MAX, TOPIC_LENGTH_MAX, Permission
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import MessageExt, decode_messages

__all__ = ["Failed", "send_back"]

_WRITE: Final = int(Permission.WRITE)
# The field of a stored message has 32 bits, with a sign (wire.md 5).
_TIMES_MAX: Final = (1 << 31) - 1
# Level 3 is 10 s; each further retry has the next level (wire.md 10.1, 10.2).
_FIRST_RETRY_LEVEL: Final = 3


class Failed(OfMessage, Protocol):
    """A message that a group could not consume, by its commit log offset.

    `delay_level` 0: the next level at each retry; below 0: a dead letter.
    """

    @property
    def offset(self) -> int: ...
    @property
    def group(self) -> str: ...
    @property
    def delay_level(self) -> int: ...


def send_back(broker: Broker, peer: Peer, failed: Failed, now_ms: int, retries_max: int | None = None) -> None:
    """Check in RocketMQ's order, and store the message again: in %RETRY%group after a delay, or in %DLQ%group.

    Args:
        retries_max: More retries make a dead letter. None: as many as the group has.

    Raises:
        Refused: It is not stored.
        StoreFull: It is not stored.
    """
    # Steps 1 to 8 of wire.md 10.1, in RocketMQ's order, because the first failing check decides the answer.
    group = _group(broker, failed.group, now_ms)
    if group.retry_queue_nums <= 0:
        return  # this group has no retries
    retry_topic = broker.catalog.topics.ensure_retry_topic(group.group_name, group.retry_queue_nums, now_ms)
    _check_writable(retry_topic)
    message = decode_messages(message_by_offset(broker, failed.offset), unzip=False)[0]
    check_owner(broker, peer, _claim(failed, message), Act.SEND_BACK, now_ms)
    properties = dict(message.properties)
    # A message that was sent back before keeps the topic of its first incarnation.
    properties.setdefault(names.RETRY_TOPIC, message.topic)
    # Step 4: as in RocketMQ, the text says that nobody waits for this copy.
    properties[names.WAIT] = "false"
    properties[names.ORIGIN_MESSAGE_ID] = properties.get(names.ORIGIN_MESSAGE_ID) or message.offset_message_id
    # Step 5: the limit is in the request of newer clients, or else in the group.
    limit = group.retry_max_times if retries_max is None else retries_max
    if message.reconsume_times >= limit or failed.delay_level < 0:
        topic = broker.catalog.topics.ensure_dead_letter_topic(group.group_name, now_ms).topic_name
        # A dead-letter topic has one queue.
        queue_id = 0
        # A dead letter appears at once. Without this the delay of the last retry would stay in the text.
        properties[names.DELAY] = "0"
        broker.log.info("dead_letter", group=group.group_name, topic=topic, reconsume_times=message.reconsume_times)
    else:
        topic = retry_topic.topic_name
        # Any queue: retried messages have no order among each other.
        queue_id = broker.rng.randrange(group.retry_queue_nums)
        properties[names.DELAY] = str(failed.delay_level or _FIRST_RETRY_LEVEL + message.reconsume_times)
    _store(broker, message, properties, topic, queue_id, now_ms)
    broker.stats.on_sent_back(group.group_name, properties[names.RETRY_TOPIC])


def _claim(failed: Failed, message: MessageExt) -> Claim:
    """The queue of the message, or the one that an ordered consumer names with its epoch."""
    topic = failed.lock_topic or message.topic
    queue_id = message.queue_id if failed.lock_queue_id is None else failed.lock_queue_id
    return Claim(failed.group, topic, queue_id, failed.lock_epoch, failed.lock_client_id)


def _group(broker: Broker, consumer_group: str, now_ms: int) -> SubscriptionGroupConfig:
    group = broker.catalog.groups.find(consumer_group, now_ms)
    if group is None:
        raise Refused(Reason.NO_GROUP, broker.catalog.groups.why_absent(consumer_group))
    if not broker.config.broker_permission & _WRITE:
        raise Refused(Reason.NOT_PERMITTED, "the broker may not be written to")
    return group


def _check_writable(topic: TopicConfig) -> None:
    if not topic.perm & _WRITE:
        raise Refused(Reason.NOT_PERMITTED, f"topic {topic.topic_name!r} may not be written to")


def _store(
    broker: Broker, message: MessageExt, properties: dict[str, str], topic: str, queue_id: int, now_ms: int
) -> None:
    place = place_later(broker, properties, topic, queue_id, now_ms)
    record = record_of(message, properties, topic, queue_id, now_ms)
    # The count of retries rises with each incarnation. It stays at the largest number that its field holds.
    record = record._replace(reconsume_times=min(message.reconsume_times, _TIMES_MAX - 1) + 1)
    if len(topic) > TOPIC_LENGTH_MAX or len(record.properties) > PROPERTIES_BYTES_MAX:
        remark = f"topic {topic!r} or its {len(record.properties)} bytes of properties are too long"
        raise Refused(Reason.INVALID, remark)
    if place is not None:
        # Until it is due, a delayed message lies in the schedule topic, and the tag field has the time (wire.md 10.2).
        record = record._replace(topic=place.topic, queue_id=place.queue_id, tags_code=place.deliver_at_ms)
    stored = broker.messages.put(record)
    if place is not None:
        broker.messages.waits(place, stored.queue_offset)
