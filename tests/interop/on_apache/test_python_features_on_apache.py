"""What else our clients do, on Apache's broker: concurrent, broadcasting, keyed and pull consumers, delays."""

import asyncio
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.client import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyContext,
    LitePullConsumer,
    LitePullConsumerConfig,
    Message,
    MessageExt,
    MessageModel,
    MessageQueue,
    Producer,
    PullConsumer,
    PullStatus,
    PushConsumer,
)
from lockstep.protocol.codes import SysFlag
from lockstep.remoting.host.runtime import AsyncioRuntime
from tests.integration.harness.processes import PATIENT_PRODUCER
from tests.interop.harness.servers import Server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.python_story import FAST_CONFIG, PythonStory, eventually

pytestmark = pytest.mark.timeout(540)
Fresh = Callable[[], str]
Messages = list[MessageExt]
DONE, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
A_SECOND = 1  # delay level 1 is a second
LITE_CONFIG = LitePullConsumerConfig(
    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, rebalance_interval_ms=1000
)


@pytest.fixture
def story(apache: Server, tmp_path: Path, interop_row: RowMaker) -> PythonStory:
    return PythonStory(apache, tmp_path, interop_row)


async def test_retries_and_dead_letters(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """What fails comes again from the retry topic, under its first topic; what fails too often is a dead letter."""
    row = story.row("concurrent: retries, dead letters")
    topic, group = await story.server.create_topic(fresh_topic(), 4), fresh_group()
    tries: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)

    async def listen(messages: Messages, context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        context.delay_level_when_next_consume = A_SECOND
        [message] = messages
        number = int(message.body)
        tries[number].append((message.topic, message.reconsume_times))
        fails = number == 13 or (number == 7 and message.reconsume_times < 2)
        return LATER if fails else DONE

    async def given_up() -> bool:
        dead = MessageQueue(f"%DLQ%{group}", "broker-a", 0)
        tried = len(tries[7]) == 3  # it may come after the last try of 13
        return tried and dead.topic in await admin.topics() and await admin.max_offset(dead) == 1

    await story.send_keyed(topic, 40)
    config = replace(FAST_CONFIG, max_reconsume_times=2)
    consumer = PushConsumer(
        group, name_server=story.server.name_server, config=config, listener=listen, ordering="none"
    )
    consumer.subscribe(topic)
    async with story.server.admin() as admin, consumer:
        await story.drain(topic, group)
        await eventually(given_up, "the last tries, and a dead letter")
    for number in range(40):
        expected = 3 if number in (7, 13) else 1
        assert tries[number] == [(topic, times) for times in range(expected)], number
    row.messages, row.duplicates = 40, 4


async def test_part_of_a_batch(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Behind the ack index the messages of a batch come again, one by one, those before it do not."""
    row = story.row("concurrent: part of a batch acknowledged")
    topic, group = await story.server.create_topic(fresh_topic(), 1), fresh_group()
    seen: Counter[int] = Counter()
    sizes: list[int] = []

    async def listen(messages: Messages, context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        context.delay_level_when_next_consume = A_SECOND
        seen.update(int(message.body) for message in messages)
        if messages[0].reconsume_times == 0:
            sizes.append(len(messages))
            context.ack_index = 4
        return DONE

    async def all_again() -> bool:
        return sum(seen.values()) == 11

    async with story.producer() as producer:
        await producer.send_batch([Message(topic, str(number).encode()) for number in range(8)])
    await story.server.settle()  # a pull could come between two messages of the batch
    config = replace(FAST_CONFIG, consume_message_batch_max_size=8)
    consumer = PushConsumer(
        group, name_server=story.server.name_server, config=config, listener=listen, ordering="none"
    )
    consumer.subscribe(topic)
    async with consumer:
        await eventually(all_again, "three messages again")
    assert sizes == [8]
    assert seen == {**dict.fromkeys(range(5), 1), **dict.fromkeys(range(5, 8), 2)}
    row.messages, row.duplicates = 8, 3


async def test_broadcasting(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Each of two members handles every message; what it has handled is in its own file, none of it on the broker."""
    row = story.row("broadcasting, two members, one comes back")
    topic, group = await story.server.create_topic(fresh_topic(), 4), fresh_group()
    seen: dict[str, list[int]] = {"a": [], "b": []}

    def member(name: str) -> PushConsumer:
        async def listen(messages: Messages, context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
            seen[name] += [int(message.body) for message in messages]
            return DONE

        config = replace(FAST_CONFIG, instance_name=name, local_offset_folder=str(story.folder / name))
        consumer = PushConsumer(
            group,
            name_server=story.server.name_server,
            config=config,
            listener=listen,
            ordering="none",
            message_model=MessageModel.BROADCASTING,
        )
        consumer.subscribe(topic)
        return consumer

    async def both_have(count: int) -> bool:
        return [len(numbers) for numbers in seen.values()] == [count, count]

    await story.send_keyed(topic, 50)
    async with member("a"):
        async with member("b"):
            await eventually(lambda: both_have(50), "50 messages each")
        async with story.producer() as producer:
            await producer.send(Message(topic, b"50"))
        async with member("b"):
            await eventually(lambda: both_have(51), "one more each")
    assert sorted(seen["a"]) == sorted(seen["b"]) == list(range(51))
    async with story.server.admin() as admin:
        queues = (await admin.route(topic)).readable_queues(topic)
        assert {await admin.consumer_offset(group, queue) or 0 for queue in queues} == {0}
    row.messages, row.duplicates = 102, 51


async def test_delayed_messages(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """A message with a delay level comes when its time is over, in its own queue, behind what was sent meanwhile."""
    row = story.row("delay levels 2 and 3")
    topic, group = await story.server.create_topic(fresh_topic(), 1), fresh_group()
    came_ms: dict[bytes, tuple[int, MessageExt]] = {}
    runtime = AsyncioRuntime()

    async def listen(messages: Messages, context: ConsumeOrderlyContext) -> None:
        came_ms.update((message.body, (runtime.now_ms(), message)) for message in messages)

    async def all_came() -> bool:
        return len(came_ms) == 3

    async with story.consumer(topic, group, listen), story.producer() as producer:
        for body, level in ((b"10 s", 3), (b"5 s", 2), (b"now", 0)):
            await producer.send(Message(topic, body, delay_level=level))
        await eventually(all_came, "three messages")
    assert list(came_ms) == [b"now", b"5 s", b"10 s"]
    for body, wait_ms in ((b"5 s", 5_000), (b"10 s", 10_000)):
        at_ms, message = came_ms[body]
        assert at_ms - message.born_timestamp >= wait_ms
        assert message.topic == topic
    row.messages, row.duplicates = 3, 0


async def test_key_order(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Keys of one queue run beside each other, each in order, and the group commits all of it."""
    row = story.row('ordering="key", 100 keys in 2 queues')
    topic, group = await story.server.create_topic(fresh_topic(), 2), fresh_group()
    running: set[str] = set()
    many = asyncio.Event()

    async def listen(messages: Messages, context: ConsumeOrderlyContext) -> None:
        key = messages[0].sharding_key or ""
        assert key not in running
        running.add(key)
        if len(running) > 20:
            many.set()
        await many.wait()  # nothing ends before that many run at once
        await asyncio.sleep(0.005)
        running.remove(key)

    await story.send_keyed(topic, 1_000, keys=100)
    consumer = PushConsumer(
        group,
        name_server=story.server.name_server,
        config=FAST_CONFIG,
        listener=listen,
        ordering="key",
        trace=story.trace(),
    )
    consumer.subscribe(topic)
    async with consumer:
        await story.drain(topic, group)
    assert story.report(row).handled == 1_000


async def test_a_lite_pull_consumer(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Each queue comes in order; what was handed out and committed does not come to the next one; seek goes back."""
    row = story.row("lite pull: subscribe, commit, assign, seek")
    topic, group = await story.server.create_topic(fresh_topic(), 3), fresh_group()
    await story.send_keyed(topic, 300, keys=30)

    async def take(consumer: LitePullConsumer, count: int) -> dict[MessageQueue, list[int]]:
        found: dict[MessageQueue, list[int]] = {}
        while sum(map(len, found.values())) < count:
            messages = await consumer.poll(100_000)
            assert messages
            for message in messages:
                queue = MessageQueue(message.topic, message.broker_name, message.queue_id)
                found.setdefault(queue, []).append(message.queue_offset)
        return found

    first = LitePullConsumer(group, name_server=story.server.name_server, config=LITE_CONFIG)
    first.subscribe(topic)
    async with first:
        found = await take(first, 300)
        assert all(offsets == list(range(len(offsets))) for offsets in found.values())
        await first.commit_sync()
        assert {await first.committed(queue) for queue in found} == {len(offsets) for offsets in found.values()}
    async with story.producer() as producer:
        await producer.send(Message(topic, b"last"))
    second = LitePullConsumer(group, name_server=story.server.name_server, config=LITE_CONFIG)
    second.subscribe(topic)
    async with second:
        [message] = await second.poll(100_000)
        assert message.body == b"last"
    third = LitePullConsumer(fresh_group(), name_server=story.server.name_server, config=LITE_CONFIG)
    [queue, *_] = sorted(found)
    third.assign([queue])
    async with third:
        await take(third, len(found[queue]))
        await third.seek(queue, 5)
        assert (await third.poll(100_000))[0].queue_offset == 5
    row.messages, row.order_kept, row.duplicates = 301, True, 0


async def test_a_pull_consumer(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Its user says from where; a pull that may wait is answered when a message comes; offsets are its own affair."""
    row = story.row("pull: fetch queues, pull, block, offsets")
    topic, group = await story.server.create_topic(fresh_topic(), 1), fresh_group()
    async with (
        story.producer() as producer,
        PullConsumer(group, name_server=story.server.name_server) as consumer,
    ):
        for number in range(10):
            await producer.send(Message(topic, str(number).encode(), tags="even" if number % 2 == 0 else "odd"))
        await story.server.settle()  # else the last may not be there yet
        [queue] = await consumer.fetch_subscribe_message_queues(topic)
        found = await consumer.pull(queue, "odd", 0, 32)
        assert [message.body for message in found.messages] == [b"1", b"3", b"5", b"7", b"9"]
        assert (await consumer.pull(queue, "*", 10, 32)).status is PullStatus.NO_NEW_MSG
        waiting = asyncio.ensure_future(consumer.pull_block_if_not_found(queue, "*", 10, 32))
        await asyncio.sleep(0.5)
        assert not waiting.done()
        await producer.send(Message(topic, b"10"))
        assert [message.body for message in (await waiting).messages] == [b"10"]
        consumer.update_consume_offset(queue, 11)
        await consumer.persist(queue)
        assert await consumer.fetch_consume_offset(queue, from_store=True) == 11
    row.messages, row.duplicates = 11, 0


async def test_compression(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """A body of over 4 KiB is stored compressed and read as it was."""
    row = story.row("bodies that we compressed")
    topic, group = await story.server.create_topic(fresh_topic(), 1), fresh_group()
    bodies = [b"in order " * 3_000, b"short"]
    got: list[MessageExt] = []

    async def listen(messages: Messages, context: ConsumeOrderlyContext) -> None:
        got.extend(messages)

    async with Producer("compressors", name_server=story.server.name_server, config=PATIENT_PRODUCER) as producer:
        for body in bodies:
            await producer.send(Message(topic, body), sharding_key="one")
    async with story.consumer(topic, group, listen):
        await story.drain(topic, group)
    assert [zlib.crc32(message.body) for message in got] == [zlib.crc32(body) for body in bodies]
    assert [bool(message.sys_flag & SysFlag.COMPRESSED) for message in got] == [True, False]
    assert got[0].stored_bytes < 1_000
    row.messages, row.duplicates = 2, 0
