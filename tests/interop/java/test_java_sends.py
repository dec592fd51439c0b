"""Every way in which Java's producer sends, and how its client finds messages again, on our broker."""

from collections import defaultdict
from collections.abc import Callable

import pytest

from tests.integration.harness.processes import until
from tests.interop.harness.drivers import Event
from tests.interop.stories.java_story import JavaStory, again, both_encodings, queues_of

pytestmark = pytest.mark.timeout(360)
Fresh = Callable[[], str]

SAME = ("seq", "key", "keys", "tags", "bodyBytes", "bodyCrc32")
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


async def read(story: JavaStory, topic: str, group: str) -> list[Event]:
    """All messages of a topic, as a Java pull consumer gets them."""
    return (await story.run("PullConsumer", topic=topic, group=group)).of("handled")


@pytest.mark.parametrize("kind", ["sync", "async", "one-way", "batch"])
async def test_a_way_to_send(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh, kind: str) -> None:
    """What is sent arrives as it was, each once; the ids and offsets that a send told are those of the message."""
    row = story.row(f"send: {kind}")
    topic = await story.server.create_topic(fresh_topic())
    producer = await story.run("SendKinds", kind=kind, topic=topic, messages=20, tags=["TagA", "TagB"])
    await until(lambda: stored(story, topic, 20), "20 messages are stored")
    found = {event["seq"]: event for event in await read(story, topic, fresh_group())}
    for sent in producer.of("sent"):
        same = (*SAME, "msgId", "queueId", "queueOffset") if "status" in sent else SAME
        assert {name: found[sent["seq"]][name] for name in same} == {name: sent[name] for name in same}
    row.messages, row.duplicates = 20, again(found.values())
    assert sorted(found) == list(range(20))
    if kind == "batch":
        row.order_kept = True
        assert [(sent["queueOffset"], sent["seq"]) for sent in producer.of("sent")] == [(n, n) for n in range(20)]


async def stored(story: JavaStory, topic: str, messages: int) -> bool:
    async with story.server.admin() as admin:
        return sum([await admin.max_offset(queue) for queue in await queues_of(story.server, topic)]) == messages


async def test_a_compressed_body(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """A body above 4 KiB travels and is stored compressed, and arrives as it was; a batch of them is not compressed."""
    row = story.row("send: compressed body")
    topic = await story.server.create_topic(fresh_topic())
    for kind in ("sync", "batch"):
        await story.run("SendKinds", kind=kind, topic=topic, messages=5, body_bytes=20_000)
    events = await read(story, topic, fresh_group())
    assert all(event["bodyBytes"] >= 20_000 for event in events)
    by_crc: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for event in events:
        by_crc[event["seq"], event["bodyCrc32"]].append(event["storeSize"])
    assert len(by_crc) == 5
    assert all(min(sizes) < 1_000 and max(sizes) > 20_000 for sizes in by_crc.values())
    row.messages = len(events)


async def test_a_delayed_message(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """With delay level 1 a message arrives a second later, in its own topic, with what it carried."""
    row = story.row("send: delay level 1")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    consumer = await story.consumer("ConcurrentConsumer", topic, group)
    producer = await story.run("SendKinds", topic=topic, messages=5, delay_level=1, tags=["TagA"])
    events = await story.handled(5, consumer)
    assert sorted(event["seq"] for event in events) == list(range(5))
    assert {event["topic"] for event in events} == {topic}
    assert {event["tags"] for event in events} == {"TagA"}
    assert {event["msgId"] for event in events} == {event["msgId"] for event in producer.of("sent")}
    assert all(event["wall_ms"] - event["bornTimestamp"] >= 1_000 for event in events)
    row.messages, row.duplicates = 5, again(events)


async def test_a_topic_that_does_not_exist(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """A send to an unknown topic goes by the route of TBW102, and makes the topic with four queues."""
    row = story.row("send: topic made by a send")
    topic, group = fresh_topic(), fresh_group()
    consumer = await story.consumer("OrderlyConsumer", topic, group)
    await story.produce(topic, 40, keys=8)
    events = await story.handled(40, consumer)
    assert sorted(queue.queue_id for queue in await queues_of(story.server, topic)) == [0, 1, 2, 3]
    row.messages, row.duplicates = 40, again(events)


@both_encodings
async def test_messages_are_found_again(story: JavaStory, fresh_topic: Fresh) -> None:
    """By either kind of id and by key; what is not there is told by an error of the client, not by a wrong message."""
    row = story.row("queryMessage, viewMessage: by id, by unique key, by key")
    topic = await story.server.create_topic(fresh_topic())
    producer = await story.run("SendKinds", topic=topic, messages=12)
    sent = producer.of("sent")
    ids = [sent[3]["offsetMsgId"], sent[4]["msgId"]]
    unknown_ids = [sent[3]["offsetMsgId"][:-4] + "FFFF", sent[4]["msgId"][:-4] + "0FFF"]
    query = await story.run(
        "QueryMessages", topic=topic, ids=[*ids, *unknown_ids], keys=["key-5", "key-11", "key-12", "no-such-key"]
    )
    viewed = {event["asked"]: event for event in query.of("viewed")}
    assert {asked: event["seq"] for asked, event in viewed.items()} == {ids[0]: 3, ids[1]: 4}
    for event in viewed.values():
        assert {name: event[name] for name in SAME} == {name: sent[event["seq"]][name] for name in SAME}
    assert [(event["asked"], event["seq"]) for event in query.of("queried")] == [("key-5", 5), ("key-11", 11)]
    assert [event["asked"] for event in query.of("missing")] == [*unknown_ids, "key-12", "no-such-key"]
    row.messages = len(viewed) + 2


@pytest.mark.parametrize("traced", [False, True], ids=["off", "on"])
async def test_message_trace(story: JavaStory, fresh_topic: Fresh, traced: bool) -> None:
    """A producer with message trace writes its trace to the topic for it; one without writes none.

    At its shutdown Java's producer waits half a second for what is not written yet, so it stays until it is.
    """
    row = story.row(f"message trace {'on' if traced else 'off'}")
    topic = await story.server.create_topic(fresh_topic())
    before = await written(story, TRACE_TOPIC)
    sender = story.start("SendKinds", topic=topic, messages=10, message_trace=traced, stay=traced)
    if traced:
        await sender.wait_for("ready")
        await until(lambda: written_more(story, before), "a trace is written")
    assert await (sender.close() if traced else sender.ended(60)) == 0, sender.tail()
    assert await stored(story, topic, 10)
    if not traced:
        assert await written(story, TRACE_TOPIC) == before
    row.messages = 10


async def written(story: JavaStory, topic: str) -> int:
    """How many messages a topic was given; 0 without one."""
    async with story.server.admin() as admin:
        if topic not in await admin.topics():
            return 0
        return sum([await admin.max_offset(queue) for queue in await queues_of(story.server, topic)])


async def written_more(story: JavaStory, before: int) -> bool:
    return await written(story, TRACE_TOPIC) > before


async def test_transactions(story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Half messages that are committed arrive, those rolled back do not."""
    row = story.row("transactions: commit, rollback")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    consumer = await story.consumer("ConcurrentConsumer", topic, group)
    producer = story.start("TransactionProducer", topic=topic, messages=10)
    await producer.wait_for("ready")
    await story.handled(5, consumer)
    await story.finish(group, topic, consumer)
    events = consumer.of("handled")
    assert sorted(event["seq"] for event in events) == [0, 2, 4, 6, 8]
    sent = {event["seq"]: event["msgId"] for event in producer.of("sent")}
    assert {event["msgId"] for event in events} == {sent[seq] for seq in (0, 2, 4, 6, 8)}
    row.messages, row.duplicates = 10, again(events)


async def test_a_transaction_that_nobody_ended(quick_story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """The broker asks a producer of the group what became of a half message, another one when its own was killed."""
    story = quick_story
    row = story.row("transactions: check-back, also of a killed producer")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    consumer = await story.consumer("ConcurrentConsumer", topic, group)
    asked = story.start("TransactionProducer", topic=topic, messages=2, unknown=2, producer_group=fresh_group())
    inherited = fresh_group()
    killed = story.start("TransactionProducer", topic=topic, messages=3, unknown=3, producer_group=inherited)
    await killed.until(lambda: len(killed.of("sent")) == 3, "three half messages")
    await killed.kill()
    heir = story.start("TransactionProducer", topic=topic, messages=0, producer_group=inherited)
    await story.handled(5, consumer)
    await story.finish(group, topic, consumer)
    events = consumer.of("handled")
    assert sorted(event["msgId"] for event in events) == sorted(
        event["msgId"] for producer in (asked, killed) for event in producer.of("sent")
    )
    assert {event["seq"] for event in asked.of("checked")} == {0, 1}
    assert {event["seq"] for event in [*killed.of("checked"), *heir.of("checked")]} == {0, 1, 2}
    row.messages, row.duplicates = len(events), 0
