"""Our consumers on Apache's master and slave: they read where the master says, and from the slave when it is gone."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.client import (
    ConsumeFromWhere,
    ConsumeOrderlyContext,
    LitePullConsumer,
    LitePullConsumerConfig,
    MessageExt,
)
from lockstep.protocol.codes import PullSysFlag, RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import PullMessageRequestHeader
from lockstep.remoting.connections.endpoint import Endpoint
from tests.interop.harness.replicated import Replicated, replicated_apache
from tests.interop.harness.table import RowMaker
from tests.interop.stories.python_story import PythonStory

pytestmark = pytest.mark.timeout(300)
Fresh = Callable[[], str]
MESSAGES, BEFORE_THE_END = 600, 100


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Replicated]:
    with replicated_apache(tmp_path / "apache") as pair:
        yield pair


@pytest.fixture
def pulls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, PullMessageRequestHeader]]:
    """Every pull that leaves this process: the broker's address, and what it says."""
    noted: list[tuple[str, PullMessageRequestHeader]] = []
    request = Endpoint.request_nowait

    def watched(endpoint: Endpoint, command: RemotingCommand, timeout_ms: int) -> Any:
        if command.code == RequestCode.PULL_MESSAGE and isinstance(command.header, PullMessageRequestHeader):
            noted.append((endpoint.address, command.header))
        return request(endpoint, command, timeout_ms)

    monkeypatch.setattr(Endpoint, "request_nowait", watched)
    return noted


async def test_the_master_sends_readers_to_its_slave(
    pair: Replicated,
    pulls: list[tuple[str, PullMessageRequestHeader]],
    tmp_path: Path,
    interop_row: RowMaker,
    fresh_topic: Fresh,
    fresh_group: Fresh,
) -> None:
    """An ordered consumer that is behind reads from the slave, under the master's locks, and from the master again when
    the slave says so; in order, and no pull that goes to the slave carries an offset to commit."""
    story = PythonStory(pair.server, tmp_path, interop_row)
    row = story.row("ordered consumer, sent to the slave")
    topic, group = await story.server.create_topic(fresh_topic(), 2), fresh_group()
    await story.send_keyed(topic, MESSAGES)
    await pair.has_followed(topic)

    async def nothing(messages: list[MessageExt], context: ConsumeOrderlyContext) -> None:
        """A listener that is content with everything."""

    async with story.consumer(topic, group, nothing):
        await story.drain(topic, group)
    assert story.report(row).handled == MESSAGES
    for queue_id in (0, 1):
        asked = [
            (address, header.queue_offset)
            for address, header in pulls
            if (header.topic, header.queue_id) == (topic, queue_id)
        ]
        way = [address for address, _ in dict.fromkeys(asked)]  # a pull that failed is repeated: on a busy machine, say
        assert way[:8] == [pair.server.broker, pair.slave] * 4, "each sends whoever is behind to the other"
    by_slave = [header for address, header in pulls if address == pair.slave]
    assert not any(header.sys_flag & PullSysFlag.COMMIT_OFFSET or header.commit_offset for header in by_slave)


async def test_a_slave_goes_on_without_its_master(
    pair: Replicated,
    pulls: list[tuple[str, PullMessageRequestHeader]],
    tmp_path: Path,
    interop_row: RowMaker,
    fresh_topic: Fresh,
    fresh_group: Fresh,
) -> None:
    """The master ends in the middle; the consumer reads the rest from the slave, every message once. One of another
    group that starts only then reads everything there."""
    story = PythonStory(pair.server, tmp_path, interop_row)
    row = story.row("lite pull consumer, its master ends")
    topic = await story.server.create_topic(fresh_topic(), 1)
    await story.send_keyed(topic, MESSAGES)
    await pair.has_followed(topic)
    config = LitePullConsumerConfig(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        poll_name_server_interval_ms=1000,
        heartbeat_broker_interval_ms=1000,
        pull_threshold_for_queue=20,
    )
    first, second = (
        LitePullConsumer(fresh_group(), name_server=pair.server.name_server, config=config) for _ in range(2)
    )
    offsets: list[int] = []

    async def poll_until(count: int, consumer: LitePullConsumer) -> None:
        while len(offsets) < count:
            messages = await consumer.poll(100_000)
            assert messages, f"{len(offsets)} of {count} came; {pair.server.log_tail()}"
            offsets.extend(message.queue_offset for message in messages)

    first.subscribe(topic)
    async with first:
        await poll_until(BEFORE_THE_END, first)
        await asyncio.to_thread(pair.end_master)
        pulled = len(pulls)
        await poll_until(MESSAGES, first)
    second.subscribe(topic)
    async with second:
        await poll_until(2 * MESSAGES, second)
    assert offsets == list(range(MESSAGES)) * 2
    served = [header.queue_offset for address, header in pulls[pulled:] if address == pair.slave]
    assert served[-1] >= MESSAGES - config.pull_batch_size
    row.messages, row.order_kept, row.duplicates = len(offsets), True, 0
