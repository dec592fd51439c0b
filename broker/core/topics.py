"""Topics: an administrator creates, changes and deletes them."""

from collections import deque
from collections.abc import Generator, Mapping
from typing import Any, Final

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.peer import Peer
from lockstep.broker.sliced_work import Steps
from lockstep.protocol.bodies.attributes import MESSAGE_TYPE, MIXED, altered, parse_changes
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.names import pop_retry_topic
from lockstep.store.base import TakenTopic

__all__ = ["delete_topic", "put_topic"]

# Queues that one step frees; of each files may be read and deleted.
_FREED_A_STEP: Final = 2


def put_topic(broker: Broker, peer: Peer, config: TopicConfig, attributes: str, now_ms: int) -> bool:
    """Create or change a topic. Returns whether anything changed. Raises Refused.

    Args:
        attributes: How those of the topic change, as in `+message.type=FIFO`; the others stay.
    """
    topics = broker.catalog.topics
    known = topics.get(config.topic_name)
    try:
        topics.check_put(config, now_ms)
        changes = parse_changes(attributes)
        if changes.get(f"+{MESSAGE_TYPE}") == MIXED:
            raise Refused(Reason.INVALID_PARAMETER, "MIXED message type is not supported.")
        after = altered(() if known is None else known.attributes, changes, is_new=known is None)
        config = config._replace(attributes=after)
    except LocalProtocolError as error:
        raise Refused(Reason.INVALID, str(error)) from None
    changed = topics.put(config, now_ms)
    if changed:
        broker.log.info(
            "topic_changed",
            topic=config.topic_name,
            read_queues=config.read_queue_nums,
            write_queues=config.write_queue_nums,
            peer=peer.address,
        )
    return changed


def delete_topic(broker: Broker, peer: Peer, topic: str, now_ms: int) -> None:
    """Delete a topic with its messages and the offsets that groups have of it. An unknown topic is no error.

    RocketMQ 4.9 keeps the offsets; 5 removes them too. With them a group would skip messages of a new topic.

    Raises:
        Refused: It is no topic that an administrator may delete.
    """
    try:
        broker.catalog.topics.check_name(topic)
    except LocalProtocolError as error:
        raise Refused(Reason.INVALID, str(error)) from None
    if not broker.catalog.topics.delete(topic, now_ms):
        return
    broker.messages.pops.forget(lambda of_topic, group: of_topic in (topic, pop_retry_topic(group, topic)), now_ms)
    taken = broker.messages.store.take_topic(topic)
    steps = _free(broker, topic, taken, broker.stats.forget_topic(topic))
    if broker.catalog.offsets.groups_of(topic):
        forgetting = _forget_offsets(broker.catalog.offsets.forget_topic(topic))
        broker.work.start(forgetting, forgetting)
    if taken.is_apart:
        broker.work.start(steps, steps)
    else:
        # Now, whatever else is under way.
        deque(steps, 0)
    broker.log.info("topic_deleted", topic=topic, peer=peer.address)


def _forget_offsets(steps: Generator[None, None, int]) -> Steps:
    yield from steps


def _free(broker: Broker, topic: str, taken: TakenTopic[Any], counted: Mapping[int, int]) -> Steps:
    """Count what the queues of a deleted topic had, and delete their files. Nothing finds them any more."""
    for number, (queue_id, queue) in enumerate(taken.queues, 1):
        broker.stats.count_deleted(topic, queue_id, counted.get(queue_id, 0), queue)
        broker.messages.store.free(queue)
        if taken.is_apart and number % _FREED_A_STEP == 0:
            yield None
    if taken.is_apart:
        broker.messages.store.end_free()
