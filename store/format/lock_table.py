"""The file of fenced locks, `config/lockTable.log`, which RocketMQ does not have (docs/store.md).

Each line is one write: CRC-32 of the rest as 8 hex digits, a space, JSON. The first line is the header.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from lockstep.protocol.epochs import boot_of, epoch_text, parse_epoch
from lockstep.protocol.model import MessageQueue

__all__ = [
    "LOCK_TABLE",
    "LockKey",
    "LockTable",
    "LockTableDamaged",
    "StoredLock",
    "decode_lock_table",
    "encode_changes",
    "encode_lock_table",
]

LOCK_TABLE: Final = "lockTable.log"
_ROWS_A_LINE: Final = 1000
_CRC_DIGITS: Final = 8

LockKey = tuple[str, str, int]  # consumer group, topic, queue id


class StoredLock(NamedTuple):
    """A period of ownership. `committed_offset`: of its group and queue when it began; -1 for none.

    `fenced`: its owner sends epochs; otherwise it is an unmodified client.
    """

    consumer_group: str
    queue: MessageQueue
    client_id: str
    fenced: bool
    epoch: int
    lease_ms: int
    acquired_ms: int
    committed_offset: int = -1

    @property
    def key(self) -> LockKey:
        return self.consumer_group, self.queue.topic, self.queue.queue_id


class LockTable(NamedTuple):
    """What a file holds.

    Args:
        boot: The highest boot of an epoch that may have been given.
        in_grace: The run that wrote the file had begun without a table, and its grace period was not over.
        locks: The last period of each queue that has not been freed.
        end: Where the readable lines end. What follows is the rest of one write that a power cut tore.
    """

    boot: int
    in_grace: bool
    locks: Mapping[LockKey, StoredLock]
    end: int


class LockTableDamaged(Exception):
    """A line in the middle of the file is not what was written; the text says where."""


def encode_lock_table(boot: int, locks: Iterable[StoredLock], *, in_grace: bool) -> bytes:
    """A whole file."""
    rows = [_to_row(lock) for lock in locks]
    lines = [_line({"boot": boot, "grace": in_grace})]
    lines += [_line({"locks": rows[at : at + _ROWS_A_LINE]}) for at in range(0, len(rows), _ROWS_A_LINE)]
    return b"".join(lines)


def encode_changes(changes: Mapping[LockKey, StoredLock | None]) -> bytes:
    """One line to append: new periods, and None for queues that were freed."""
    locks = [_to_row(lock) for lock in changes.values() if lock is not None]
    return _line({"freed": [key for key, lock in changes.items() if lock is None], "locks": locks})


def decode_lock_table(content: bytes) -> LockTable:
    """Raises LockTableDamaged."""
    locks: dict[LockKey, StoredLock] = {}
    header: dict[str, Any] = {}
    boot = position = 0
    for line in content.splitlines(keepends=True):
        try:
            wire = _read_line(line)
            if not header:
                header = {"boot": int(wire["boot"]), "grace": bool(wire["grace"])}
                boot = header["boot"]
            for lock in map(_from_row, wire.get("locks", ())):
                locks[lock.key] = lock
                boot = max(boot, boot_of(lock.epoch))
            for group, topic, queue_id in wire.get("freed", ()):
                locks.pop((group, topic, queue_id), None)
        except (ValueError, KeyError, TypeError) as error:
            if header and not _is_followed(content, position):
                break
            raise LockTableDamaged(f"byte {position}: {error}") from None
        position += len(line)
    if not header:
        raise LockTableDamaged("it is empty")
    return LockTable(boot, header["grace"], locks, position)


def _line(wire: Mapping[str, Any]) -> bytes:
    text = json.dumps(wire, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read_line(line: bytes) -> dict[str, Any]:
    crc, text = line[:_CRC_DIGITS], line[_CRC_DIGITS + 1 : -1]
    if not line.endswith(b"\n") or crc != b"%08x" % zlib.crc32(text):
        raise ValueError("a line does not have its CRC")
    wire = json.loads(text)
    if not isinstance(wire, dict):
        raise ValueError("a line is no object")
    return wire


def _is_followed(content: bytes, position: int) -> bool:
    """Whether a line that was written later can be read. A torn write is the last one of its file."""
    for line in content[position:].splitlines(keepends=True)[1:]:
        try:
            _read_line(line)
        except ValueError:
            continue
        return True
    return False


def _to_row(lock: StoredLock) -> list[Any]:
    group, queue, client_id, fenced, epoch, lease_ms, acquired_ms, offset = lock
    return [group, *queue, client_id, fenced, epoch_text(epoch), lease_ms, acquired_ms, offset]


def _from_row(row: Any) -> StoredLock:
    group, topic, broker_name, queue_id, client_id, fenced, epoch, lease_ms, acquired_ms, offset = row
    queue = MessageQueue(str(topic), str(broker_name), int(queue_id))
    times = int(lease_ms), int(acquired_ms)
    return StoredLock(str(group), queue, str(client_id), bool(fenced), parse_epoch(epoch), *times, int(offset))
