"""ali-ons, the Node client, on our broker."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.harness.processes import until
from tests.interop.harness.drivers import Drivers
from tests.interop.harness.servers import Server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.java_story import again, has_topic, order_of_keys, queues_of
from tests.interop.stories.other_story import OtherStory, first_attempts, node_story, quick_server

pytestmark = pytest.mark.timeout(360)
Fresh = Callable[[], str]


@pytest.fixture
def story(drivers: Drivers, lockstep: Server, interop_row: RowMaker) -> OtherStory:
    """Node drivers on the session's broker of ours."""
    return node_story(drivers, lockstep, interop_row)


async def test_a_producer_and_a_consumer(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Messages of a sharded producer come as they were sent, each key's in order: this client handles one by one."""
    row = story.row("producer with sharding keys, push consumer (it has no orderly mode)")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    consumer = await story.consumer("consume.js", topic, group)
    sent = await story.produce("produce.js", topic, 500, keys=20, sharded=True)
    events = await story.handled(500, consumer)
    where = ("msgId", "queueId", "queueOffset", "seq", "key", "bodyCrc32")
    assert {tuple(e[name] for name in where) for e in events} == {tuple(e[name] for name in where) for e in sent}
    assert {event["tags"] for event in events} == {"null"}  # this client's text for no tag
    row.messages, row.duplicates, row.order_kept = len(events), again(events), order_of_keys(events)
    assert row.order_kept
    assert row.duplicates == 0


async def test_large_bodies(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Bodies that the producer compresses come back whole."""
    row = story.row("producer: 100 kB bodies, compressed")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    consumer = await story.consumer("consume.js", topic, group)
    sent = await story.produce("produce.js", topic, 20, body_bytes=100_000)
    events = await story.handled(20, consumer)
    content = ("seq", "bodyBytes", "bodyCrc32")
    assert {tuple(e[name] for name in content) for e in events} == {tuple(e[name] for name in content) for e in sent}
    row.messages, row.duplicates = len(events), again(events)


async def test_tags(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """A consumer gets the messages of the tags that it asks for."""
    row = story.row("push consumer of two tags of three")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    consumer = await story.consumer("consume.js", topic, group, expression="red || blue")
    await story.produce("produce.js", topic, 90, tags="red,green,blue")
    events = await story.handled(60, consumer)
    assert Counter(event["tags"] for event in events) == {"red": 30, "blue": 30}
    row.messages, row.duplicates = len(events), again(events)


async def test_a_consumer_that_goes_on(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """A second consumer of the group begins where the first one, closed in order, has committed."""
    row = story.row("push consumer: the next one goes on at the committed offset")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    await story.produce("produce.js", topic, 40)
    first = await story.consumer("consume.js", topic, group)
    events = list(await story.handled(40, first))
    assert await first.close() == 0
    await story.produce("produce.js", topic, 20, first=40)
    second = await story.consumer("consume.js", topic, group)
    events += await story.handled(20, second)
    row.messages, row.duplicates = len(first_attempts(events)), again(events)
    assert (row.messages, row.duplicates) == (60, 0)


async def test_broadcasting(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Each of two consumers of one group gets every message."""
    row = story.row("push consumers, broadcasting")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    consumers = [await story.consumer("consume.js", topic, group, broadcast=True) for _ in range(2)]
    await story.produce("produce.js", topic, 40)
    for consumer in consumers:
        events = await story.handled(40, consumer)
        assert {event["seq"] for event in events} == set(range(40))
    row.messages = sum(len(consumer.of("handled")) for consumer in consumers)
    row.duplicates = row.messages - 80


async def test_a_consumer_that_fails(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh, tmp_path: Path) -> None:
    """A message whose listener throws is sent back and comes again, after its delay, until the limit: then never."""
    row = story.row("push consumer, failures sent back (delays shortened), one too often")
    with quick_server(tmp_path / "quick") as story.server:
        topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
        answers = {"answers": "7=THROW*2,12=THROW,30=THROW*9", "max_reconsume_times": 3}
        consumer = await story.consumer("consume.js", topic, group, **answers)
        await story.produce("produce.js", topic, 50)
        events = await story.handled(56, consumer)
        # It sends the message back after it has said that it handled it: the topic may not be there yet.
        await until(lambda: has_topic(story.server, f"%DLQ%{group}"), "a dead-letter topic")
        (dead,) = await queues_of(story.server, f"%DLQ%{group}")
        async with story.server.admin() as admin:
            assert await admin.max_offset(dead) == 1
        assert await consumer.close() == 0
        assert "occurred an error" not in consumer.stderr()  # it falls back to a plain send where code 36 fails
    row.messages, row.duplicates = len(first_attempts(events)), again(events)
    times = {seq: [e["reconsumeTimes"] for e in events if e["seq"] == seq] for seq in (7, 12, 30)}
    assert times == {7: [0, 1, 2], 12: [0, 1], 30: [0, 1, 2, 3]}
