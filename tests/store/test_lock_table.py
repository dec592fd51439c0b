"""The format of the file of fenced locks: what is read back, what a torn write leaves, what counts as damage."""

from pathlib import Path

import pytest

from lockstep.protocol.epochs import COUNTER_MAX, make_epoch
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.host.os_storage import OsStorage
from lockstep.store.check.files import lock_table_damage
from lockstep.store.format.lock_table import (
    LockTableDamaged,
    StoredLock,
    decode_lock_table,
    encode_changes,
    encode_lock_table,
)

BOOT = 1_795_208_639_549


def lock(queue_id: int, client_id: str = "a", epoch: int = make_epoch(BOOT, 1)) -> StoredLock:
    queue = MessageQueue("Tö\n中", "broker-a", queue_id)
    return StoredLock("%G 😀", queue, client_id, True, epoch, 60_000, BOOT, 12)


def test_a_table_is_read_as_it_was_written() -> None:
    """Any names; several lines when there are many locks."""
    locks = [lock(queue_id) for queue_id in range(2500)]
    content = encode_lock_table(BOOT, locks, in_grace=True)
    table = decode_lock_table(content)
    assert (table.boot, table.in_grace, list(table.locks.values()), table.end) == (BOOT, True, locks, len(content))
    assert content.count(b"\n") == 4
    empty = encode_lock_table(7, [], in_grace=False)
    assert decode_lock_table(empty) == (7, False, {}, len(empty))


def test_changes_are_appended() -> None:
    """A later period replaces an earlier one of its queue, a freed queue goes; the boot is the highest in use."""
    content = encode_lock_table(BOOT, [lock(0), lock(1), lock(2)], in_grace=False)
    newer = lock(1, "b", make_epoch(BOOT + 1, COUNTER_MAX))
    content += encode_changes({newer.key: newer, lock(2).key: None})
    content += encode_changes({lock(0).key: None, lock(9).key: None})
    table = decode_lock_table(content)
    assert (table.boot, table.locks) == (BOOT + 1, {newer.key: newer})


def test_a_torn_write_is_left_out() -> None:
    """However many bytes of the last line a power cut kept, and whether the others read as zeros or are absent."""
    before = encode_lock_table(BOOT, [lock(0)], in_grace=False)
    line = encode_changes({lock(1).key: lock(1)})
    whole = decode_lock_table(before)
    for kept in range(len(line)):
        for rest in (b"", bytes(len(line) - kept)):
            assert decode_lock_table(before + line[:kept] + rest) == whole
        if kept:
            assert decode_lock_table(before + bytes(kept) + line[kept:]) == whole


@pytest.mark.parametrize("position", [0, 3, 12, 40, 60, 150])
def test_a_changed_byte_before_other_lines_is_damage(position: int) -> None:
    """What was synced cannot be torn, so the file is not trusted."""
    content = bytearray(encode_lock_table(BOOT, [lock(0), lock(1)], in_grace=False) + encode_changes({}))
    content[position] ^= 1
    with pytest.raises(LockTableDamaged, match="byte"):
        decode_lock_table(bytes(content))


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"no table\n", bytes(100), encode_changes({}), encode_lock_table(1, [], in_grace=False)[:-1]],
    ids=["empty", "an empty line", "a text", "zeros", "no head", "half a head"],
)
def test_a_file_without_a_head_is_damage(content: bytes) -> None:
    """A file gets its name when it is whole."""
    with pytest.raises(LockTableDamaged):
        decode_lock_table(content)


def test_verify_finds_damage_of_the_file(tmp_path: Path) -> None:
    """A torn end is what a power cut leaves, and no damage."""
    config = tmp_path / "config"
    config.mkdir()
    content = encode_lock_table(BOOT, [lock(0), lock(1)], in_grace=False)

    def found(data: bytes) -> list[tuple[int, bool]]:
        (config / "lockTable.log").write_bytes(data)
        return [(one.position, one.unfinished) for one in lock_table_damage(OsStorage(), str(tmp_path))]

    assert found(content) == []
    assert found(content + b"torn") == [(len(content), True)]
    assert found(b"?" + content[1:]) == [(0, False)]
