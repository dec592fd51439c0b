"""`--metrics-port` of a real broker: scraped while consumers work, and by a real Prometheus where it is installed."""

import asyncio
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lockstep.client import ConsumeOrderlyContext, ConsumeOrderlyStatus, Message, MessageExt, Producer, PushConsumer
from tests.commands import ForkedBroker
from tests.integration.harness.processes import PATIENT_PRODUCER
from tests.integration.harness.prometheus import prometheus

TIMEOUT_S = 60


def scraped(url: str) -> dict[str, float]:
    """The sums of all series of each metric."""
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        text = answer.read().decode()
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return sums


async def work(name_server: str, count: int = 40) -> None:
    """A producer, and two members of a group, one after the other."""
    async with Producer("senders", name_server=name_server, config=PATIENT_PRODUCER) as producer:
        for _ in range(2):
            for number in range(count):
                await producer.send(Message("orders", str(number).encode()), sharding_key=f"key{number}")
            await consume(name_server, count)


async def consume(name_server: str, count: int) -> None:
    left, done = set(map(str, range(count))), asyncio.Event()

    async def listener(messages: list[MessageExt], _context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        left.difference_update(message.body.decode() for message in messages)
        if not left:
            done.set()
        return ConsumeOrderlyStatus.SUCCESS

    consumer = PushConsumer("shop", name_server=name_server, listener=listener, fenced=True)
    consumer.subscribe("orders")
    async with consumer, asyncio.timeout(TIMEOUT_S):
        await done.wait()


@pytest.mark.long
async def test_a_scrape_of_a_working_broker() -> None:
    """Messages, owners, a takeover: the sums are those of what happened."""
    with ForkedBroker("--topic", "orders:4", "--metrics-port", "0", "--lock-mode", "fenced") as broker:
        await work(broker.name_server)
        sums = scraped(broker.addresses.metrics)
        assert sums["rocketmq_messages_in_total"] >= 80
        assert sums["lockstep_queue_owner_changes_total"] == sums["lockstep_lock_takeovers_total"]
        assert sums["lockstep_lock_takeovers_total"] >= 4
        assert sums["lockstep_lock_handover_seconds_count"] == sums["lockstep_lock_takeovers_total"]
        assert sums.get("lockstep_lock_held", 0) == 0
        assert sums["process_cpu_seconds_total"] > 0
    assert broker.status == 0


@pytest.mark.long
async def test_a_real_prometheus(tmp_path: Path) -> None:
    """It scrapes the broker, and two queries of the boards answer."""
    with ForkedBroker("--topic", "orders:4", "--metrics-port", "0", "--lock-mode", "fenced") as broker:
        await work(broker.name_server)
        with prometheus(broker.addresses.metrics, tmp_path) as ask:
            ask("sum by (topic) (rocketmq_messages_in_total)", lambda value: value >= 80)
            ask("sum by (consumer_group) (lockstep_queue_owner_changes_total)", lambda value: value >= 4)
