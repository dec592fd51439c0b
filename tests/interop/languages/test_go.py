"""rocketmq-client-go, and its name for the sharding key, on our broker."""

from collections.abc import Callable

import pytest

from lockstep.client import Message, Producer
from lockstep.protocol.messages.properties import SHARDING_KEY
from tests.integration.harness.processes import PATIENT_PRODUCER
from tests.interop.harness.drivers import Drivers
from tests.interop.harness.servers import Server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.java_story import again, order_of_keys
from tests.interop.stories.other_story import OtherStory, go_story, queue_order_kept
from tests.interop.stories.python_story import handled_by_us

pytestmark = pytest.mark.timeout(360)
Fresh = Callable[[], str]
COUNT, KEYS = 200, 16
OF_GO = "SHARDING_KEY"


@pytest.fixture
def story(drivers: Drivers, lockstep: Server, interop_row: RowMaker) -> OtherStory:
    """Go drivers on the session's broker of ours."""
    return go_story(drivers, lockstep, interop_row)


async def test_an_ordered_producer_and_an_ordered_consumer(
    story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """Each queue is handled one by one, and each sharding key's messages as they were sent."""
    row = story.row("producer with sharding keys, ordered consumer")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    sent = await story.produce("produce", topic, COUNT, keys=KEYS, body_bytes=5_000)
    consumer = await story.consumer("consume", topic, group)
    events = await story.handled(COUNT, consumer, timeout_s=60)
    what = ("queueId", "queueOffset", "seq", "key", "bodyBytes", "bodyCrc32")
    assert {tuple(e[name] for name in what) for e in events} == {tuple(e[name] for name in what) for e in sent}
    row.messages, row.duplicates = len(events), again(events)
    row.order_kept = order_of_keys(events) and queue_order_kept(events)
    assert row.order_kept


async def test_gos_sharding_key_is_read(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Under its name; a consumer of ours that is ordered by key takes each key's messages as they were sent."""
    row = story.row("producer with sharding keys, read by Lockstep ordered by key")
    topic = await story.server.create_topic(fresh_topic())
    sent = await story.produce("produce", topic, COUNT, keys=KEYS)
    handled = await handled_by_us(story.server, topic, fresh_group(), COUNT, ordering="key")
    assert {OF_GO in message.properties for message in handled} == {True}
    assert {SHARDING_KEY in message.properties for message in handled} == {False}
    by_key: dict[str | None, list[int]] = {}
    for message in handled:
        by_key.setdefault(message.sharding_key, []).append(int(message.body))
    assert by_key == {f"key-{key}": list(range(key, COUNT, KEYS)) for key in range(KEYS)}
    row.messages, row.duplicates, row.order_kept = len(sent), 0, True


async def test_our_sharding_key_for_go(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Go handles our messages in order. It knows none but its own name, so a program there reads the property."""
    row = story.row("ordered consumer of messages that Lockstep sent with sharding keys")
    topic = await story.server.create_topic(fresh_topic())
    async with Producer("interop-producers", name_server=story.server.name_server, config=PATIENT_PRODUCER) as producer:
        for number in range(COUNT):
            message = Message(topic, b"%d" % number, properties={"seq": str(number)}, sharding_key=f"k{number % KEYS}")
            await producer.send(message)
    consumer = await story.consumer("consume", topic, fresh_group())
    events = await story.handled(COUNT, consumer, timeout_s=60)
    assert {event["key"] for event in events} == {""}
    assert order_of_keys([{**event, "key": event["properties"][SHARDING_KEY]} for event in events])
    assert {event["properties"][SHARDING_KEY] for event in events} == {f"k{number}" for number in range(KEYS)}
    row.messages, row.duplicates, row.order_kept = len(events), again(events), queue_order_kept(events)
    assert row.order_kept
