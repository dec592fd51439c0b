"""Pop: a group gets messages for a time, without owning their queue (docs/wire.md 18)."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from lockstep.broker.core.broker import Broker
from lockstep.broker.core.commit import check_capacity
from lockstep.broker.core.refused import Reason, Refused
from lockstep.broker.messages.delays.service import record_of
from lockstep.broker.messages.filters import Wanted
from lockstep.broker.messages.pop.checkpoints import Checkpoint, CheckpointKey
from lockstep.broker.messages.pop.journal import Journaled, record_of_delivery
from lockstep.broker.messages.pop.port import Order
from lockstep.broker.messages.pop.queues import Busy
from lockstep.broker.messages.pop.reader import StoreReader, split
from lockstep.broker.ownership.claim import QueueOfGroup
from lockstep.broker.peer import Peer
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.codes import PROPERTIES_BYTES_MAX, Permission
from lockstep.protocol.errors import short_text
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.message import decode_messages, encode_stored_message
from lockstep.protocol.names import pop_retry_topic
from lockstep.protocol.receipts import ORDERED, Receipt, SpanOfQueue, TopicKind

__all__ = [
    "ANY_QUEUE",
    "POP_COUNT_MAX",
    "Pop",
    "Popped",
    "check_pop",
    "client_name",
    "commit_settled",
    "forsake",
    "illegal_queue",
    "may_give",
    "no_topic",
    "peek",
    "pop",
    "queue_count",
]

ANY_QUEUE: Final = -1
POP_COUNT_MAX: Final = 32
_READ: Final = int(Permission.READ)
# The end of RocketMQ's remarks about names; the space and the line are its own.
_FURTHER: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
# RocketMQ looks at the retry topic first in a fifth of the calls, so that neither topic starves the other.
_RETRY_FIRST_ONE_IN: Final = 5


class Pop(NamedTuple):
    """What a client asks for.

    Args:
        client: Its client id, or the address of a connection that has registered none.
        queue_id: `ANY_QUEUE`, or one.
        invisible_ms: For so long nobody else gets what it gets.
        in_order: The group reads in order.
        from_end: A new group begins at the end of a queue that is not young.
        attempt_id: Names the call, for a repeat.
        wanted: Which messages.
    """

    client: str
    consumer_group: str
    topic: str
    queue_id: int
    count_max: int
    invisible_ms: int
    in_order: bool
    from_end: bool
    attempt_id: str | None
    wanted: Wanted


class Popped(NamedTuple):
    """What it gets. `rest`: how many messages are left. `body`: the messages, in the stored layout."""

    pop_ms: int
    revive_queue_id: int
    rest: int
    spans: list[SpanOfQueue]
    body: bytes


def check_pop(broker: Broker, peer: Peer, asked: QueueOfGroup, count: int, now_ms: int) -> None:
    """Check what a pop and its like name, in RocketMQ's order and with its remarks. Raises Refused.

    Source: wire.md 18.1
    """
    if not broker.config.broker_permission & _READ:
        raise Refused(Reason.NOT_PERMITTED, "the broker may not be read")
    if count > POP_COUNT_MAX:
        text = f"the broker[{broker.config.advertised_host}] pop message's num is greater than {POP_COUNT_MAX}"
        raise Refused(Reason.INVALID_PARAMETER, text)
    config = broker.catalog.topics.get(asked.topic)
    if config is None:
        raise no_topic(asked.topic)
    if not config.perm & _READ:
        raise Refused(Reason.NOT_PERMITTED, f"the topic[{asked.topic}] peeking message is forbidden")
    if asked.queue_id >= config.read_queue_nums:
        raise illegal_queue(Reason.INVALID_PARAMETER, config, asked.queue_id, peer)
    group = broker.catalog.groups.find(asked.consumer_group, now_ms)
    if group is None:
        name = _shown(asked.consumer_group)
        raise Refused(Reason.NO_GROUP, f"subscription group [{name}] does not exist, {_FURTHER}")
    if not group.consume_enable:
        raise Refused(Reason.NOT_PERMITTED, f"subscription group no permission, {group.group_name}")


def no_topic(topic: str) -> Refused:
    return Refused(Reason.NO_TOPIC, f"topic[{_shown(topic)}] not exist, apply first please! {_FURTHER}")


def illegal_queue(reason: Reason, config: TopicConfig, queue_id: int, peer: Peer) -> Refused:
    queues = f"topic:[{config.topic_name}] topicConfig.readQueueNums:[{config.read_queue_nums}]"
    return Refused(reason, f"queueId[{queue_id}] is illegal, {queues} consumer:[/{peer.address}]")


def _shown(name: str) -> str:
    return short_text(name).strip("'")


def pop(broker: Broker, peer: Peer, asked: Pop, now_ms: int) -> Popped:
    """Deliver messages; none when there is none, or deliveries under way hold up all. `check_pop` comes before.

    Raises:
        Refused: The table of offsets is full.
        StoreFull: The delivery cannot be kept. Its messages are visible after their time.
    """
    broker.messages.pops.in_use = True
    return _pop_in_order(broker, peer, asked, now_ms) if asked.in_order else _pop_any(broker, peer, asked, now_ms)


def queue_count(broker: Broker, topic: str) -> int:
    """The queues that a group reads; 0 of an unknown topic."""
    config = broker.catalog.topics.get(topic)
    return 0 if config is None else config.read_queue_nums


def _first_queue(broker: Broker, count: int) -> int:
    """Not always the first one: the last one would wait while others have messages."""
    return broker.rng.randrange(count) if count > 1 else 0


def _queue_ids(broker: Broker, topic: str, queue_id: int) -> Sequence[int]:
    if queue_id >= 0:
        return (queue_id,)
    count = queue_count(broker, topic)
    start = _first_queue(broker, count)
    return [(start + number) % count for number in range(count)]


# In order --------------------------------------------------------------------------------------------------------


def _pop_in_order(broker: Broker, peer: Peer, asked: Pop, now_ms: int) -> Popped:
    group, topic = asked.consumer_group, asked.topic
    fifo, messages = broker.messages.pops.fifo, broker.messages
    owned, count = broker.ownership.is_owned, queue_count(broker, topic)
    queue_ids, first_pop_ms = _busy_queues(broker, asked, count, now_ms)
    queue_ids = [queue_id for queue_id in queue_ids if not owned(group, topic, queue_id, now_ms)]
    queues = {queue_id: fifo.queue(topic, group, queue_id, now_ms) for queue_id in queue_ids}
    pop_ms = max(now_ms, first_pop_ms, *[queue.first_pop_ms(now_ms) for queue in queues.values()])
    # First all offsets, of which one may be refused, then deliveries.
    offsets_of = {queue_id: _committed(broker, peer, asked, topic, queue_id, now_ms) for queue_id in queues}
    spans, bodies, rest = list[SpanOfQueue](), list[bytes](), 0
    left = asked.count_max
    for queue_id, queue in queues.items():
        committed, max_offset = offsets_of[queue_id]
        if left <= 0:
            rest += max_offset - committed
            continue
        order = Order(asked.client, asked.attempt_id, left, pop_ms, asked.invisible_ms)
        reader = StoreReader(messages.store, topic, queue_id, *asked.wanted)
        given = queue.pop(order, committed, reader, now_ms)
        # What is held up does not count as left, as in RocketMQ.
        if given is None:
            continue
        _commit(broker, group, topic, queue_id, given.commit_offset)
        if given.offsets:
            offsets = given.offsets
            if messages.pops.journals:
                made = (pop_ms, asked.invisible_ms, asked.client, asked.attempt_id, offsets)
                consumed = (given.commit_offset, given.acked)
                journaled = Journaled(topic, group, queue_id, *made, *consumed)
                messages.put(record_of_delivery(messages.store, journaled, now_ms))
            spans.append(SpanOfQueue(TopicKind.TOPIC, queue_id, given.start_offset, offsets, given.times_before))
            bodies.append(given.body)
            left -= len(offsets)
            rest += max_offset - offsets[-1] - 1
            messages.pops.held.wake_at(topic, group, pop_ms + asked.invisible_ms)
        elif given.commit_offset == max_offset and not queue.under_way():
            fifo.set_idle(topic, group, queue_id, count)
    return Popped(pop_ms, ORDERED, rest, spans, b"".join(bodies))


def _busy_queues(broker: Broker, asked: Pop, count: int, now_ms: int) -> Busy:
    if asked.queue_id >= 0:
        return Busy((asked.queue_id,))
    found = broker.messages.pops.fifo.busy(asked.topic, asked.consumer_group, count, now_ms)
    start = _first_queue(broker, count)
    return found._replace(queue_ids=sorted(found.queue_ids, key=lambda queue_id: (queue_id - start) % count))


# Without order ---------------------------------------------------------------------------------------------------


def _pop_any(broker: Broker, peer: Peer, asked: Pop, now_ms: int) -> Popped:
    retry = pop_retry_topic(asked.consumer_group, asked.topic)
    revive_queue_id = broker.messages.pops.checkpoints.next_revive_queue()
    parts = [(TopicKind.TOPIC, asked.topic, asked.queue_id)]
    if broker.catalog.topics.get(retry) is not None:
        first = broker.rng.randrange(_RETRY_FIRST_ONE_IN) == 0
        parts.insert(0 if first else 1, (TopicKind.RETRY, retry, ANY_QUEUE))
    spans, bodies, rest = list[SpanOfQueue](), list[bytes](), 0
    left = asked.count_max
    # First all offsets, of which one may be refused, then deliveries.
    places = [
        (kind, topic, queue_id, *_committed(broker, peer, asked, topic, queue_id, now_ms))
        for kind, topic, queue_ids in parts
        for queue_id in _queue_ids(broker, topic, queue_ids)
    ]
    store, checkpoints, group = broker.messages.store, broker.messages.pops.checkpoints, asked.consumer_group
    for kind, topic, queue_id, committed, max_offset in places:
        position = checkpoints.position(topic, group, queue_id, committed)
        if left <= 0:
            rest += max_offset - position
            continue
        offsets, body, next_offset = StoreReader(store, topic, queue_id, *asked.wanted).read(position, left)
        # What does not pass the filter is read, too.
        checkpoints.read_to(topic, group, queue_id, next_offset)
        rest += max_offset - next_offset
        if offsets:
            if kind != TopicKind.TOPIC:
                name = broker.config.broker_name
                receipt = Receipt(offsets[0], now_ms, asked.invisible_ms, revive_queue_id, kind, name, queue_id, 0)
                body = b"".join(_as_first_sent(offset, one, asked.topic, receipt) for offset, one in split(body))
            # Only now: what cannot be given is no delivery.
            key = CheckpointKey(topic, group, queue_id, offsets[0], now_ms)
            checkpoints.add(Checkpoint(key, offsets, asked.invisible_ms, revive_queue_id))
            bodies.append(body)
            spans.append(SpanOfQueue(kind, queue_id, offsets[0], offsets, {}))
            left -= len(offsets)
        commit_settled(broker, group, topic, queue_id)
    return Popped(now_ms, revive_queue_id, rest, spans, b"".join(bodies))


def _as_first_sent(offset: int, stored: bytes, topic: str, receipt: Receipt) -> bytes:
    """A message of the retry topic, as of its first topic. Its receipt is in it: the answer's fields are of topics."""
    (message,) = decode_messages(stored, unzip=False)
    properties = dict(message.properties)
    properties[names.POP_CK] = receipt._replace(queue_offset=offset).encode()
    record = record_of(message, properties, topic, message.queue_id, message.store_timestamp)
    if len(record.properties) > PROPERTIES_BYTES_MAX:
        # There is no room for the receipt: the client builds it from the answer's fields.
        del properties[names.POP_CK]
        record = record_of(message, properties, topic, message.queue_id, message.store_timestamp)
    place = (message.queue_offset, message.commit_log_offset)
    return encode_stored_message(record, topic.encode("utf-8", "replace"), *place, *message.store_host)


def commit_settled(broker: Broker, consumer_group: str, topic: str, queue_id: int) -> None:
    """The group's offset goes on to the first message of which the log does not know that it was delivered."""
    offset = broker.messages.pops.checkpoints.commit_offset(topic, consumer_group, queue_id)
    offsets = broker.catalog.offsets
    # Not back: a delivery that begins anew for one message is of messages that were delivered before.
    if offset is not None and offset > offsets.query(consumer_group, topic, queue_id):
        offsets.commit(consumer_group, topic, queue_id, offset)


# Looking, without a delivery --------------------------------------------------------------------------------------


def may_give(broker: Broker, asked: QueueOfGroup, now_ms: int, *, in_order: bool) -> bool:
    """Whether a pop may find something. `check_pop` comes before."""
    group, pops = asked.consumer_group, broker.messages.pops
    if in_order:
        for queue_id, (offset, max_offset) in _places(broker, group, asked.topic, asked.queue_id):
            queue = pops.fifo.find(asked.topic, group, queue_id)
            has_some = offset < max_offset if queue is None else queue.may_give(offset, max_offset, now_ms)
            if has_some and not broker.ownership.is_owned(group, asked.topic, queue_id, now_ms):
                return True
        return False
    places = [*_places(broker, group, asked.topic, asked.queue_id)]
    places += _places(broker, group, pop_retry_topic(group, asked.topic), ANY_QUEUE)
    return any(offset < max_offset for _, (offset, max_offset) in places)


def peek(broker: Broker, asked: QueueOfGroup, count: int) -> tuple[bytes, int]:
    """The next messages, which stay where they are. `check_pop` comes before.

    Also returns how many are left, those that are shown included, as in RocketMQ.
    """
    bodies, rest = list[bytes](), 0
    for queue_id, (offset, max_offset) in _places(broker, asked.consumer_group, asked.topic, asked.queue_id):
        rest += max_offset - offset
        found = broker.messages.store.get(asked.topic, queue_id, offset, count, None) if count > 0 else None
        if found is not None and found.message_count:
            bodies.append(found.body)
            count -= found.message_count
    return b"".join(bodies), rest


def _places(broker: Broker, consumer_group: str, topic: str, queue_id: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """Queue id, where the group goes on, and the end of the queue."""
    store, pops = broker.messages.store, broker.messages.pops
    for one in range(queue_count(broker, topic)) if queue_id < 0 else (queue_id,):
        low, high = store.min_offset(topic, one), store.max_offset(topic, one)
        offset = pops.checkpoints.position(
            topic, consumer_group, one, broker.catalog.offsets.query(consumer_group, topic, one)
        )
        yield one, (min(max(offset, low), high), high)


# The end of a client --------------------------------------------------------------------------------------------


def client_name(broker: Broker, peer: Peer, consumer_group: str) -> str:
    """The client id of a member; else the connection, which is all that is known of the client."""
    group = broker.members.consumers.groups.get(consumer_group)
    channel = group.channels.get(peer) if group is not None else None
    return peer.address if channel is None else channel.client_id


def forsake(broker: Broker, peer: Peer, now_ms: int) -> None:
    """A connection ended, before its memberships do: what its clients hold in order is free a grace later.

    RocketMQ's way knows no clients, and waits for the end of the invisible time.
    """
    clients = {peer.address}
    consumers = broker.members.consumers
    for group in consumers.memberships.of(peer):
        name = client_name(broker, peer, group)
        others = consumers.groups[group].channels.items() if group in consumers.groups else ()
        # A client may be back on another connection before its old one ends.
        if not any(channel.client_id == name and other is not peer for other, channel in others):
            clients.add(name)
    for name in sorted(clients):
        broker.messages.pops.client_gone(name, now_ms + broker.config.pop_grace_ms)


# Offsets ---------------------------------------------------------------------------------------------------------


def _committed(broker: Broker, peer: Peer, asked: Pop, topic: str, queue_id: int, now_ms: int) -> tuple[int, int]:
    """The group's offset of a queue, within the bounds of the queue; and the end of the queue."""
    group, store = asked.consumer_group, broker.messages.store
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    offset = broker.catalog.offsets.query(group, topic, queue_id)
    if offset < 0:
        check_capacity(broker, peer, 1, now_ms)
        # A young queue is read from its first message on, whatever the client wants (rule of wire.md 8.1). Else the
        # last message is the first one of a new group.
        offset = low if not asked.from_end or low <= 0 else max(0, high - 1)
        _commit(broker, group, topic, queue_id, offset)
    return min(max(offset, low), high), high


def _commit(broker: Broker, consumer_group: str, topic: str, queue_id: int, offset: int) -> None:
    if broker.catalog.offsets.query(consumer_group, topic, queue_id) != offset:
        broker.catalog.offsets.commit(consumer_group, topic, queue_id, offset)
