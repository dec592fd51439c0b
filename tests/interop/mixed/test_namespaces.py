"""Tenants: Java's and our clients of one namespace meet, those of another do not, on our broker and on Apache's."""

import asyncio
from collections.abc import Callable

import pytest

from lockstep.client import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from tests.integration.harness.processes import PATIENT_PRODUCER
from tests.interop.harness.drivers import Drivers
from tests.interop.harness.servers import Server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.java_story import JavaStory
from tests.interop.stories.python_story import FAST_CONFIG, eventually

pytestmark = pytest.mark.timeout(540)
Fresh = Callable[[], str]
TENANT, OTHER = "acme", "globex"
COUNT = 10


async def test_a_namespace_holds_both(
    either: Server, drivers: Drivers, interop_row: RowMaker, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """Each reads what the other sent, under the bare names; what fails comes again in the tenant's own retry topic."""
    story = JavaStory(drivers, either, interop_row)
    rows = [story.row("namespaces"), interop_row("Lockstep", "0.1.0", f"Python -> {either.name}", "namespaces")]
    topic, group, java_group = fresh_topic(), fresh_group(), fresh_group()
    for tenant in (TENANT, OTHER):
        await either.create_topic(f"{tenant}%{topic}", 2)
    seen: list[tuple[str, str, int]] = []

    async def listen(messages: list[MessageExt], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        [message] = messages
        seen.append((message.topic, message.body.decode(), message.reconsume_times))
        context.delay_level_when_next_consume = 1
        if message.body == b"3" and message.reconsume_times == 0:
            return ConsumeConcurrentlyStatus.RECONSUME_LATER
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = PushConsumer(
        group, name_server=either.name_server, namespace=TENANT, config=FAST_CONFIG, listener=listen, ordering="none"
    )
    consumer.subscribe(topic)
    java = await story.consumer("ConcurrentConsumer", topic, java_group, namespace=TENANT)
    async with (
        consumer,
        Producer("shop", name_server=either.name_server, config=PATIENT_PRODUCER, namespace=TENANT) as producer,
    ):
        await story.produce(topic, COUNT, namespace=TENANT)
        await story.produce(topic, COUNT, first=1000, namespace=OTHER)
        for number in range(COUNT, 2 * COUNT):
            sent = await producer.send(Message(topic, str(number).encode(), properties={"seq": str(number)}))
            assert sent.queue.topic == topic

        async def all_came() -> bool:
            return len(seen) == 2 * COUNT + 1

        events = await story.handled(2 * COUNT, java)
        await eventually(all_came, "all messages of the tenant, one of them twice")
        await asyncio.sleep(1)
    assert sorted(event["seq"] for event in java.of("handled")) == list(range(2 * COUNT))
    assert {event["topic"] for event in events} == {topic}
    assert sorted(seen) == sorted([*((topic, str(number), 0) for number in range(2 * COUNT)), (topic, "3", 1)])
    async with either.admin() as admin:
        topics = await admin.topics()
    assert f"%RETRY%{TENANT}%{group}" in topics
    assert f"%RETRY%{TENANT}%{java_group}" in topics
    for row, duplicates in zip(rows, (0, 1), strict=True):
        row.messages, row.duplicates = 2 * COUNT, duplicates
