"""Read: the messages of a queue from an offset on, for a group."""

import json
from typing import Final, Protocol

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.messages.filters import Wanted
from lockstep.broker.messages.pull_answers import Nothing, Why
from lockstep.broker.ownership.claim import QueueOfGroup
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import Permission
from lockstep.protocol.filter import tags_code
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.properties import encode_properties
from lockstep.protocol.names import OFFSET_MOVED_EVENT
from lockstep.store import GetResult, GetStatus, Record, StoreFull

__all__ = ["Reading", "check_reader", "read"]

_READ: Final = int(Permission.READ)
_WHY: Final[dict[GetStatus, Why]] = {
    GetStatus.NO_MATCHED_MESSAGE: Why.NOTHING_MATCHED,
    GetStatus.MESSAGE_WAS_REMOVING: Why.NOTHING_MATCHED,
    GetStatus.NO_MESSAGE_IN_QUEUE: Why.OUT_OF_BOUNDS,  # at offset 0: NOTHING_NEW
    GetStatus.NO_MATCHED_LOGIC_QUEUE: Why.OUT_OF_BOUNDS,  # likewise
    GetStatus.OFFSET_FOUND_NULL: Why.NOTHING_NEW,
    GetStatus.OFFSET_OVERFLOW_ONE: Why.NOTHING_NEW,
    GetStatus.OFFSET_OVERFLOW_BADLY: Why.OUT_OF_BOUNDS,
    GetStatus.OFFSET_TOO_SMALL: Why.OUT_OF_BOUNDS,
}
_EMPTY: Final = (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE)
# Looked up once: in an enum it costs as much as a call.
_FOUND: Final = GetStatus.FOUND
_OUT_OF_BOUNDS: Final = Why.OUT_OF_BOUNDS
_NOTHING_NEW: Final = Why.NOTHING_NEW


class Reading(QueueOfGroup, Protocol):
    """Where a group reads. `bulk`: the limit in messages does not hold."""

    @property
    def queue_offset(self) -> int: ...
    @property
    def max_messages(self) -> int: ...
    @property
    def bulk(self) -> bool: ...


def check_reader(
    broker: Broker, consumer_group: str, topic: str, queue_id: int, now_ms: int
) -> SubscriptionGroupConfig:
    """Check that the group may read the queue, in RocketMQ's order, and return its settings. Raises Refused."""
    # Check 1 of wire.md 6.2.
    if not broker.config.broker_permission & _READ:
        raise Refused(Reason.NOT_PERMITTED, "the broker may not be read")
    group = broker.catalog.groups.find(consumer_group, now_ms)
    # Check 2: the group.
    if group is None:
        raise Refused(Reason.NO_GROUP, broker.catalog.groups.why_absent(consumer_group))
    if not group.consume_enable:
        raise Refused(Reason.NOT_PERMITTED, f"consumer group {group.group_name!r} may not consume")
    config = broker.catalog.topics.get(topic)
    # Check 3: the topic and the queue.
    if config is None:
        raise Refused(Reason.NO_TOPIC, f"topic {topic!r} does not exist here")
    if not config.perm & _READ:
        raise Refused(Reason.NOT_PERMITTED, f"topic {topic!r} may not be read")
    if not 0 <= queue_id < config.read_queue_nums:
        remark = f"topic {topic!r} has read queues 0 to {config.read_queue_nums - 1}, not {queue_id}"
        raise Refused(Reason.INVALID, remark)
    return group


def read(broker: Broker, reading: Reading, wanted: Wanted, now_ms: int) -> GetResult | Nothing:
    """What the store has for the group, counted in the statistics. `check_reader` comes before."""
    topic, queue_id = reading.topic, reading.queue_id
    subscription, passes = wanted
    got = broker.messages.store.get(
        topic, queue_id, reading.queue_offset, reading.max_messages, subscription, passes, bulk=reading.bulk
    )
    if got.message_count:
        broker.stats.on_got(reading.consumer_group, topic, queue_id, got.message_count, len(got.body))
    else:
        broker.stats.missed += 1
    status = got.status
    if status is _FOUND:
        return got
    # From offset 0 of an empty queue there is nothing to correct; from any other offset the client must move (wire.md
    # 6.3).
    if reading.queue_offset == 0 and status in _EMPTY:
        return Nothing(_NOTHING_NEW, got)
    why = _WHY[status]
    if why is _OUT_OF_BOUNDS:
        _record_offset_moved(broker, reading, got, now_ms)
    return Nothing(why, got)


def _record_offset_moved(broker: Broker, reading: Reading, got: GetResult, now_ms: int) -> None:
    """Store in topic OFFSET_MOVED_EVENT that an offset was out of bounds: RocketMQ's record for administrators.

    The tag and the key are the group. The read is answered even if the event cannot be stored (wire.md 6.3).
    """
    group = reading.consumer_group
    broker.log.warning(
        "offset_out_of_bounds",
        group=group,
        topic=reading.topic,
        queue_id=reading.queue_id,
        asked_offset=reading.queue_offset,
        next_offset=got.next_begin_offset,
    )
    content = {
        "consumerGroup": group,
        "messageQueue": {"brokerName": broker.config.broker_name, "queueId": reading.queue_id, "topic": reading.topic},
        "offsetNew": got.next_begin_offset,
        "offsetRequest": reading.queue_offset,
    }
    body = json.dumps(content, separators=(",", ":")).encode("utf-8")
    texts = {names.TAGS: group, names.DELAY: "0", names.KEYS: group}
    properties = encode_properties(texts).encode("utf-8", "replace")
    host, port = broker.messages.store.store_host, broker.messages.store.store_port
    record = Record(OFFSET_MOVED_EVENT, 0, 0, 0, now_ms, host, port, now_ms, 0, 0, body, properties, tags_code(group))
    try:
        broker.messages.put(record)
    except StoreFull as why:
        broker.log.error("offset_moved_event_not_stored", topic=OFFSET_MOVED_EVENT, reason=str(why))
