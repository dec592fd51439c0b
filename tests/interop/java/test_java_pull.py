"""Java's pull consumer and lite pull consumer on our broker."""

from collections import Counter
from collections.abc import Callable

import pytest

from lockstep.client import Message, Producer
from tests.integration.harness.processes import PATIENT_PRODUCER
from tests.interop.stories.java_story import JavaStory, again, both_encodings, order_of_keys, queues_of

pytestmark = pytest.mark.timeout(360)
Fresh = Callable[[], str]

QUEUES = 4


@both_encodings
async def test_a_pull_consumer(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """It finds the queues and their bounds, pulls everything in order, commits, and is told of an illegal offset."""
    row = story.row("pull consumer: queues, pull, offsets, searchOffset")
    topic, group = await story.server.create_topic(fresh_topic(), QUEUES), fresh_group()
    producer = await story.produce(topic, 100, keys=15)
    consumer = await story.run("PullConsumer", topic=topic, group=group)
    events = consumer.of("handled")
    row.messages, row.order_kept, row.duplicates = len(events), order_of_keys(events), again(events)
    assert sorted(event["seq"] for event in events) == list(range(100))
    assert row.order_kept
    sent = Counter(event["queueId"] for event in producer.of("sent"))
    for queue in consumer.of("queue"):
        size = sent[queue["queueId"]]
        assert (queue["min"], queue["max"], queue["next"], queue["committed"]) == (0, size, size, size)
        assert (queue["atZero"], queue["atEnd"]) == (0, max(size - 1, 0))
    assert [queue["queueId"] for queue in consumer.of("queue")] == list(range(QUEUES))
    assert await story.committed(group, topic, range(QUEUES)) == [sent[queue_id] for queue_id in range(QUEUES)]
    (beyond,) = consumer.of("beyond")
    assert (beyond["status"], beyond["nextBeginOffset"]) == ("OFFSET_ILLEGAL", sent[QUEUES - 1])


async def test_a_pull_that_waits(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """pullBlockIfNotFound at the end of a queue is answered by the next message, when it comes."""
    row = story.row("pull consumer: pullBlockIfNotFound")
    topic, group = await story.server.create_topic(fresh_topic(), QUEUES), fresh_group()
    consumer = story.start("PullConsumer", topic=topic, group=group, wait=True)
    queue_id = (await consumer.wait_for("waiting"))["queueId"]
    queue = (await queues_of(story.server, topic))[queue_id]
    async with Producer("interop-producers", name_server=story.server.name_server, config=PATIENT_PRODUCER) as producer:
        await producer.send(Message(topic, b"at last"), queue=queue)
    (event,) = await story.handled(1, consumer)
    assert event["body"] == "at last"
    assert consumer.of("waited")[0]["status"] == "FOUND"
    assert await consumer.ended() == 0
    row.messages, row.duplicates = 1, 0


async def test_a_lite_pull_consumer_that_subscribes(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """It gets its share of the queues, polls everything in order, and commits; the next of its group begins there."""
    row = story.row("lite pull consumer: subscribe, commit")
    topic, group = await story.server.create_topic(fresh_topic(), QUEUES), fresh_group()
    await story.produce(topic, 100, keys=15)
    first = await story.run("LitePullConsumer", topic=topic, group=group, messages=100)
    events = first.of("handled")
    row.order_kept = order_of_keys(events)
    assert sorted(event["seq"] for event in events) == list(range(100))
    assert row.order_kept
    committed = {event["queueId"]: event["committed"] for event in first.of("queue")}
    assert await story.committed(group, topic, range(QUEUES)) == [committed[queue_id] for queue_id in range(QUEUES)]
    assert sum(committed.values()) == 100
    await story.produce(topic, 20, keys=15, first=100)
    second = await story.run("LitePullConsumer", topic=topic, group=group, messages=20)
    assert sorted(event["seq"] for event in second.of("handled")) == list(range(100, 120))
    row.messages, row.duplicates = 120, again([*events, *second.of("handled")])


async def test_a_lite_pull_consumer_that_commits_by_itself(
    story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """With autoCommit the offsets of what was polled reach the broker, at the latest at the end."""
    row = story.row("lite pull consumer: autoCommit")
    topic, group = await story.server.create_topic(fresh_topic(), QUEUES), fresh_group()
    await story.produce(topic, 30, keys=15)
    consumer = await story.run("LitePullConsumer", topic=topic, group=group, messages=30, auto_commit=True)
    await story.drain(group, topic)
    row.messages, row.duplicates = 30, again(consumer.of("handled"))


async def test_a_lite_pull_consumer_with_queues_of_its_own(
    story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """With assign it reads the queues that it names from where it seeks to, again after seeking back.

    Assigning begins to pull. A seek that meets such a pull makes Java's client hand out its messages twice; that is
    its own race, on any broker, so repeats are counted and not refused.
    """
    row = story.row("lite pull consumer: assign, seek, commit")
    topic, group = await story.server.create_topic(fresh_topic(), QUEUES), fresh_group()
    producer = await story.produce(topic, 100, keys=15)
    consumer = await story.run("LitePullConsumer", topic=topic, group=group, messages=100, mode="assign", seek=2)
    handled = consumer.of("handled")
    assert sorted({event["seq"] for event in handled}) == list(range(100))
    in_first = [event["seq"] for event in producer.of("sent") if event["queueId"] == 0]
    assert [event["seq"] for event in consumer.of("again")] == in_first[2:]
    assert consumer.of("time")[0]["offset"] == 0
    sent = Counter(event["queueId"] for event in producer.of("sent"))
    assert await story.committed(group, topic, range(QUEUES)) == [sent[queue_id] for queue_id in range(QUEUES)]
    row.messages, row.order_kept = 100 + len(in_first) - 2, order_of_keys(handled)
    row.duplicates = len(in_first) - 2 + again(handled)
