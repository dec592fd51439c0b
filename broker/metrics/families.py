"""The metrics of a broker as a table: name, kind, labels and meaning.

Names and labels are those of RocketMQ 5 where it has them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

__all__ = ["FAMILIES", "Family", "FamilyKind", "Rows", "Samples"]

_NODE: Final = ("cluster", "node_type", "node_id")
_GROUP: Final = (*_NODE, "topic", "consumer_group", "is_retry", "is_system")


class FamilyKind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Family:
    kind: FamilyKind
    labels: tuple[str, ...]
    help: str


_C, _G = FamilyKind.COUNTER, FamilyKind.GAUGE
FAMILIES: Final[Mapping[str, Family]] = {
    # RocketMQ 5
    "rocketmq_messages_in_total": Family(_C, (*_NODE, "topic", "is_system"), "Messages that were stored."),
    "rocketmq_throughput_in_total": Family(_C, (*_NODE, "topic", "is_system"), "Their bytes."),
    "rocketmq_messages_out_total": Family(_C, _GROUP, "Messages in answers to pulls."),
    "rocketmq_throughput_out_total": Family(_C, _GROUP, "Their bytes."),
    "rocketmq_send_to_dlq_messages_total": Family(
        _C, (*_NODE, "consumer_group"), "Messages that became dead letters of a consumer group."
    ),
    "rocketmq_consumer_lag_messages": Family(_G, _GROUP, "Messages behind the committed offsets of a consumer group."),
    "rocketmq_consumer_lag_latency": Family(_G, _GROUP, "Milliseconds since the oldest of them was stored."),
    "rocketmq_consumer_connections": Family(
        _G, (*_NODE, "consumer_group", "language", "version", "consume_mode"), "Members of consumer groups."
    ),
    "rocketmq_producer_connections": Family(_G, (*_NODE, "language", "version"), "Producers."),
    "rocketmq_half_messages": Family(_G, _NODE, "Transactions without an end."),
    "rocketmq_pop_checkpoint_buffer_size": Family(_G, _NODE, "Deliveries to groups without order under way."),
    "rocketmq_pop_revive_retry_messages_total": Family(
        _C,
        (*_NODE, "consumer_group", "topic", "put_status"),
        "Messages that were stored again: a group without order did not acknowledge them in time.",
    ),
    # Lockstep
    "lockstep_lock_held": Family(_G, (*_NODE, "consumer_group", "topic"), "Queues that a client owns at this moment."),
    "lockstep_lock_grants_total": Family(
        _C, (*_NODE, "outcome"), "Queues in lock requests, by the answer: granted, renewed, refused, ..."
    ),
    "lockstep_lock_takeovers_total": Family(
        _C, (*_NODE, "cause"), "Queues that went to another client, by why the last period of ownership ended."
    ),
    "lockstep_lock_handover_seconds": Family(
        FamilyKind.HISTOGRAM, _NODE, "How long such a queue had no owner, since the last sign of the last one."
    ),
    "lockstep_queue_owner_changes_total": Family(
        _C, (*_NODE, "consumer_group", "topic"), "How often a queue got another owner than before."
    ),
    "lockstep_fenced_total": Family(
        _C,
        (*_NODE, "request", "reason"),
        "Requests that fenced locks refused: the client did not own the queue.",
    ),
    "lockstep_oldest_unhandled_seconds": Family(
        _G, (*_NODE, "topic", "consumer_group"), "The age of the oldest message behind the committed offsets."
    ),
    "lockstep_plain_sends_total": Family(
        _C,
        (*_NODE, "outcome"),
        "Sends handled from their bytes: taken; reads and frames that looked so: refused.",
    ),
    "lockstep_held_pulls": Family(_G, _NODE, "Pulls that wait for messages."),
    "lockstep_held_pops": Family(_G, _NODE, "Pops and notifications that wait for messages."),
    "lockstep_pop_queues_held": Family(
        _G,
        (*_NODE, "consumer_group", "topic"),
        "Queues that a delivery to a group in order holds up at this moment, as a whole or some keys of them.",
    ),
    "lockstep_pop_oldest_held_seconds": Family(
        _G, (*_NODE, "consumer_group", "topic"), "The age of the oldest delivery that holds up such a queue."
    ),
    "lockstep_pop_answers_total": Family(
        _C,
        (*_NODE, "consumer_group", "outcome"),
        "Acknowledgements, and changes of invisible times, by what became of them.",
    ),
    "lockstep_grpc_connections": Family(_G, _NODE, "Connections of clients of gRPC."),
    "lockstep_grpc_sessions": Family(_G, _NODE, "Such clients that have said what they are: producers and consumers."),
    "lockstep_grpc_calls_under_way": Family(_G, _NODE, "Their calls that have not ended, as those that wait."),
    "lockstep_grpc_calls_total": Family(
        _C,
        (*_NODE, "rpc", "code"),
        "Their calls that ended, by name and the code of the answer; CANCELLED: the client went.",
    ),
    "lockstep_limits_met_total": Family(_C, (*_NODE, "setting"), "How often a limit was reached, by its setting."),
    "lockstep_limit_used": Family(
        _G, (*_NODE, "setting"), "Connections, bytes and requests now that count for a limit, by its setting."
    ),
    "lockstep_series_dropped": Family(_G, _NODE, "Series that this scrape left out, because there are too many."),
}

Rows = dict[tuple[str, ...], float]


@dataclass
class Samples:
    """One scrape: the value of each series, by family and label values after those of the node.

    `handovers`: counts by bucket, not cumulative, and the sum in seconds. `dropped`: the series that found no room.
    """

    node: tuple[str, str, str]
    rows: dict[str, Rows] = field(default_factory=lambda: {name: {} for name in FAMILIES})
    handovers: tuple[list[int], float] = ((), 0.0)  # type: ignore[assignment]
    series_max: int = 0
    dropped: dict[tuple[str, tuple[str, ...]], None] = field(default_factory=dict)

    def set(self, name: str, labels: tuple[str, ...], value: float) -> None:
        """Set a series. A family has at most `series_max` of them."""
        rows = self.rows[name]
        if len(rows) < self.series_max or labels in rows:
            rows[labels] = value
        else:
            self.dropped[name, labels] = None

    def add(self, name: str, labels: tuple[str, ...], value: float) -> None:
        self.set(name, labels, self.rows[name].get(labels, 0) + value)
