"""Deleted topics stay deleted after a crash, with their messages and settings."""

import errno
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.admin import DeleteTopicRequestHeader
from lockstep.store.base import TakenTopic
from tests.broker.helpers import NOW_MS
from tests.broker.persistence.kept_broker import Kept, kept, until
from tests.open_files import open_files
from tests.store.stores import record


async def interrupted(opened: Kept, folder: Path) -> None:
    """A topic with a message is deleted; the files of its queues are there still when the broker dies."""
    opened.broker.catalog.topics.put(TopicConfig("Gone", 1, 1), NOW_MS)
    opened.broker.messages.put(record(b"old", topic="Gone"))
    await opened.writers.flush()
    queue = folder / "consumequeue" / "Gone" / "0"
    await until(queue.exists, "the queue's entries are written")
    await until((folder / "checkpoint").exists, "a checkpoint says so")
    opened.store.take_topic = lambda topic: TakenTopic([], is_apart=True)  # type: ignore[method-assign]
    opened.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("Gone"))
    await opened.writers.flush()


async def test_queues_of_a_deleted_topic_go_with_the_crash(tmp_path: Path) -> None:
    """Their files are deleted then, and a new topic of the name begins with offset 0."""
    async with kept(tmp_path) as opened:
        await interrupted(opened, tmp_path)
    (tmp_path / "abort").touch()
    async with kept(tmp_path) as again:
        assert "deleted_topic_queues_removed" in again.log.names("info")
        assert not (tmp_path / "consumequeue" / "Gone" / "0").exists()
        again.broker.catalog.topics.put(TopicConfig("Gone", 1, 1), NOW_MS)
        assert again.store.max_offset("Gone", 0) == 0
        again.broker.messages.put(record(b"new", topic="Gone"))
        await again.writers.flush()
        assert again.store.max_offset("Gone", 0) == 1
    (tmp_path / "abort").touch()
    async with kept(tmp_path) as last:
        assert last.store.max_offset("Gone", 0) == 1


@pytest.mark.parametrize("corrupted", ["topics.json", "checkpoint"])
async def test_nothing_is_deleted_on_the_word_of_an_older_copy(tmp_path: Path, corrupted: str) -> None:
    """Which topics there are is not known for sure, or somebody else has written the store last: queues stay."""
    async with kept(tmp_path) as opened:
        await interrupted(opened, tmp_path)
    path = tmp_path / "config" / corrupted if corrupted == "topics.json" else tmp_path / corrupted
    content = path.read_bytes()
    path.write_bytes(content[:24])
    (tmp_path / "abort").touch()
    async with kept(tmp_path):
        assert (tmp_path / "consumequeue" / "Gone" / "0").exists()


WIDE = 300  # queues: more than are deleted in one go


def delete_wide(opened: Kept, topic: str = "Wide", *, written: bool = True) -> deque[Callable[[], None]]:
    """Delete a topic with a message in each queue. Returns the turns of the loop that are to come."""
    turns: deque[Callable[[], None]] = deque()
    opened.broker.catalog.topics.put(TopicConfig(topic, WIDE, WIDE), NOW_MS)
    for queue_id in range(WIDE):
        opened.broker.messages.put(record(b"old", queue_id, topic=topic))
    if written:
        opened.store.write_tails()
    opened.broker.work.soon = turns.append
    reply = opened.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader(topic))
    assert reply is None or reply.code == ResponseCode.SUCCESS
    return turns


def found(folder: Path, pattern: str) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob(pattern))


async def test_the_files_of_many_queues_are_deleted_in_steps(tmp_path: Path) -> None:
    """No request finds the topic any more; a new one of its name begins anew meanwhile, and keeps what it gets."""
    async with kept(tmp_path, flush_sync=False) as opened:
        turns = delete_wide(opened)
        assert opened.broker.catalog.topics.get("Wide") is None
        assert not [key for key in opened.store.queues if key[0] == "Wide"]
        assert len(list((tmp_path / "dropped-1").iterdir())) > WIDE // 2
        opened.broker.catalog.topics.put(TopicConfig("Wide", WIDE, WIDE), NOW_MS)
        assert opened.store.max_offset("Wide", 7) == 0
        opened.broker.messages.put(record(b"new", 7, topic="Wide"))
        opened.store.write_tails()
        while turns:
            turns.popleft()()
        assert not (tmp_path / "dropped-1").exists()
        assert [path.name for path in (tmp_path / "consumequeue" / "Wide").iterdir()] == ["7"]
        assert opened.store.get("Wide", 7, 0, 10, None).message_count == 1
        assert opened.broker.stats.count().put == WIDE + 1
        opened.broker.work.soon = None


async def test_a_wide_topic_that_was_being_deleted_is_gone_after_a_crash(tmp_path: Path) -> None:
    """The next start deletes what is left, and a new topic of the name has its own messages alone."""
    async with kept(tmp_path, flush_sync=False) as opened:
        delete_wide(opened)
        opened.broker.catalog.topics.put(TopicConfig("Wide", WIDE, WIDE), NOW_MS)
        opened.broker.messages.put(record(b"new", 7, topic="Wide"))
        await opened.writers.flush()
        opened.broker.work.soon = None
    assert (tmp_path / "dropped-1").exists()
    assert not [path for path in open_files() if path.startswith(str(tmp_path))]
    (tmp_path / "abort").touch()
    async with kept(tmp_path) as again:
        assert "deleted_topic_files_removed" in again.log.names("info")
        assert not (tmp_path / "dropped-1").exists()
        assert again.store.max_offset("Wide", 7) == 1
        assert not any(again.store.max_offset("Wide", queue_id) for queue_id in range(WIDE) if queue_id != 7)


async def test_two_wide_topics_are_deleted_at_the_same_time(tmp_path: Path) -> None:
    """Each has a folder of its own."""
    async with kept(tmp_path, flush_sync=False) as opened:
        turns = [*delete_wide(opened), *delete_wide(opened)]
        assert (tmp_path / "dropped-2").exists()
        while turns or opened.broker.work.soon is None:
            later: deque[Callable[[], None]] = deque()
            opened.broker.work.soon = later.append
            for turn in turns:
                turn()
            turns = [*later]
        assert not [name for name in opened.disk.list_dir(str(tmp_path)) if name.startswith("dropped")]
        opened.broker.work.soon = None


async def test_files_that_cannot_be_moved_are_deleted_at_once(tmp_path: Path) -> None:
    """A new topic of that name must not find them."""

    def no_rename(path: str, new_path: str) -> None:
        raise OSError("no")

    async with kept(tmp_path, flush_sync=False) as opened:
        opened.store.storage.rename = no_rename  # type: ignore[method-assign]
        assert not delete_wide(opened)
        assert not list((tmp_path / "consumequeue" / "Wide").iterdir())
        opened.broker.work.soon = None
        del opened.store.storage.rename


@pytest.mark.parametrize("stray", ["note.txt", "5/folder", "5/note.txt"])
async def test_what_is_not_ours_in_a_deleted_topic_stays_and_the_broker_starts(tmp_path: Path, stray: str) -> None:
    """It is told once at each start; all else is deleted."""
    async with kept(tmp_path, flush_sync=False) as opened:
        delete_wide(opened)
        left = tmp_path / "dropped-1" / stray
        if stray.endswith("folder"):
            left.mkdir()
        else:
            left.write_text("mine")
        opened.broker.work.soon = None
    for _ in range(2):
        async with kept(tmp_path) as again:
            assert again.log.names("error") == ["queue_delete_failed"]
            assert found(tmp_path / "dropped-1", "**/*") == (["5", stray] if "5" in stray else [stray])


async def test_a_start_after_a_crash_leaves_no_folder_of_a_deleted_wide_topic(tmp_path: Path) -> None:
    """Or the next start would tell of files that it did not find."""
    async with kept(tmp_path, flush_sync=False) as opened:
        for queue_id in range(WIDE):
            opened.broker.messages.put(record(b"old", queue_id, topic="Wide"))
        opened.store.write_tails()
        opened.store.drop_topic("Wide")
        assert not (tmp_path / "dropped-1").exists()


@pytest.mark.parametrize("later", ["Wide", "Other"])
async def test_a_wide_topic_without_files_leaves_those_of_others_alone(tmp_path: Path, later: str) -> None:
    """Neither a new topic of its name nor another deleted one has its folder."""
    async with kept(tmp_path, flush_sync=False) as opened:
        turns = [*delete_wide(opened, written=False)]
        if later == "Wide":
            opened.broker.messages.put(record(b"new", WIDE - 1, topic="Wide"))
            opened.store.write_tails()
        else:
            turns += delete_wide(opened, "Other")
        rest: deque[Callable[[], None]] = deque(turns)
        opened.broker.work.soon = rest.append
        while rest:
            rest.popleft()()
        assert not opened.log.names("error")
        assert not found(tmp_path, "dropped-*")
        assert (later == "Wide") == (tmp_path / "consumequeue" / "Wide" / str(WIDE - 1)).exists()
        opened.broker.work.soon = None


@pytest.mark.parametrize("works", [0, 1])
async def test_a_topic_is_deleted_while_the_folder_cannot_be_listed(tmp_path: Path, works: int) -> None:
    """As with too many open files: only the empty folder stays, until the next start."""
    async with kept(tmp_path, flush_sync=False) as opened:
        listed: list[str] = []
        list_dir = opened.disk.list_dir

        def few_lists(path: str) -> list[str]:
            listed.append(path)
            if len(listed) > works:
                raise OSError(errno.EMFILE, "too many open files")
            return list_dir(path)

        opened.store.storage.list_dir = few_lists  # type: ignore[method-assign]
        turns = delete_wide(opened)
        while turns:
            turns.popleft()()
        assert len(listed) == 1 + works
        assert found(tmp_path, "dropped-*") == ["dropped-1"] * works
        assert not found(tmp_path, "consumequeue/Wide/*")
        opened.broker.work.soon = None
        del opened.store.storage.list_dir
