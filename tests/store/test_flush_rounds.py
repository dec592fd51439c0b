"""When the keeper of a store does what: replies do not wait for tables, and nothing waits for ever."""

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lockstep.protocol.codes import ResponseCode
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.store.data_dir import DataDir
from lockstep.store.format.layout import Checkpoint
from tests.broker.persistence.kept_broker import DEADLINE_S, kept, until
from tests.store.stores import record


async def test_replies_wait_for_the_log_alone(tmp_path: Path) -> None:
    """While queues, checkpoint and tables are written to a slow disk, sends are answered as usual."""
    async with kept(tmp_path) as opened:
        opened.broker.catalog.offsets.commit("G", "T", 0, 1)
        opened.send(b"first")
        opened.disk.others_may_sync.clear()
        try:
            await until(lambda: opened.disk.waiting, "the first of these files waits for the disk")
            for count in range(1, 4):
                opened.send(b"next")
                opened.flusher.check()
                await until(lambda: len(opened.connection.replies) == count + 1, "the send is answered")  # noqa: B023
            assert 1 <= len(opened.disk.waiting) <= 2  # one of the tables, one of what a checkpoint counts on
        finally:
            opened.disk.others_may_sync.set()
        assert {reply.code for reply in opened.connection.replies} == {ResponseCode.SUCCESS}
        await until((tmp_path / "config" / "consumerOffset.json").exists, "the offsets are written")


async def test_offsets_do_not_wait_for_queues(tmp_path: Path) -> None:
    """However long a checkpoint takes, with hundreds of files to sync: offsets are written at their interval."""
    path, data_dir = tmp_path / "config" / "consumerOffset.json", DataDir(OsStorage(), str(tmp_path))
    async with kept(tmp_path) as opened:
        opened.disk.slow_name = "/consumequeue/"
        try:
            for number in range(1, 4):
                opened.send(b"one more")
                opened.flusher.check()
                await until(lambda: any("/consumequeue/" in at for at in opened.disk.synced), "a checkpoint waits")
                opened.broker.catalog.offsets.commit("G", "T", 0, number)
                wanted = f'"T@G":{{"0":{number}}}'
                await until(lambda: path.exists() and wanted in path.read_text(), "offsets are written")  # noqa: B023
            assert not data_dir.read_checkpoint().entry_count
        finally:
            opened.disk.slow_name = ""
        await until(lambda: data_dir.read_checkpoint().entry_count == 3, "the checkpoint counts the entries")


async def test_a_topic_deleted_while_its_queues_are_synced_fails_nothing(tmp_path: Path) -> None:
    """Its files are gone when they should be synced, and this is no error of the disk."""
    times: dict[str, Any] = {"flush_interval_ms": 60_000, "flush_offsets_interval_ms": 1, "checkpoint_interval_ms": 1}
    async with kept(tmp_path, **times) as opened:

        def send_more(seen: Callable[[], object]) -> object:
            opened.send(b"gone")
            opened.flusher.check()
            return seen()

        tables = tmp_path / "config" / "delayOffset.json"  # the last that a round writes
        await until(partial(send_more, tables.exists), "a first round is over")
        synced = opened.disk.synced
        synced.clear()
        opened.disk.slow_name = "/consumequeue/T/"  # tables go on: they have the same threads
        try:
            await until(partial(send_more, lambda: any("/consumequeue/T/" in path for path in synced)), "it is synced")
            opened.store.drop_topic("T")
        finally:
            opened.disk.slow_name = ""
    assert opened.log.names("error") == []
    assert not (tmp_path / "abort").exists()


async def test_queues_of_a_round_that_failed_are_synced_by_a_later_one(tmp_path: Path) -> None:
    """A checkpoint never claims entries whose sync failed."""
    async with kept(tmp_path, flush_sync=False) as opened:
        opened.disk.synced.clear()
        opened.disk.sync_error = errno.EIO
        opened.send(b"body")
        await until(lambda: opened.store.refusal, "the disk has failed")
        data_dir = DataDir(OsStorage(), str(tmp_path))
        assert not data_dir.read_checkpoint().entry_count
        opened.disk.sync_error = 0
        await until(lambda: data_dir.read_checkpoint().entry_count == 1, "the checkpoint counts the entry")
        assert [path for path in opened.disk.synced if "/consumequeue/T/" in path]


async def test_a_flush_ends_though_sends_keep_coming(tmp_path: Path) -> None:
    """It waits only for messages that were stored before it began, so a broker under load can end."""
    async with kept(tmp_path) as opened:
        answers, coming = opened.flusher, [True]

        def again(reason: str) -> None:
            assert not reason
            if coming:
                opened.store.append(record(b"more"))
                answers.when_safe(again)

        opened.store.append(record(b"first"))
        answers.when_safe(again)
        answers.check()
        try:
            await asyncio.wait_for(answers.flush(), DEADLINE_S)
        finally:
            coming.clear()


@pytest.mark.parametrize("flush_sync", [True, False])
async def test_keys_are_entered_though_sends_keep_coming(tmp_path: Path, flush_sync: bool) -> None:
    """A broker under constant load answers queries from its index and not from its log."""
    async with kept(tmp_path, flush_sync=flush_sync) as opened:
        store, coming = opened.store, [True]

        async def keep_sending() -> None:
            while coming:
                store.append(record(b"more")._replace(properties=b"KEYS\x01k"))
                opened.flusher.check()
                await asyncio.sleep(0.001)

        sending = asyncio.create_task(keep_sending())
        try:
            await until(lambda: store.keys.indexed_offset > 10_000, "the keys of many messages are entered")
        finally:
            coming.clear()
            await sending


async def test_entries_that_wait_in_memory_are_bounded_when_no_checkpoint_comes(tmp_path: Path) -> None:
    """Long tails are written without it; when that fails, sends are refused before the memory is full."""
    async with kept(tmp_path, flush_sync=False, queue_file_bytes=200_000, checkpoint_interval_ms=86_400_000) as opened:
        store = opened.store
        for _ in range(4000):
            store.append(record(b""))
        queue = store.queues["T", 0]
        await until(lambda: queue.tail_bytes < 64 * 1024, "the long tail is written")
        write, store.tails_bytes_max = queue.segments.write, 100_000

        def full(position: int, data: bytes | memoryview) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        queue.segments.write = full  # type: ignore[method-assign]
        for _ in range(6000):
            store.append(record(b""))
        await until(lambda: store.refusal, "sends are refused")
        assert "/consumequeue/T/0 " in store.refusal
        queue.segments.write = write  # type: ignore[method-assign]
        await until(lambda: not store.refusal, "sends are taken again")
        assert queue.tail_bytes < 64 * 1024
        assert store.max_offset("T", 0) == 10_000


async def test_an_acknowledged_message_has_its_name_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new file of the log is lost with the power until its folder is synced."""
    async with kept(tmp_path) as opened:
        synced, sync_dir = list[str](), opened.disk.sync_dir

        def noted(path: str) -> None:
            sync_dir(path)
            synced.append(path)

        monkeypatch.setattr(opened.disk, "sync_dir", noted)
        opened.send(b"first")
        opened.flusher.check()
        await until(lambda: opened.connection.replies, "the send is answered")
        assert str(tmp_path / "commitlog") in synced


async def test_an_end_without_its_checkpoint_is_no_clean_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a clean end nothing is looked for behind the checkpoint, so messages there would be lost."""

    def full(_: Checkpoint) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with kept(tmp_path) as opened:
        monkeypatch.setattr(opened.store.data_dir, "write_checkpoint", full)
        opened.send(b"kept")
    assert (tmp_path / "abort").exists()
    async with kept(tmp_path) as again:
        assert again.bodies() == [b"kept"]


async def test_after_a_failed_sync_of_queues_no_checkpoint_counts_them(tmp_path: Path) -> None:
    """Only the next start can tell what they contain, so this is no clean end either."""
    async with kept(tmp_path) as opened:
        opened.disk.bad_name = "/consumequeue/T/"
        opened.send(b"kept")
        opened.flusher.check()
        await until(lambda: "queue_sync_failed" in opened.log.names("error"), "the disk has failed")
        opened.disk.bad_name = ""
    assert not DataDir(OsStorage(), str(tmp_path)).read_checkpoint().entry_count
    assert (tmp_path / "abort").exists()
    async with kept(tmp_path) as again:
        assert again.bodies() == [b"kept"]


async def test_after_a_failed_sync_all_files_are_synced_again(tmp_path: Path) -> None:
    """Also those that are full: which of them the disk has is not known."""
    async with kept(tmp_path, segment_bytes=40_000) as opened:
        opened.disk.sync_error = errno.EIO
        for _ in range(14):
            opened.send(b"x" * 3000)
        opened.flusher.check()
        await until(lambda: opened.store.refusal, "the disk has failed")
        opened.disk.sync_error = opened.disk.syncs = 0
        await until(lambda: not opened.store.refusal, "the disk works again")
        assert len(opened.store.log.segments.starts) == 2
        assert opened.disk.syncs >= 2


@pytest.mark.parametrize(("body", "properties"), [(b"x" * 3000, ""), (b"x", "KEYS\x01" + "k" * 3000)])
async def test_what_a_failed_sync_has_lost_is_never_acknowledged(tmp_path: Path, body: bytes, properties: str) -> None:
    """The system may read back the old content of the disk: zeros are no messages, and stay refused."""
    async with kept(tmp_path) as opened:
        opened.send(b"safe")
        opened.flusher.check()
        await until(lambda: opened.connection.replies, "the first send is answered")
        opened.disk.zeroed = (opened.store.log.synced_offset + 1000, 1500)
        opened.disk.sync_error = errno.EIO
        opened.send(body, properties=properties)
        opened.flusher.check()
        await until(lambda: len(opened.connection.replies) == 2, "the second send is answered")
        assert opened.connection.replies[1].code == ResponseCode.FLUSH_DISK_TIMEOUT
        await until(lambda: "lost" in opened.store.refusal, "the log is in doubt")
        assert opened.bodies() == [b"safe"]
    assert (tmp_path / "abort").exists()
    async with kept(tmp_path) as again:
        assert again.bodies() == [b"safe"]
        again.send(b"next")
        await again.flusher.flush()
        assert again.bodies() == [b"safe", b"next"]
