"""Our client, unchanged, on Apache's name server and broker."""

import asyncio
import json
import re
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.client import (
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    Message,
    MessageExt,
    MessageQueue,
    ProducerConfig,
    SendResult,
)
from lockstep.order import Cause
from lockstep.protocol.bodies.codec import decode_body, encode_body
from lockstep.protocol.bodies.locks import LockBatchBody, LockOkBody
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType, SysFlag
from lockstep.testing.peer import json_request
from tests.integration.harness.raw import raw_peer
from tests.interop.harness.drivers import Drivers
from tests.interop.harness.installed import ROOT, version_of
from tests.interop.harness.servers import LOCK_LIFE_MS, Server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.python_story import FAST_CONFIG, PythonStory, eventually

pytestmark = pytest.mark.timeout(540)
Fresh = Callable[[], str]
Messages = list[MessageExt]
DEMO_FLIGHTS = 5_000


@pytest.fixture
def story(apache: Server, tmp_path: Path, interop_row: RowMaker) -> PythonStory:
    return PythonStory(apache, tmp_path, interop_row)


async def nothing(messages: Messages, context: ConsumeOrderlyContext) -> None:
    """A listener that is content with everything."""


async def test_the_demo_on_their_broker(story: PythonStory, drivers: Drivers) -> None:
    """Three consumer processes, one killed, a replacement: every aircraft's story in order, and nothing lost."""
    row = story.row("the demo, a consumer killed")
    options = ["--flights", str(DEMO_FLIGHTS), "--seconds", "20", "--name-server", story.server.name_server]
    demo = drivers.start(
        "demo", [sys.executable, "-m", "scripts.demo", *options], {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    )
    status = await demo.ended(120)
    said = demo.output.read_text(encoding="utf-8")
    figures = {name: int(count.replace(",", "")) for name, count in re.findall(r"(?m)^  (\w[\w ]+?)  +([\d,]+)", said)}
    row.messages, row.duplicates = figures.get("events handled"), figures.get("duplicates")
    row.order_kept = figures.get("violations") == 0
    assert status == 0, demo.tail()
    assert figures["lost"] == figures["violations"] == 0
    assert figures["events handled"] == figures["events sent"] > DEMO_FLIGHTS
    assert figures["handovers"] > 0


async def test_sends_in_flight(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Sixty-four keyed sends in flight are stored in call order in each queue, and handled in it."""
    row = story.row("64 keyed sends in flight, ordered consumer")
    topic, group = await story.server.create_topic(fresh_topic(), 8), fresh_group()
    results = await story.send_keyed(topic, 5_000, keys=100)
    for queue in {result.queue for result in results}:
        offsets = [result.queue_offset for result in results if result.queue == queue]
        assert offsets == list(range(len(offsets)))
    async with story.consumer(topic, group, nothing):
        await story.drain(topic, group)
    report = story.report(row)
    assert (report.sent, report.handled, report.attempts, report.keys) == (5_000, 5_000, 5_000, 100)


async def test_sends_that_wait_leave_in_batches(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """With `auto_batch` their order is the same, and each result is the offset and the ids that are stored."""
    row = story.row("64 keyed sends in flight, in batches")
    topic, group = await story.server.create_topic(fresh_topic(), 8), fresh_group()
    results = await story.send_keyed(topic, 10_000, keys=100, config=ProducerConfig(auto_batch=True))
    seen, alone = await stored_by(story, topic, group)
    report = story.report(row)
    assert (report.sent, report.handled, report.attempts, report.keys) == (10_000, 10_000, 10_000, 100)
    assert told_by(results) == seen
    assert alone < 1000
    for queue_id in range(8):
        numbers = [int(seen[place][2]) for place in sorted(seen) if place[0] == queue_id]
        assert numbers == sorted(numbers)


async def test_sends_to_any_queue_leave_in_batches(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """With `auto_batch` each result of a send without a key is the offset and the ids that are stored, too."""
    row = story.row("sends to any queue, in batches")
    topic, group = await story.server.create_topic(fresh_topic(), 4), fresh_group()
    async with story.producer(ProducerConfig(auto_batch=True)) as producer:
        results = await asyncio.gather(*[producer.send(Message(topic, str(number).encode())) for number in range(2000)])
    seen, alone = await stored_by(story, topic, group)
    assert story.report(row).handled == 2000
    assert told_by(results) == seen
    assert alone < 200


Stored = dict[tuple[int, int], tuple[str, str, str]]


def told_by(results: list[SendResult]) -> Stored:
    """As `stored_by`, for messages with their numbers as bodies."""
    return {
        (result.queue_id, result.queue_offset): (result.msg_id, result.offset_msg_id, str(number))
        for number, result in enumerate(results)
    }


async def stored_by(story: PythonStory, topic: str, group: str) -> tuple[Stored, int]:
    """UNIQ_KEY, offset message id and body by queue and offset; and how many were no part of a batch."""
    seen: Stored = {}
    alone = 0

    async def keep(messages: Messages, context: ConsumeOrderlyContext) -> None:
        nonlocal alone
        for one in messages:
            alone += "WAIT" not in one.properties  # RocketMQ takes it from single messages alone (wire.md 4.2)
            seen[one.queue_id, one.queue_offset] = (one.msg_id, one.offset_message_id, one.body.decode())

    async with story.consumer(topic, group, keep):
        await story.drain(topic, group)
    return seen, alone


async def test_a_batch(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """A batch is one request, whose messages get consecutive offsets; its properties and bodies arrive whole."""
    row = story.row("batches")
    topic, group = await story.server.create_topic(fresh_topic(), 4), fresh_group()
    got: dict[bytes, MessageExt] = {}

    async def keep(messages: Messages, context: ConsumeOrderlyContext) -> None:
        got.update((message.body, message) for message in messages)

    async with story.producer() as producer:
        for round_number in range(20):
            bodies = [f"{round_number}-{place} ä".encode() for place in range(10)]
            batch = [Message(topic, body, tags="T", properties={"place": body.decode()}) for body in bodies]
            await producer.send_batch(batch, sharding_key=f"key-{round_number % 5}")
    config = replace(FAST_CONFIG, consume_message_batch_max_size=7)
    async with story.consumer(topic, group, keep, config):
        await story.drain(topic, group)
    assert story.report(row).handled == 200
    for body, message in got.items():
        assert (message.tags, message.properties["place"]) == ("T", body.decode())


async def test_compressed_bodies(story: PythonStory, drivers: Drivers, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """What a Java producer compresses on its way to their broker, our consumer reads as it was."""
    row = story.row("bodies that Java compressed")
    row.version = f"0.1.0, Java {version_of('java', 'rocketmq-client')}"
    topic, group = await story.server.create_topic(fresh_topic(), 4), fresh_group()

    java = drivers.java(
        "OrderedProducer", name_server=story.server.name_server, topic=topic, messages=50, keys=5, body_bytes=20_000
    )
    assert await java.ended(60) == 0, java.tail()
    sent = {event["seq"]: event["bodyCrc32"] for event in java.of("sent")}
    got: dict[int, int] = {}
    compressed: list[bool] = []

    async def check(messages: Messages, context: ConsumeOrderlyContext) -> None:
        for message in messages:
            got[int(message.properties["seq"])] = zlib.crc32(message.body)
            compressed.append(bool(message.sys_flag & SysFlag.COMPRESSED))

    async with story.consumer(topic, group, check):
        await story.drain(topic, group)
    row.messages, row.duplicates = len(got), 0
    assert got == sent
    assert len(sent) == 50
    assert all(compressed)


async def test_manual_commit(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Uncommitted messages come again to the next consumer; ROLLBACK goes back to the last commit."""
    row = story.row("manual commit, rollback, restart")
    topic, group = await story.server.create_topic(fresh_topic(), 1), fresh_group()
    await story.send_keyed(topic, 20, keys=1)
    answers = {4: ConsumeOrderlyStatus.COMMIT, 9: ConsumeOrderlyStatus.ROLLBACK, 14: ConsumeOrderlyStatus.COMMIT}
    first: list[int] = []
    second: list[int] = []

    async def manual(messages: Messages, context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus:
        context.auto_commit = False
        first.append(int(messages[0].body))
        if first.count(9) > 1 and first[-1] == 9:
            return ConsumeOrderlyStatus.SUCCESS
        return answers.get(first[-1], ConsumeOrderlyStatus.SUCCESS)

    async def plain(messages: Messages, context: ConsumeOrderlyContext) -> None:
        second.append(int(messages[0].body))

    async def all_seen() -> bool:
        return first[-1:] == [19]

    async with story.consumer(topic, group, manual):
        await eventually(all_seen, "the last message")
    assert first == [*range(10), *range(5, 20)]
    async with story.consumer(topic, group, plain):
        await story.drain(topic, group)
    assert second == [*range(15, 20)]
    assert story.report(row).duplicates == {Cause.SUSPEND: 5, Cause.TAKEOVER: 5}


async def test_a_poison_message(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """A message that always fails is given up after its attempts, and its queue goes on; it becomes a dead letter.

    Apache's broker delays it by the level of its next attempt first (wire.md 10.3): 10 s after one, 2 min after four.
    """
    row = story.row("a poison message to the dead-letter topic")
    topic, patient, strict = await story.server.create_topic(fresh_topic(), 2), fresh_group(), fresh_group()
    await story.send_keyed(topic, 40, keys=4)
    attempts: dict[int, list[int]] = {0: [], 3: []}

    async def delayed(level: int) -> int:
        return await admin.max_offset(MessageQueue("SCHEDULE_TOPIC_XXXX", "broker-a", level - 1))

    async def give_up(group: str, limit: int) -> None:
        async def choke(messages: Messages, context: ConsumeOrderlyContext) -> None:
            if messages[0].body == b"7":
                attempts[limit].append(messages[0].reconsume_times)
                raise ValueError("seven")

        async with story.consumer(topic, group, choke, replace(FAST_CONFIG, max_reconsume_times=limit)):
            await story.drain(topic, group)

    async def is_a_dead_letter() -> bool:
        dead = f"%DLQ%{strict}"
        return dead in await admin.topics() and await admin.max_offset(MessageQueue(dead, "broker-a", 0)) == 1

    async with story.server.admin() as admin:
        before = [await delayed(level) for level in (3, 6)]
        await asyncio.gather(give_up(strict, 0), give_up(patient, 3))
        await story.server.settle()  # what is sent back is in its queue a little later than the answer
        assert [await delayed(level) for level in (3, 6)] == [count + 1 for count in before]
        await eventually(is_a_dead_letter, f"a message in the dead letters of {strict}", 25)
    assert attempts == {0: [0], 3: [0, 1, 2, 3]}
    report = story.report(row)
    assert (report.handled, report.dead_lettered) == (80, 2)
    row.messages = 40


async def test_shutdown_frees_the_locks(story: PythonStory, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """Whoever asks next has all of them: those of one that left in order do not have to run out."""
    row = story.row("shutdown frees the locks at once")
    topic, group = await story.server.create_topic(fresh_topic(), 4), fresh_group()
    queues = tuple(MessageQueue(topic, "broker-a", queue_id) for queue_id in range(4))
    await story.send_keyed(topic, 100)
    async with story.consumer(topic, group, nothing):
        await story.drain(topic, group)
        assert await asked(story, RequestCode.LOCK_BATCH_MQ, group, queues) == set()
    assert await asked(story, RequestCode.LOCK_BATCH_MQ, group, queues) == set(queues)
    await asked(story, RequestCode.UNLOCK_BATCH_MQ, group, queues)
    await story.send_keyed(topic, 100)
    async with story.consumer(topic, group, nothing):
        await story.drain(topic, group)
    assert set(queues) <= {handover.queue for handover in story.report(row).handovers}


async def asked(
    story: PythonStory, code: RequestCode, group: str, queues: tuple[MessageQueue, ...]
) -> set[MessageQueue]:
    """What the broker grants a stranger that asks for these locks, or gives them back."""
    body = encode_body(LockBatchBody(group, "stranger", queues), SerializeType.JSON)
    async with raw_peer(int(story.server.broker.rpartition(":")[2])) as stranger:
        reply = await stranger.ask(json_request(code, {}, body))
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return set(decode_body(LockOkBody, reply.body, SerializeType.JSON).lock_ok_mq_set) if reply.body else set()


async def test_the_command_line(story: PythonStory, drivers: Drivers, fresh_topic: Fresh, fresh_group: Fresh) -> None:
    """`lockstep` makes, describes and deletes a topic there; of locks it says that RocketMQ has no such call."""
    row = story.row("lockstep topic, produce, consume, lock list")
    topic, group = fresh_topic(), fresh_group()
    lines = story.folder / "lines.json"
    lines.write_text("".join(f'{{"key":"key-{n % 5}","n":{n}}}\n' for n in range(100)), encoding="utf-8")

    async def lockstep(*arguments: str) -> tuple[int, str, str]:
        command = [str(Path(sys.executable).with_name("lockstep")), *arguments, "-n", story.server.name_server]
        run = drivers.start("lockstep", command, {})
        return await run.ended(60), run.output.read_text(encoding="utf-8"), run.stderr()

    status, _, complaint = await lockstep("topic", "create", topic, "--queues", "4")
    assert status == 0, complaint
    status, said, complaint = await lockstep("topic", "list")
    assert status == 0, complaint
    assert topic in said
    status, _, complaint = await lockstep("produce", topic, "--file", str(lines), "--key-field", "key")
    assert status == 0, complaint
    arguments = ["-g", group, "--exit-at-end", "--format", r"%k %s\n", "--lock-live-ms", str(LOCK_LIFE_MS)]
    status, said, complaint = await lockstep("consume", topic, *arguments)
    assert status == 0, complaint
    consumed = [line.split(" ", 1) for line in said.splitlines()]
    for key in {key for key, _ in consumed}:
        numbers = [int(body.rpartition(":")[2].rstrip("}")) for of, body in consumed if of == key]
        assert numbers == list(range(int(key[-1]), 100, 5))
    row.messages, row.order_kept, row.duplicates = len(consumed), True, 0
    assert len(consumed) == 100
    status, said, complaint = await lockstep("lock", "list")
    assert (status, said) == (1, "")
    assert complaint.count("\n") == 1
    assert "no such call" in complaint
    status, said, complaint = await lockstep("topic", "describe", topic, "-o", "json")
    assert status == 0, complaint
    described = json.loads(said)
    assert (described["messages"], described["groups"]) == (100, [{"group": group, "members": 0, "lag": 0}])
    status, _, complaint = await lockstep("topic", "delete", topic)
    assert status == 0, complaint
    deleted, kept = complaint.splitlines()
    assert deleted == f"lockstep: topic {topic} is deleted with 100 messages"
    assert kept.startswith(f"lockstep: a broker of RocketMQ 4 keeps the offsets of {group}: ")
