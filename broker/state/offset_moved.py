"""A consumer that asked for an offset out of its queue's bounds is told to go elsewhere, and topic OFFSET_MOVED_EVENT
keeps that it was: RocketMQ's record of it for administrators (wire.md 6.3)."""

import json

from lockstep.broker.state.broker import Broker
from lockstep.protocol import properties as names
from lockstep.protocol.filter import tags_code
from lockstep.protocol.names import OFFSET_MOVED_EVENT
from lockstep.protocol.properties import encode_properties
from lockstep.store import GetResult, Record, StoreFull

__all__ = ["tell_offset_moved"]


def tell_offset_moved(
    broker: Broker, consumer_group: str, topic: str, queue_id: int, queue_offset: int, result: GetResult, now_ms: int
) -> None:
    """Its tag and key are the group. What cannot be stored is left out: the pull is answered in any case."""
    queue = {"brokerName": broker.config.broker_name, "queueId": queue_id, "topic": topic}
    event = {
        "consumerGroup": consumer_group,
        "messageQueue": queue,
        "offsetNew": result.next_begin_offset,
        "offsetRequest": queue_offset,
    }
    broker.log.warning("offset_out_of_bounds", group=consumer_group, topic=topic, queue_id=queue_id,
        asked_offset=queue_offset, next_offset=result.next_begin_offset)  # fmt: skip
    texts = {names.TAGS: consumer_group, names.DELAY: "0", names.KEYS: consumer_group}
    properties = encode_properties(texts).encode("utf-8", "replace")
    record = Record(
        OFFSET_MOVED_EVENT,
        0,
        0,
        0,
        now_ms,
        broker.store.store_host,
        broker.store.store_port,
        now_ms,
        0,
        0,
        json.dumps(event, separators=(",", ":")).encode("utf-8"),
        properties,
        tags_code(consumer_group),
    )
    try:
        broker.put(record)
    except StoreFull as why:
        broker.log.error("offset_moved_event_not_stored", topic=OFFSET_MOVED_EVENT, reason=str(why))
