"""Java's ordered push consumers, unmodified, on our broker with fenced locks."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lockstep.protocol.codes import RequestCode
from lockstep.testing.peer import json_request
from tests.integration.harness.processes import until
from tests.integration.harness.raw import raw_peer
from tests.interop.harness.drivers import Driver, Drivers
from tests.interop.harness.servers import LOCK_LIFE_MS, lockstep_server
from tests.interop.harness.table import RowMaker
from tests.interop.stories.java_story import JavaStory, in_order, owned

pytestmark = pytest.mark.timeout(360)
Fresh = Callable[[], str]
QUEUES = 4
LOOK_S = 0.2
SILENT_S = 45


@pytest.fixture
def fenced_story(drivers: Drivers, tmp_path: Path, interop_row: RowMaker) -> Iterator[JavaStory]:
    (tmp_path / "broker").mkdir()
    with lockstep_server(tmp_path / "broker", "--lock-mode", "fenced") as server:
        yield JavaStory(drivers, server, interop_row)


async def test_ordered_consumers_notice_no_fence(
    fenced_story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """One consumes, another joins, the first leaves: everything once and in order, and no request was refused."""
    story, row = fenced_story, fenced_story.row("ordered consumers on fenced locks")
    topic, group = await story.server.create_topic(fresh_topic(), QUEUES), fresh_group()
    first = await story.consumer("OrderlyConsumer", topic, group)
    producer = await story.produce(topic, 500, keys=32)
    await story.handled(500, first)
    await story.drain(group, topic)
    second = await story.consumer("OrderlyConsumer", topic, group)
    await second.until(lambda: len(owned(second, topic)) == QUEUES // 2, "half of the queues", 60)
    assert await first.close() == 0
    await second.until(lambda: len(owned(second, topic)) == QUEUES, "all queues", 60)
    later = await story.produce(topic, 500, keys=32)
    await story.handled(500, second)
    await story.finish(group, topic, second)
    report = in_order(row, topic, producer, later, first, second)
    assert report.handled == report.attempts == 1_000
    assert await refusals(story) == {}


async def test_a_stopped_owner_that_wakes_up_moves_no_offset(
    fenced_story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """SIGSTOP, with its connection kept, until another consumer owns half of its queues; then SIGCONT. Its commits of
    these queues are refused, and no offset ever goes back."""
    story, row = fenced_story, fenced_story.row("ordered consumer stopped and replaced, fenced locks")
    topic, group = await story.server.create_topic(fresh_topic(), QUEUES), fresh_group()
    stopped = await story.consumer("OrderlyConsumer", topic, group, work_ms=1)
    await stopped.until(lambda: len(owned(stopped, topic)) == QUEUES, "all queues", 60)
    await story.produce(topic, 500, keys=32)
    await story.handled(100, stopped)
    async with watched_offsets(story, group, topic) as samples:
        os.kill(stopped.pid, signal.SIGSTOP)
        owner = await story.consumer("OrderlyConsumer", topic, group, work_ms=1)
        taken = LOCK_LIFE_MS / 1000 + 30
        await owner.until(lambda: len(owned(owner, topic)) == QUEUES // 2, "half of the queues", taken)
        later = await story.produce(topic, 500, keys=32)
        wanted = {place for place in places(later, "sent") if place[0] in owned(owner, topic)}
        await owner.until(lambda: wanted <= places(owner, "handled"), "its share of the new ones")
        os.kill(stopped.pid, signal.SIGCONT)
        await story.drain(group, topic, timeout_s=60)
    assert await stopped.close() == 0
    assert await owner.close() == 0
    assert (await refusals(story)).get("commit.other_owner", 0) > 0
    for queue_samples in zip(*samples, strict=True):
        stored = [-1 if offset is None else offset for offset in queue_samples]
        assert stored == sorted(stored)
    row.messages = 1_000


@pytest.fixture
def impatient_story(drivers: Drivers, tmp_path: Path, interop_row: RowMaker) -> Iterator[JavaStory]:
    """On a broker that closes a connection without heartbeats soon. Java's clients send one each 30 s."""
    (tmp_path / "broker").mkdir()
    options = ("-D", f"channel_expired_timeout_ms={SILENT_S * 1000}", "-D", "scan_interval_ms=500")
    with lockstep_server(tmp_path / "broker", "--lock-mode", "fenced", *options) as server:
        yield JavaStory(drivers, server, interop_row)


async def test_an_owner_whose_connection_was_closed_gets_its_queues_back(
    impatient_story: JavaStory, fresh_topic: Fresh, fresh_group: Fresh
) -> None:
    """SIGSTOP until the broker has closed its connection and the other member owns all queues; then SIGCONT. The other
    gives half of them back, with messages in its cache. No offset goes back."""
    story = impatient_story
    row = story.row("ordered consumer stopped until its connection is closed, fenced locks")
    topic, group = await story.server.create_topic(fresh_topic(), QUEUES), fresh_group()
    stopped = await story.consumer("OrderlyConsumer", topic, group, work_ms=5)
    other = await story.consumer("OrderlyConsumer", topic, group, work_ms=5)
    await stopped.until(lambda: len(owned(stopped, topic)) == QUEUES // 2, "half of the queues", 60)
    await other.until(lambda: len(owned(other, topic)) == QUEUES // 2, "the other half", 60)
    await story.produce(topic, 1_000, keys=32)
    await story.handled(100, stopped)
    async with watched_offsets(story, group, topic) as samples:
        os.kill(stopped.pid, signal.SIGSTOP)
        await until(lambda: "heartbeat_expired" in story.server.log(), "the connection is closed", SILENT_S + 30)
        await other.until(lambda: len(owned(other, topic)) == QUEUES, "all queues", LOCK_LIFE_MS / 1000 + 30)
        await story.produce(topic, 4_000, keys=32)
        os.kill(stopped.pid, signal.SIGCONT)
        await other.until(lambda: len(owned(other, topic)) == QUEUES // 2, "half of the queues", 60)
        await story.drain(group, topic, timeout_s=90)
    later = len(stopped.of("handled"))
    await story.produce(topic, 500, keys=32)
    await stopped.until(lambda: len(stopped.of("handled")) > later, "a message of its queues again", 60)
    await story.drain(group, topic, timeout_s=60)
    assert await stopped.close() == 0
    assert await other.close() == 0
    for queue_samples in zip(*samples, strict=True):
        stored = [-1 if offset is None else offset for offset in queue_samples]
        assert stored == sorted(stored)
    assert "offset_committed_backwards" not in story.server.log()
    row.messages = 5_500


def places(driver: Driver, event: str) -> set[tuple[int, int]]:
    """Queue and offset of what it sent, or handled."""
    return {(said["queueId"], said["queueOffset"]) for said in driver.of(event)}


async def refusals(story: JavaStory) -> dict[str, int]:
    """What the broker has refused, by request and reason."""
    async with raw_peer(int(story.server.broker.rpartition(":")[2])) as peer:
        reply = await peer.ask(json_request(RequestCode.GET_BROKER_RUNTIME_INFO))
    head, table = "fence.refused.", json.loads(reply.body)["table"]
    return {name.removeprefix(head): int(count) for name, count in table.items() if name.startswith(head)}


@asynccontextmanager
async def watched_offsets(story: JavaStory, group: str, topic: str) -> AsyncIterator[list[list[int | None]]]:
    """The committed offsets of all queues, looked at several times a second."""
    samples: list[list[int | None]] = []

    async def look() -> None:
        while True:
            samples.append(await story.committed(group, topic, range(QUEUES)))
            await asyncio.sleep(LOOK_S)

    looking = asyncio.create_task(look())
    try:
        yield samples
        assert not looking.done(), looking.exception()
        assert len(samples) > 1
    finally:
        looking.cancel()
