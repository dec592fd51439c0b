"""Offsets and progress of consumer groups: codes 43, 45, 208, 303, 308, 314, 317 (wire.md 2.4)."""

from collections.abc import Iterator
from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core.broker import Broker
from lockstep.broker.core.commit import check_capacity
from lockstep.broker.fronts.remoting.in_steps import reply_in_steps
from lockstep.broker.fronts.remoting.refusal import Refusal
from lockstep.protocol.bodies.admin import ConsumeStats, OffsetWrapper, QueueTimeSpan
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.bodies.config import DelayOffsetTable, QueryCorrectionOffsetBody, QueueOffsets
from lockstep.protocol.bodies.queue_tables import queue_table
from lockstep.protocol.bodies.records import record_to_wire
from lockstep.protocol.bodies.rows import ROWS_A_STEP, BodyRows, BodySteps, encode_table
from lockstep.protocol.codes import ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.headers.admin import (
    CloneGroupOffsetRequestHeader,
    ConsumeStatsRequestHeader,
    GetBrokerConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetRequestHeader,
)
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group

__all__ = [
    "all_consume_stats",
    "all_consumer_offsets",
    "all_delay_offsets",
    "clone_offsets",
    "consume_stats",
    "consume_time_span",
    "correction_offsets",
]

_INT64_MAX: Final = 2**63 - 1
_NO_TIME: Final = -1
_GROUPS_A_STEP: Final = 16
# Queues that one step looks at; of each up to four messages are read from files.
_SPANS_A_STEP: Final = 8
_LOOKED_AT_A_STEP: Final = 512  # offsets


# Stored offsets ---------------------------------------------------------------------------------------------------


def all_consumer_offsets(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    def body() -> BodySteps:
        table = tuple(broker.catalog.offsets.table.items())
        rows = ((f"{topic}@{group}", QueueOffsets(offsets)) for (topic, group), offsets in table)
        return encode_table({}, "offsetTable", rows, command.serialize_type)

    return reply_in_steps(broker, connection, command, body)


def all_delay_offsets(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    body = DelayOffsetTable(dict(broker.messages.delays.offsets))
    return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))


def clone_offsets(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Copy the offsets of one group to another, for one topic or for all topics of the source group."""
    header = command.decode_header(CloneGroupOffsetRequestHeader)
    try:
        check_group(header.dest_group)
    except LocalProtocolError as error:
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
    for topic in [header.topic] if header.topic else broker.catalog.offsets.topics_of(header.src_group):
        if broker.catalog.topics.get(topic) is None or (
            not header.offline and _unsubscribed(broker, header.src_group, topic)
        ):
            continue
        new = broker.catalog.offsets.queues_of(header.src_group, topic)
        check_capacity(
            broker, connection, len(new) - len(broker.catalog.offsets.queues_of(header.dest_group, topic)), now_ms
        )
        broker.catalog.offsets.clone(header.src_group, header.dest_group, topic)
        for queue_id in broker.catalog.offsets.queues_of(header.dest_group, topic):
            broker.messages.pops.reset(topic, header.dest_group, queue_id, now_ms)
        broker.ownership.reset(header.dest_group, topic, new, now_ms)
    return command.reply(ResponseCode.SUCCESS)


def _unsubscribed(broker: Broker, group: str, topic: str) -> bool:
    """Whether the group has members, and none of them subscribes to the topic."""
    members = broker.members.consumers.groups.get(group)
    return members is not None and bool(members.subscriptions) and topic not in members.subscriptions


def correction_offsets(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """The lowest offset of each queue among all groups; the largest int64 where the compared group is lower.

    Apache's broker also deletes the stored offsets of the groups in `filter_groups`, by mistake; ours only reads.
    """
    header = command.decode_header(QueryCorrectionOffsetRequestHeader)
    return reply_in_steps(broker, connection, command, lambda: _corrections(broker, header, command.serialize_type))


def _corrections(broker: Broker, header: QueryCorrectionOffsetRequestHeader, serialize_type: int) -> BodySteps:
    left_out = set(header.filter_groups.split(",")) if header.filter_groups else set()
    lowest: dict[int, int] = {}
    looked_at = 0
    for group in broker.catalog.offsets.groups_of(header.topic):
        for queue_id, offset in (
            broker.catalog.offsets.queues_of(group, header.topic).items() if group not in left_out else ()
        ):
            if broker.messages.store.min_offset(header.topic, queue_id) <= offset:
                lowest[queue_id] = min(offset, lowest.get(queue_id, _INT64_MAX))
            looked_at += 1
            if looked_at % _LOOKED_AT_A_STEP == 0:
                yield None
    compared = broker.catalog.offsets.queues_of(header.compare_group, header.topic)
    for queue_id, offset in compared.items():
        if queue_id in lowest:
            lowest[queue_id] = _INT64_MAX if lowest[queue_id] > offset else offset
    return encode_body(QueryCorrectionOffsetBody(lowest), serialize_type)


# Progress ----------------------------------------------------------------------------------------------------------


def consume_stats(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Progress in one topic, or in all topics of the group. `consumeTps` is the sum of its topics."""
    group, only_topic = command.decode_header(ConsumeStatsRequestHeader)
    topics = tuple(_topics_of(broker, group, only_topic))
    return reply_in_steps(broker, connection, command, lambda: _stats(broker, group, topics, command.serialize_type))


def _stats(broker: Broker, group: str, topics: tuple[TopicConfig, ...], serialize_type: int) -> BodySteps:
    body, tps = BodyRows(serialize_type), 0.0
    for topic in topics:
        for table in _progress(
            broker, group, topic.topic_name, topic.read_queue_nums, has_agreed=serialize_type == SerializeType.MSGPACK
        ):
            body.add(queue_table(table, record_to_wire))
            yield None
        tps += broker.stats.group_get_tps(topic.topic_name, group)
    return (yield from body.finish({"consumeTps": tps}, "offsetTable"))


def all_consume_stats(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Progress of every group with a configuration, also without offsets."""
    (is_order,) = command.decode_header(GetBrokerConsumeStatsRequestHeader)
    return reply_in_steps(broker, connection, command, lambda: _all_stats(broker, is_order, command.serialize_type))


def _all_stats(broker: Broker, is_order: bool, serialize_type: int) -> BodySteps:
    body, total_diff = BodyRows(serialize_type), 0
    for number, config in enumerate(tuple(broker.catalog.groups.groups), 1):
        group = config.group_name
        of_group = BodyRows(serialize_type)
        for topic in _topics_of(broker, group):
            if is_order and not topic.order:
                continue
            of_topic = BodyRows(serialize_type)
            for table in _progress(broker, group, topic.topic_name, topic.write_queue_nums):
                of_topic.add(queue_table(table, record_to_wire))
                total_diff += ConsumeStats(table).total_diff
                yield None
            tps = broker.stats.group_get_tps(topic.topic_name, group)
            of_group.add_body(of_topic, {"consumeTps": tps}, "offsetTable")
        body.add_body(of_group, {}, group, as_list=True)
        if number % _GROUPS_A_STEP == 0:
            yield None
    wire = {"brokerAddr": broker.address, "totalDiff": total_diff}
    return (yield from body.finish(wire, "consumeStatsList", as_list=True))


def _topics_of(broker: Broker, group: str, only_topic: str | None = None) -> Iterator[TopicConfig]:
    """The topic in the request, or those with offsets of the group; topics that it has left are not included."""
    for topic in [only_topic] if only_topic else broker.catalog.offsets.topics_of(group):
        config = broker.catalog.topics.get(topic)
        if config is not None and not _unsubscribed(broker, group, topic):
            yield config


def _progress(
    broker: Broker, group: str, topic: str, queue_nums: int, *, has_agreed: bool = False
) -> Iterator[dict[MessageQueue, OffsetWrapper]]:
    """The progress of a group in each queue, some queues at a time.

    Args:
        has_agreed: The peer is ours: it is also given the time of the oldest message behind the committed offset.
    """
    store, name = broker.messages.store, broker.config.broker_name
    for start in range(0, queue_nums, ROWS_A_STEP):
        table = {}
        for queue_id in range(start, min(start + ROWS_A_STEP, queue_nums)):
            committed = max(0, broker.catalog.offsets.query(group, topic, queue_id))
            last_ms = store.store_timestamp(topic, queue_id, committed - 1) if committed > 0 else None
            high = store.max_offset(topic, queue_id)
            oldest_ms = None
            if has_agreed and committed < high:
                first = max(committed, store.min_offset(topic, queue_id))
                oldest_ms = store.store_timestamp(topic, queue_id, first)
            table[MessageQueue(topic, name, queue_id)] = OffsetWrapper(high, committed, last_ms or 0, oldest_ms)
        yield table


def consume_time_span(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand | None:
    """Store times of each queue's first, last and last consumed message; -1 for none."""
    topic, group = command.decode_header(QueryConsumeTimeSpanRequestHeader)
    config = broker.catalog.topics.get(topic)
    if config is None:
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")

    def steps() -> BodySteps:
        body = BodyRows(command.serialize_type)
        for queue_id in range(config.write_queue_nums):
            body.add([_time_span(broker, group, topic, queue_id, now_ms).to_wire()])
            if queue_id % _SPANS_A_STEP == 0:
                yield None
        return (yield from body.finish({}, "consumeTimeSpanSet", as_list=True))

    return reply_in_steps(broker, connection, command, steps)


def _time_span(broker: Broker, group: str, topic: str, queue_id: int, now_ms: int) -> QueueTimeSpan:
    def stored_at(queue_offset: int) -> int:
        timestamp = broker.messages.store.store_timestamp(topic, queue_id, queue_offset)
        return _NO_TIME if timestamp is None else timestamp

    high = broker.messages.store.max_offset(topic, queue_id)
    first_ms, last_ms = stored_at(broker.messages.store.min_offset(topic, queue_id)), stored_at(high - 1)
    committed = broker.catalog.offsets.query(group, topic, queue_id)
    consumed_ms = stored_at(committed - 1) if committed > 0 else first_ms
    next_ms = stored_at(max(committed, broker.messages.store.min_offset(topic, queue_id)))
    behind_ms = now_ms - next_ms if next_ms >= 0 else 0
    queue = MessageQueue(topic, broker.config.broker_name, queue_id)
    return QueueTimeSpan(queue, first_ms, last_ms, consumed_ms, behind_ms)
