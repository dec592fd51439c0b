"""The commit log in files: all messages of a broker, one after the other (wire.md 5)."""

import contextlib
from collections.abc import Iterator

from lockstep.protocol.messages.message import MESSAGE_OVERHEAD_BYTES
from lockstep.remoting.host.storage import Storage, StoredFile
from lockstep.store.format.layout import COMMIT_LOG, FILE_END_BYTES, encode_padding
from lockstep.store.format.log_records import next_record, record_starts
from lockstep.store.format.record import STORED_AT_BYTES, parse_record, size_at, stored_at
from lockstep.store.segments.segments import Segments

__all__ = ["FileLog"]


class FileLog:
    """Addressed by commit log offset.

    Attributes:
        synced_offset: Messages below it survive a crash of the machine.
    """

    def __init__(self, storage: Storage, folder: str, file_bytes: int) -> None:
        self.segments = Segments(storage, folder, COMMIT_LOG, file_bytes)
        self.max_offset = 0
        self.synced_offset = 0
        self.min_offset = 0
        self._active: StoredFile | None = None
        self._active_start = 0
        self._active_end = 0  # the highest offset at which a message of this file may end

    def load(self) -> None:
        """Raises StoreUnusable and OSError."""
        self.segments.load()
        self.min_offset = self.segments.starts[0] if self.segments.starts else 0

    def begin_at(self, offset: int, *, cut: bool) -> None:
        """The next message goes to `offset`. `cut`: zero what is written there now. Raises OSError."""
        # Zeros end the log: a scan stops at the first size of 0.
        if cut:
            self.segments.cut(offset)
        self.max_offset = offset
        self.synced_offset = offset
        self.min_offset = self.segments.starts[0] if self.segments.starts else offset
        self._active = None
        if self.segments.has(offset):
            self._activate(offset)

    # Writing -------------------------------------------------------------------------------------------------

    def make_room(self, size_bytes: int) -> None:
        """Make `max_offset` a place with room for the next message, in a new file if needed. Raises OSError."""
        if self.max_offset + size_bytes <= self._active_end and self._active is not None:
            return
        if self._active is None:
            self._activate(self.max_offset)
            if self.max_offset + size_bytes <= self._active_end:
                return
        file_end = self._active_end + FILE_END_BYTES
        # First the new file, then the padding: a full disk leaves the log unchanged.
        self.segments.add(file_end)
        self.segments.write(self.max_offset, encode_padding(file_end - self.max_offset))
        self.max_offset = file_end
        self._activate(file_end)

    def _activate(self, offset: int) -> None:
        start = self.segments.start_of(offset)
        self._active = self.segments.add(start)
        self._active_start = start
        self._active_end = start + self.segments.file_bytes - FILE_END_BYTES

    def has_room(self, size_bytes: int) -> bool:
        """Whether messages of so many bytes fit where the next one goes."""
        return self._active is not None and self.max_offset + size_bytes <= self._active_end

    def append_run(self, records: bytes) -> None:
        """Write several messages at `max_offset`, after `has_room`. Raises OSError, then nothing was appended."""
        try:
            self.append(records)
        except OSError:
            with contextlib.suppress(OSError):
                # The first of them may stand there; a recovery must not find them.
                self.segments.write(self.max_offset, bytes(len(records)))
            raise

    def append(self, record: bytes) -> None:
        """Write a message at `max_offset`, after `make_room`. Raises OSError, then nothing was appended."""
        file = self._active
        assert file is not None
        file.write_at(self.max_offset - self._active_start, record)
        # Only now: after an error the next message is written to the same place.
        self.max_offset += len(record)

    def truncate(self, offset: int) -> None:
        """Undo the appends from `offset` on: zeros stand there again.

        Raises OSError when they cannot be written. The messages are not read again by this process even then.
        """
        # First the end, then the zeros: nobody reads the part even if the disk refuses them.
        end, self.max_offset = self.max_offset, offset
        if offset < self._active_start:
            self._activate(offset)
        for start, piece_end in self.segments.pieces(offset, end):
            self.segments.write(start, bytes(piece_end - start))

    def mark_unsynced(self, offset: int) -> None:
        """Sync everything from `offset` on with the next round, although it can be read: it may be in memory alone."""
        for start, _ in self.segments.pieces(offset, self.max_offset):
            self.segments.mark_written(self.segments.start_of(start))
        if self.segments.starts:
            self.segments.mark_names_unsynced()

    def take_dirty(self) -> tuple[list[StoredFile], list[str]]:
        """(files, folders) to sync to make everything below `max_offset` safe."""
        if self.max_offset > self.synced_offset and self._active is not None:
            self.segments.mark_written(self._active_start)
        return self.segments.take_dirty()

    # Reading -------------------------------------------------------------------------------------------------

    def read(self, offset: int, size_bytes: int) -> bytes:
        """`size_bytes` from `offset` on, within one file. Raises OSError."""
        if offset >= self._active_start and self._active is not None:
            return self._active.read_at(offset - self._active_start, size_bytes)
        return self.segments.read(offset, size_bytes)

    def segment_end(self, offset: int) -> int:
        """The end of what one `read` from `offset` may read."""
        return min(self.max_offset, self.segments.start_of(offset) + self.segments.file_bytes)

    def message_at(self, offset: int) -> bytes | None:
        """The message that begins at `offset`; None when none does. Raises OSError."""
        if not self.min_offset <= offset < self.max_offset:
            return None
        left_bytes = self.segment_end(offset) - offset
        if left_bytes < MESSAGE_OVERHEAD_BYTES:
            return None
        size = size_at(self.read(offset, MESSAGE_OVERHEAD_BYTES), offset, left_bytes)
        if size is None:
            return None
        message = self.read(offset, size)
        return None if isinstance(parse_record(message, 0, offset), str) else message

    def message_around(self, offset: int) -> int | None:
        """The start of the message that contains this byte; None when none does. Raises OSError."""
        for start in record_starts(self.segments, offset):
            message = self.message_at(start)
            if message is not None:
                return start if offset < start + len(message) else None
        return None

    def store_timestamp(self, offset: int) -> int:
        """Epoch ms when the message at `offset` was stored. Raises OSError."""
        return stored_at(self.read(offset, STORED_AT_BYTES))

    def after_damage(self, offset: int, end: int) -> int:
        """The start of the next message behind the damage at `offset`; `end` when there is none below `end`."""
        following = next_record(self.segments, offset + 1, end)
        return end if following is None else following

    def place(self, offset: int) -> str:
        """For example "FOLDER/commitlog/00000000000000000000, byte 1234"."""
        return f"{self.segments.path_of(offset)}, byte {offset - self.segments.start_of(offset)}"

    # Retention -------------------------------------------------------------------------------------------------

    def file_ends(self) -> Iterator[tuple[int, int]]:
        """(start, end) of each file except the active one, oldest first."""
        for start in self.segments.starts:
            if start < self._active_start:
                yield start, start + self.segments.file_bytes

    def forget_before(self, offset: int) -> list[str]:
        """Drop whole files below `offset`, never the active one. Returns their paths; the caller deletes them."""
        gone = self.segments.forget_before(min(offset, self._active_start))
        self.min_offset = self.segments.starts[0] if self.segments.starts else self.max_offset
        return gone

    def close(self) -> None:
        self.segments.close()
        self._active = None
