"""Messages in and out and lag over time: of groups, topics and brokers, counted from offsets and counters."""

import pytest

from lockstep.console import flows
from lockstep.console.collector import Collector
from lockstep.console.flows import Flow, Flows
from lockstep.console.model import BrokerState
from lockstep.protocol.bodies.admin import OffsetWrapper
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import retry_topic
from tests.console.readings import GROUP, NOW_MS, QUEUES, TOPIC, reading, watched

NEXT_MS = NOW_MS + 2000


def offsets(end: int, committed: int, queues: list[MessageQueue] = QUEUES) -> dict[MessageQueue, OffsetWrapper]:
    return {queue: OffsetWrapper(end, committed) for queue in queues}


def counts(flow: Flow) -> tuple[int, int, int]:
    return flow.came, flow.gone, flow.lag


def test_a_group_counts_what_came_and_what_it_consumed() -> None:
    """Of four queues; an offset that was set back takes nothing away, a queue that is new adds nothing but lag."""
    collector = watched(reading(offsets=offsets(100, 90)))
    collector.group(reading(offsets=offsets(110, 105)), NEXT_MS)
    flow = collector.flows.groups[GROUP]
    assert counts(flow) == (40, 60, 20)
    collector.group(reading(offsets=offsets(110, 0)), NEXT_MS + 2000)
    assert counts(flow) == (40, 60, 440)
    more = MessageQueue("more", "broker-a", 0)
    collector.group(reading(offsets=offsets(110, 0) | offsets(1000, 1, [more])), NEXT_MS + 4000)
    assert counts(flow) == (40, 60, 440 + 999)
    assert [point.lag for point in flow.history.points()] == [40, 20, 440, 1439]


def test_a_topic_counts_each_message_once() -> None:
    """Two groups read it: a message comes once, and goes out to each of them; its lag is that of both."""
    collector = watched(reading(offsets=offsets(100, 90)), reading("billing", offsets=offsets(100, 100)))
    collector.group(reading(offsets=offsets(110, 100)), NEXT_MS)
    collector.group(reading("billing", offsets=offsets(110, 110)), NEXT_MS)
    assert counts(collector.flows.topics[TOPIC]) == (40, 80, 40)
    collector.group(reading("billing", offsets=offsets(109, 109)), NEXT_MS)
    collector.group(reading(offsets=offsets(110, 110)), NEXT_MS + 2000)
    assert counts(collector.flows.topics[TOPIC])[0] == 40, "an answer that another one has overtaken"
    collector.forget_groups([])
    assert counts(collector.flows.topics[TOPIC])[2] == 0
    assert not collector.flows.groups


def test_a_topic_that_was_made_anew_is_counted_on() -> None:
    """Its queues begin at 0 again."""
    flow = Flow()
    for end in (1000, 0, 30):
        flow.ended(QUEUES[0], end)
    assert flow.came == 30


def test_a_group_that_leaves_a_topic_has_no_lag_there() -> None:
    """Its offsets of the topic were deleted."""
    collector = watched(reading(offsets=offsets(100, 90)))
    collector.group(reading(offsets=offsets(5, 5, [MessageQueue("other", "broker-a", 0)])), NEXT_MS)
    assert counts(collector.flows.topics[TOPIC])[2] == 0


def test_retries_count_for_the_group_alone() -> None:
    """A retry topic is the group's own, and has no page among the topics of users."""
    retry = MessageQueue(retry_topic(GROUP), "broker-a", 0)
    collector = watched(reading(offsets=offsets(0, 0, [retry])))
    collector.group(reading(offsets=offsets(8, 3, [retry])), NEXT_MS)
    assert counts(collector.flows.groups[GROUP]) == (8, 3, 5)
    assert not collector.flows.topics


def runtime(put: object, got: object) -> dict[str, str]:
    return {"msgPutTotalTodayNow": str(put), "msgGetTotalTodayNow": str(got)}


def test_a_broker_counts_for_itself() -> None:
    """Its counters say what came and went, the groups what waits; counters below the last ones are a new start."""
    collector = watched(reading(offsets=offsets(100, 90)))
    collector.broker_counted("broker-a", runtime(1000, 500), NOW_MS)
    collector.group(reading(offsets=offsets(100, 95)), NEXT_MS)
    collector.broker_counted("broker-a", runtime(1200, 560), NEXT_MS)
    flow = collector.flows.brokers["broker-a"]
    assert counts(flow) == (200, 60, 20)
    collector.broker_counted("broker-a", runtime(7, 7), NEXT_MS + 2000)
    assert counts(flow)[:2] == (200, 60)
    assert [point.lag for point in flow.history.points()] == [0, 20, None, 20]
    for unknown in ({}, runtime("?", 1), runtime(-1, 1)):
        collector.broker_counted("broker-a", unknown, NEXT_MS + 4000)
    collector.broker_counted("broker-z", runtime(1, 1), NEXT_MS + 4000)
    assert len(flow.history) == 4
    assert list(collector.flows.brokers) == ["broker-a"]
    collector.forget_broker("broker-a")
    assert not collector.flows.brokers


def test_a_broker_that_does_not_answer_leaves_gaps() -> None:
    """In its own history, and in those of its groups and topics; in no other."""
    elsewhere = [queue._replace(broker_name="broker-b") for queue in QUEUES]
    collector = watched(reading(), reading("other", offsets=offsets(1, 1, [elsewhere[0]._replace(topic="x")])))
    collector.broker_answered(BrokerState("broker-b", "127.0.0.1:2", is_lockstep=True), NOW_MS)
    for name in ("broker-a", "broker-b"):
        collector.broker_counted(name, runtime(1, 1), NOW_MS)
    for later_ms in (1000, 1500):
        collector.broker_failed("broker-a", "127.0.0.1:1", "refused", NOW_MS + later_ms)
    found = collector.flows
    gone = [found.groups[GROUP], found.topics[TOPIC], found.brokers["broker-a"]]
    for history in [flow.history for flow in gone] + list(found.groups[GROUP].queues.values()):
        assert [(point.at_ms, point.lag is None) for point in history.points()] == [
            (NOW_MS, False),
            (NOW_MS + 1000, True),
        ]
    for flow in (found.groups["other"], found.topics["x"], found.brokers["broker-b"]):
        assert len(flow.history) == 1
    collector.group_silent("other", NOW_MS + 3000)
    assert [point.lag for point in found.groups["other"].history.points()] == [0, None]


def test_what_is_kept_of_topics_and_queues_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic read longest ago goes first; of groups with many queues, and beyond the bound, none has a history."""
    monkeypatch.setattr(flows, "_TOPICS_MAX", 3)
    monkeypatch.setattr(flows, "_ENDS_MAX", 10)
    monkeypatch.setattr(flows, "_QUEUES_MAX", 70)
    kept = Flows()
    for number in range(5):
        kept.topics_end({MessageQueue(f"t{number}", "b", 0): 1}, NOW_MS, is_whole=True)
    assert list(kept.topics) == ["t2", "t3", "t4"]
    kept.topics_end({MessageQueue("wide", "b", number): 1 for number in range(9)}, NOW_MS, is_whole=True)
    assert list(kept.topics) == ["t4", "wide"]
    for name, count in (("few", 64), ("rest", 64), ("many", 65)):
        queues = [MessageQueue("t4", "b", number) for number in range(count)]
        for _ in range(2):
            kept.group_read(name, {}, offsets(1, 1, queues), NOW_MS, is_whole=True)
    assert [len(kept.groups[name].queues) for name in ("few", "rest", "many")] == [64, 6, 0]


def test_an_evicted_group_takes_its_lag_along() -> None:
    """The console keeps 1,000 groups."""
    collector = Collector()
    for number in range(1001):
        collector.group(reading(f"g{number}", offsets=offsets(10, 9, QUEUES[:1])), NOW_MS)
    assert len(collector.flows.groups) == 1000
    assert collector.flows.topics[TOPIC].lag == 1000
