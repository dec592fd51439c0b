"""Acknowledge: a delivered message is consumed, or shall be invisible for longer (docs/wire.md 18)."""

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Final, NamedTuple

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.pop import commit_settled, illegal_queue, no_topic
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.messages.pop.checkpoints import Checkpoint, CheckpointKey
from lockstep.broker.messages.pop.journal import Journaled, record_of_delivery
from lockstep.broker.messages.pop.port import Answered
from lockstep.broker.peer import Peer
from lockstep.protocol.names import pop_retry_topic, popped_topic
from lockstep.protocol.receipts import ORDERED, Receipt, TopicKind

__all__ = ["Delivery", "ack", "ack_all", "change_invisible"]

# Looked up once: in an enum it costs as much as a call.
_DONE: Final = Answered.DONE
_LATE: Final = Answered.LATE


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
    (answered,) = ack_all(broker, peer, delivery, (delivery.receipt.queue_offset,), now_ms)
    if isinstance(answered, Refused):
        raise answered
    return answered


def ack_all(
    broker: Broker, peer: Peer, delivery: Delivery, queue_offsets: Sequence[int], now_ms: int
) -> list[Answered | Refused]:
    """Messages of one delivery are consumed. Each is judged by itself; returns what became of each.

    Raises:
        Refused: The queue does not exist.
        StoreFull: A restart would not know of it.
    """
    low, high = _bounds(broker, peer, delivery)
    legal = [offset for offset in queue_offsets if low <= offset <= high]
    settle = _ack_in_order if delivery.in_order else _ack_any
    answers = settle(broker, peer, delivery, legal, now_ms) if legal else []
    _count(broker, delivery, legal, answers, now_ms)
    if len(legal) == len(queue_offsets):
        return answers
    answer_of = dict(zip(legal, answers, strict=True))
    return [answer_of.get(offset) or _illegal(delivery, offset, low, high) for offset in queue_offsets]


def change_invisible(
    broker: Broker, peer: Peer, delivery: Delivery, invisible_ms: int, now_ms: int
) -> tuple[Answered, Receipt]:
    """Nobody else gets the message for so long from now on; with 0 it is free at once.

    Returns:
        Also the receipt that names the delivery from now on.

    Raises:
        Refused: As `ack`.
        StoreFull: As `ack`.
    """
    low, high = _bounds(broker, peer, delivery)
    receipt = delivery.receipt
    if not low <= receipt.queue_offset <= high:
        raise _illegal(delivery, receipt.queue_offset, low, high)
    if delivery.in_order:
        queue = broker.messages.pops.fifo.find(delivery.topic, delivery.consumer_group, receipt.queue_id)
        visible_ms = now_ms + invisible_ms
        answered = Answered.LATE if queue is None else queue.change(receipt.queue_offset, receipt.pop_ms, visible_ms)
        changed = receipt._replace(invisible_ms=visible_ms - receipt.pop_ms)
        if broker.messages.pops.journals and answered is Answered.DONE and invisible_ms > 0:
            # Whoever renewed a delivery works on: a crash must not end it earlier.
            made = (receipt.pop_ms, changed.invisible_ms, peer.address, None, [receipt.queue_offset])
            journaled = Journaled(delivery.topic, delivery.consumer_group, receipt.queue_id, *made)
            broker.messages.put(record_of_delivery(broker.messages.store, journaled, now_ms))
        _wake(broker, delivery)
    else:
        answered, changed = _begin_again(broker, delivery, invisible_ms, now_ms)
    _count(broker, delivery, [receipt.queue_offset], [answered], now_ms)
    return answered, changed


def _bounds(broker: Broker, peer: Peer, delivery: Delivery) -> tuple[int, int]:
    """The first offset of the delivery's queue, and the end of the queue. Raises Refused."""
    topic, queue_id = delivery.topic_of_queue, delivery.receipt.queue_id
    config = broker.catalog.topics.get(topic)
    if config is None:
        raise no_topic(topic)
    if not 0 <= queue_id < config.read_queue_nums:
        raise illegal_queue(Reason.ILLEGAL_MESSAGE, config, queue_id, peer)
    store = broker.messages.store
    return store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)


def _illegal(delivery: Delivery, queue_offset: int, low: int, high: int) -> Refused:
    # RocketMQ's words, which tools read (wire.md 18.1).
    place = f"{delivery.topic_of_queue}@{delivery.receipt.queue_id}, commit:{queue_offset}, store:{low}~{high}"
    return Refused(Reason.NO_MESSAGE, f"offset is illegal, key:{place}")


def _ack_in_order(
    broker: Broker, peer: Peer, delivery: Delivery, queue_offsets: Sequence[int], now_ms: int
) -> list[Answered | Refused]:
    topic, group, receipt = delivery.topic, delivery.consumer_group, delivery.receipt
    stored = committed = broker.catalog.offsets.query(group, topic, receipt.queue_id)
    fifo = broker.messages.pops.fifo
    if committed < 0 and fifo.find(topic, group, receipt.queue_id) is None:
        # The group never read the queue: nobody fills a table with what was never delivered.
        return [Answered.LATE] * len(queue_offsets)
    queue = fifo.queue(topic, group, receipt.queue_id, now_ms)
    answers = list[Answered | Refused]()
    for offset in queue_offsets:
        answered, next_offset = queue.ack(offset, receipt.pop_ms, committed)
        if answered is Answered.UNKNOWN:
            place = f"{topic}@{group}@{receipt.queue_id}, old:{committed}, commit:{offset}, next:-1"
            answers.append(Refused(Reason.ILLEGAL_MESSAGE, f"offset is illegal, key:{place}, /{peer.address}"))
            continue
        committed = max(committed, next_offset)
        answers.append(answered)
    if committed > stored:
        broker.catalog.offsets.commit(group, topic, receipt.queue_id, committed)
    _wake(broker, delivery)
    return answers


def _wake(broker: Broker, delivery: Delivery) -> None:
    """Calls that wait may find more now, or earlier."""
    broker.messages.pops.held.on_free(delivery.topic, delivery.consumer_group)


def _ack_any(
    broker: Broker, peer: Peer, delivery: Delivery, queue_offsets: Sequence[int], now_ms: int
) -> list[Answered | Refused]:
    pops = broker.messages.pops
    checkpoint = pops.checkpoints.find(delivery.checkpoint)
    if checkpoint is None:
        return [Answered.LATE] * len(queue_offsets)
    bits = list(map(checkpoint.bit_of, queue_offsets))
    # First the log: what a restart does not know would be stored again.
    if checkpoint.saved_at is not None:
        known = [offset for offset, bit in zip(queue_offsets, bits, strict=True) if bit]
        pops.revive_log.end(checkpoint, known, now_ms)
    pops.checkpoints.settle(checkpoint, reduce(or_, bits))
    commit_settled(broker, *_queue_of(delivery))
    return [_DONE if bit else _LATE for bit in bits]


def _begin_again(broker: Broker, delivery: Delivery, invisible_ms: int, now_ms: int) -> tuple[Answered, Receipt]:
    """A delivery of the one message begins, in place of the old one."""
    receipt, pops = delivery.receipt, broker.messages.pops
    checkpoints = pops.checkpoints
    old = checkpoints.find(delivery.checkpoint)
    if old is None or receipt.queue_offset not in old.left:
        # The answer is that of a change that worked.
        return Answered.LATE, receipt._replace(pop_ms=now_ms, invisible_ms=invisible_ms)
    key = delivery.checkpoint._replace(start_offset=receipt.queue_offset, pop_ms=now_ms)
    new = Checkpoint(checkpoints.free_key(key), [receipt.queue_offset], invisible_ms, old.revive_queue_id)
    # First the new one, then the old one: the message is never without a checkpoint.
    if old.saved_at is not None:
        pops.revive_log.save(new, now_ms)
    checkpoints.add(new)
    pops.revive_log.end(old, [receipt.queue_offset], now_ms)
    checkpoints.ack(delivery.checkpoint, receipt.queue_offset)
    changed = receipt._replace(start_offset=receipt.queue_offset, pop_ms=new.key.pop_ms, invisible_ms=invisible_ms)
    return Answered.DONE, changed


def _queue_of(delivery: Delivery) -> tuple[str, str, int]:
    return delivery.consumer_group, delivery.topic_of_queue, delivery.receipt.queue_id


def _count(
    broker: Broker, delivery: Delivery, queue_offsets: Sequence[int], answers: Sequence[Answered | Refused], now_ms: int
) -> None:
    # Names of groups that nobody made would fill the table.
    group = delivery.consumer_group if broker.catalog.groups.get(delivery.consumer_group) is not None else ""
    done_count = answers.count(_DONE)
    if done_count:
        broker.messages.pops.answered(group, _DONE, now_ms, done_count)
    if done_count == len(answers):
        return
    for offset, answered in zip(queue_offsets, answers, strict=True):
        if answered is _DONE or isinstance(answered, Refused):
            continue
        broker.messages.pops.answered(group, answered, now_ms)
        if answered is not Answered.UNKNOWN:
            broker.log.info(
                "pop_answer_late",
                group=delivery.consumer_group,
                topic=delivery.topic,
                queue_id=delivery.receipt.queue_id,
                queue_offset=offset,
                refused=answered is Answered.STALE,
            )
