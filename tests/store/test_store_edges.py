"""Rare combinations: topics deleted while messages wait for the disk, old files of damaged queues."""

import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.messages.message import decode_messages
from lockstep.protocol.names import SCHEDULE_TOPIC
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.remoting.host.storage import StoredFile
from lockstep.store import GetStatus
from lockstep.store.data_dir import DataDir
from lockstep.store.format.log_records import next_record
from lockstep.store.segments.segments import Segments
from tests.broker.helpers import NOW_MS
from tests.broker.persistence.kept_broker import DEADLINE_S, Kept, kept, until
from tests.store.stores import queried, record
from tests.store.test_entry_repair import blank

LATER_MS = 2**62
RETAIN: dict[str, Any] = {"delete_when": ";".join(f"{hour:02}" for hour in range(24)), "reserved_hours": 1}


def one(opened: Kept, queue_offset: int) -> list[bytes]:
    found = opened.store.get("T", 0, queue_offset, 1, None)
    return [message.body for message in decode_messages(found.body)]


async def test_what_waits_for_the_disk_goes_with_its_topic(tmp_path: Path) -> None:
    """A message of a new topic with the name is found at its offset, and the deleted topic's is not."""
    async with kept(tmp_path, flush_interval_ms=60_000) as opened:
        opened.store.append(record(b"of the deleted topic"))
        opened.store.drop_topic("T")
        opened.store.append(record(b"new"))
        await opened.flusher.flush()
        assert opened.bodies() == [b"new"]


async def test_in_doubt_nobody_waits_for_ever(tmp_path: Path) -> None:
    """A producer that ends its transaction while a sync of the log failed gets an answer."""
    async with kept(tmp_path) as opened:
        opened.send(b"safe")
        opened.flusher.check()
        await until(lambda: opened.connection.replies, "the send is answered")
        opened.disk.sync_error = errno.EIO
        opened.send(b"doubted")
        start = opened.store.log.synced_offset
        opened.store.log.segments.write(start, bytes(opened.store.log.max_offset - start))
        opened.flusher.check()
        await until(lambda: "log_readback_failed" in opened.log.names("error"), "the log is in doubt")
        answers: list[str] = []
        opened.flusher.when_safe(answers.append)
        assert len(answers) == 1
        assert answers[0]


async def test_searches_do_not_keep_the_log_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sends are answered however many queues are damaged and however long the searches take."""
    sizes: dict[str, Any] = {"segment_bytes": 8 << 20, "queue_file_bytes": 20_000}
    async with kept(tmp_path, **sizes) as opened:
        for body in (b"first", b"sought", b"last"):
            for queue_id in range(6):
                opened.store.append(record(body, queue_id=queue_id))
            for _ in range(400):
                opened.store.append(record(b"x" * 4000, queue_id=7))
        await opened.flusher.flush()
    for queue_id in range(6):
        path = tmp_path / "consumequeue" / "T" / str(queue_id) / f"{0:020d}"
        path.write_bytes(path.read_bytes()[:20] + bytes(20) + path.read_bytes()[40:])
    go_on = threading.Event()
    async with kept(tmp_path, **sizes) as again:
        read, loop_thread = OsStorage.open_file, threading.get_ident()

        def slow(storage: OsStorage, path: str, **how: bool) -> StoredFile:
            if "/commitlog/" in path and threading.get_ident() != loop_thread:
                go_on.wait(2 * DEADLINE_S)
            return read(storage, path, **how)

        monkeypatch.setattr(OsStorage, "open_file", slow)
        try:
            for queue_id in range(6):
                assert again.store.get("T", queue_id, 1, 1, None).status is GetStatus.OFFSET_FOUND_NULL
            again.send(b"one more", queue_id=3)
            again.flusher.check()
            await until(lambda: again.connection.replies, "the send is answered")
        finally:
            go_on.set()
        assert again.connection.replies[0].code == ResponseCode.SUCCESS


async def test_a_store_time_that_cannot_be_stops_nothing(tmp_path: Path) -> None:
    """No CRC covers it: keys of this message and of later ones are entered, and the store closes cleanly."""
    async with kept(tmp_path, flush_sync=False) as opened:
        for at_ms in (LATER_MS, -LATER_MS, NOW_MS):
            opened.store.append(record(b"x")._replace(store_timestamp=at_ms, properties=b"KEYS\x01wanted"))
        await until(lambda: opened.store.keys.indexed_offset == opened.store.log.max_offset, "keys are entered")
        found = queried(opened.store, "T", "wanted", 10, 0, NOW_MS)
        assert len(found.messages) == 1
    assert not (tmp_path / "abort").exists()


def fill_files(opened: Kept) -> None:
    """Several files of the log; queue 0 has a message here and there in each."""
    for number in range(60):
        opened.store.append(record(b"%d" % number))
        for _ in range(5):
            opened.store.append(record(b"x" * 2000, queue_id=1))


async def test_old_files_take_nothing_along_from_a_damaged_queue(tmp_path: Path) -> None:
    """Entries that read as zeros do not count as old messages: those in the log are found again."""
    async with kept(tmp_path, queue_file_bytes=20_000) as opened:
        fill_files(opened)
        await opened.flusher.flush()
        limit = 3 << 17
    blank(tmp_path, 25, 20)
    async with kept(tmp_path, queue_file_bytes=20_000, data_bytes_max=limit) as again:
        await until(
            lambda: again.store.log.min_offset and len(list((tmp_path / "commitlog").iterdir())) <= 4,
            "old files are gone",
        )
        first = again.store.min_offset("T", 0)
        assert 0 < first < 30
        bodies = [again_body for at in range(first, 60) for again_body in one(again, at)]
        assert bodies == [b"%d" % number for number in range(first, 60)]
    async with kept(tmp_path, queue_file_bytes=20_000) as last:
        assert last.store.min_offset("T", 0) == first


async def test_a_file_is_not_old_because_the_next_one_is_damaged(tmp_path: Path) -> None:
    """Without a message at the begin of the next file the age is unknown, and the file stays."""
    async with kept(tmp_path) as opened:
        fill_files(opened)
        now_ms = AsyncioRuntime(seed=1).now_ms()
        for _ in range(120):
            opened.store.append(record(b"x" * 4000, queue_id=1)._replace(store_timestamp=now_ms))
        await opened.flusher.flush()
        log = opened.store.log
        young = next(start for start in log.segments.starts if log.store_timestamp(start) == now_ms)
    path = tmp_path / "commitlog" / f"{young:020d}"
    path.write_bytes(bytes(200) + path.read_bytes()[200:])
    async with kept(tmp_path, **RETAIN) as again:
        await until(lambda: again.store.log.min_offset, "old files are gone")
        assert again.store.log.min_offset == young - again.store.log.segments.file_bytes


async def test_a_full_disk_ends_no_checkpoints_for_ever(tmp_path: Path) -> None:
    """When there is room again the next checkpoint is written, and the store closes cleanly."""
    async with kept(tmp_path, flush_sync=False) as opened:
        data_dir = DataDir(OsStorage(), str(tmp_path))
        opened.disk.bad_name = "/checkpoint"
        opened.send(b"one")
        failed = "checkpoint_write_failed"
        await until(lambda: failed in opened.log.names("error"), "the checkpoint has failed")
        opened.disk.bad_name = ""
        opened.send(b"two")
        await until(lambda: data_dir.read_checkpoint().entry_count == 2, "the next checkpoint is there")
    assert not (tmp_path / "abort").exists()


async def test_a_log_that_is_gone_is_missed(tmp_path: Path) -> None:
    """Each file of the clean end is named, and its offsets are not used again."""
    async with kept(tmp_path) as opened:
        opened.send(b"one")
        await opened.flusher.flush()
    (tmp_path / "commitlog" / f"{0:020d}").unlink()
    async with kept(tmp_path) as again:
        assert "log_file_missing" in again.log.names("error")
        again.send(b"two")
        await again.flusher.flush()
        assert again.store.max_offset("T", 0) == 2


@pytest.mark.parametrize("filler_bytes", [0, 1_500_000])
async def test_a_delayed_message_whose_entry_is_damaged_is_delivered(tmp_path: Path, filler_bytes: int) -> None:
    """Once, at its time, however long the search takes; no other message takes its place."""
    sizes: dict[str, Any] = {"segment_bytes": 8 << 20, "max_message_bytes": 2 << 20}
    async with kept(tmp_path, **sizes) as opened:
        for number in range(3):
            opened.send(b"%d" % number, properties="DELAY\x013")
            opened.store.append(record(b"x" * filler_bytes, queue_id=1))
        await opened.flusher.flush()
    path = tmp_path / "consumequeue" / SCHEDULE_TOPIC / "2" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:20] + bytes(20) + path.read_bytes()[40:])
    async with kept(tmp_path, **sizes) as again:

        def delivered(now_ms: int) -> list[bytes]:
            again.broker.messages.deliver_delayed(now_ms)
            again.flusher.check()
            return again.bodies()

        at_ms = NOW_MS + 10_000
        await until(
            lambda: delivered(at_ms - 1) or again.broker.messages.delays.next_due_ms == at_ms, "the entry is found"
        )
        assert delivered(at_ms - 1) == []
        await until(lambda: len(delivered(at_ms)) >= 3, "all are delivered")
        await again.flusher.flush()
        assert delivered(at_ms) == [b"0", b"1", b"2"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("size", [0, 3, 7, 8, 9, 20, 60])
@pytest.mark.parametrize("position", [0, 1, 13])
def test_a_search_in_a_file_that_was_cut_meanwhile_ends(tmp_path: Path, size: int, position: int) -> None:
    """Its size is known from the start of the broker; what is missing now is no message, and no endless search."""
    file = tmp_path / "log" / f"{0:020d}"
    file.parent.mkdir()
    file.write_bytes(b"x" * 100)
    files = Segments(OsStorage(), str(tmp_path), "log", 100)
    files.load()
    file.write_bytes(b"x" * size)
    assert next_record(files, position, 100) is None
    files.close()
