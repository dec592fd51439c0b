"""Bodies of administration replies: statistics of topics, groups and consume queues (wire.md 2.3 and 2.4)."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Self

from lockstep.protocol.bodies.broker import queue_from_wire, queue_to_wire
from lockstep.protocol.bodies.codec import as_list, as_object, as_table, as_texts, take
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.bodies.queue_tables import as_queue_table, queue_table
from lockstep.protocol.bodies.records import record_from_wire, record_to_wire
from lockstep.protocol.model import MessageQueue

__all__ = [
    "BrokerStatsData",
    "BrokerStatsItem",
    "ConsumeQueueData",
    "ConsumeStats",
    "ConsumeStatsList",
    "GroupList",
    "OffsetWrapper",
    "QueryConsumeQueueResponseBody",
    "QueryConsumeTimeSpanBody",
    "QueueTimeSpan",
    "TopicOffset",
    "TopicStatsTable",
]


class TopicOffset(NamedTuple):
    """One queue. `max_offset`: the next offset to write. The timestamp: epoch ms of the last message, 0 without one."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0

    @property
    def message_count(self) -> int:
        """How many messages the queue has. A first offset below 0 is that of an empty queue."""
        return self.max_offset - max(self.min_offset, 0)


class TopicStatsTable(NamedTuple):
    """Reply to GET_TOPIC_STATS_INFO (202)."""

    offset_table: Mapping[MessageQueue, TopicOffset]

    def to_wire(self) -> dict[str, Any]:
        return {"offsetTable": queue_table(self.offset_table, record_to_wire)}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        table = as_object(value, "topic statistics").get("offsetTable")
        return cls(as_queue_table(table, "offsetTable", lambda offset: record_from_wire(TopicOffset, offset)))


class OffsetWrapper(NamedTuple):
    """The progress of a group in a queue.

    Args:
        last_timestamp: Epoch ms of the last committed message, or 0.
        oldest_timestamp: When the oldest message behind the committed offset was stored; None: there is none, or the
            peers have not agreed (docs/architecture.md, "On the wire").
    """

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0
    oldest_timestamp: int | None = None

    @property
    def lag(self) -> int:
        """How many messages lie behind the committed offset; 0 when that is beyond the end of the queue."""
        return max(self.broker_offset - self.consumer_offset, 0)


class ConsumeStats(NamedTuple):
    """Reply to GET_CONSUME_STATS (208)."""

    offset_table: Mapping[MessageQueue, OffsetWrapper]
    consume_tps: float = 0.0

    @property
    def total_diff(self) -> int:
        return sum(offsets.broker_offset - offsets.consumer_offset for offsets in self.offset_table.values())

    def to_wire(self) -> dict[str, Any]:
        return {"consumeTps": self.consume_tps, "offsetTable": queue_table(self.offset_table, record_to_wire)}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "consume statistics")
        table = as_queue_table(
            wire.get("offsetTable"), "offsetTable", lambda offsets: record_from_wire(OffsetWrapper, offsets)
        )
        return cls(table, take(wire, "consumeTps", float, 0.0))


class ConsumeStatsList(NamedTuple):
    """Reply to GET_BROKER_CONSUME_STATS (317): for each group, the statistics of its topics."""

    consume_stats_list: tuple[tuple[str, tuple[ConsumeStats, ...]], ...]
    broker_addr: str | None = None
    total_diff: int = 0

    def to_wire(self) -> dict[str, Any]:
        groups = [{group: [stats.to_wire() for stats in topics]} for group, topics in self.consume_stats_list]
        wire = {"brokerAddr": self.broker_addr, "consumeStatsList": groups, "totalDiff": self.total_diff}
        return wire if self.broker_addr is not None else {name: wire[name] for name in wire if name != "brokerAddr"}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a list of consume statistics")
        groups = [
            (group, tuple(ConsumeStats.from_wire(stats) for stats in as_list(topics, "the topics of a group")))
            for table in as_list(wire.get("consumeStatsList"), "consumeStatsList")
            for group, topics in as_table(table, "an entry of consumeStatsList").items()
        ]
        return cls(tuple(groups), take(wire, "brokerAddr", str, None), take(wire, "totalDiff", int, 0))


class GroupList(NamedTuple):
    """Reply to QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    group_list: tuple[str, ...]

    def to_wire(self) -> dict[str, Any]:
        return {"groupList": list(self.group_list)}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        return cls(as_texts(as_object(value, "the body").get("groupList"), "groupList"))


class QueueTimeSpan(NamedTuple):
    """Epoch ms of the first, the last and the last consumed message of a queue. `delay_time`: the delay in ms."""

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0

    def to_wire(self) -> dict[str, Any]:
        return {
            "consumeTimeStamp": self.consume_time_stamp,
            "consumeTimeStampStr": _date_text(self.consume_time_stamp),
            "delayTime": self.delay_time,
            "maxTimeStamp": self.max_time_stamp,
            "maxTimeStampStr": _date_text(self.max_time_stamp),
            "messageQueue": queue_to_wire(self.message_queue),
            "minTimeStamp": self.min_time_stamp,
            "minTimeStampStr": _date_text(self.min_time_stamp),
        }

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a time span")
        names = ("minTimeStamp", "maxTimeStamp", "consumeTimeStamp", "delayTime")
        return cls(queue_from_wire(wire.get("messageQueue")), *(take(wire, name, int, 0) for name in names))


def _date_text(epoch_ms: int) -> str:
    """A time as `2026-11-21#00:00:00:000`, in UTC. Only people read it."""
    try:
        date = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=epoch_ms)
    except OverflowError:
        return ""
    return f"{date:%Y-%m-%d#%H:%M:%S}:{epoch_ms % 1000:03d}"


class QueryConsumeTimeSpanBody(NamedTuple):
    """Reply to QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: tuple[QueueTimeSpan, ...]

    def to_wire(self) -> dict[str, Any]:
        return {"consumeTimeSpanSet": [span.to_wire() for span in self.consume_time_span_set]}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        spans = as_list(as_object(value, "the body").get("consumeTimeSpanSet"), "consumeTimeSpanSet")
        return cls(tuple(QueueTimeSpan.from_wire(span) for span in spans))


class BrokerStatsItem(NamedTuple):
    """Statistics of one time window: the sum, the mean per second and the mean per call."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(NamedTuple):
    """Reply to VIEW_BROKER_STATS_DATA (315)."""

    stats_minute: BrokerStatsItem
    stats_hour: BrokerStatsItem
    stats_day: BrokerStatsItem

    def to_wire(self) -> dict[str, Any]:
        return dict(zip(("statsMinute", "statsHour", "statsDay"), map(record_to_wire, self), strict=True))

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "statistics")
        names = ("statsMinute", "statsHour", "statsDay")
        return cls(*(record_from_wire(BrokerStatsItem, wire.get(name)) for name in names))


class ConsumeQueueData(NamedTuple):
    """An entry of a consume queue. `eval`: whether the group's filter accepts it. `msg`: why not."""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(NamedTuple):
    """Reply to QUERY_CONSUME_QUEUE (321)."""

    queue_data: tuple[ConsumeQueueData, ...]
    max_queue_index: int
    min_queue_index: int
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None

    def to_wire(self) -> dict[str, Any]:
        wire = {
            "filterData": self.filter_data,
            "maxQueueIndex": self.max_queue_index,
            "minQueueIndex": self.min_queue_index,
            "queueData": [record_to_wire(entry) for entry in self.queue_data],
            "subscriptionData": self.subscription_data and self.subscription_data.to_wire(),
        }
        return {name: value for name, value in wire.items() if value is not None}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "the body")
        subscription = wire.get("subscriptionData")
        return cls(
            tuple(record_from_wire(ConsumeQueueData, entry) for entry in as_list(wire.get("queueData"), "queueData")),
            take(wire, "maxQueueIndex", int, 0),
            take(wire, "minQueueIndex", int, 0),
            None if subscription is None else SubscriptionData.from_wire(subscription),
            take(wire, "filterData", str, None),
        )
