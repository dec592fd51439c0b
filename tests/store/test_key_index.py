"""Keys in RocketMQ's index files: entered when there is time, and found at every moment (docs/store.md)."""

import struct
from pathlib import Path
from typing import Any

import pytest

from lockstep.protocol.messages.message import decode_messages
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.store import Record
from lockstep.store.base import KeyQuery
from lockstep.store.check.store import StoreCheck
from lockstep.store.format.index import INDEX_HEADER, IndexHeader, key_hash
from lockstep.store.format.layout import Checkpoint
from tests.broker.helpers import NOW_MS
from tests.store.stores import HOST, FolderStore, queried

FOREVER = 1 << 62


def opened(folder: Path, **settings: Any) -> FolderStore:
    return FolderStore(folder, **{"index_slot_count": 16, "index_item_count": 50, **settings})


def append(store: FolderStore, number: int) -> None:
    properties = f"KEYS\x01k{number} all\x02UNIQ_KEY\x01U{number}".encode()
    store.store.append(Record("T", 0, 0, 0, NOW_MS, HOST, 1, NOW_MS + number, 0, 0, b"%d" % number, properties, 0))


def found(store: FolderStore, key: str, max_num: int = 1000) -> list[int]:
    messages = queried(store.store, "T", key, max_num, 0, FOREVER).messages
    return [int(decode_messages(message)[0].body) for message in messages]


@pytest.mark.parametrize("entered", [0, 1, 37, 100])
def test_a_key_is_found_whether_it_is_entered_yet_or_not(tmp_path: Path, entered: int) -> None:
    """Three keys a message, several files, and a rest that no file has: each is found once."""
    store = opened(tmp_path)
    for number in range(100):
        append(store, number)
    if entered:
        assert store.store.keys.catch_up(store.store.max_commit_log_offset, entered) is (entered < 100)
    assert found(store, "all") == list(range(100))
    assert found(store, "all", 3) == [97, 98, 99]
    for number in (0, 36, 37, 99):
        assert found(store, f"k{number}") == found(store, f"U{number}") == [number]
    assert found(store, "k100") == []
    store.kill()


def test_files_have_rocketmqs_header_and_one_item_less_than_room(tmp_path: Path) -> None:
    """50 items: 49 keys a file; times and offsets are those of the first and the last entered message."""
    store = opened(tmp_path)
    for number in range(100):
        append(store, number)
    store.store.keys.catch_up(store.store.max_commit_log_offset, 1000)
    paths = sorted((tmp_path / "index").iterdir())
    headers = [IndexHeader(*INDEX_HEADER.unpack(path.read_bytes()[:40])) for path in paths]
    assert [header.next_item for header in headers] == [50] * 6 + [1 + 300 - 6 * 49]
    assert {path.stat().st_size for path in paths} == {40 + 16 * 4 + 50 * 20}
    assert (headers[0].first_timestamp, headers[-1].last_timestamp) == (NOW_MS, NOW_MS + 99)
    assert headers[0].first_offset == 0
    assert all(len(path.name) == 17 and path.name.isdecimal() for path in paths)
    store.kill()


def test_files_of_any_number_of_slots_are_checked_by_their_own(tmp_path: Path) -> None:
    """50 slots and 20 items do not determine each other; another number may look right at first."""
    for trial in range(150):
        folder = tmp_path / str(trial)
        store = opened(folder, index_slot_count=50, index_item_count=20)
        for number in range(trial, trial + 5):
            append(store, number)
        store.store.keys.catch_up(store.store.max_commit_log_offset, 1000)
        store.store.write_tails()
        store.kill()
        check = StoreCheck(OsStorage(), str(folder))
        assert [damage for damage in check.run() if damage.file.startswith("index/")] == []


def test_after_a_crash_keys_are_entered_anew_where_they_are_not_safe(tmp_path: Path) -> None:
    """Files that were written after the last checkpoint are not trusted; every key is found."""
    store = opened(tmp_path)
    for number in range(40):
        append(store, number)
    store.store.keys.catch_up(store.store.max_commit_log_offset, 1000)
    store.kill()
    newest = max((tmp_path / "index").iterdir())
    newest.write_bytes(newest.read_bytes()[:40] + struct.pack(">i", 7) * 266)
    again = opened(tmp_path)
    assert found(again, "all") == list(range(40))
    again.store.keys.catch_up(again.store.max_commit_log_offset, 1000)
    assert found(again, "all") == list(range(40))
    again.kill()


@pytest.mark.parametrize("steps_before", [0, 1, 3])
def test_a_query_goes_on_when_files_of_keys_are_deleted_meanwhile(tmp_path: Path, steps_before: int) -> None:
    """It ends with the keys of the other files, and opens no deleted file again."""
    store = opened(tmp_path)
    for number in range(100):
        append(store, number)
    index = store.store.keys
    index.catch_up(store.store.max_commit_log_offset, 1000)
    query = KeyQuery("T", "all", 1000, 0, FOREVER)
    steps = index.find(query, store.store.max_commit_log_offset, lambda _: True)
    for _ in range(steps_before):
        next(steps)
    for path in index.forget_before(store.store.max_commit_log_offset):
        Path(path).unlink()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            numbers = [int(decode_messages(message)[0].body) for message in end.value]
            break
    assert numbers
    assert numbers == list(range(numbers[0], 100))
    store.kill()


def test_a_query_ends_when_the_store_is_closed_meanwhile(tmp_path: Path) -> None:
    """It stops at the next key."""
    store = opened(tmp_path, index_item_count=1000)
    for number in range(100):
        append(store, number)
    index = store.store.keys
    index.catch_up(store.store.max_commit_log_offset, 1000)
    (file,) = index._files
    offsets = file.offsets_of(key_hash("T", "all"))
    next(offsets)
    store.kill()
    assert list(offsets) == []


def test_a_query_reads_a_bounded_part_of_what_is_not_entered_yet(tmp_path: Path) -> None:
    """The newest part: a broker far behind still serves others. The rest is found once it is entered."""
    store = opened(tmp_path, segment_bytes=64 << 20)
    for number in range(14):
        properties = f"KEYS\x01k{number} all\x02UNIQ_KEY\x01U{number}".encode()
        body = b"%d " % number * (1 << 20)
        store.store.append(Record("T", 0, 0, 0, NOW_MS, HOST, 1, NOW_MS + number, 0, 0, body, properties, 0))
    read_bytes = 0
    read = store.store.log.segments.read

    def counted(position: int, size_bytes: int) -> bytes:
        nonlocal read_bytes
        read_bytes += size_bytes
        return read(position, size_bytes)

    store.store.log.segments.read = counted  # type: ignore[method-assign]
    assert [body.split()[0] for body in bodies(store, "k13")] == [b"13"]
    assert bodies(store, "k0") == []
    assert read_bytes < 2 * 20 << 20
    store.store.keys.catch_up(store.store.max_commit_log_offset, 1000)
    assert [body.split()[0] for body in bodies(store, "k0")] == [b"0"]
    store.kill()


def test_a_key_that_is_not_entered_is_found_over_the_ends_of_files_and_beside_what_looks_like_it(
    tmp_path: Path,
) -> None:
    """Beside bodies with the key, bodies with the first bytes of a message, and longer keys that contain it."""
    store = opened(tmp_path, segment_bytes=2000)
    magic = bytes.fromhex("daa320a7")
    for number in range(60):
        properties = f"KEYS\x01k{number} all\x02UNIQ_KEY\x01U{number}".encode()
        body = magic * 8 + b"\x01k3 " + b"x" * (number * 7) + magic
        store.store.append(Record("T", 0, 0, 0, NOW_MS, HOST, 1, NOW_MS + number, 0, 0, body, properties, 0))
    for number in range(60):
        queue_offsets = [
            decode_messages(one)[0].queue_offset
            for one in queried(store.store, "T", f"k{number}", 9, 0, FOREVER).messages
        ]
        assert queue_offsets == [number]
    assert len(queried(store.store, "T", "all", 1000, 0, FOREVER).messages) == 60
    store.kill()


def test_slots_that_reached_the_disk_before_their_header_are_not_believed_after_a_crash(tmp_path: Path) -> None:
    """A power cut between the two: slots would point at items that the header does not count."""
    store = opened(tmp_path)
    for number in range(10):
        append(store, number)
    store.store.keys.catch_up(store.store.max_commit_log_offset, 1000)
    keys = store.store.keys
    end = store.store.max_commit_log_offset
    store.data_dir.write_checkpoint(Checkpoint(NOW_MS, NOW_MS, keys.indexed_timestamp, end, keys.indexed_offset, 10))
    (path,) = (tmp_path / "index").iterdir()
    header = path.read_bytes()[: INDEX_HEADER.size]
    append(store, 10)
    store.store.keys.catch_up(store.store.max_commit_log_offset, 1000)
    store.kill()
    path.write_bytes(header + path.read_bytes()[len(header) :])
    again = opened(tmp_path)
    again.store.keys.catch_up(again.store.max_commit_log_offset, 1000)
    assert found(again, "all") == list(range(11))
    again.kill()


def bodies(store: FolderStore, key: str) -> list[bytes]:
    return [decode_messages(message)[0].body for message in queried(store.store, "T", key, 9, 0, FOREVER).messages]
