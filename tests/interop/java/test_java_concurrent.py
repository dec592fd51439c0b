"""Java's concurrent push consumer on our broker: retries, dead letters, broadcasting, filters, where it begins."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from tests.integration.harness.processes import until
from tests.interop.harness.drivers import Driver, Drivers
from tests.interop.harness.servers import lockstep_server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.java_story import JavaStory, again, both_encodings, has_topic

pytestmark = pytest.mark.timeout(360)
Fresh = Callable[[], str]

RETRY_OF_LEVEL_1_MS = 1_000
BEGINNINGS = ("FIRST_OFFSET", "LAST_OFFSET", "TIMESTAMP")
OLD = 3_000
TAGS = ["TagA", "TagB", "TagC", "Aa", "BB"]  # the last two have one hash in Java
WANTED = {"TagA": {"TagA"}, "TagA || TagB": {"TagA", "TagB"}, "*": set(TAGS), "BB": {"BB"}}


@pytest.fixture
def worn_story(drivers: Drivers, tmp_path: Path, interop_row: RowMaker) -> Iterator[JavaStory]:
    """A broker that keeps only a part of OLD messages of 4,000 bytes."""
    (tmp_path / "broker").mkdir()
    with lockstep_server(tmp_path / "broker", "--memory-limit", "8MiB") as server:
        yield JavaStory(drivers, server, interop_row)


@both_encodings
async def test_a_message_comes_again_later(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """A listener's RECONSUME_LATER, exception or missing answer brings the message again, a delay level later."""
    row = story.row("concurrent consumer: retry")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    consumer = await story.consumer(
        "ConcurrentConsumer", topic, group, delay_level=1, answers="3=LATER*2,7=THROW,8=NULL"
    )
    producer = await story.produce(topic, 50)
    events = await story.handled(54, consumer)
    tries = [event for event in events if event["seq"] == 3]
    assert [event["reconsumeTimes"] for event in tries] == [0, 1, 2]
    assert {event["topic"] for event in tries} == {topic}, "the listener sees the message's own topic"
    assert {event["msgId"] for event in tries} == {producer.of("sent")[3]["msgId"]}
    assert tries[1]["pulledTopic"] == f"%RETRY%{group}"
    waits_ms = [(later["t_ns"] - earlier["t_ns"]) / 1e6 for earlier, later in itertools.pairwise(tries)]
    assert min(waits_ms) > RETRY_OF_LEVEL_1_MS - 100
    assert Counter(event["seq"] for event in events) == Counter([*range(50), 3, 3, 7, 8])
    await story.finish(group, topic, consumer)
    row.messages, row.duplicates = 50, again(events)


async def test_a_dead_letter(quick_story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """After maxReconsumeTimes tries a message goes to the dead letters, whose readers get it as it was."""
    story = quick_story
    row = story.row("concurrent consumer: dead letter")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    consumer = await story.consumer("ConcurrentConsumer", topic, group, max_reconsume_times=2, answers="4=LATER*1000")
    producer = await story.produce(topic, 10)
    events = await story.handled(12, consumer)
    assert [event["reconsumeTimes"] for event in events if event["seq"] == 4] == [0, 1, 2]
    dead_letters = f"%DLQ%{group}"
    await until(lambda: has_topic(story.server, dead_letters), "a topic of dead letters")
    reader = await story.consumer("ConcurrentConsumer", dead_letters, fresh_group())
    (dead,) = await story.handled(1, reader)
    assert (dead["seq"], dead["body"], dead["msgId"]) == (4, "4", producer.of("sent")[4]["msgId"])
    row.messages, row.duplicates = 10, again(events)


async def test_part_of_a_batch_comes_again(quick_story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """With an ack index of 0 the first of a batch is done, and each of the others comes again."""
    story = quick_story
    row = story.row("concurrent consumer: batches, ack index")
    topic, group = await story.server.create_topic(fresh_topic(), 1), fresh_group()
    await story.produce(topic, 8, keys=1)
    consumer = await story.consumer("ConcurrentConsumer", topic, group, batch=8, ack_index=0)
    events = await story.handled(15, consumer)
    first = [event for event in events if event["reconsumeTimes"] == 0]
    assert [event["batch"] for event in first] == [8] * 8
    repeated = {event["seq"] for event in events if event["reconsumeTimes"] == 1}
    assert repeated == set(range(1, 8))
    row.messages, row.duplicates = 8, again(events)


async def test_broadcasting(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Each of two members handles every message; offsets are theirs, in files of their own, none on the broker."""
    row = story.row("broadcasting, two members")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    members = [
        await story.consumer("ConcurrentConsumer", topic, group, model="BROADCASTING", instance=f"member-{number}")
        for number in range(2)
    ]
    await story.produce(topic, 100)
    for member in members:
        events = await story.handled(100, member)
        assert sorted(event["seq"] for event in events) == list(range(100))
    assert await story.committed(group, topic, range(4)) == [0] * 4
    assert await members[0].close() == 0
    await story.produce(topic, 10, first=100)
    back = await story.consumer("ConcurrentConsumer", topic, group, model="BROADCASTING", instance="member-0")
    assert sorted(event["seq"] for event in await story.handled(10, back)) == list(range(100, 110))
    row.messages, row.duplicates = 220, 10


async def test_tags(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Groups get the messages of their tags, also when another tag has the same hash; offsets move past the others."""
    row = story.row("tags: one, two, all, two with one hash")
    topic = await story.server.create_topic(fresh_topic(), 2)
    groups = {expression: fresh_group() for expression in WANTED}
    consumers = await asyncio.gather(*[
        story.consumer("ConcurrentConsumer", topic, group, expression=expression)
        for expression, group in groups.items()
    ])  # fmt: skip
    await story.produce(topic, 60, tags=TAGS)
    row.messages = row.duplicates = 0
    for (expression, wanted), consumer in zip(WANTED.items(), consumers, strict=True):
        await story.handled(60 * len(wanted) // len(TAGS), consumer)
        await story.drain(groups[expression], topic)
        events = consumer.of("handled")
        assert sorted(event["seq"] for event in events) == [seq for seq in range(60) if TAGS[seq % len(TAGS)] in wanted]
        row.messages += len(events)


async def test_where_a_group_begins(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """In a young topic every new group begins at 0, whatever it asks for: none misses its first messages."""
    row = story.row("consumeFromWhere in a young topic")
    topic = await story.server.create_topic(fresh_topic(), 1)
    await story.produce(topic, 20)
    for consumer in await beginners(story, topic, [fresh_group() for _ in BEGINNINGS], "20990101000000"):
        assert sorted(event["seq"] for event in await story.handled(20, consumer)) == list(range(20))
    row.messages, row.duplicates = 60, 0


async def test_where_a_group_begins_in_an_old_topic(
    worn_story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """Where old messages are gone, FIRST begins with what is left, LAST with what comes, TIMESTAMP nearest to it."""
    story = worn_story
    row = story.row("consumeFromWhere in an old topic")
    topic = await story.server.create_topic(fresh_topic(), 1)
    await story.produce(topic, OLD, body_bytes=4_000)
    spread = await story.produce(topic, 30, first=OLD, pause_ms=100)
    second = spread.of("sent")[0]["wall_ms"] // 1000 + 2
    timestamp = datetime.fromtimestamp(second).strftime("%Y%m%d%H%M%S")  # noqa: DTZ006 the client's own time zone
    trickle = story.start("OrderedProducer", topic=topic, messages=200, first=OLD + 30, pause_ms=50)
    await trickle.wait_for("sent")
    begun, everything = OLD + 30 + len(trickle.of("sent")), OLD + 230
    groups = [fresh_group() for _ in BEGINNINGS]
    first, last, by_time = await beginners(story, topic, groups, timestamp)
    assert await trickle.ended(60) == 0
    while not last.of("handled"):  # on a busy machine it begins when all was sent
        await story.produce(topic, 1, first=everything)
        everything += 1
    for group in groups:
        await story.drain(group, topic)
    left = [event["seq"] for event in first.of("handled")]
    assert min(left) > 0
    assert sorted(left) == list(range(min(left), everything))
    coming = [event["seq"] for event in last.of("handled")]
    assert min(coming) >= begun
    assert sorted(coming) == list(range(min(coming), everything))
    stored_ms = {event["seq"]: event["storeTimestamp"] for event in first.of("handled")}
    nearest = min(sorted(stored_ms), key=lambda seq: abs(stored_ms[seq] - second * 1000))
    younger = [event["seq"] for event in by_time.of("handled")]
    assert OLD < nearest < OLD + 30
    assert sorted(younger) == list(range(nearest, everything))
    row.messages, row.duplicates = len(left) + len(coming) + len(younger), 0


async def beginners(story: JavaStory, topic: str, groups: Sequence[str], timestamp: str) -> list[Driver]:
    """A new consumer of each of BEGINNINGS."""
    return await asyncio.gather(*[
        story.consumer("ConcurrentConsumer", topic, group, timestamp=timestamp, begin=f"CONSUME_FROM_{beginning}")
        for group, beginning in zip(groups, BEGINNINGS, strict=True)
    ])  # fmt: skip
