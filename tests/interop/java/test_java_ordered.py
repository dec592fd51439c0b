"""Java's ordered producer and ordered push consumer on our broker."""

import asyncio
from collections import defaultdict
from collections.abc import Callable

import pytest

from lockstep.client import Message, Producer, select_by_hash
from lockstep.order import Cause
from tests.integration.harness.processes import PATIENT_PRODUCER
from tests.interop.harness.servers import LOCK_LIFE_MS
from tests.interop.stories.java_story import JavaStory, again, both_encodings, in_order, owned, queues_of

pytestmark = pytest.mark.timeout(360)
Fresh = Callable[[], str]

KEYS = ["order-1", "a b", "Zürich", "订单-7", "заказ", "\u0000", "\U0001f600", "\U0001f600-2", "\ud83d", "x\udc00"]
KEYS += ["polygenelubricants", *(f"key-{number}" for number in range(100))]  # the first hashes to Integer.MIN_VALUE


@both_encodings
async def test_an_ordered_producer_and_consumer(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Two thousand messages of fifty keys: all handled once, in order, under both header encodings."""
    row = story.row("ordered producer and push consumer")
    topic, group = await story.server.create_topic(fresh_topic(), 8), fresh_group()
    consumer = await story.consumer("OrderlyConsumer", topic, group)
    producer = await story.produce(topic, 2_000, keys=50)
    await story.handled(2_000, consumer)
    await story.finish(group, topic, consumer)
    assert consumer.of("ready")[0]["encoding"] == producer.of("done")[0]["encoding"] == story.encoding
    report = in_order(row, topic, producer, consumer)
    assert (report.handled, report.attempts, report.keys) == (2_000, 2_000, 50)


async def test_a_listener_that_suspends(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """A message whose listener suspends, throws or answers nothing comes again and holds up only its own queue."""
    row = story.row("ordered consumer: suspend, exception, null")
    topic, group = await story.server.create_topic(fresh_topic(), 4), fresh_group()
    producer = await story.produce(topic, 100, keys=8)
    consumer = await story.consumer(
        "OrderlyConsumer", topic, group, suspend_ms=20, answers="5=SUSPEND*3,40=THROW*2,41=NULL"
    )
    events = await story.handled(106, consumer)
    await story.finish(group, topic, consumer)
    report = in_order(row, topic, producer, consumer)
    assert report.duplicates == {Cause.SUSPEND: 6}
    assert [event["reconsumeTimes"] for event in events if event["seq"] == 5] == [0, 1, 2, 3]
    assert [event["reconsumeTimes"] for event in events if event["seq"] == 40] == [0, 1, 2]


async def test_a_listener_that_commits_itself(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """SUCCESS moves no offset, COMMIT moves it behind the message, ROLLBACK goes back to the last commit."""
    row = story.row("ordered consumer: manual commit")
    topic, group = await story.server.create_topic(fresh_topic(), 1), fresh_group()
    producer = await story.produce(topic, 20, keys=4)
    consumer = await story.consumer(
        "OrderlyConsumer", topic, group, auto_commit=False, suspend_ms=20, answers="4=COMMIT,9=ROLLBACK,14=COMMIT"
    )
    events = await story.handled(25, consumer)
    assert [event["seq"] for event in events] == [*range(10), *range(5, 20)]
    assert await consumer.close() == 0
    in_order(row, topic, producer, consumer)
    assert await story.committed(group, topic, [0]) == [15]


async def test_uncommitted_messages_come_again(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """What a consumer handled without committing is handled again by the next one, from the last commit on."""
    row = story.row("ordered consumer: restart after a commit in the middle")
    topic, group = await story.server.create_topic(fresh_topic(), 1), fresh_group()
    producer = await story.produce(topic, 20, keys=4)
    first = await story.consumer("OrderlyConsumer", topic, group, auto_commit=False, answers="11=COMMIT")
    await story.handled(20, first)
    assert await first.close() == 0
    second = await story.consumer("OrderlyConsumer", topic, group)
    events = await story.handled(8, second)
    assert [event["seq"] for event in events] == [*range(12, 20)]
    await story.finish(group, topic, second)
    report = in_order(row, topic, producer, first, second)
    assert report.duplicates == {Cause.TAKEOVER: 8}


@both_encodings
async def test_two_consumers_and_one_killed(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """The survivor gets the queues of the killed one once their locks have run out: nothing lost, no order broken."""
    row = story.row("ordered consumers, one killed")
    queues = 8
    topic, group = await story.server.create_topic(fresh_topic(), queues), fresh_group()
    consumers = [story.start("OrderlyConsumer", topic=topic, group=group, work_ms=1) for _ in range(2)]
    await asyncio.gather(*[consumer.wait_for("ready") for consumer in consumers])
    victim, survivor = consumers
    half = queues // 2
    await victim.until(
        lambda: len(owned(victim, topic)) == len(owned(survivor, topic)) == half, "half of the queues each"
    )
    # Not before: all might be handled while the first to come still has all queues.
    producer = story.start("OrderedProducer", topic=topic, messages=3_000, keys=64, pause_ms=2)
    await story.handled(100, victim)
    await story.handled(100, survivor)
    await victim.kill()
    orphaned = owned(victim, topic)
    assert await producer.ended(60) == 0
    await survivor.until(lambda: len(owned(survivor, topic)) == queues, "all queues", LOCK_LIFE_MS / 1000 + 20)
    await story.drain(group, topic)
    report = in_order(row, topic, producer, victim, survivor)
    assert report.handled == 3_000
    taken = {handover.queue.queue_id: handover for handover in report.handovers}  # the last of each queue
    assert len(orphaned) == half
    assert min(taken[queue_id].duration_ms for queue_id in orphaned) > LOCK_LIFE_MS / 2, "not at once"


async def test_a_poisoned_message(quick_story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """After its tries a message goes to the group's dead letters, with its id, and its queue goes on."""
    story = quick_story
    row = story.row("ordered consumer: poison, dead letter")
    topic, group = await story.server.create_topic(fresh_topic(), 1), fresh_group()
    producer = await story.produce(topic, 10, keys=2)
    consumer = await story.consumer(
        "OrderlyConsumer", topic, group, suspend_ms=20, max_reconsume_times=2, answers="3=SUSPEND*1000"
    )
    events = await story.handled(12, consumer)
    assert [event["seq"] for event in events] == [0, 1, 2, 3, 3, 3, *range(4, 10)]
    await story.finish(group, topic, consumer)
    row.messages, row.order_kept, row.duplicates = 10, True, again(events)
    reader = await story.consumer("ConcurrentConsumer", f"%DLQ%{group}", fresh_group())
    (dead,) = await story.handled(1, reader)
    assert (dead["seq"], dead["body"]) == (3, "3")
    assert dead["msgId"] == producer.of("sent")[3]["msgId"]


async def test_java_and_python_agree_on_queues(story: JavaStory, fresh_topic: Fresh) -> None:
    """The same keys, be they ASCII, other scripts, surrogate pairs or halves of one, go to the same queues."""
    row = story.row("Java and Python producers: same keys, same queues")
    topic = await story.server.create_topic(fresh_topic(), 7)
    java = await story.run("OrderedProducer", topic=topic, key_list=[escaped(key) for key in KEYS])
    chosen: defaultdict[str, list[int]] = defaultdict(list)
    async with Producer("interop-producers", name_server=story.server.name_server, config=PATIENT_PRODUCER) as producer:
        for key, sent in zip(KEYS, java.of("sent"), strict=True):
            result = await producer.send(Message(topic, b"from Python"), selector=select_by_hash, arg=key)
            chosen[key] = [sent["queueId"], result.queue.queue_id]
    row.messages = 2 * len(KEYS)
    assert {key: ids for key, ids in chosen.items() if ids[0] != ids[1]} == {}
    assert {ids[0] for ids in chosen.values()} == {queue.queue_id for queue in await queues_of(story.server, topic)}


def escaped(key: str) -> str:
    """A key as UTF-16 units, so that halves of surrogate pairs can be arguments."""
    units = key.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
