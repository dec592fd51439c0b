"""How many messages are cached: limits of a queue and its share of a topic's limit, at each boundary (wire.md 12.6)."""

from typing import Any

import pytest

from lockstep.client import ConsumerConfig
from lockstep.client.consumer.flow_control import FlowControl, FlowLimits
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from tests.client.messages import message_at
from tests.client.periods import period
from tests.client.stage import queue_at

MIB = 1024 * 1024


def holding(*offsets: int, body_bytes: int = 1) -> ProcessQueue:
    process_queue = period(queue_at(0))
    process_queue.cache.put_messages([message_at(offset, b"x" * body_bytes) for offset in offsets])
    return process_queue


def control(*, checks_span: bool = True, **settings: Any) -> FlowControl:
    return FlowControl.of_push(ConsumerConfig(**settings), checks_span=checks_span)


@pytest.mark.parametrize(
    ("within", "over", "reason", "settings"),
    [
        (holding(*range(1000)), holding(*range(1001)), "count", {}),
        (holding(1, 2, body_bytes=50), holding(1, 2, body_bytes=51), "bytes", {"pull_threshold_bytes_for_queue": 100}),
        (
            holding(1, body_bytes=2 * MIB - 1),
            holding(1, body_bytes=2 * MIB),
            "bytes",
            {"pull_threshold_bytes_for_queue": MIB},
        ),
        (holding(7, 2007), holding(7, 2008), "span", {}),
        (holding(0, 9), holding(0, 10), "span", {"consume_concurrently_max_span": 9}),
    ],
)
def test_a_limit_may_be_reached_but_not_exceeded(
    within: ProcessQueue, over: ProcessQueue, reason: str, settings: dict[str, Any]
) -> None:
    """1 000 messages, 100 MiB and a span of 2 000 unless they are set otherwise; MiB count whole, as in RocketMQ."""
    flow = control(**settings)
    assert flow.reached(within) is None
    assert flow.reached(over) == reason


def test_the_defaults() -> None:
    """As RocketMQ's (wire.md 12.12)."""
    assert control().limits("T") == FlowLimits(1000, 100 * MIB, 2000)


def test_in_order_there_is_no_span() -> None:
    """Where messages are handled one after the other, it says nothing."""
    assert control(checks_span=False).reached(holding(0, 10_000_000)) is None


@pytest.mark.parametrize(("owned", "share"), [(1, (10, 100)), (3, (3, 33)), (10, (1, 10)), (11, (1, 9)), (200, (1, 1))])
def test_a_topics_limits_are_shared_out(owned: int, share: tuple[int, int]) -> None:
    """Among its queues of this client, rounded down and 1 at least; other topics' queues do not count."""
    flow = control(pull_threshold_for_topic=10, pull_threshold_bytes_for_topic=100)
    queues = [queue_at(number) for number in range(owned)]
    flow.share_out("Aircraft", [*queues, queue_at(0, topic="%RETRY%g")])
    assert flow.limits("Aircraft")[:2] == share
    assert flow.limits("%RETRY%g")[:2] == (1000, 100 * MIB)


def test_a_share_of_whole_mib_is_whole_mib() -> None:
    """As RocketMQ divides them (wire.md 12.6): 10 MiB among 3 queues are 3 each, and 1 among 2 is 1."""
    flow = control(pull_threshold_bytes_for_topic=10 * MIB)
    flow.share_out("Aircraft", [queue_at(number) for number in range(3)])
    assert flow.limits("Aircraft").message_bytes == 3 * MIB
    assert flow.reached(holding(1, body_bytes=4 * MIB - 1)) is None
    assert flow.reached(holding(1, body_bytes=4 * MIB)) == "bytes"
    flow.share_out("Aircraft", [queue_at(number) for number in range(11)])
    assert flow.limits("Aircraft").message_bytes == MIB


def test_shares_change_with_the_queues() -> None:
    """At each rebalance; a rebalance that leaves no queue keeps the last share for messages that are still cached."""
    flow = control(pull_threshold_for_topic=10)
    queues = [queue_at(number) for number in range(5)]
    flow.share_out("Aircraft", queues)
    assert flow.reached(holding(0, 1, 2)) == "count"
    flow.share_out("Aircraft", queues[:2])
    assert flow.limits("Aircraft") == FlowLimits(5, 100 * MIB, 2000)
    flow.share_out("Aircraft", [])
    assert flow.limits("Aircraft").message_count == 5
    assert flow.reached(holding(*range(6))) == "count"


def test_the_log_is_told_each_1_000_times() -> None:
    """Of each reason by itself."""
    flow = control()
    told = [time for time in range(2001) if flow.must_log("span")]
    assert told == [0, 1000, 2000]
    assert flow.must_log("count")
