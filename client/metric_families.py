"""The metrics of clients as a table. Names and labels are those of RocketMQ 5's clients where these have them."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from lockstep.client.histogram import Histogram

__all__ = ["FAMILIES", "TOPICS_MAX", "Family", "FamilyKind", "Rows"]

# Of one client; those above it count as one.
TOPICS_MAX: Final = 200

Rows = Iterable[tuple[str, tuple[str, ...], float | Histogram]]
"""Name, label values, value."""


class FamilyKind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family(NamedTuple):
    kind: FamilyKind
    labels: tuple[str, ...]
    help: str


_C, _G, _H = FamilyKind.COUNTER, FamilyKind.GAUGE, FamilyKind.HISTOGRAM
_CLIENT: Final = ("consumer_group", "client_id")
_TOPIC: Final = ("topic", *_CLIENT)
FAMILIES: Final[Mapping[str, Family]] = {
    # RocketMQ 5
    "rocketmq_process_time": Family(
        _H, (*_TOPIC, "invocation_status"), "How long calls of the listener took, in milliseconds."
    ),
    "rocketmq_await_time": Family(
        _H, _TOPIC, "How long the first message of a call was here before the call began, in milliseconds."
    ),
    "rocketmq_consumer_cached_messages": Family(_G, _TOPIC, "Messages that were pulled and are not handled yet."),
    "rocketmq_consumer_cached_bytes": Family(_G, _TOPIC, "The bytes of their bodies."),
    "rocketmq_send_cost_time": Family(
        _H,
        ("topic", "producer_group", "client_id", "invocation_status"),
        "How long attempts to send took, in milliseconds.",
    ),
    # Lockstep
    "lockstep_client_messages_total": Family(_C, (*_TOPIC, "outcome"), "Messages that the listener had."),
    "lockstep_client_pulled_total": Family(_C, _TOPIC, "Messages that were pulled."),
    "lockstep_client_queues": Family(_G, (*_TOPIC, "state"), "Queues of this client, by the state of their lock."),
    "lockstep_client_commits_total": Family(_C, _CLIENT, "Offsets that were stored."),
    "lockstep_client_deliveries_lost_total": Family(_C, _CLIENT, "Deliveries that ended before they were answered."),
    "lockstep_client_calls_total": Family(
        _C, (*_CLIENT, "fate"), "Calls of the listener that did not begin, ran beyond their lock, or were cancelled."
    ),
}
