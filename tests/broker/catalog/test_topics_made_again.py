"""A topic that is deleted and created again is empty: no message of the deleted one is found in it."""

import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.store.check.store import StoreCheck
from tests.broker.catalog.made_again import (
    LATER_MS,
    NEW,
    copied,
    copy,
    create,
    delete,
    disk_is_idle,
    max_offsets,
    put,
)
from tests.broker.persistence.kept_broker import Kept, kept
from tests.store.stores import queried, record


def damage_of(opened: Kept, folder: Path) -> list[str]:
    return [found.text for found in StoreCheck(opened.disk, str(folder)).run() if not found.unfinished]


@pytest.mark.parametrize("rebuilt", ["checkpoint", "whole log"])
@pytest.mark.parametrize("queue_id", [0, 1])
async def test_recovery_gives_a_new_topic_no_old_messages(tmp_path: Path, rebuilt: str, queue_id: int) -> None:
    """Neither to a queue with new messages nor to one without, however much of the log is read."""
    folder = tmp_path / "store"
    async with kept(folder, checkpoint_interval_ms=10**9) as opened:
        create(opened)
        put(opened, b"old", b"older", queue_id=0)
        put(opened, b"old", queue_id=1)
        delete(opened)
        create(opened)
        put(opened, b"new", queue_id=queue_id)
        await opened.writers.flush()
        if rebuilt == "whole log":
            opened.store.write_tails()
            (folder / "checkpoint").unlink(missing_ok=True)
        async with copied(folder, tmp_path / "crashed") as again:
            assert max_offsets(again) == [int(queue_id == 0), int(queue_id == 1)]
            assert again.store.get(NEW, queue_id, 0, 10, None).body.count(b"new") == 1
            assert again.store.get(NEW, 1 - queue_id, 0, 10, None).message_count == 0
        assert damage_of(opened, tmp_path / "crashed") == []


async def test_a_recovery_of_queues_that_lack_entries_gives_no_old_messages(tmp_path: Path) -> None:
    """It reads the whole log again, also after a clean end."""
    async with kept(tmp_path) as opened:
        create(opened)
        put(opened, b"old", b"old")
        delete(opened)
        create(opened)
        put(opened, b"kept", topic="T")
        await opened.writers.flush()
    shutil.rmtree(tmp_path / "consumequeue" / "T")
    async with kept(tmp_path) as again:
        assert "queue_entries_missing" in again.log.names("error")
        assert (again.store.max_offset("T", 0), max_offsets(again)) == (1, [0, 0])


@pytest.mark.parametrize("old_count", [1, 3])  # with 1 there are as many old entries as new ones
async def test_files_of_a_deleted_queue_that_came_back_are_not_read(tmp_path: Path, old_count: int) -> None:
    """A power cut may undo the deletion of files, although the new topic is on the disk."""
    folder = tmp_path / "store"
    async with kept(folder) as opened:
        create(opened)
        put(opened, *[b"old"] * old_count, queue_id=0)
        put(opened, b"old", queue_id=1)
        await disk_is_idle(opened, folder)
        shutil.copytree(folder / "consumequeue" / NEW, tmp_path / "queues")
        delete(opened)
        create(opened)
        put(opened, b"new", b"newer", queue_id=0)
        await disk_is_idle(opened, folder)
        shutil.rmtree(folder / "consumequeue" / NEW)
        shutil.copytree(tmp_path / "queues", folder / "consumequeue" / NEW)
        async with copied(folder, tmp_path / "crashed") as again:
            assert max_offsets(again) == [2, 0]
            assert again.store.get(NEW, 0, 0, 10, None).body.count(b"new") == 2
            assert not (tmp_path / "crashed" / "consumequeue" / NEW / "1").exists()


@pytest.mark.parametrize("counted", [True, False])
async def test_queues_that_came_back_are_not_missing_entries(tmp_path: Path, counted: bool) -> None:
    """The whole log is not read because of them, whether the checkpoint counts their entries or not."""
    folder = tmp_path / "store"
    async with kept(folder) as opened:
        create(opened)
        put(opened, b"old", b"old")
        await disk_is_idle(opened, folder)
        copy(folder, tmp_path / "before")
        delete(opened)
        create(opened)
        put(opened, b"kept", topic="T")
        await disk_is_idle(opened, folder)
        copy(folder, tmp_path / "crashed")
    queues = Path("consumequeue", NEW)
    shutil.copytree(tmp_path / "before" / queues, tmp_path / "crashed" / queues, dirs_exist_ok=True)
    if counted:
        shutil.copyfile(tmp_path / "before" / "checkpoint", tmp_path / "crashed" / "checkpoint")
    (tmp_path / "crashed" / "abort").touch()
    async with kept(tmp_path / "crashed") as again:
        assert again.log.names("error") == []
        assert (again.store.max_offset("T", 0), max_offsets(again)) == (1, [0, 0])


async def test_files_that_could_not_be_deleted_are_gone_before_the_first_new_entry(tmp_path: Path) -> None:
    """The old entries would stand behind the new ones, and the next start would read them."""

    def no_delete(path: str) -> None:
        raise OSError("no")

    async with kept(tmp_path, flush_sync=False) as opened:
        create(opened)
        put(opened, *[b"old"] * 250, queue_id=0)
        put(opened, b"old", queue_id=1)
        opened.store.write_tails()
        opened.store.storage.delete = no_delete  # type: ignore[method-assign]
        delete(opened)
        assert opened.log.names("error") == ["queue_delete_failed"] * 2
        create(opened)
        put(opened, b"new")
        with pytest.raises(OSError, match="no"):
            opened.store.write_tails()
        del opened.store.storage.delete
        await disk_is_idle(opened, tmp_path)
    async with kept(tmp_path) as again:
        assert max_offsets(again) == [1, 0]


async def test_queues_that_a_failed_deletion_left_are_deleted_at_the_next_start(tmp_path: Path) -> None:
    """Also after a clean end: a topic that is created later has its own messages alone."""

    def no_delete(path: str) -> None:
        raise OSError("no")

    async with kept(tmp_path) as opened:
        create(opened)
        put(opened, b"old")
        await disk_is_idle(opened, tmp_path)
        opened.store.storage.delete = no_delete  # type: ignore[method-assign]
        delete(opened)
        del opened.store.storage.delete
    async with kept(tmp_path) as again:
        create(again)
        assert max_offsets(again) == [0, 0]
        assert not (tmp_path / "consumequeue" / NEW).joinpath("0").exists()


async def test_a_crash_that_cuts_the_log_does_not_hide_what_is_sent_later(tmp_path: Path) -> None:
    """The new topic begins behind the end of the log that is left. Its next messages are its own."""
    folder = tmp_path / "store"
    async with kept(folder) as opened:
        create(opened)
        put(opened, b"old")
        await opened.writers.flush()
        end = opened.store.max_commit_log_offset
        put(opened, *[b"lost" * 100] * 3)
        delete(opened)
        create(opened)
        await opened.writers.flush()
        copy(folder, tmp_path / "crashed")
    (tmp_path / "crashed" / "abort").touch()
    (tmp_path / "crashed" / "checkpoint").unlink(missing_ok=True)
    with (tmp_path / "crashed" / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(end)
        log.write(bytes(2000))
    async with kept(tmp_path / "crashed") as cut:
        assert cut.store.max_commit_log_offset == end
        assert max_offsets(cut) == [0, 0]
        put(cut, b"new")
        await cut.writers.flush()
        async with copied(tmp_path / "crashed", tmp_path / "again") as again:
            assert max_offsets(again) == [1, 0]


async def test_an_entry_is_not_repaired_with_a_message_of_the_deleted_topic(tmp_path: Path) -> None:
    """Its own message is lost; the old one had the same queue and the same queue offset."""
    async with kept(tmp_path) as opened:
        create(opened)
        put(opened, b"old")
        delete(opened)
        create(opened)
        put(opened, b"new")
        await opened.writers.flush()
        (entry,) = opened.store.entries(NEW, 0, 0, 1)
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as log:
        log.seek(entry.commit_log_offset + 30)
        log.write(b"\xff" * 20)
    async with kept(tmp_path) as again:
        assert again.store.get(NEW, 0, 0, 10, None).body == b""
        assert "message_damaged" in again.log.names("error")


@pytest.mark.parametrize("again", [True, False])
async def test_a_key_query_finds_nothing_of_a_deleted_topic(tmp_path: Path, again: bool) -> None:
    """Before a restart and after one; the index of keys has the old message still."""
    async with kept(tmp_path) as opened:
        create(opened)
        opened.broker.messages.put(record(b"old", topic=NEW)._replace(properties=b"KEYS\x01k"))
        await opened.writers.flush()
        assert queried(opened.store, NEW, "k", 10, 0, LATER_MS).messages
        delete(opened)
        if again:
            create(opened)
            opened.broker.messages.put(record(b"new", topic=NEW)._replace(properties=b"KEYS\x01other"))
            await opened.writers.flush()
        assert not queried(opened.store, NEW, "k", 10, 0, LATER_MS).messages
    (tmp_path / "abort").touch()
    async with kept(tmp_path) as restarted:
        assert not queried(restarted.store, NEW, "k", 10, 0, LATER_MS).messages


async def test_turns_of_the_loop_pass_while_a_new_topic_gets_messages(tmp_path: Path) -> None:
    """The files of the deleted one are deleted beside it; each keeps its own, whatever crashes in between."""
    queues, folder = 300, tmp_path / "store"
    async with kept(folder, flush_sync=False) as opened:
        create(opened, queues=queues)
        for queue_id in range(queues):
            put(opened, b"old", queue_id=queue_id)
        await disk_is_idle(opened, folder)
        turns: deque[Callable[[], None]] = deque()
        opened.broker.work.soon = turns.append
        delete(opened)
        create(opened, queues=queues)
        put(opened, b"new", queue_id=7)
        number = 0
        while turns:
            turns.popleft()()
            number += 1
            if number % 8 == 0:
                await opened.writers.flush()
                async with copied(folder, tmp_path / str(number), flush_sync=False) as again:
                    assert [i for i, end in enumerate(max_offsets(again, NEW, queues)) if end] == [7]
        opened.broker.work.soon = None
        assert number >= 8
