"""The store in files after a restart, a crash, a torn write or damage; and folders that are no store."""

import random
from pathlib import Path

import pytest

from lockstep.protocol.messages.message import decode_messages
from lockstep.remoting.host import os_storage
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.store import GetStatus
from lockstep.store.data_dir import DataDir
from lockstep.store.errors import StoreUnusable
from lockstep.store.format.layout import PADDING_MAGIC, Checkpoint
from tests.broker.helpers import NOW_MS
from tests.store.stores import FolderStore, fill, get, record

SMALL = 4096  # bytes of a file of the log
FIRST_FILE = "commitlog/00000000000000000000"


def bodies(store: FolderStore, queue_id: int = 0) -> list[bytes]:
    """Everything that a queue gives, pull by pull."""
    found: list[bytes] = []
    offset = store.store.min_offset("T", queue_id)
    while offset < store.store.max_offset("T", queue_id):
        result = get(store.store, offset, queue_id=queue_id)
        assert result.next_begin_offset > offset
        found += [message.body for message in decode_messages(result.body)]
        offset = result.next_begin_offset
    return found


def end_well(opened: FolderStore) -> None:
    """As the keeper ends it."""
    store = opened.store
    store.keys.catch_up(store.visible_end, 1 << 30)
    store.write_tails()
    entry_count = sum(store.max_offsets().values())
    offsets = (store.log.max_offset, store.keys.indexed_offset, entry_count)
    opened.data_dir.write_checkpoint(Checkpoint(NOW_MS, NOW_MS, store.keys.indexed_timestamp, *offsets))
    opened.data_dir.ended_well()
    opened.kill()


@pytest.mark.parametrize("well", [True, False])
def test_everything_is_there_after_a_restart(tmp_path: Path, well: bool) -> None:
    """After any kind of end: messages, offsets and keys; new messages follow them."""
    first = FolderStore(tmp_path, segment_bytes=SMALL)
    fill(first.store, 100)
    fill(first.store, 7, queue_id=3, tag="A")
    end_well(first) if well else first.kill()
    second = FolderStore(tmp_path, segment_bytes=SMALL)
    assert second.data_dir.crashed is not well
    assert bodies(second) == [b"%d" % i for i in range(100)]
    assert bodies(second, 3) == [b"%d" % i for i in range(7)]
    assert second.store.append(record(b"next")).queue_offset == 100
    assert bodies(second)[-1] == b"next"
    assert second.recovered == (0 if well else 107, 0, 0)
    second.kill()


def test_entries_after_a_crash_carry_their_tags(tmp_path: Path) -> None:
    """A filter works on entries that were recovered from the log as on new ones."""
    first = FolderStore(tmp_path)
    for i in range(20):
        first.store.append(record(b"%d" % i, tag="A" if i % 3 == 0 else "B"))
    first.kill()
    second = FolderStore(tmp_path)
    found = decode_messages(get(second.store, 0, tags="A").body)
    assert [message.queue_offset for message in found] == [0, 3, 6, 9, 12, 15, 18]
    second.kill()


def test_files_of_the_log_are_named_by_offset_and_end_with_padding(tmp_path: Path) -> None:
    """A message that does not fit goes to the next file; the padding has the length of the rest (wire.md 5)."""
    opened = FolderStore(tmp_path, segment_bytes=SMALL)
    offsets = [opened.store.append(record(b"x" * 500)).commit_log_offset for _ in range(20)]
    opened.kill()
    names = sorted(path.name for path in (tmp_path / "commitlog").iterdir())
    assert names == [f"{i * SMALL:020d}" for i in range(len(names))]
    assert len(names) == 4
    content = (tmp_path / FIRST_FILE).read_bytes()
    last_end = max(offset for offset in offsets if offset < SMALL) + offsets[1]
    assert len(content) == SMALL
    assert content[last_end : last_end + 8] == (SMALL - last_end).to_bytes(4, "big") + PADDING_MAGIC.to_bytes(4, "big")


@pytest.mark.parametrize("left", [1, 50, 87, 95, 98])
def test_a_torn_tail_is_cut_at_the_last_whole_message(tmp_path: Path, left: int) -> None:
    """Of the last write `left` bytes were written: it is cut off, earlier messages stay, and its place is used
    again."""
    first = FolderStore(tmp_path)
    fill(first.store, 9)
    at = first.store.append(record(b"torn" * 3, tag="A")).commit_log_offset
    end = first.store.max_commit_log_offset
    first.kill()
    path = tmp_path / FIRST_FILE
    content = path.read_bytes()
    path.write_bytes(content[: at + left] + bytes(len(content) - at - left))
    second = FolderStore(tmp_path)
    assert end - at > left
    assert bodies(second) == [b"%d" % i for i in range(9)]
    assert second.store.append(record(b"new")) == (at, 9)
    second.kill()
    third = FolderStore(tmp_path)
    assert bodies(third)[9:] == [b"new"]
    third.kill()


@pytest.mark.parametrize("lost", [slice(-1000, None), slice(-1600, -600)], ids=["end", "sector"])
def test_properties_that_did_not_reach_the_disk_end_the_log(tmp_path: Path, lost: slice) -> None:
    """No CRC covers them: after a crash zeros up to their end, or in a whole sector, tell that the write was torn."""
    first = FolderStore(tmp_path)
    fill(first.store, 2)
    at = first.store.append(record(b"torn")._replace(properties=b"x" * 3000)).commit_log_offset
    end = first.store.max_commit_log_offset
    first.kill()
    path = tmp_path / FIRST_FILE
    content = bytearray(path.read_bytes())
    places = range(at, end)[lost]
    content[places.start : places.stop] = bytes(len(places))
    path.write_bytes(content)
    second = FolderStore(tmp_path)
    assert bodies(second) == [b"0", b"1"]
    assert second.store.append(record(b"new")) == (at, 2)
    second.kill()


def test_nothing_behind_a_torn_write_is_used(tmp_path: Path) -> None:
    """Nobody was told that it is stored, and what comes next has its queue offset."""
    first = FolderStore(tmp_path)
    offsets = [first.store.append(record(b"%d" % i)).commit_log_offset for i in range(4)]
    first.kill()
    _flip(tmp_path, offsets[2] + 88)
    second = FolderStore(tmp_path)
    assert bodies(second) == [b"0", b"1"]
    assert second.store.append(record(b"new")) == (offsets[2], 2)
    second.kill()


def test_damage_below_the_checkpoint_costs_no_later_message(tmp_path: Path) -> None:
    """What was safe is never cut: after a crash too the log is read on behind it."""
    first = FolderStore(tmp_path)
    offsets = [first.store.append(record(b"%d" % i)).commit_log_offset for i in range(5)]
    end_well(first)
    second = FolderStore(tmp_path)
    second.store.append(record(b"later"))
    second.kill()
    _flip(tmp_path, offsets[2] + 88)
    for path in (tmp_path / "consumequeue" / "T" / "0").iterdir():
        path.unlink()
    third = FolderStore(tmp_path)
    assert third.data_dir.crashed
    assert bodies(third) == [b"0", b"1", b"3", b"4", b"later"]
    third.kill()


def test_the_log_never_ends_below_its_checkpoint(tmp_path: Path) -> None:
    """Though its last files are lost: no new message gets a place that another one had."""
    first = FolderStore(tmp_path, segment_bytes=SMALL)
    fill(first.store, 100)
    end = first.store.max_commit_log_offset
    end_well(first)
    max((tmp_path / "commitlog").iterdir()).unlink()
    second = FolderStore(tmp_path, segment_bytes=SMALL)
    assert "log_file_missing" in second.log.names("error")
    assert second.store.append(record(b"new")).commit_log_offset >= end
    second.kill()


def test_an_entry_of_another_queue_is_not_believed(tmp_path: Path) -> None:
    """A message says where it belongs. The right one is found in the log."""
    first = FolderStore(tmp_path)
    for number in range(5):
        for queue_id in (0, 1):
            first.store.append(record(b"%d of %d" % (number, queue_id), queue_id=queue_id))
    end_well(first)
    second = FolderStore(tmp_path)
    queues = second.store.queues
    queues["T", 0].put(2, queues["T", 1].entries(2, 1)[0])
    queues["T", 0].put(3, queues["T", 0].entries(1, 1)[0])
    assert bodies(second) == [b"%d of 0" % number for number in range(5)]
    second.kill()


def _flip(folder: Path, offset: int) -> None:
    path = folder / FIRST_FILE
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def test_a_second_holder_is_refused(tmp_path: Path) -> None:
    """Two brokers would overwrite each other's files."""
    first = FolderStore(tmp_path)
    with pytest.raises(StoreUnusable, match="open in another broker"):
        FolderStore(tmp_path)
    first.kill()


def test_a_folder_of_another_layout_is_refused(tmp_path: Path) -> None:
    """It is not changed, and the error says what is wrong."""
    (tmp_path / "photos").mkdir()
    with pytest.raises(StoreUnusable, match=r"no store of RocketMQ's layout: it has 'photos'"):
        DataDir(OsStorage(), str(tmp_path)).open()
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
    other = tmp_path / "other"
    (other / "commitlog").mkdir(parents=True)
    (other / "commitlog" / "dledger-1").touch()
    with pytest.raises(StoreUnusable, match="dledger-1 is no file of a commit log"):
        DataDir(OsStorage(), str(other)).open()


def test_rules_may_be_in_the_folder_before_its_first_start(tmp_path: Path) -> None:
    """`conf`, where an operator puts the accounts, does not make a folder one of another layout."""
    (tmp_path / "conf").mkdir()
    first = FolderStore(tmp_path)
    first.kill()
    assert (tmp_path / "conf").is_dir()


def test_other_sizes_than_the_folders_are_refused(tmp_path: Path) -> None:
    """The error names the file and both sizes."""
    first = FolderStore(tmp_path, segment_bytes=2 * SMALL)
    fill(first.store, 200)
    first.kill()
    with pytest.raises(StoreUnusable, match=rf"{FIRST_FILE} has 8192 bytes, but files here have 4096"):
        FolderStore(tmp_path, segment_bytes=SMALL)


def test_sizes_that_are_refused_change_nothing(tmp_path: Path) -> None:
    """With the sizes that the folder was written with it opens, and all is there."""
    written = FolderStore(tmp_path, segment_bytes=2000)
    fill(written.store, 50)
    end_well(written)
    with pytest.raises(StoreUnusable, match="the folder was written with"):
        FolderStore(tmp_path, segment_bytes=3000)
    assert {path.stat().st_size for path in (tmp_path / "commitlog").iterdir()} == {2000}
    again = FolderStore(tmp_path, segment_bytes=2000)
    assert again.store.max_offset("T", 0) == 50
    again.kill()


def test_what_is_read_back_after_a_crash_is_synced_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that was killed may not have synced it, in any file."""
    killed = FolderStore(tmp_path, segment_bytes=2000)
    fill(killed.store, 50)
    killed.kill()
    synced: list[str] = []
    monkeypatch.setattr(os_storage._OsStoredFile, "sync", lambda file: synced.append(file.path))
    monkeypatch.setattr(OsStorage, "sync_dir", lambda _storage, path: synced.append(path))
    again = FolderStore(tmp_path, segment_bytes=2000)
    log_files = [str(path) for path in (tmp_path / "commitlog").iterdir()]
    assert len(log_files) > 2
    assert {*log_files, str(tmp_path / "commitlog")} <= set(synced)
    again.kill()


def test_a_deleted_queue_is_found_again_in_the_log(tmp_path: Path) -> None:
    """The checkpoint has the number of entries; missing ones are read from the log."""
    first = FolderStore(tmp_path, segment_bytes=SMALL)
    fill(first.store, 100)
    fill(first.store, 5, queue_id=1)
    end_well(first)
    for path in (tmp_path / "consumequeue" / "T" / "0").iterdir():
        path.unlink()
    second = FolderStore(tmp_path, segment_bytes=SMALL)
    assert "queue_entries_missing" in second.log.names("error")
    assert bodies(second) == [b"%d" % i for i in range(100)]
    assert bodies(second, 1) == [b"%d" % i for i in range(5)]
    second.kill()


def test_a_missing_file_of_the_log_costs_its_messages_and_no_others(tmp_path: Path) -> None:
    """It is named in the log; offsets of later messages do not change."""
    first = FolderStore(tmp_path, segment_bytes=SMALL)
    fill(first.store, 100)
    end_well(first)
    (tmp_path / "commitlog" / f"{SMALL:020d}").unlink()
    second = FolderStore(tmp_path, segment_bytes=SMALL)
    assert "log_file_missing" in second.log.names("error")
    left = bodies(second)
    assert 0 < len(left) < 100
    assert left[0] == b"0"
    assert left[-1] == b"99"
    assert second.store.append(record()).queue_offset == 100
    second.kill()


def test_a_damaged_message_is_left_out_and_named(tmp_path: Path) -> None:
    """A bit of a body is flipped: the CRC shows it, the place is logged, and its neighbours are served."""
    first = FolderStore(tmp_path)
    offsets = [first.store.append(record(b"%d" % i)).commit_log_offset for i in range(10)]
    end_well(first)
    path = tmp_path / FIRST_FILE
    content = bytearray(path.read_bytes())
    content[offsets[4] + 88] ^= 1
    path.write_bytes(content)
    second = FolderStore(tmp_path)
    assert bodies(second) == [b"%d" % i for i in range(10) if i != 4]
    (event,) = [fields for level, _, fields in second.log.events if level == "error"]
    assert event == {
        "topic": "T", "queue_id": 0, "queue_offset": 4,
        "place": f"{path}, byte {offsets[4]}", "reason": "the CRC of the body is wrong",
    }  # fmt: skip
    assert get(second.store, 4, 1)[:2] == (GetStatus.MESSAGE_WAS_REMOVING, 5)
    second.kill()


@pytest.mark.parametrize("well", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_damaged_nothing_is_made_up(tmp_path: Path, seed: int, well: bool) -> None:
    """Bytes are flipped, cut or zeroed in any file: the store opens or names the bad file, and serves only stored
    messages."""
    first = FolderStore(tmp_path, segment_bytes=SMALL)
    sent = {queue_id: [b"%d-%d" % (queue_id, i) for i in range(60)] for queue_id in (0, 1)}
    for pair in zip(*sent.values(), strict=True):
        for queue_id, body in enumerate(pair):
            first.store.append(record(body, queue_id))
    end_well(first) if well else first.kill()
    rng = random.Random(seed)
    path = rng.choice(sorted(path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size))
    content = bytearray(path.read_bytes())
    at = rng.randrange(len(content))
    match rng.choice(("flip", "cut", "zero")):
        case "flip":
            content[at] ^= 1 << rng.randrange(8)
        case "cut":
            del content[at:]
        case "zero":
            content[at : at + 200] = bytes(len(content[at : at + 200]))
    path.write_bytes(content)
    second = FolderStore(tmp_path, segment_bytes=SMALL)
    for queue_id, expected in sent.items():
        served = bodies(second, queue_id)
        assert [body for body in expected if body in served] == served
        if path.parent.name != "commitlog":
            assert served == expected
    second.kill()


@pytest.mark.parametrize("first_kept", [0, 7])
def test_the_oldest_files_go_whole(tmp_path: Path, first_kept: int) -> None:
    """Min offsets move up to the kept messages, also after a long search; a reader below gets the next offset."""
    opened = FolderStore(tmp_path, segment_bytes=SMALL, queue_file_bytes=200)
    fill(opened.store, 100)
    opened.store.queues["T", 0].write_tail()
    gone = opened.store.forget_before(2 * SMALL + 1)
    opened.store.trim_to(opened.store.log.min_offset, [(opened.store.queues["T", 0], first_kept)])
    for path in gone:
        Path(path).unlink()
    opened.store.queues.delete_trimmed()
    low = opened.store.min_offset("T", 0)
    assert len(gone) == 2
    assert opened.store.min_commit_log_offset == 2 * SMALL
    assert get(opened.store, low - 1)[:4] == (GetStatus.OFFSET_TOO_SMALL, low, low, 100)
    assert bodies(opened) == [b"%d" % i for i in range(low, 100)]
    opened.kill()
    again = FolderStore(tmp_path, segment_bytes=SMALL, queue_file_bytes=200)
    assert (again.store.min_offset("T", 0), again.store.max_offset("T", 0)) == (low, 100)
    again.kill()


def test_what_is_not_safe_yet_is_not_read(tmp_path: Path) -> None:
    """With `deferred` a message becomes readable when the log is synced behind it; then its queue is notified."""
    opened = FolderStore(tmp_path, deferred=True)
    arrived: list[int] = []
    opened.store.on_arrived = lambda message: arrived.append(message.queue_offset)
    offsets = [opened.store.append(record(b"%d" % i)).commit_log_offset for i in range(3)]
    assert opened.store.max_offset("T", 0) == 0
    opened.store.make_visible(offsets[2])
    assert (bodies(opened), arrived) == ([b"0", b"1"], [0, 1])
    opened.kill()


def test_a_deleted_topic_stays_deleted_and_a_new_one_of_its_name_begins_anew(tmp_path: Path) -> None:
    """After a crash the log is read again and still has messages of both topics."""
    first = FolderStore(tmp_path)
    fill(first.store, 9)
    first.store.append(record(topic="Gone"))
    first.store.drop_topic("T")
    first.store.drop_topic("Gone")
    first.store.append(record(b"new"))
    first.kill()
    second = FolderStore(tmp_path, topics={"T"})
    assert bodies(second) == [b"new"]
    assert second.store.max_offset("Gone", 0) == 0
    second.kill()
