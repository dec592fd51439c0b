"""How far groups are: codes 43, 45, 208, 303, 308, 314, 317 (wire.md 2.4)."""

from typing import Final

from lockstep.broker.connection import Connection
from lockstep.broker.core import Broker
from lockstep.broker.processors.refusal import Refusal
from lockstep.protocol.admin_bodies import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from lockstep.protocol.admin_headers import (
    CloneGroupOffsetRequestHeader,
    ConsumeStatsRequestHeader,
    GetBrokerConsumeStatsRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetRequestHeader,
)
from lockstep.protocol.body_codec import encode_body
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.config_bodies import ConsumerOffsetTable, DelayOffsetTable, QueryCorrectionOffsetBody
from lockstep.protocol.model import MessageQueue

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


# Offsets as they are stored ---------------------------------------------------------------------------------------


def all_consumer_offsets(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    table = {f"{topic}@{group}": offsets for (topic, group), offsets in broker.offsets.all().items()}
    return command.reply(ResponseCode.SUCCESS, body=encode_body(ConsumerOffsetTable(table), command.serialize_type))


def all_delay_offsets(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    body = DelayOffsetTable(dict(broker.delays.offsets))
    return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))


def clone_offsets(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """The destination starts where the source is, on one topic or on all that the source has offsets of."""
    header = command.decode_header(CloneGroupOffsetRequestHeader)
    for topic in [header.topic] if header.topic else broker.offsets.topics_of(header.src_group):
        if broker.topics.get(topic) is None or (not header.offline and _unsubscribed(broker, header.src_group, topic)):
            continue
        broker.offsets.clone(header.src_group, header.dest_group, topic)
    return command.reply(ResponseCode.SUCCESS)


def _unsubscribed(broker: Broker, group: str, topic: str) -> bool:
    """The group is online and its members want nothing of the topic any more."""
    members = broker.consumers.groups.get(group)
    return members is not None and bool(members.subscriptions) and topic not in members.subscriptions


def correction_offsets(
    broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int
) -> RemotingCommand:
    """The lowest offset of each queue among all groups; where the compared group is lower, the highest number there is.

    Apache's broker also drops the stored offsets of the groups to be left out, by a slip; we only leave them out.
    """
    header = command.decode_header(QueryCorrectionOffsetRequestHeader)
    left_out = set(header.filter_groups.split(",")) if header.filter_groups else set()
    lowest: dict[int, int] = {}
    for group in broker.offsets.groups_of(header.topic):
        for queue_id, offset in broker.offsets.queues_of(group, header.topic).items() if group not in left_out else ():
            if broker.store.min_offset(header.topic, queue_id) <= offset:
                lowest[queue_id] = min(offset, lowest.get(queue_id, _INT64_MAX))
    compared = broker.offsets.queues_of(header.compare_group, header.topic)
    for queue_id, offset in compared.items():
        if queue_id in lowest:
            lowest[queue_id] = _INT64_MAX if lowest[queue_id] > offset else offset
    body = QueryCorrectionOffsetBody(lowest)
    return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))


# How far a group is -----------------------------------------------------------------------------------------------


def consume_stats(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Of one topic, or of all that the group has offsets of; the rates of its topics are summed."""
    group, only_topic = command.decode_header(ConsumeStatsRequestHeader)
    table: dict[MessageQueue, OffsetWrapper] = {}
    tps = 0.0
    for topic in [only_topic] if only_topic else broker.offsets.topics_of(group):
        config = broker.topics.get(topic)
        if config is None or _unsubscribed(broker, group, topic):
            continue
        table |= _progress(broker, group, topic, config.read_queue_nums)
        tps += broker.stats.group_get_tps(topic, group)
    return command.reply(ResponseCode.SUCCESS, body=encode_body(ConsumeStats(table, tps), command.serialize_type))


def all_consume_stats(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Every group that has a configuration, also those without offsets."""
    (is_order,) = command.decode_header(GetBrokerConsumeStatsRequestHeader)
    rows = []
    for config in broker.groups.groups:
        group = config.group_name
        rows.append((group, tuple(_stats_by_topic(broker, group, is_order))))
    total_diff = sum(stats.total_diff for _, topics in rows for stats in topics)
    body = ConsumeStatsList(tuple(rows), broker.address, total_diff)
    return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))


def _stats_by_topic(broker: Broker, group: str, is_order: bool) -> list[ConsumeStats]:
    result = []
    for topic in broker.offsets.topics_of(group):
        config = broker.topics.get(topic)
        if config is None or (is_order and not config.order) or _unsubscribed(broker, group, topic):
            continue
        table = _progress(broker, group, topic, config.write_queue_nums)
        result.append(ConsumeStats(table, broker.stats.group_get_tps(topic, group)))
    return result


def _progress(broker: Broker, group: str, topic: str, queue_nums: int) -> dict[MessageQueue, OffsetWrapper]:
    store, name = broker.store, broker.config.broker_name
    table = {}
    for queue_id in range(queue_nums):
        committed = max(0, broker.offsets.query(group, topic, queue_id))
        last_ms = store.store_timestamp(topic, queue_id, committed - 1) if committed > 0 else None
        high = store.max_offset(topic, queue_id)
        table[MessageQueue(topic, name, queue_id)] = OffsetWrapper(high, committed, last_ms or 0)
    return table


def consume_time_span(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """Times of each queue's first, last and last consumed message; -1 where there is none."""
    topic, group = command.decode_header(QueryConsumeTimeSpanRequestHeader)
    config = broker.topics.get(topic)
    if config is None:
        raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
    spans = tuple(_time_span(broker, group, topic, queue_id, now_ms) for queue_id in range(config.write_queue_nums))
    return command.reply(
        ResponseCode.SUCCESS, body=encode_body(QueryConsumeTimeSpanBody(spans), command.serialize_type)
    )


def _time_span(broker: Broker, group: str, topic: str, queue_id: int, now_ms: int) -> QueueTimeSpan:
    def stored_at(queue_offset: int) -> int:
        timestamp = broker.store.store_timestamp(topic, queue_id, queue_offset)
        return _NO_TIME if timestamp is None else timestamp

    high = broker.store.max_offset(topic, queue_id)
    first_ms, last_ms = stored_at(broker.store.min_offset(topic, queue_id)), stored_at(high - 1)
    committed = broker.offsets.query(group, topic, queue_id)
    consumed_ms = stored_at(committed - 1) if committed > 0 else first_ms
    next_ms = stored_at(max(committed, broker.store.min_offset(topic, queue_id)))
    behind_ms = now_ms - next_ms if next_ms >= 0 else 0
    queue = MessageQueue(topic, broker.config.broker_name, queue_id)
    return QueueTimeSpan(queue, first_ms, last_ms, consumed_ms, behind_ms)
