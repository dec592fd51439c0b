"""Which files a start trusts: no checkpoint of an impossible time, and no missing file as deleted."""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.remoting.host.os_storage import OsStorage
from lockstep.remoting.host.storage import StoredFile
from lockstep.store.check.files import Damage
from lockstep.store.check.store import StoreCheck
from lockstep.store.format.files import FileRun
from lockstep.store.format.layout import Checkpoint, decode_checkpoint, encode_checkpoint
from tests.broker.helpers import NOW_MS
from tests.broker.persistence.kept_broker import Kept, kept, until
from tests.store.stores import record

FILES: dict[str, Any] = {"segment_bytes": 45_000, "flush_sync": False}
YEAR_2100_MS = 4_102_444_800_000
EARLY, LATE = 10, 50  # messages: queue 1 has the first ones of the log, queue 0 the rest
MISSING = "log_file_missing"
REBUILT = "queue_entries_missing"


async def filled(folder: Path, **changes: Any) -> None:
    """Six files of the log, a clean end."""
    async with kept(folder, **FILES, **changes) as opened:
        for number in range(EARLY + LATE):
            body = b"%d" % number
            queue_id = 1 if number < EARLY else 0
            opened.broker.messages.put(record(body.ljust(4000), queue_id=queue_id, at_ms=NOW_MS + number * 10_000))
            await opened.flusher.flush()


def as_apaches(_: Checkpoint) -> Checkpoint:
    """Times alone, and right ones."""
    last_ms = NOW_MS + (EARLY + LATE - 1) * 10_000
    return Checkpoint(last_ms, last_ms, 0)


def of_2100(_: Checkpoint) -> Checkpoint:
    return Checkpoint(YEAR_2100_MS, YEAR_2100_MS, YEAR_2100_MS)


def ours(checkpoint: Checkpoint) -> Checkpoint:
    return checkpoint


def corrupt(folder: Path, change: Callable[[Checkpoint], Checkpoint], *, crashed: bool) -> None:
    path = folder / "checkpoint"
    path.write_bytes(encode_checkpoint(change(decode_checkpoint(path.read_bytes()))))
    if crashed:
        (folder / "abort").touch()


def first_and_end(opened: Kept, queue_id: int) -> tuple[int, int]:
    return opened.store.min_offset("T", queue_id), opened.store.max_offset("T", queue_id)


def damaged(folder: Path) -> list[Damage]:
    return [damage for damage in StoreCheck(OsStorage(), str(folder)).run() if not damage.unfinished]


# Checkpoints and queues ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("crashed", [True, False])
@pytest.mark.parametrize("change", [ours, as_apaches, of_2100])
async def test_a_queue_that_is_missing_is_found_again_in_the_log(
    tmp_path: Path, change: Callable[[Checkpoint], Checkpoint], crashed: bool
) -> None:
    """Whichever broker wrote the checkpoint: its messages are in files that it calls synced."""
    await filled(tmp_path)
    corrupt(tmp_path, change, crashed=crashed)
    shutil.rmtree(tmp_path / "consumequeue" / "T" / "1")
    assert any(damage.file == "consumequeue/T/1" for damage in damaged(tmp_path))
    async with kept(tmp_path, **FILES) as again:
        assert REBUILT in again.log.names("error")
        assert [first_and_end(again, queue_id) for queue_id in (0, 1)] == [(0, LATE), (0, EARLY)]
        (entry,) = again.store.entries("T", 1, 0, 1)
        assert entry.commit_log_offset == 0
    assert damaged(tmp_path) == []


@pytest.mark.parametrize("crashed", [True, False])
async def test_a_checkpoint_ahead_of_the_log_is_said_and_not_kept(tmp_path: Path, crashed: bool) -> None:
    """It has a time after the last message: its state of queues and keys is ignored, and the next checkpoint is
    right."""
    await filled(tmp_path)
    corrupt(tmp_path, of_2100, crashed=crashed)
    (found,) = damaged(tmp_path)
    assert (found.file, "2100-01-01" in found.text) == ("checkpoint", True)
    async with kept(tmp_path, **FILES) as again:
        (said,) = [fields for _, name, fields in again.log.events if name == "checkpoint_not_believed"]
        assert said["says_ms"] == YEAR_2100_MS
        assert first_and_end(again, 1) == (0, EARLY)
    last_ms = NOW_MS + (EARLY + LATE - 1) * 10_000
    assert decode_checkpoint((tmp_path / "checkpoint").read_bytes()).log_timestamp == last_ms
    assert damaged(tmp_path) == []


@pytest.mark.parametrize("crashed", [True, False])
async def test_a_folder_of_apaches_broker_is_not_read_as_a_whole(tmp_path: Path, crashed: bool) -> None:
    """Where queues have every message of the log, only the end of the log is read."""
    await filled(tmp_path)
    corrupt(tmp_path, as_apaches, crashed=crashed)
    assert damaged(tmp_path) == []
    async with kept(tmp_path, **FILES) as again:
        assert again.log.names("error") == []
        assert [first_and_end(again, queue_id) for queue_id in (0, 1)] == [(0, LATE), (0, EARLY)]


@pytest.mark.parametrize("crashed", [True, False])
@pytest.mark.parametrize("change", [ours, as_apaches])
@pytest.mark.parametrize("lost", ["first file", "last file", "entry"])
async def test_an_entry_that_was_on_the_disk_is_damage_without_it(
    tmp_path: Path, lost: str, change: Callable[[Checkpoint], Checkpoint], crashed: bool
) -> None:
    """No crash leaves entries out that the checkpoint covers."""
    await filled(tmp_path, queue_file_bytes=200)
    corrupt(tmp_path, change, crashed=crashed)
    files = sorted((tmp_path / "consumequeue" / "T" / "0").iterdir())
    if lost == "entry":
        files[1].write_bytes(bytes(20) + files[1].read_bytes()[20:])
    else:
        files[0 if lost == "first file" else 3].unlink()
    if lost == "last file":
        files[4].unlink()
    number = {"first file": 0, "last file": 30, "entry": 10}[lost]
    text = f"no entry {number} for the message"
    assert [damage.file for damage in damaged(tmp_path) if damage.text.startswith(text)] != []


@pytest.mark.parametrize("crashed", [True, False])
async def test_a_topic_that_was_created_again_is_whole(tmp_path: Path, crashed: bool) -> None:
    """Its queues begin at 0 again, and the log has messages of its earlier life under the same offsets."""
    async with kept(tmp_path, **FILES) as opened:
        for count in (20, 30, 8):
            opened.broker.messages.store.drop_topic("T")
            for number in range(count):
                opened.broker.messages.put(record(b"%d" % number, queue_id=number % 2))
            await opened.flusher.flush()
    corrupt(tmp_path, ours, crashed=crashed)
    assert list(StoreCheck(OsStorage(), str(tmp_path)).run()) == []
    corrupt_entry = tmp_path / "consumequeue" / "T" / "1" / f"{0:020d}"
    corrupt_entry.write_bytes(bytes(8) + corrupt_entry.read_bytes()[8:])
    assert [damage.text[:17] for damage in damaged(tmp_path)] == ["entry 0 points at"]


async def test_very_many_entries_that_are_wrong_are_counted(tmp_path: Path) -> None:
    """Each message of an earlier life of the topic has none: a check keeps the first ones, and the number of all."""
    async with kept(tmp_path, **FILES) as opened:
        for _ in range(2):
            opened.broker.messages.store.drop_topic("T")
            for _ in range(300):
                opened.broker.messages.put(record())
            await opened.flusher.flush()
    for path in (tmp_path / "consumequeue" / "T" / "0").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    found = [damage.text for damage in damaged(tmp_path)]
    assert len(found) == 101
    assert found[99].startswith("no entry 99 for the message")
    assert found[100] == "200 more entries are missing or point at something else"


# The first file of the log -------------------------------------------------------------------------------------


def log_files(folder: Path) -> list[Path]:
    return sorted((folder / "commitlog").iterdir())


def first_offset(folder: Path) -> int:
    return int(log_files(folder)[0].name)


def copy_what_is_there(source: str, target: str) -> None:
    """Threads of the broker may still delete files of queues, and put new tables in the place of old ones."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copy2(source, target)


@pytest.mark.parametrize("crashed", [True, False])
async def test_a_first_file_that_is_gone_is_said(tmp_path: Path, crashed: bool) -> None:
    """At each start, until it would have been deleted by age."""
    await filled(tmp_path)
    first = log_files(tmp_path)[0]
    first.unlink()
    corrupt(tmp_path, ours, crashed=crashed)
    for _ in range(2):
        found = [damage for damage in damaged(tmp_path) if damage.file.startswith("commitlog")]
        assert [damage.file for damage in found] == [f"commitlog/{first.name}"]
        async with kept(tmp_path, **FILES) as again:
            said = [fields["file"] for _, name, fields in again.log.events if name == MISSING]
            assert said == [str(first)]
            assert first_and_end(again, 1)[0] > 0


async def test_a_first_file_that_was_deleted_for_its_size_is_not_missed(tmp_path: Path) -> None:
    """The broker deleted it itself, also when it died before the files were gone."""
    await filled(tmp_path)
    async with kept(tmp_path, **FILES, data_bytes_max=100_000) as opened:
        await until(lambda: 0 < opened.store.min_commit_log_offset == first_offset(tmp_path), "old files are deleted")
        left = tmp_path.parent / f"{tmp_path.name}-killed"
        shutil.copytree(tmp_path, left, copy_function=copy_what_is_there)
    for folder in (tmp_path, left):
        assert damaged(folder) == []
        async with kept(folder, **FILES) as again:
            assert MISSING not in again.log.names()


@pytest.mark.parametrize("of", ["apache", "older"])
async def test_a_log_that_others_have_cut_begins_where_it_begins(tmp_path: Path, of: str) -> None:
    """Apache's broker deletes old files without a record of it, as our older versions did."""
    await filled(tmp_path)
    log_files(tmp_path)[0].unlink()
    if of == "apache":
        corrupt(tmp_path, as_apaches, crashed=False)
    else:
        for path in (tmp_path / "config").glob("logBegin*"):
            path.unlink()
    assert [damage for damage in damaged(tmp_path) if damage.file.startswith("commitlog")] == []
    async with kept(tmp_path, **FILES) as again:
        assert MISSING not in again.log.names()
    log_files(tmp_path)[0].unlink()
    async with kept(tmp_path, **FILES) as again:
        assert again.log.names("error").count(MISSING) == 1


def test_queues_that_are_not_read_keep_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may have more queues than a process may have files."""
    for start in (0, 20):
        path = tmp_path / "queue" / f"{start:020d}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(20))
    storage, opened = OsStorage(), list[StoredFile]()
    open_file = storage.open_file

    def noted(path: str, *, read_only: bool) -> StoredFile:
        opened.append(open_file(path, read_only=read_only))
        return opened[-1]

    monkeypatch.setattr(storage, "open_file", noted)
    assert FileRun.found(storage, str(tmp_path), "queue").file_bytes == 20
    assert len(opened) == 2
    for file in opened:
        with pytest.raises(ValueError, match="is closed"):
            file.size_bytes()
