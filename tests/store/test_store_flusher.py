"""What puts a store on the disk: many sends to one sync, a disk that fails, a full one, a clean end."""

import errno
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.headers.messaging import SendMessageResponseHeader
from lockstep.protocol.names import OP_HALF_TOPIC
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.store import StoreFull
from lockstep.store.data_dir import DataDir
from lockstep.store.durability import recovery as file_recovery
from lockstep.store.errors import StoreUnusable
from tests.broker.helpers import NOW_MS, RecordingLog
from tests.broker.persistence.kept_broker import SMALL, Disk, Kept, kept, until
from tests.store.stores import FolderStore, record

HOUR_MS = 3_600_000


async def test_replies_leave_when_many_sends_are_on_the_disk_with_one_sync(tmp_path: Path) -> None:
    """No reply before the sync; then all, in the order of the sends. Consumers get the messages from then on."""
    async with kept(tmp_path, flush_interval_ms=60_000) as opened:
        assert [opened.send(b"%d" % i) for i in range(50)] == [None] * 50
        assert (opened.connection.replies, opened.bodies()) == ([], [])
        opened.flusher.check()
        await until(lambda: len(opened.connection.replies) == 50, "every send is answered")
        assert {reply.code for reply in opened.connection.replies} == {ResponseCode.SUCCESS}
        offsets = [dict(reply.ext_fields or {})["queueOffset"] for reply in opened.connection.replies]
        assert offsets == [str(i) for i in range(50)]
        assert len(opened.bodies()) == 32
        assert opened.disk.syncs == 1
        assert opened.visible >= 1


async def test_a_fault_in_one_answer_keeps_no_other_waiting(tmp_path: Path) -> None:
    async with kept(tmp_path, flush_interval_ms=60_000) as opened:
        opened.send(b"0")
        heard = list[str]()
        opened.flusher.when_safe(lambda reason: heard[7])  # type: ignore[arg-type]
        opened.flusher.when_safe(heard.append)
        opened.flusher.check()
        await until(lambda: heard == [""], "the next one is answered")
        assert opened.log.names("error") == ["answer_failed"]


async def test_a_failed_sync_acknowledges_nothing_until_all_was_written_again(tmp_path: Path) -> None:
    """Messages in the log get FLUSH_DISK_TIMEOUT and their offset, later sends are refused at once, and reads go on.
    When the disk works again sends do too."""
    async with kept(tmp_path) as opened:
        opened.send(b"safe")
        opened.flusher.check()
        await until(lambda: opened.connection.replies, "the first send is answered")
        opened.disk.sync_error = errno.EIO
        opened.send(b"unsafe")
        opened.flusher.check()
        await until(lambda: len(opened.connection.replies) == 2, "the second send is answered")
        unsafe = opened.connection.replies[1]
        assert unsafe.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert unsafe.decode_header(SendMessageResponseHeader).queue_offset == 1
        assert "Input/output error" in (unsafe.remark or "")
        refused = opened.send(b"refused")
        assert refused is not None
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert opened.bodies() == [b"safe"]
        assert opened.log.names("error").count("log_sync_failed") == 1
        opened.disk.sync_error = 0
        await until(lambda: not opened.store.refusal, "the disk works again")
        assert opened.bodies() == [b"safe", b"unsafe"]
        opened.send(b"after")
        opened.flusher.check()
        await until(lambda: len(opened.connection.replies) == 3, "the last send is answered")
        assert opened.connection.replies[2].code == ResponseCode.SUCCESS


@pytest.mark.parametrize("flush_sync", [True, False])
async def test_a_full_disk_refuses_sends_and_serves_reads_until_there_is_room(tmp_path: Path, flush_sync: bool) -> None:
    """The refused message is not stored, and the next one takes its place."""
    async with kept(tmp_path, flush_sync=flush_sync) as opened:
        opened.send(b"first")
        await opened.flusher.flush()
        opened.disk.write_error = errno.ENOSPC
        for _ in range(3):
            refused = opened.send(b"refused")
            assert refused is not None
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "No space left on device" in (refused.remark or "")
        assert opened.bodies() == [b"first"]
        names = opened.log.names("error")
        assert names.count("store_write_failed") == 1
        opened.disk.write_error = 0
        opened.send(b"second")
        await opened.flusher.flush()
        assert opened.bodies() == [b"first", b"second"]
        assert "store_write_recovered" in opened.log.names("info")


@pytest.mark.parametrize("flush_sync", [True, False])
async def test_a_batch_is_stored_whole_or_not_at_all(tmp_path: Path, flush_sync: bool) -> None:
    """The disk is full in the middle of it: the written part is removed, also across the end of a file."""
    async with kept(tmp_path, flush_sync=flush_sync, segment_bytes=45_000) as opened:
        batch = [record(b"%d" % i * 9000) for i in range(8)]
        disk, store = opened.disk, opened.store
        for writes in range(1, 9):
            disk.writes_left = writes
            with pytest.raises(StoreFull):
                store.append_all(batch)
            disk.writes_left = None
            assert (store.max_commit_log_offset, store.log.segments.read(0, 100)) == (0, bytes(100))
        others = [record(b"of another size"), *batch]
        stored = store.append_all(others)
        await opened.flusher.flush()
        assert [result.queue_offset for result in stored] == list(range(9))
        assert opened.bodies() == [one.body for one in others]


def test_a_run_is_refused_like_a_single_message(tmp_path: Path) -> None:
    """While the disk is in doubt nothing is stored, however it comes."""
    opened = FolderStore(tmp_path)
    opened.store.append(record(b"before"))
    end = opened.store.max_commit_log_offset
    opened.store.refuse("log", "the disk is in doubt")
    for run in ([record(b"1")], [record(b"1"), record(b"2")]):
        with pytest.raises(StoreFull, match="in doubt"):
            opened.store.append_all(run)
    assert opened.store.max_commit_log_offset == end
    opened.kill()


async def test_a_run_that_is_not_written_leaves_nothing_behind(tmp_path: Path) -> None:
    """The first messages of one write may stand in the file when it fails: zeros take their place."""
    async with kept(tmp_path, flush_sync=False) as opened:
        store = opened.store
        store.append(record(b"before"))
        segments, run, end = store.log.segments, [record(b"a"), record(b"b")], store.max_commit_log_offset
        active = segments.file(0)
        write = active.write_at

        def half(position: int, data: bytes) -> None:
            active.write_at = write  # type: ignore[method-assign]
            write(position, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "no space")

        active.write_at = half  # type: ignore[method-assign, assignment]
        with pytest.raises(StoreFull, match="no space"):
            store.append_all(run)
        assert (store.max_commit_log_offset, segments.read(end, 200)) == (end, bytes(200))
        assert [place.queue_offset for place in store.append_all(run)] == [1, 2]
        assert opened.bodies() == [b"before", b"a", b"b"]


def test_a_long_recovery_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In log events that name the folder."""
    told: list[str] = []
    monkeypatch.setattr(file_recovery, "_PROGRESS_BYTES", 10_000)
    config = BrokerConfig(data_dir=str(tmp_path))
    for _ in range(2):
        broker = Broker(config, random.Random(1), RecordingLog(), NOW_MS, OsStorage(), told.append)
        for _ in range(10):
            broker.messages.put(record(b"x" * 4000))
        assert broker.durable is not None
        broker.durable.abandon()
    assert len(told) >= 3
    assert all(line.startswith(f"recovering {tmp_path}: ") for line in told)


async def test_a_second_crash_does_not_read_the_same_messages_again(tmp_path: Path) -> None:
    """The first checkpoint after a recovery is written at once, not when its interval has passed."""
    config = BrokerConfig(data_dir=str(tmp_path), **SMALL)
    broker = Broker(config, random.Random(1), RecordingLog(), NOW_MS, OsStorage())
    broker.messages.put(record(b"one"))
    end = broker.messages.store.max_commit_log_offset
    assert broker.durable is not None
    broker.durable.abandon()
    data_dir = DataDir(OsStorage(), str(tmp_path))
    async with kept(tmp_path, checkpoint_interval_ms=HOUR_MS) as again:
        assert again.log.names().count("recovered_after_crash") == 1
        await until(lambda: data_dir.read_checkpoint().log_offset == end, "the checkpoint has what was recovered")


async def test_offsets_topics_and_groups_are_there_after_a_clean_end(tmp_path: Path) -> None:
    """The start reads no message again, because the checkpoint is at the end."""
    async with kept(tmp_path) as opened:
        opened.send(b"one")
        opened.broker.catalog.offsets.commit("G", "T", 0, 1)
        opened.broker.catalog.groups.find("G", NOW_MS)
        opened.broker.catalog.topics.put(TopicConfig("Made", 3, 3), NOW_MS)
    assert not (tmp_path / "abort").exists()
    async with kept(tmp_path) as again:
        broker = again.broker
        assert broker.catalog.offsets.query("G", "T", 0) == 1
        assert broker.catalog.groups.get("G") is not None
        made = broker.catalog.topics.get("Made")
        assert made is not None
        assert made.write_queue_nums == 3
        assert again.bodies() == [b"one"]
        assert "recovered_after_crash" not in again.log.names()


async def test_offsets_are_written_while_it_runs(tmp_path: Path) -> None:
    """A crash loses only commits after the last write."""
    async with kept(tmp_path) as opened:
        opened.send(b"one")
        opened.flusher.check()
        opened.broker.catalog.offsets.commit("G", "T", 0, 1)
        path = tmp_path / "config" / "consumerOffset.json"
        await until(lambda: path.exists() and '"T@G":{"0":1}' in path.read_text(), "the offset is in the file")


async def test_offsets_beyond_what_a_crash_left_are_lowered(tmp_path: Path) -> None:
    """Otherwise new messages at those offsets would be skipped."""
    folder = tmp_path / "store"
    async with kept(folder) as opened:
        opened.send(b"one")
        opened.broker.catalog.offsets.commit("G", "T", 0, 7)
    (folder / "abort").touch()
    async with kept(folder) as again:
        assert again.broker.catalog.offsets.query("G", "T", 0) == 1


async def test_an_unreadable_table_falls_back_to_its_older_copy(tmp_path: Path) -> None:
    """The log names the file; the last changes are missing and none is invented."""
    async with kept(tmp_path) as opened:
        opened.broker.catalog.topics.put(TopicConfig("Older", 1, 1), NOW_MS)
        await opened.writers.flush()
        opened.broker.catalog.topics.put(TopicConfig("Newest", 1, 1), NOW_MS)
    (tmp_path / "config" / "topics.json").write_text('{"dataVersion":')
    async with kept(tmp_path) as again:
        assert again.broker.catalog.topics.get("Older") is not None
        assert again.broker.catalog.topics.get("Newest") is None
        (event,) = [fields for _, name, fields in again.log.events if name == "config_read_failed"]
        assert event["file"] == str(tmp_path / "config" / "topics.json")


async def test_topics_of_which_no_file_tells_are_those_of_the_queues(tmp_path: Path) -> None:
    """Their messages can be read, which needs the topic. Only the broker reads the marks of transactions."""
    async with kept(tmp_path) as opened:
        opened.send(b"one")
        opened.broker.messages.put(record(b"1", topic=OP_HALF_TOPIC))
    for path in (tmp_path / "config").glob("topics.json*"):
        path.unlink()
    async with kept(tmp_path) as again:
        assert again.broker.catalog.topics.get("T") is not None
        assert again.broker.catalog.topics.get(OP_HALF_TOPIC) is None
        assert again.bodies() == [b"one"]


async def test_delayed_messages_and_undecided_transactions_go_on(tmp_path: Path) -> None:
    """Messages that became due meanwhile are delivered now; undecided half messages are checked again."""
    async with kept(tmp_path) as opened:
        late = record(b"late", topic="SCHEDULE_TOPIC_XXXX")
        opened.broker.messages.put(
            late._replace(properties=b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x010", tags_code=NOW_MS)
        )
        for key in (b"open", b"ended"):
            half = record(key, topic="RMQ_SYS_TRANS_HALF_TOPIC")
            opened.broker.messages.put(half._replace(properties=b"UNIQ_KEY\x01" + key))
        opened.broker.messages.put(record(b"1", topic="RMQ_SYS_TRANS_OP_HALF_TOPIC"))
    (tmp_path / "abort").touch()
    async with kept(tmp_path) as again:
        assert again.broker.messages.delays.next_due_ms == NOW_MS
        again.broker.messages.deliver_delayed(NOW_MS)
        await again.flusher.flush()
        assert again.bodies() == [b"late"]
        assert len(again.broker.messages.halves) == 1


async def test_old_files_go_by_age_and_by_size(tmp_path: Path) -> None:
    """As whole files; the current one stays. By age they are deleted only in the hour of `deleteWhen`."""
    limits: dict[str, Any] = {"segment_bytes": 45_000, "data_bytes_max": 100_000, "reserved_hours": 72}
    async with kept(tmp_path, flush_interval_ms=60_000, **limits) as opened:
        for _ in range(100):
            opened.broker.messages.put(record(b"x" * 4000, at_ms=AsyncioRuntime().now_ms()))
        await opened.flusher.flush()
        store = opened.store

        def kept_bytes() -> int:
            return store.max_commit_log_offset - store.min_commit_log_offset

        opened.flusher.retain(NOW_MS)
        await until(lambda: kept_bytes() <= 100_000, "the log is small enough")
        assert kept_bytes() > 45_000
        assert store.min_offset("T", 0) > 0
        await until(lambda: "log_file_deleted" in opened.log.names("info"), "the files are deleted")
        threads = {thread for path, thread in opened.disk.deleted.items() if "/commitlog/" in path}
        assert threads
        assert threading.get_ident() not in threads
        old_ms = store.last_timestamp + 73 * HOUR_MS
        by_day = [old_ms + hour * HOUR_MS for hour in range(24) if (old_ms // HOUR_MS + hour) % 24 != 4]
        before = store.min_commit_log_offset
        for at_ms in by_day:
            opened.flusher.retain(at_ms)
        assert store.min_commit_log_offset == before
        opened.flusher.retain(old_ms + (4 - old_ms // HOUR_MS) % 24 * HOUR_MS + 24 * HOUR_MS)
        await until(lambda: kept_bytes() < 45_000, "what is too old is gone")


async def test_a_folder_in_use_is_refused_in_one_line(tmp_path: Path) -> None:
    """A second broker on it does not start."""
    async with kept(tmp_path):
        with pytest.raises(StoreUnusable, match="open in another broker"):
            Kept(tmp_path, Disk(), flush_sync=True)


async def test_a_folder_left_before_its_first_file_was_whole_is_a_store(tmp_path: Path) -> None:
    """A broker died during its first checkpoint: the next one starts."""
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint.tmp").touch()
    async with kept(tmp_path) as opened:
        opened.send(b"one")
        await opened.flusher.flush()
        assert opened.bodies() == [b"one"]


async def test_what_is_refused_is_told_as_store_full(tmp_path: Path) -> None:
    """For the broker's own messages too."""
    async with kept(tmp_path) as opened:
        opened.store.refusal = "for the test"
        with pytest.raises(StoreFull, match="for the test"):
            opened.broker.messages.put(record())
        opened.store.refusal = ""
