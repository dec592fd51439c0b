"""What consumers and producers tell Prometheus through a registry, in every kind of order."""

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lockstep.client import (
    CommunicationMode,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    Message,
    MessageExt,
    MessageQueue,
    MessageType,
    PushConsumer,
    SendMessageContext,
)
from lockstep.client.consumer.cache.arrivals import Arrivals
from lockstep.client.histogram import Histogram
from lockstep.client.metric_families import TOPICS_MAX
from lockstep.client.producer.metrics import OTHER_TOPICS, SendTimes
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.scenarios.cluster import BROKER, GROUP, TOPIC, Cluster
from tests.scenarios.scenario import Mode, Scenario, scenario

DOCS = Path(__file__).parents[2] / "docs"
WORK_MS = 2000
Ordering = Literal["queue", "key", "none"]
Values = dict[tuple[str, ...], float]


def values(registry: CollectorRegistry, name: str, *labels: str) -> Values:
    """The values of a metric as Prometheus' own parser reads them, by these labels."""
    found: Values = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            if sample.name == name:
                key = tuple(sample.labels[label] for label in labels)
                assert key not in found, f"{name} twice with {key}"
                found[key] = sample.value
    return found


async def measured(
    cluster: Cluster, name: str, registry: CollectorRegistry, ordering: Ordering = "queue"
) -> PushConsumer:
    """A consumer whose calls take two seconds; the first call with each "bad" fails."""
    failed: set[str] = set()

    async def listener(messages: list[MessageExt], _context: Any) -> Any:
        await asyncio.sleep(WORK_MS / 1000)
        body = messages[0].body.decode()
        bad = body.startswith("bad") and body not in failed
        failed.add(body)
        if ordering == "none":
            return ConsumeConcurrentlyStatus.RECONSUME_LATER if bad else ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT if bad else ConsumeOrderlyStatus.SUCCESS

    trace = "trace.jsonl"
    return await cluster.own_consumer(name, GROUP, listener, ordering=ordering, trace=trace, metrics=registry)


def story(ordering: Ordering, waits: dict[str, int]) -> Scenario:
    """`waits`: waits of calls up to these limits, in ms."""

    async def play(cluster: Cluster) -> None:
        await cluster.broker(queues=1)
        registry = CollectorRegistry()
        writer = await cluster.own_producer("p", "writers", metrics=registry)
        await measured(cluster, "c1", registry, ordering)
        await cluster.world.sleep_ms(30_000)
        for body in (b"a", b"bad", b"c"):
            await writer.send(Message(TOPIC, body, sharding_key="k"))
        await cluster.world.sleep_ms(1000)
        cached = values(registry, "rocketmq_consumer_cached_messages", "topic")
        assert cached[TOPIC,] == 3
        assert values(registry, "rocketmq_consumer_cached_bytes", "topic")[TOPIC,] == 5
        state = "needs_none" if ordering == "none" else "held"
        assert values(registry, "lockstep_client_queues", "topic", "state")[TOPIC, state] == 1
        await cluster.world.sleep_ms(60_000)
        assert values(registry, "rocketmq_consumer_cached_messages", "topic")[TOPIC,] == 0
        counts = values(registry, "rocketmq_process_time_count", "topic", "invocation_status")
        assert sum(of for (_, status), of in counts.items() if status == "success") == 3
        assert counts[TOPIC, "failure"] == 1
        sums = values(registry, "rocketmq_process_time_sum", "topic", "invocation_status")
        assert sums[TOPIC, "failure"] == WORK_MS
        handled = values(registry, "lockstep_client_messages_total", "topic", "outcome")
        assert sum(of for (_, outcome), of in handled.items() if outcome == "handled") == 3
        assert handled[TOPIC, "failed"] == 1
        assert values(registry, "lockstep_client_pulled_total", "topic")[TOPIC,] == 3
        buckets = values(registry, "rocketmq_await_time_bucket", "topic", "le")
        assert {limit: buckets[TOPIC, limit] for limit in waits} == waits
        assert 0 < values(registry, "lockstep_client_commits_total", "consumer_group")[GROUP,] < 50
        sent = values(registry, "rocketmq_send_cost_time_count", "topic", "invocation_status")
        assert sent == {(TOPIC, "success"): 3}

    return Scenario(f"metrics {ordering}", play, None)


STORIES = [
    # A call waits for the one before: 0, 2 s; after the failure and a pause of 1 s just below 5 s, then 7 s.
    story("queue", {"5.0": 1, "1000.0": 1, "5000.0": 3, "10000.0": 4}),
    story("key", {"5.0": 1, "1000.0": 1, "5000.0": 3, "10000.0": 4}),
    story("none", {"1000.0": 3}),
]


@pytest.mark.parametrize("play", STORIES, ids=lambda play: play.name)
def test_calls_are_measured(play: Scenario) -> None:
    """Times of calls, waits before them, what is cached, locks, commits, sends."""
    play.run(Mode(SerializeType.MSGPACK))


@scenario(also_fenced=True)
async def test_clients_of_one_registry(cluster: Cluster) -> None:
    """Each has its own series, and those of one that left are gone. A lock that is not trusted any more waits."""
    await cluster.broker(queues=4)
    registry = CollectorRegistry()
    for name in ("c1", "c2"):
        await measured(cluster, name, registry)
    await cluster.world.sleep_ms(60_000)

    def states() -> dict[str, list[float]]:
        found = values(registry, "lockstep_client_queues", "topic", "client_id", "state")
        return {
            state: [value for (topic, _, of), value in found.items() if (topic, of) == (TOPIC, state)]
            for state in ("held", "waiting")
        }

    assert states() == {"held": [2, 2], "waiting": [0, 0]}
    for name in ("c1", "c2"):
        cluster.world.partition(name, BROKER)
    await cluster.world.sleep_ms(45_000)
    assert states()["held"] == [0, 0]
    cluster.world.heal()
    await cluster.world.sleep_ms(90_000)
    await cluster.leave("c1")
    await cluster.world.sleep_ms(30_000)
    assert states() == {"held": [4], "waiting": [0]}
    await cluster.leave("c2")
    assert values(registry, "lockstep_client_queues", "topic", "client_id", "state") == {}


def test_arrivals_have_a_bound() -> None:
    """Waits are told by pull; of pulls that were forgotten the oldest one counts."""
    arrivals = Arrivals()
    for number in range(10_000):
        arrivals.pulled(10 * number + 9, 1000 * number)
    assert arrivals.waited_ms(99_990, 9_999_500) == 500
    assert arrivals.waited_ms(99_989, 9_999_500) == 1500
    assert 0 < arrivals.waited_ms(0, 10_000_000) < 5_000_000
    assert arrivals.waited_ms(100_000, 10_000_000) == 0, "nobody pulled it"
    assert len(arrivals._times) < 5000


async def test_a_producer_of_many_topics_has_few_series() -> None:
    """Topics above the bound share one name. A failure has a series of its own."""
    times = SendTimes(AsyncioRuntime(), NamesOfTenant(None), ("writers", "id"))
    for number in range(5 * TOPICS_MAX):
        queue = MessageQueue(f"T{number}", "b", 0)
        context = SendMessageContext("writers", [], queue, "b:1", CommunicationMode.SYNC, MessageType.NORMAL)
        times.before(context)
        context.error = ValueError("refused") if number == 7 else None
        times.after(context)
    rows = {labels: histogram for _, labels, histogram in times.rows()}
    assert len(rows) <= 2 * TOPICS_MAX + 2
    assert (
        sum(sum(histogram.counts) for histogram in rows.values() if isinstance(histogram, Histogram)) == 5 * TOPICS_MAX
    )
    assert ("T7", "writers", "id", "failure") in rows
    assert (OTHER_TOPICS, "writers", "id", "success") in rows
