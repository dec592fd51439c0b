"""Deleted topics stay deleted after a crash, with their messages and settings."""

from pathlib import Path

import pytest

from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.admin import DeleteTopicRequestHeader
from tests.broker.helpers import NOW_MS
from tests.broker.kept_broker import Kept, kept, until
from tests.store.stores import record


async def interrupted(opened: Kept, folder: Path) -> None:
    """A topic with a message is deleted; the files of its queues are there still when the broker dies."""
    opened.broker.topics.put(TopicConfig("Gone", 1, 1), NOW_MS)
    opened.broker.put(record(b"old", topic="Gone"))
    await opened.durable.flush()
    queue = folder / "consumequeue" / "Gone" / "0"
    await until(queue.exists, "the queue's entries are written")
    await until((folder / "checkpoint").exists, "a checkpoint says so")
    opened.store.drop_topic = lambda topic: None  # type: ignore[method-assign]
    opened.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("Gone"))
    await opened.durable.flush()


async def test_queues_of_a_deleted_topic_go_with_the_crash(tmp_path: Path) -> None:
    """Their files are deleted then, and a new topic of the name begins with offset 0."""
    async with kept(tmp_path) as opened:
        await interrupted(opened, tmp_path)
    (tmp_path / "abort").touch()
    async with kept(tmp_path) as again:
        assert "deleted_topic_queues_removed" in again.log.names("info")
        assert not (tmp_path / "consumequeue" / "Gone" / "0").exists()
        again.broker.topics.put(TopicConfig("Gone", 1, 1), NOW_MS)
        assert again.store.max_offset("Gone", 0) == 0
        again.broker.put(record(b"new", topic="Gone"))
        await again.durable.flush()
        assert again.store.max_offset("Gone", 0) == 1
    (tmp_path / "abort").touch()
    async with kept(tmp_path) as last:
        assert last.store.max_offset("Gone", 0) == 1


@pytest.mark.parametrize("spoilt", ["topics.json", "checkpoint"])
async def test_nothing_is_deleted_on_the_word_of_an_older_copy(tmp_path: Path, spoilt: str) -> None:
    """Which topics there are is not known for sure, or somebody else has written the store last: queues stay."""
    async with kept(tmp_path) as opened:
        await interrupted(opened, tmp_path)
    path = tmp_path / "config" / spoilt if spoilt == "topics.json" else tmp_path / spoilt
    content = path.read_bytes()
    path.write_bytes(content[:24])
    (tmp_path / "abort").touch()
    async with kept(tmp_path):
        assert (tmp_path / "consumequeue" / "Gone" / "0").exists()
