"""The index of keys, in RocketMQ's index files, filled in the background (docs/store.md).

A send does not wait for the index. A query searches the newest part of the log for messages that are not indexed yet.
Only a broker under full load, or one that rebuilds its index, is further behind than that part.
"""

from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from lockstep.protocol.codes import SysFlag
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.remoting.host.storage import Storage, StoredFile
from lockstep.store.base import KEY_QUERY_MESSAGE_COST, KEY_QUERY_STEP_BYTES, KeyQuery
from lockstep.store.file_settings import FileStoreSettings
from lockstep.store.format.files import close_all, names_in
from lockstep.store.format.index import key_hash, keys_of
from lockstep.store.format.layout import INDEX
from lockstep.store.format.log_records import LogScan
from lockstep.store.format.record import LogRecord
from lockstep.store.keys.index_file import IndexFile
from lockstep.store.keys.search import find_key
from lockstep.store.segments.log import FileLog

__all__ = ["KeyIndex"]

_TRANSACTION: Final = int(SysFlag.TRANSACTION_MASK)
_ROLLED_BACK: Final = int(SysFlag.TRANSACTION_MASK)
_NAME_DIGITS: Final = 17
# The end of the year 9999.
_NAMED_MS_MAX: Final = 253_402_300_799_999
_CHUNK_BYTES: Final = 256 * 1024
# A piece of the log takes as long.
_STEP: Final = (None,) * (KEY_QUERY_STEP_BYTES // KEY_QUERY_MESSAGE_COST)
_SEARCHED_BYTES_MAX: Final = 16 * 1024 * 1024


class KeyIndex:
    """The index files of a store.

    Attributes:
        indexed_offset: Keys of messages below this commit log offset are in the index.
        indexed_timestamp: Epoch ms when the last of these messages was stored.
    """

    def __init__(self, storage: Storage, settings: FileStoreSettings, log: FileLog) -> None:
        self._storage = storage
        self._folder = f"{settings.folder}/{INDEX}"
        self._log = log
        self._slot_count = settings.index_slot_count
        self._item_count = settings.index_item_count
        self._files: list[IndexFile] = []
        self._new_names = False
        self.indexed_offset = 0
        self.indexed_timestamp = 0
        self._put_offset = 0  # the same, counting entries that are in memory only

    def load(self, indexed_offset: int | None, indexed_timestamp: int, *, crashed: bool) -> None:
        """Open the index files. After a crash, files written since the checkpoint are deleted and rebuilt.

        Raises OSError.

        Args:
            indexed_offset: From the checkpoint; None if it has only RocketMQ's `indexed_timestamp`.
        """
        self.indexed_offset = indexed_offset or self._log.min_offset
        for name in names_in(self._storage, self._folder):
            if len(name) == _NAME_DIGITS and name.isdecimal():
                self._load(name, indexed_offset, indexed_timestamp, crashed)
        if indexed_offset is None and self._files and not crashed:
            self.indexed_offset = self._files[-1].header.last_offset
        self.indexed_offset = min(max(self.indexed_offset, self._log.min_offset), self._log.max_offset)
        self._put_offset = self.indexed_offset

    def _load(self, name: str, indexed_offset: int | None, indexed_timestamp: int, crashed: bool) -> None:
        path = f"{self._folder}/{name}"
        file = IndexFile(self._storage, path, self._slot_count, self._item_count)
        try:
            is_kept = self._look_at(file, indexed_offset, indexed_timestamp, crashed)
        except BaseException:
            file.close()
            raise
        if is_kept:
            self._files.append(file)
            return
        file.close()
        self._storage.delete(path)
        self._new_names = True

    def _look_at(self, file: IndexFile, indexed_offset: int | None, indexed_timestamp: int, crashed: bool) -> bool:
        """Whether the index file can be used; otherwise its keys are entered again."""
        good = file.load()
        header = file.header
        late = (
            header.last_timestamp > indexed_timestamp
            if indexed_offset is None
            else header.last_offset >= indexed_offset
        )
        unsafe = crashed and (late or (good and file.slots_are_ahead()))
        # A part of it may not be on the disk.
        if good and not unsafe and header.last_offset < self._log.max_offset:
            return True
        if header.next_item > 1:
            self.indexed_offset = min(self.indexed_offset, max(0, header.first_offset))
        return False

    # Filling -------------------------------------------------------------------------------------------------

    def catch_up(self, end: int, count_max: int) -> bool:
        """Enter the keys of up to `count_max` messages below `end`. Returns whether more are left. Raises OSError."""
        self._write_out()  # entries whose last write failed
        position = max(self._put_offset, self._log.min_offset)
        if position >= end:
            return False
        scan = LogScan(self._log.segments, position, end, _CHUNK_BYTES)
        count = 0
        for record in scan:
            if count == count_max:
                break
            self._enter(record)
            self._put_offset = record.offset + record.size_bytes
            count += 1
        if count < count_max:
            self._put_offset = scan.position
            if scan.position < end:
                self._put_offset = self._log.after_damage(scan.position, end)
        self._write_out()
        return self._put_offset < end

    def _write_out(self) -> None:
        for file in self._files:
            file.write_out()
        self.indexed_offset = self._put_offset

    def _enter(self, record: LogRecord) -> None:
        self.indexed_timestamp = record.store_timestamp
        if record.sys_flag & _TRANSACTION == _ROLLED_BACK:
            return
        for key in keys_of(record.properties):
            if not self._files or self._files[-1].is_full:
                self._add(record.store_timestamp)
            self._files[-1].put(key_hash(record.topic, key), record.offset, record.store_timestamp)

    def _add(self, at_ms: int) -> None:
        name = _time_name(at_ms)
        if self._files:
            self._files[-1].write_out()
            name = max(name, str(int(self._files[-1].path.rpartition("/")[2]) + 1))
        file = IndexFile(self._storage, f"{self._folder}/{name}", self._slot_count, self._item_count)
        file.make()
        self._files.append(file)
        self._new_names = True

    def take_dirty(self) -> tuple[list[StoredFile], list[str]]:
        """(files, folders) that were changed since the last call and have to be synced."""
        files = [stored for file in self._files if (stored := file.take_dirty()) is not None]
        folders = [self._folder] if self._new_names else []
        self._new_names = False
        return files, folders

    def forget_before(self, log_offset: int) -> list[str]:
        """As if files whose messages are all gone were deleted. Returns their paths, the oldest first."""
        paths = []
        while len(self._files) > 1 and self._files[0].header.last_offset < log_offset:
            file = self._files.pop(0)
            file.close()
            paths.append(file.path)
            self._new_names = True
        return paths

    def close(self) -> None:
        close_all([file.close for file in self._files])

    # Queries --------------------------------------------------------------------------------------------------

    def find(
        self, query: KeyQuery, log_end: int, is_kept: Callable[[MessageExt], bool]
    ) -> Generator[None, None, list[bytes]]:
        """The messages that the query asks for, of those below `log_end`, oldest first, in steps. Raises OSError."""
        if not query.key or query.max_num <= 0:
            return []
        found: dict[int, bytes] = {}
        looked_at = 0
        for offset in self._candidates(query.topic, query.key, log_end):
            looked_at += KEY_QUERY_MESSAGE_COST
            if looked_at >= KEY_QUERY_STEP_BYTES:
                looked_at = 0
                yield None
            if offset is None:
                continue
            message = self._log.message_at(offset) if offset not in found and offset < log_end else None
            if message is not None:
                looked_at += len(message)
                decoded = decode_messages(message, unzip=False)[0]
                if query.matches(decoded) and is_kept(decoded):
                    found[offset] = message
                    if len(found) == query.max_num:
                        break
        return [found[offset] for offset in sorted(found)]

    def _candidates(self, topic: str, key: str, log_end: int) -> Iterator[int | None]:
        """Offsets of messages that may have the key, newest first, and a None now and then."""
        yield from self._not_entered(key, log_end)
        wanted = key_hash(topic, key)
        for file in list(reversed(self._files)):
            yield from file.offsets_of(wanted)

    def _not_entered(self, key: str, log_end: int) -> Iterator[int | None]:
        """Messages that may have the key and are not in the index yet, newest first: by a search of the log's end.

        The search is limited, so that other requests do not wait for long.
        """
        segments, wanted = self._log.segments, key.encode("utf-8", "replace")
        start = max(self.indexed_offset, self._log.min_offset, log_end - _SEARCHED_BYTES_MAX)
        found_at = log_end
        for piece_start, piece_end in reversed(list(segments.pieces(start, log_end))):
            for at in find_key(segments.read, wanted, piece_start, piece_end):
                if at is None:
                    yield from _STEP
                elif at < found_at:
                    offset = self._log.message_around(at)
                    if offset is not None:
                        found_at = offset
                        yield offset


def _time_name(epoch_ms: int) -> str:
    """For example "20261121000000000"; in UTC, so that names are ascending everywhere."""
    # It may be damaged: no CRC covers it.
    epoch_ms = min(max(0, epoch_ms), _NAMED_MS_MAX)
    date = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=epoch_ms)
    return f"{date:%Y%m%d%H%M%S}{epoch_ms % 1000:03d}"
