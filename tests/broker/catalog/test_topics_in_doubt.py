"""A topic that the table lacks, although nobody is known to have deleted it: it comes back with its messages."""

import json
import shutil
from pathlib import Path

import pytest

from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.names import HALF_TOPIC
from lockstep.store.check.store import StoreCheck
from tests.broker.catalog.made_again import (
    LATER_MS,
    NEW,
    copy,
    create,
    delayed,
    delete,
    disk_is_idle,
    max_offsets,
    put,
    send_half,
)
from tests.broker.helpers import NOW_MS
from tests.broker.persistence.kept_broker import kept

DOUBTS = ["older table", "table of Apache"]


def bring_doubt(folder: Path, doubt: str) -> None:
    """The table lacks the newest topic: its backup was read, or Apache's broker wrote table and checkpoint."""
    table = folder / "config" / "topics.json"
    backup = table.with_name("topics.json.bak")
    older = json.loads(table.read_text())
    del older["topicConfigTable"][NEW]
    backup.write_text(json.dumps(older))
    if doubt == "older table":
        table.write_bytes(b"{")
        return
    shutil.copyfile(backup, table)
    checkpoint = folder / "checkpoint"
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[:24] + bytes(len(content) - 24))


@pytest.mark.parametrize("doubt", DOUBTS)
@pytest.mark.parametrize("crashed", [False, True])
async def test_a_topic_that_the_table_lacks_keeps_its_messages(tmp_path: Path, doubt: str, crashed: bool) -> None:
    """Over every later start, with those that wait for it. When it is deleted they go, as for any topic."""
    folder = tmp_path / "store"
    async with kept(folder) as opened:
        create(opened, "Gone")
        put(opened, b"old", topic="Gone")
        delete(opened, "Gone")
        create(opened)
        put(opened, b"mine")
        put(opened, b"mine", queue_id=1)
        await disk_is_idle(opened, folder)
        delayed(opened, b"waits")
        await opened.writers.flush()
    bring_doubt(folder, doubt)
    async with kept(folder) as first:
        assert max_offsets(first) == [1, 1]
        assert first.log.names("warning").count("topic_brought_back") == 1
        if crashed:
            await first.writers.flush()
            copy(folder, tmp_path / "crashed")
            folder = tmp_path / "crashed"
            (folder / "abort").touch()
    async with kept(folder) as second:
        topic = second.broker.catalog.topics.get(NEW)
        assert topic is not None
        assert (topic.write_queue_nums, max_offsets(second)) == (2, [1, 1])
        assert second.broker.catalog.topics.get("Gone") is None
        second.broker.messages.deliver_delayed(NOW_MS + 10_000)
        await second.writers.flush()
        assert max_offsets(second) == [2, 1]
        delete(second)
        create(second)
        assert max_offsets(second) == [0, 0]
    async with kept(folder) as third:
        assert max_offsets(third) == [0, 0]


async def test_messages_behind_the_checkpoint_are_found_though_the_table_lacks_their_topic(tmp_path: Path) -> None:
    """A crash, and an older table: only the log has them."""
    folder = tmp_path / "store"
    async with kept(folder, checkpoint_interval_ms=10**9) as opened:
        create(opened)
        put(opened, b"mine")
        await opened.writers.flush()
        copy(folder, tmp_path / "crashed")
    folder = tmp_path / "crashed"
    (folder / "abort").touch()
    bring_doubt(folder, "older table")
    async with kept(folder) as again:
        assert max_offsets(again) == [1, 0]
    async with kept(folder) as later:
        assert max_offsets(later) == [1, 0]


@pytest.mark.parametrize("doubt", DOUBTS)
@pytest.mark.parametrize("waits", ["delayed", "half"])
async def test_a_topic_is_brought_back_by_what_waits_for_it_alone(tmp_path: Path, doubt: str, waits: str) -> None:
    """It has no queue yet. Its first message is stored over two starts and a clean end."""
    async with kept(tmp_path) as opened:
        create(opened)
        header = await send_half(opened) if waits == "half" else None
        if waits == "delayed":
            delayed(opened, b"waits")
        await disk_is_idle(opened, tmp_path)
    bring_doubt(tmp_path, doubt)
    async with kept(tmp_path) as first:
        assert max_offsets(first) == [0, 0]
    async with kept(tmp_path) as second:
        if header is None:
            second.broker.messages.deliver_delayed(NOW_MS + 10_000)
        else:
            answer = second.ask(RequestCode.END_TRANSACTION, header)
            assert answer is None or answer.code == ResponseCode.SUCCESS
        await second.writers.flush()
        assert max_offsets(second) == [1, 0]


async def test_a_queue_number_that_no_topic_may_have_brings_none_of_its_size(tmp_path: Path) -> None:
    """A route lists every queue: a damaged or foreign store must not make one with a billion of them."""
    async with kept(tmp_path) as opened:
        create(opened)
        put(opened, b"mine")
        await disk_is_idle(opened, tmp_path)
    bring_doubt(tmp_path, "older table")
    (tmp_path / "consumequeue" / NEW / "2000000000").mkdir(parents=True)
    async with kept(tmp_path) as again:
        topic = again.broker.catalog.topics.get(NEW)
        assert topic is not None
        assert topic.write_queue_nums == 16_384


@pytest.mark.parametrize("noted", [False, True])
async def test_early_half_messages_are_verified(tmp_path: Path, noted: bool) -> None:
    """Their topic enters the table at the first round of checks, behind messages that it has already.

    Some tables say that it begins there.
    """
    async with kept(tmp_path) as opened:
        create(opened)
        await send_half(opened)
        opened.broker.catalog.topics.ensure_system_topic(HALF_TOPIC, LATER_MS)
        assert opened.broker.catalog.topics.begin_of(HALF_TOPIC).log_offset == 0
        await disk_is_idle(opened, tmp_path)
    if noted:
        path = tmp_path / "config" / "topics.json"
        table = json.loads(path.read_text())
        table["topicConfigTable"][HALF_TOPIC]["logOffset"] = 10**6
        path.write_text(json.dumps(table))
    shutil.rmtree(tmp_path / "consumequeue" / HALF_TOPIC)
    damaged = [found.file for found in StoreCheck(opened.disk, str(tmp_path)).run() if not found.unfinished]
    assert damaged == [f"consumequeue/{HALF_TOPIC}/0"]


async def test_topics_that_rocketmq_has_written_begin_with_the_log(tmp_path: Path) -> None:
    """Its table does not say where a topic begins. Then all messages of that name are the topic's."""
    async with kept(tmp_path) as opened:
        put(opened, b"first", topic="T")
        create(opened)
        put(opened, b"its own")
        await opened.writers.flush()
    path = tmp_path / "config" / "topics.json"
    table = json.loads(path.read_text())
    begin = table["topicConfigTable"][NEW].pop("logOffset")
    assert begin > 0
    assert table["topicConfigTable"][NEW].pop("createdMs") == LATER_MS
    path.write_text(json.dumps(table))
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "abort").touch()
    shutil.rmtree(tmp_path / "consumequeue")
    async with kept(tmp_path) as again:
        assert again.broker.catalog.topics.begin_of(NEW).log_offset == 0
        assert (max_offsets(again), again.store.max_offset("T", 0)) == ([1, 0], 1)
