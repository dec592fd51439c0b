"""librocketmq, the C++ client that the wheel `rocketmq` carries, on our broker."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.client import Message, select_by_hash
from tests.integration.harness.processes import until
from tests.interop.harness.drivers import Drivers
from tests.interop.harness.servers import Server, lockstep_server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.java_story import again, drained, order_of_keys, queues_of, shared_out
from tests.interop.stories.mqadmin_story import Admin, make_home
from tests.interop.stories.other_story import OtherStory, cpp_story, first_attempts, queue_order_kept, quick_server

pytestmark = pytest.mark.timeout(360)
Fresh = Callable[[], str]


@pytest.fixture
def story(drivers: Drivers, lockstep: Server, interop_row: RowMaker) -> OtherStory:
    """C++ drivers on the session's broker of ours."""
    return cpp_story(drivers, lockstep, interop_row)


async def test_producers(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Single, one-way and large compressed sends are stored once each and come back as they were sent."""
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    consumer = await story.consumer("consume.py", topic, group)
    handled = 0
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("producer: sync", {"kind": "sync", "tags": "a,b"}),
        ("producer: async", {"kind": "async"}),
        ("producer: one-way (answered all the same: its flag is that of a request)", {"kind": "one-way"}),
        ("producer: 100 kB bodies, compressed", {"kind": "sync", "body_bytes": 100_000}),
    ]
    for scenario, arguments in kinds:
        row = story.row(scenario)
        sent = await story.produce("produce.py", topic, 20, keys=3, **arguments)
        handled += len(sent)
        events = (await story.handled(handled, consumer))[-len(sent) :]
        row.messages, row.duplicates = len(events), again(events)
        what = ("seq", "key", "bodyBytes", "bodyCrc32")
        assert Counter(tuple(e[name] for name in what) for e in events) == Counter(
            tuple(e[name] for name in what) for e in sent
        )
        assert all((event["tags"] or "") == sent[event["seq"]]["tags"] for event in events)


async def test_an_ordered_producer(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """A selector that hashes as Java's puts each key into the queue that our producers choose, in call order."""
    row = story.row("ordered producer, queue selector (its C interface has no send by sharding key)")
    topic, group = await story.server.create_topic(fresh_topic(), 8), fresh_group()
    consumer = await story.consumer("consume.py", topic, group)
    await story.produce("produce.py", topic, 500, keys=40, kind="ordered")
    events = await story.handled(500, consumer)
    queues = await queues_of(story.server, topic)
    for event in events:
        assert event["queueId"] == select_by_hash(queues, Message(topic, b""), event["key"]).queue_id
    row.messages, row.duplicates, row.order_kept = len(events), again(events), order_of_keys(events)
    assert row.order_kept
    assert row.duplicates == 0


async def test_a_batch(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """A batch is stored as its messages, side by side in one queue."""
    row = story.row("producer: batch, stored as its messages (accept_cpp_batches, the default)")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    consumer = await story.consumer("consume.py", topic, group)
    await story.produce("produce.py", topic, 20, keys=3, kind="batch")
    events = await story.handled(20, consumer)
    assert [(event["seq"], event["queueOffset"]) for event in events] == [(seq, seq) for seq in range(20)]
    assert len({event["queueId"] for event in events}) == 1
    row.messages, row.duplicates, row.order_kept = len(events), again(events), order_of_keys(events)


async def test_a_batch_taken_literally(story: OtherStory, fresh_topic: Fresh, tmp_path: Path, apache: Server) -> None:
    """With accept_cpp_batches off a batch becomes one message, as on Apache's broker, which reads its "1" as false."""
    row = story.row("producer: batch, stored as one message (accept_cpp_batches off), as on Apache's")
    (tmp_path / "literal").mkdir()
    with lockstep_server(tmp_path / "literal", "-D", "accept_cpp_batches=false") as literal:
        for server in (literal, apache):
            story.server = server
            topic = await server.create_topic(fresh_topic())
            await story.produce("produce.py", topic, 20, keys=3, kind="batch")
            await server.settle()
            async with server.admin() as admin:
                ends = [await admin.max_offset(queue) for queue in await queues_of(server, topic)]
            assert sum(ends) == 1, server.name
    row.messages = 20


async def test_an_ordered_consumer_that_fails(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """A message whose listener fails comes again in place; what is behind it in its queue waits."""
    row = story.row("ordered push consumer, listener fails (retried in place for ever: no dead letters)")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    await story.produce("produce.py", topic, 200, keys=16, kind="ordered")
    consumer = await story.consumer("consume.py", topic, group, answers="7=LATER*2,100=LATER")
    events = await story.handled(203, consumer)
    row.messages, row.duplicates = len(first_attempts(events)), again(events)
    row.order_kept = order_of_keys(first_attempts(events)) and queue_order_kept(events)
    assert (row.messages, row.duplicates, row.order_kept) == (200, 3, True)
    assert Counter(event["seq"] for event in events if event["status"] == "LATER") == {7: 2, 100: 1}


async def test_two_ordered_consumers_and_one_killed(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """The survivor takes the queues of the killed one once their locks have run out; all is handled, in order."""
    row = story.row("ordered push consumers, one killed (it rebalances every 10 s)")
    topic, group = await story.server.create_topic(fresh_topic(), 8), fresh_group()
    victim, survivor = [story.start("consume.py", topic, group, work_ms=2) for _ in range(2)]
    await asyncio.gather(victim.wait_for("ready"), survivor.wait_for("ready"))
    # One that found no free lock asks again after 10 s, and once more if it came too early: as long as it is sent to.
    await shared_out(story.server, group, topic, [4, 4])
    producer = asyncio.create_task(story.produce("produce.py", topic, 1_500, keys=64, kind="ordered", pause_ms=10))
    for consumer in (victim, survivor):
        await story.handled(50, consumer)
    await victim.kill()
    await producer
    held = {event["queueId"] for event in victim.of("handled")}

    def all_there() -> bool:
        return len(first_attempts(victim.of("handled") + survivor.of("handled"))) == 1_500

    await survivor.until(all_there, "everything handled", 60)
    events = victim.look() + survivor.look()
    events = [event for event in events if event["event"] == "handled"]
    assert held & {event["queueId"] for event in survivor.of("handled")} == held
    row.messages, row.duplicates = len(first_attempts(events)), again(events)
    row.order_kept = order_of_keys(first_attempts(events)) and queue_order_kept(events)
    assert row.order_kept


async def test_a_pull_consumer(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Every message is there, queue by queue, in the order of its offsets."""
    row = story.row("pull consumer")
    topic = await story.server.create_topic(fresh_topic())
    await story.produce("produce.py", topic, 300, keys=20, kind="ordered")
    consumer = story.start("pull.py", topic, fresh_group())
    assert await consumer.ended(30) == 0, consumer.tail()
    events = consumer.of("handled")
    places = [(event["queueId"], event["queueOffset"]) for event in events]
    assert places == sorted(places)
    row.messages, row.duplicates, row.order_kept = len(events), again(events), order_of_keys(events)
    assert (row.messages, row.duplicates, row.order_kept) == (300, 0, True)


async def test_an_administrator(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh, drivers: Drivers) -> None:
    """mqadmin sees what the consumer is at, and sends it back to the first message, by the array that it reads."""
    row = story.row("ordered push consumer that mqadmin looks at and resets (-c, for C++)")
    home = make_home(drivers.folder / "home")
    mqadmin = drivers.java("MqAdmin", properties={"rocketmq.home.dir": str(home)})
    admin = Admin(story.server, drivers, mqadmin)
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    await story.produce("produce.py", topic, 50, keys=5, kind="ordered")
    consumer = await story.consumer("consume.py", topic, group)
    await story.handled(50, consumer)
    await until(lambda: drained(story.server, group, topic), "all committed", 30)
    connection = await admin.ask(f"consumerConnection -g {group}")
    (client,) = [line.split()[0] for line in connection.output.splitlines() if "CPP" in line]
    status = await admin.ask(f"consumerStatus -g {group} -i {client}")
    assert "PROP_CONSUMEORDERLY" in status.output, status.errors
    reset = await admin.ask(f"resetOffsetByTime -g {group} -t {topic} -s 1000000000000 -c true")
    assert "rollback consumer offset" in reset.output, reset.errors
    events = await story.handled(100, consumer, timeout_s=60)
    row.messages, row.duplicates = len(first_attempts(events)), again(events)
    assert (row.messages, row.duplicates) == (50, 50)


async def test_broadcasting(story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Each of two consumers of one group gets every message."""
    row = story.row("push consumers, broadcasting")
    topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
    consumers = [
        await story.consumer("consume.py", topic, group, orderly=False, model="broadcasting") for _ in range(2)
    ]
    await story.produce("produce.py", topic, 40)
    for consumer in consumers:
        events = await story.handled(40, consumer)
        assert {event["seq"] for event in events} == set(range(40))
    row.messages = sum(len(consumer.of("handled")) for consumer in consumers)
    row.duplicates = row.messages - 80


async def test_a_concurrent_consumer_that_fails(
    story: OtherStory, fresh_topic: Fresh, fresh_group: Fresh, tmp_path: Path
) -> None:
    """A message whose listener fails is sent back and comes again through the retry topic, after its delay.

    The library sends back the whole pull: what was handled before the failure too, and unseen what came behind it.
    """
    row = story.row("concurrent push consumer, failures sent back (delays shortened)")
    attempts = {7: 3, 30: 2}
    wanted = Counter(dict.fromkeys(range(50), 1) | attempts)

    def enough() -> list[dict[str, Any]] | None:
        events = list(consumer.of("handled"))
        return events if Counter(event["seq"] for event in events) >= wanted else None

    with quick_server(tmp_path / "quick") as story.server:
        topic, group = await story.server.create_topic(fresh_topic()), fresh_group()
        consumer = await story.consumer("consume.py", topic, group, orderly=False, answers="7=LATER*2,30=LATER")
        await story.produce("produce.py", topic, 50, keys=5)
        events = await consumer.until(enough, f"{wanted.total()} attempts", 60)
        assert await consumer.close() == 0
    row.messages, row.duplicates = len(first_attempts(events)), again(events)
    assert row.messages == 50
    for seq, count in attempts.items():
        times = [event["reconsumeTimes"] for event in events if event["seq"] == seq]
        assert len(times) >= count
        assert times == sorted(set(times))  # not one by one: see above
    queues = {event["seq"]: event["queueId"] for event in first_attempts(events) if not event["reconsumeTimes"]}
    repeated = {seq for seq, count in Counter(event["seq"] for event in events).items() if count > 1}
    assert {queues[seq] for seq in repeated if seq in queues} == {queues[7], queues[30]}
    assert {event["topic"] for event in events} == {topic}
