"""Acknowledge: a delivered message is consumed, or shall be invisible for longer (docs/wire.md 18)."""

from typing import NamedTuple

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.pop import commit_settled, illegal_queue, no_topic
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.messages.pop.checkpoints import Checkpoint, CheckpointKey
from lockstep.broker.messages.pop.port import Answered
from lockstep.broker.messages.pop.revive_log import ack_record, checkpoint_record, revive_topic
from lockstep.broker.peer import Peer
from lockstep.protocol.names import pop_retry_topic, popped_topic
from lockstep.protocol.receipts import ORDERED, Receipt, TopicKind

__all__ = ["Delivery", "ack", "change_invisible", "note_end", "save"]


class Delivery(NamedTuple):
    """One delivery of one message, as its client names it. `topic`: to which it was sent, or the retry topic."""

    consumer_group: str
    topic: str
    receipt: Receipt

    @property
    def in_order(self) -> bool:
        return self.receipt.revive_queue_id == ORDERED

    @property
    def topic_of_queue(self) -> str:
        """Where the message lies: the group's retry topic, when it was delivered before."""
        if self.receipt.topic_kind == TopicKind.TOPIC:
            return self.topic
        # An acknowledgement has the retry topic's name, one in a batch has the first topic's (wire.md 18.1).
        return pop_retry_topic(self.consumer_group, popped_topic(self.consumer_group, self.topic))

    @property
    def checkpoint(self) -> CheckpointKey:
        queue = (self.topic_of_queue, self.consumer_group, self.receipt.queue_id)
        return CheckpointKey(*queue, self.receipt.start_offset, self.receipt.pop_ms)


def ack(broker: Broker, peer: Peer, delivery: Delivery, now_ms: int) -> Answered:
    """The message is consumed. What is no longer under way is ignored, or refused, as the broker's mode wants it.

    Raises:
        Refused: The queue does not exist, or the message was not delivered.
        StoreFull: A restart would not know of it.
    """
    _check(broker, peer, delivery)
    answered = (
        _ack_in_order(broker, peer, delivery, now_ms) if delivery.in_order else _ack_any(broker, delivery, now_ms)
    )
    _count(broker, delivery, answered)
    return answered


def change_invisible(
    broker: Broker, peer: Peer, delivery: Delivery, invisible_ms: int, now_ms: int
) -> tuple[Answered, Receipt]:
    """Nobody else gets the message for so long from now on; with 0 it is free at once.

    Returns:
        Also the receipt that names the delivery from now on.

    Raises:
        Refused: As `ack`.
    """
    _check(broker, peer, delivery)
    receipt = delivery.receipt
    if delivery.in_order:
        queue = broker.messages.pops.fifo.find(delivery.topic, delivery.consumer_group, receipt.queue_id)
        visible_ms = now_ms + invisible_ms
        answered = Answered.LATE if queue is None else queue.change(receipt.queue_offset, receipt.pop_ms, visible_ms)
        changed = receipt._replace(invisible_ms=visible_ms - receipt.pop_ms)
        _wake(broker, delivery, now_ms)
    else:
        answered, changed = _begin_again(broker, delivery, invisible_ms, now_ms)
    _count(broker, delivery, answered)
    return answered, changed


def _check(broker: Broker, peer: Peer, delivery: Delivery) -> None:
    topic, receipt = delivery.topic_of_queue, delivery.receipt
    config = broker.catalog.topics.get(topic)
    if config is None:
        raise no_topic(topic)
    if not 0 <= receipt.queue_id < config.read_queue_nums:
        raise illegal_queue(Reason.ILLEGAL_MESSAGE, config, receipt.queue_id, peer)
    store = broker.messages.store
    low, high = store.min_offset(topic, receipt.queue_id), store.max_offset(topic, receipt.queue_id)
    if not low <= receipt.queue_offset <= high:
        # RocketMQ's words, which tools read (wire.md 18.1).
        place = f"{topic}@{receipt.queue_id}, commit:{receipt.queue_offset}, store:{low}~{high}"
        raise Refused(Reason.NO_MESSAGE, f"offset is illegal, key:{place}")


def _ack_in_order(broker: Broker, peer: Peer, delivery: Delivery, now_ms: int) -> Answered:
    topic, group, receipt = delivery.topic, delivery.consumer_group, delivery.receipt
    committed = broker.catalog.offsets.query(group, topic, receipt.queue_id)
    fifo = broker.messages.pops.fifo
    if committed < 0 and fifo.find(topic, group, receipt.queue_id) is None:
        # The group never read the queue: nobody fills a table with what was never delivered.
        return Answered.LATE
    queue = fifo.queue(topic, group, receipt.queue_id, now_ms)
    answered, next_offset = queue.ack(receipt.queue_offset, receipt.pop_ms, committed)
    if answered is Answered.DONE and next_offset > committed:
        broker.catalog.offsets.commit(group, topic, receipt.queue_id, next_offset)
    _wake(broker, delivery, now_ms)
    if answered is Answered.UNKNOWN:
        place = f"{topic}@{group}@{receipt.queue_id}, old:{committed}, commit:{receipt.queue_offset}, next:-1"
        raise Refused(Reason.ILLEGAL_MESSAGE, f"offset is illegal, key:{place}, /{peer.address}")
    return answered


def _wake(broker: Broker, delivery: Delivery, now_ms: int) -> None:
    """Calls that wait may find more now, or earlier."""
    topic, group = delivery.topic, delivery.consumer_group
    visible_ms = broker.messages.pops.fifo.next_visible_ms(topic, group, now_ms)
    if visible_ms is not None:
        broker.messages.pops.held.wake_at(topic, group, visible_ms)
    broker.messages.pops.held.on_free(topic, group)


def _ack_any(broker: Broker, delivery: Delivery, now_ms: int) -> Answered:
    offset = delivery.receipt.queue_offset
    checkpoint = broker.messages.pops.checkpoints.ack(delivery.checkpoint, offset)
    if checkpoint is None:
        return Answered.LATE
    note_end(broker, checkpoint, offset, now_ms)
    commit_settled(broker, *_queue_of(delivery))
    return Answered.DONE


def note_end(broker: Broker, checkpoint: Checkpoint, queue_offset: int, now_ms: int) -> None:
    """A message of a delivery is acknowledged, or stored again: a restart must know, if it knows the delivery.

    Raises StoreFull.
    """
    if checkpoint.saved_at is not None:
        store, topic = broker.messages.store, revive_topic(broker.config.cluster)
        record = ack_record(store, topic, broker.config.broker_name, checkpoint, queue_offset, now_ms)
        broker.messages.put(record)


def _begin_again(broker: Broker, delivery: Delivery, invisible_ms: int, now_ms: int) -> tuple[Answered, Receipt]:
    """A delivery of the one message begins, in place of the old one."""
    receipt, checkpoints = delivery.receipt, broker.messages.pops.checkpoints
    old = checkpoints.find(delivery.checkpoint)
    if old is None or receipt.queue_offset not in old.left:
        # The answer is that of a change that worked.
        return Answered.LATE, receipt._replace(pop_ms=now_ms, invisible_ms=invisible_ms)
    key = delivery.checkpoint._replace(start_offset=receipt.queue_offset, pop_ms=now_ms)
    new = Checkpoint(checkpoints.free_key(key), [receipt.queue_offset], invisible_ms, old.revive_queue_id)
    # First the new one, then the old one: the message is never without a checkpoint.
    if old.saved_at is not None:
        save(broker, new, now_ms)
    checkpoints.add(new)
    note_end(broker, old, receipt.queue_offset, now_ms)
    checkpoints.ack(delivery.checkpoint, receipt.queue_offset)
    changed = receipt._replace(start_offset=receipt.queue_offset, pop_ms=new.key.pop_ms, invisible_ms=invisible_ms)
    return Answered.DONE, changed


def save(broker: Broker, checkpoint: Checkpoint, now_ms: int) -> None:
    """The delivery enters the revive log. Raises StoreFull."""
    store, topic = broker.messages.store, revive_topic(broker.config.cluster)
    record = checkpoint_record(store, topic, broker.config.broker_name, checkpoint, now_ms)
    checkpoint.saved_at = broker.messages.put(record).queue_offset


def _queue_of(delivery: Delivery) -> tuple[str, str, int]:
    return delivery.consumer_group, delivery.topic_of_queue, delivery.receipt.queue_id


def _count(broker: Broker, delivery: Delivery, answered: Answered) -> None:
    broker.messages.pops.answers[answered.name.lower()] += 1
    if answered in (Answered.LATE, Answered.STALE):
        broker.log.info(
            "pop_answer_late",
            group=delivery.consumer_group,
            topic=delivery.topic,
            queue_id=delivery.receipt.queue_id,
            queue_offset=delivery.receipt.queue_offset,
            refused=answered is Answered.STALE,
        )
