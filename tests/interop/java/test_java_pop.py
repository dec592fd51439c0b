"""Java's push consumer 5.5 that lets the broker share queues out: it pops where its group's mode says so."""

from collections.abc import Callable

import pytest

from lockstep.protocol.codes import RequestCode
from tests.differential.case import step
from tests.differential.cases.world import object_body
from tests.differential.side import Side, address
from tests.integration.harness.processes import until
from tests.interop.harness.drivers import Drivers
from tests.interop.harness.servers import Server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.java_story import JavaStory, order_of_keys

pytestmark = pytest.mark.timeout(540)
Fresh = Callable[[], str]
COUNT = 60
POP_MS = 10_000


@pytest.fixture
def story(drivers: Drivers, lockstep: Server, interop_row: RowMaker) -> JavaStory:
    return JavaStory(drivers, lockstep, interop_row, part="java5")


def pops(story: JavaStory, topic: str, group: str) -> None:
    """Tell the broker that the group is to pop."""
    mode = {"topic": topic, "consumerGroup": group, "mode": "POP", "popShareQueueNum": 0}
    side = Side(address(story.server.broker), address(story.server.name_server))
    reply = side.ask(step(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, body=object_body(mode))).reply
    side.close()
    assert reply is not None
    assert reply.code == 0


async def test_a_concurrent_listener_pops(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Two consumers share all queues message by message; one that fails and one that is killed lose nothing."""
    row = story.row("popped, a consumer killed")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    pops(story, topic, group)
    first, second = [
        await story.consumer("PopConsumer", topic, group, pop_ms=POP_MS, answers="7=FIRST") for _ in range(2)
    ]
    await story.produce(topic, COUNT)
    await story.handled(COUNT // 2, first, second)
    await second.until(
        lambda: [e for each in (first, second) for e in each.of("handled") if e["seq"] == 7], "a failure"
    )
    await first.kill()

    def all_done() -> list[int] | None:
        events = [event for each in (first, second) for event in each.of("handled")]
        done = sorted({event["seq"] for event in events if event["status"] == "CONSUME_SUCCESS"})
        return done if done == list(range(COUNT)) else None

    await second.until(all_done, "everything consumed", 90)
    events = [event for each in (first, second) for event in each.of("handled")]
    assert all(event["popped"] for event in events)
    assert {event["reconsumeTimes"] for event in events if event["seq"] == 7} >= {0, 1}
    row.messages, row.duplicates = COUNT, len(events) - COUNT


async def test_an_orderly_listener_keeps_to_locks(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """It pulls, whatever the mode of its group."""
    row = story.row("ordered, in a group that pops")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    pops(story, topic, group)
    consumer = await story.consumer("PopConsumer", topic, group, orderly=True)
    await story.produce(topic, COUNT, keys=6)
    events = await story.handled(COUNT, consumer)

    async def has_locks() -> bool:
        async with story.server.admin() as admin:
            return len([lock for lock in await admin.list_locks(group) if lock.queue.topic == topic]) == 4

    await until(has_locks, "a lock of each queue")  # one for which nothing came may be late
    row.messages, row.order_kept = COUNT, order_of_keys(events)
    assert row.order_kept
    assert sorted(event["seq"] for event in events) == list(range(COUNT))
    assert {event["popped"] for event in events} == {None}
