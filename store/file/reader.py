"""Reads messages for pulls: the entries of a queue, and the messages that they point to."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from lockstep.protocol.messages.message import MESSAGE_OVERHEAD_BYTES, text_bytes
from lockstep.store.base import Passes, fitting
from lockstep.store.file.repair import EntryRepair, SearchRunning
from lockstep.store.file_settings import FileStoreSettings
from lockstep.store.format.layout import ENTRY
from lockstep.store.format.record import LogRecord, parse_record
from lockstep.store.segments.log import FileLog
from lockstep.store.segments.queue import FileQueue

__all__ = ["QueueReader", "Run"]

# 16000 bytes of 20-byte entries (wire.md 6.3).
SCAN_ENTRIES_MIN: Final = 800


OnDamage = Callable[[FileQueue, int, int, str], None]  # queue, queue offset, commit log offset, reason


class Run(NamedTuple):
    """The result of a read.

    Attributes:
        examined: Number of entries read; 0 while the message of the first one is being searched for.
        lost: Number of entries whose message is lost.
    """

    body: bytes
    message_count: int
    examined: int
    lost: int


class QueueReader:
    """`on_damage` is called for each message of an earlier process that is lost."""

    def __init__(self, log: FileLog, settings: FileStoreSettings, repair: EntryRepair, on_damage: OnDamage) -> None:
        self._repair = repair
        self._log = log
        self._pull_bytes_max = settings.pull_bytes_max
        self._pull_messages_max = settings.pull_messages_max
        self._on_damage = on_damage

    def run(self, queue: FileQueue, first: int, max_msg_nums: int, *, bulk: bool) -> Run:
        """The messages from `first` on, up to the limits; at least one (wire.md 6.3)."""
        log = self._log
        messages_max = self._pull_bytes_max // MESSAGE_OVERHEAD_BYTES if bulk else self._pull_messages_max
        count_max = max(1, min(max_msg_nums, messages_max))
        entries = list(ENTRY.iter_unpack(queue.read(first, count_max)))
        sizes = [size for _, size, _ in entries]
        total_bytes = sum(sizes)
        if total_bytes > self._pull_bytes_max:
            entries = entries[: fitting(sizes, self._pull_bytes_max)]
            total_bytes = sum(sizes[: len(entries)])
        if first >= queue.trusted_from:
            start = entries[0][0]
            last, last_size, _ = entries[-1]
            if last + last_size - start == total_bytes and start + total_bytes <= log.segment_end(start):
                # The messages are adjacent in the log: one read.
                return Run(log.read(start, total_bytes), len(entries), len(entries), 0)
            pieces = [log.read(offset, size) for offset, size, _ in entries]
            return Run(b"".join(pieces), len(pieces), len(entries), 0)
        pieces, examined = self._checked(queue, entries, first)
        return Run(b"".join(pieces), len(pieces), examined, examined - len(pieces))

    def matching(
        self, queue: FileQueue, first: int, max_msg_nums: int, wanted: frozenset[int], passes: Passes | None
    ) -> Run:
        """The messages that pass, or whose tag hash is wanted. As RocketMQ, limits are checked before each entry."""
        count_max = max(1, min(max_msg_nums, self._pull_messages_max))
        scan_max = max(SCAN_ENTRIES_MIN, max_msg_nums) if passes is None else passes.entries_max
        pieces: list[bytes] = []
        total_bytes = examined = lost = 0
        text_bytes_left = passes.text_bytes_max if passes is not None else 0
        for entry in ENTRY.iter_unpack(queue.read(first, scan_max)):
            offset, size, code = entry
            if pieces and (len(pieces) >= count_max or total_bytes + size > self._pull_bytes_max):
                break
            if passes is not None or code in wanted or size <= 0:
                trusted = first + examined >= queue.trusted_from
                if trusted:
                    found, looked_at = [self._log.read(offset, size)], 1
                else:
                    found, looked_at = self._checked(queue, [entry], first + examined)
                if not looked_at:
                    break
                if found and passes is not None:
                    text_bytes_left -= text_bytes(found[0])
                    if text_bytes_left < 0 and examined:
                        break
                lost += not found
                if found and (passes is None or passes.matches(found[0])):
                    pieces += found
                    total_bytes += size
            examined += 1
        return Run(b"".join(pieces), len(pieces), examined, lost)

    def _checked(
        self, queue: FileQueue, entries: Sequence[tuple[int, int, int]], first: int
    ) -> tuple[list[bytes], int]:
        """(messages, number of entries used): the messages that match their entries, up to one still searched for.

        Adjacent messages are read from the log at once.
        """
        pieces: list[bytes] = []
        buffer, buffer_start = b"", 0
        for i, (offset, size, _) in enumerate(entries):
            if size > 0 and 0 <= offset < self._log.min_offset:
                continue
                # The message expired; the queue is not trimmed yet.
            reason: LogRecord | str = "the entry points to no message"
            if size > 0 and self._log.min_offset <= offset and offset + size <= self._log.segment_end(offset):
                if not buffer_start <= offset <= buffer_start + len(buffer) - size:
                    buffer, buffer_start = self._read_ahead(entries[i:]), offset
                at = offset - buffer_start
                reason = parse_record(buffer, at, offset)
                if isinstance(reason, LogRecord):
                    if reason.size_bytes == size and queue.has(reason, first + i):
                        pieces.append(buffer[at : at + size])
                        continue
                    reason = "the entry points to another message"
            try:
                mended = self._repair.message_of(queue, first + i)
            except SearchRunning:
                return pieces, i
            if mended is not None:
                pieces.append(mended)
            else:
                self._on_damage(queue, first + i, offset, str(reason))
        return pieces, len(entries)

    def _read_ahead(self, entries: Sequence[tuple[int, int, int]]) -> bytes:
        """The bytes of the first message and of those that follow it without a gap."""
        start, end, _ = entries[0]
        end += start
        limit = self._log.segment_end(start)
        for offset, size, _ in entries[1:]:
            if offset != end or size <= 0 or offset + size > limit:
                break
            end += size
        return self._log.read(start, end - start)
