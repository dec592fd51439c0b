"""A bounded message store in memory. When it is full, the oldest segment is dropped and min offsets move."""

from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple

from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.kernels import ENTRY, QueueRun
from lockstep.protocol.messages.message import MESSAGE_OVERHEAD_BYTES, encode_stored_message, text_bytes
from lockstep.store.base import (
    AppendResult,
    GetResult,
    GetStatus,
    KeyQuery,
    Passes,
    QueryResult,
    QueueEntry,
    Record,
    TakenTopic,
    fitting,
    nearest_in_time,
    outside,
)
from lockstep.store.memory.key_query import find_by_key
from lockstep.store.memory.log import CommitLog
from lockstep.store.memory.queue import ConsumeQueue
from lockstep.store.run import encode_run

__all__ = ["MemoryStore", "MemoryStoreSettings"]

# So many queues are looked at in one step, at the last entry of each.
_QUEUES_A_STEP: Final = 4096
_TRIMMED_A_STEP: Final = 512  # queues, some 0.2 ms
# 16000 bytes of 20-byte entries (wire.md 6.3).
SCAN_ENTRIES_MIN: Final = 800

OnEvict = Callable[[str, int, int, int], None]  # topic, queue id, min offset before, min offset now


class MemoryStoreSettings(NamedTuple):
    """`memory_limit_bytes`: of all segments together. The other two bound what one pull reads."""

    memory_limit_bytes: int
    segment_bytes: int
    pull_bytes_max: int
    pull_messages_max: int


class MemoryStore:
    """`store_host` and `store_port`: this broker's address as written into messages and their ids."""

    def __init__(self, settings: MemoryStoreSettings, store_host: bytes, store_port: int, on_evict: OnEvict) -> None:
        self._log = CommitLog(settings.memory_limit_bytes, settings.segment_bytes)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._untrimmed: list[tuple[str, int]] = []  # queues that may have entries of dropped messages
        self._pull_bytes_max = settings.pull_bytes_max
        self._pull_messages_max = settings.pull_messages_max
        self._on_evict = on_evict
        self._topic_bytes: dict[str, bytes] = {}
        self.store_host = store_host
        self.store_port = store_port
        self._overhead_bytes = MESSAGE_OVERHEAD_BYTES - 8 + len(store_host)

    # Writing -------------------------------------------------------------------------------------------------

    def append(self, record: Record) -> AppendResult:
        topic, queue_id, _, _, _, born_host, _, _, _, _, body, properties, code = record
        log = self._log
        topic_bytes, queue_offset = self._next_of(topic, queue_id)
        size_bytes = self._overhead_bytes + len(born_host) + len(body) + len(topic_bytes) + len(properties)
        if not log.has_room(size_bytes):
            self._make_room(size_bytes)
        if self._untrimmed:
            self._trim_some()
        commit_log_offset = log.max_offset
        log.append(
            encode_stored_message(
                record, topic_bytes, queue_offset, commit_log_offset, self.store_host, self.store_port
            )
        )
        self._queues[topic, queue_id].append(commit_log_offset, size_bytes, code)
        return AppendResult(commit_log_offset, queue_offset)

    def append_all(self, records: Sequence[Record]) -> list[AppendResult]:
        log = self._log
        host = self.store_host, self.store_port
        pieces, places = encode_run(records, self._next_of, log.max_offset, host)
        run = b"".join(pieces)
        if log.has_room(len(run)):
            log.append(run)
        else:
            self._append_each(pieces)
        queues = self._queues
        for record, piece, (commit_log_offset, _) in zip(records, pieces, places, strict=True):
            queues[record.topic, record.queue_id].append(commit_log_offset, len(piece), record.tags_code)
        if self._untrimmed:
            self._trim_some()
        return places

    def next_offset(self, topic: str, queue_id: int) -> int | None:
        queue = self._queues.get((topic, queue_id))
        return None if queue is None else queue.max_offset

    def append_encoded(self, log: bytes, queues: Sequence[QueueRun], now_ms: int) -> bool:
        if not self._log.has_room(len(log)):
            return False
        self._log.append(log)
        for topic, queue_id, _, entries in queues:
            append = self._queues[topic, queue_id].append
            for entry in ENTRY.iter_unpack(entries):
                append(*entry)
        if self._untrimmed:
            self._trim_some()
        return True

    def _append_each(self, pieces: Sequence[bytes]) -> None:
        """Write the messages of a batch to several segments: all, or none. Raises StoreFull."""
        log = self._log
        start = log.max_offset
        try:
            for piece in pieces:
                self._make_room(len(piece))
                log.append(piece)
        except BaseException:
            log.truncate(start)
            raise

    def _make_room(self, size_bytes: int) -> None:
        log = self._log
        before = log.min_offset
        try:
            log.make_room(size_bytes)
        finally:
            if log.min_offset != before:
                self._untrimmed = list(reversed(self._queues))

    def _next_of(self, topic: str, queue_id: int) -> tuple[bytes, int]:
        """The encoded topic, and the offset of the next message of its queue, which is made if needed."""
        topic_bytes = self._topic_bytes.get(topic)
        if topic_bytes is None:
            topic_bytes = self._topic_bytes[topic] = topic.encode("utf-8")
        queue = self._queue(topic, queue_id)
        if queue is None:
            queue = self._queues[topic, queue_id] = ConsumeQueue()
        return topic_bytes, queue.max_offset

    def _trim_some(self) -> None:
        """Drop entries of dropped messages, of some queues in one go. The others have it done when they are read."""
        some = self._untrimmed[-_TRIMMED_A_STEP:]
        del self._untrimmed[-_TRIMMED_A_STEP:]
        for key in reversed(some):
            self._queue(*key)

    def _queue(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """A queue with the entries of existing messages alone."""
        queue = self._queues.get((topic, queue_id))
        if queue is not None and queue.sizes and queue.commit_log_offsets[0] < self._log.min_offset:
            before = queue.min_offset
            queue.trim(self._log.min_offset)
            self._on_evict(topic, queue_id, before, queue.min_offset)
        return queue

    def drop_topic(self, topic: str) -> None:
        self.take_topic(topic)

    def take_topic(self, topic: str) -> TakenTopic[ConsumeQueue]:
        keys = [key for key in self._queues if key[0] == topic]
        for key in keys:
            self._queue(*key)
        return TakenTopic([(key[1], self._queues.pop(key)) for key in keys], is_apart=True)

    def free(self, queue: ConsumeQueue) -> None:
        """Nothing is left of a queue that was taken."""

    def end_free(self) -> None:
        """Nothing is left of a topic that was taken."""

    def close(self) -> None:
        """Release the memory."""
        self._log.close()
        self._queues.clear()

    # Reading -------------------------------------------------------------------------------------------------

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_msg_nums: int,
        subscription: SubscriptionData | None,
        passes: Passes | None = None,
        *,
        bulk: bool = False,
    ) -> GetResult:
        queue = self._queue(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        missing = outside(queue, queue_offset)
        if missing is not None:
            return missing
        min_offset, max_offset = queue.min_offset, queue.max_offset
        first = queue_offset - min_offset
        codes = subscription.code_set if subscription is not None else ()
        if not codes and passes is None:
            body, count = self._read_run(queue, first, max_msg_nums, bulk=bulk)
            return GetResult(GetStatus.FOUND, queue_offset + count, min_offset, max_offset, body, count)
        body, count, examined = self._read_matching(queue, first, max_msg_nums, frozenset(codes), passes)
        status = GetStatus.FOUND if count else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, queue_offset + examined, min_offset, max_offset, body, count)

    def _read_run(self, queue: ConsumeQueue, first: int, max_msg_nums: int, *, bulk: bool) -> tuple[bytes, int]:
        """(body, messages) from entry `first` on, up to the limits; at least one message (wire.md 6.3)."""
        messages_max = self._pull_bytes_max // MESSAGE_OVERHEAD_BYTES if bulk else self._pull_messages_max
        sizes = queue.sizes[first : first + max(1, min(max_msg_nums, messages_max))]
        total_bytes = sum(sizes)
        if total_bytes > self._pull_bytes_max:
            sizes = sizes[: fitting(sizes, self._pull_bytes_max)]
            total_bytes = sum(sizes)
        count = len(sizes)
        offsets = queue.commit_log_offsets
        start, last = offsets[first], offsets[first + count - 1]
        if last + sizes[-1] - start == total_bytes and start + total_bytes <= self._log.segment_end(start):
            # The messages are adjacent in the log: one slice.
            return self._log.read(start, total_bytes), count
        read = self._log.read
        return b"".join(map(read, offsets[first : first + count], sizes)), count

    def _read_matching(
        self, queue: ConsumeQueue, first: int, max_msg_nums: int, wanted: frozenset[int], passes: Passes | None
    ) -> tuple[bytes, int, int]:
        """(body, messages, entries examined). As RocketMQ, limits are checked before each entry."""
        offsets, sizes, codes = queue.commit_log_offsets, queue.sizes, queue.tags_codes
        count_max = max(1, min(max_msg_nums, self._pull_messages_max))
        scan_max = max(SCAN_ENTRIES_MIN, max_msg_nums) if passes is None else passes.entries_max
        end = min(len(sizes), first + scan_max)
        pieces: list[bytes] = []
        total_bytes = 0
        text_bytes_left = passes.text_bytes_max if passes is not None else 0
        i = first
        while i < end:
            if pieces and (len(pieces) >= count_max or total_bytes + sizes[i] > self._pull_bytes_max):
                break
            if passes is not None or codes[i] in wanted:
                message = self._log.read(offsets[i], sizes[i])
                if passes is not None:
                    text_bytes_left -= text_bytes(message)
                    if text_bytes_left < 0 and i > first:
                        break
                if passes is None or passes.matches(message):
                    pieces.append(message)
                    total_bytes += sizes[i]
            i += 1
        return b"".join(pieces), len(pieces), i - first

    # Looking up ----------------------------------------------------------------------------------------------

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queue(topic, queue_id)
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queue(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def recovered_offset(self, topic: str, queue_id: int) -> int:
        return 0

    def queue_keys(self) -> list[tuple[str, int]]:
        return list(self._queues)

    def max_offsets(self) -> dict[tuple[str, int], int]:
        return {key: queue.max_offset for key, queue in self._queues.items()}

    def stored_bytes(self, topic: str, queue_id: int, first_offset: int, end_offset: int) -> int:
        queue = self._queue(topic, queue_id)
        return queue.stored_bytes(first_offset, end_offset) if queue is not None else 0

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        queue = self._queue(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return None
        return self._log.store_timestamp(queue.commit_log_offsets[queue_offset - queue.min_offset])

    def offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """0 for an empty or unknown queue; the offset of the next message if all messages expired."""
        queue = self._queue(topic, queue_id)
        if queue is None:
            return 0
        if not queue.sizes:
            return queue.min_offset
        return queue.min_offset + nearest_in_time(queue.commit_log_offsets, timestamp, self._log.store_timestamp)

    def entries(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[QueueEntry]:
        queue = self._queue(topic, queue_id)
        if queue is None or queue_offset < queue.min_offset:
            return []
        first = queue_offset - queue.min_offset
        last = first + max(0, count)
        columns = (queue.commit_log_offsets[first:last], queue.sizes[first:last], queue.tags_codes[first:last])
        return [QueueEntry(*entry) for entry in zip(*columns, strict=True)]

    # The log as a whole --------------------------------------------------------------------------------------

    def message_at(self, commit_log_offset: int) -> bytes | None:
        return self._log.message_at(commit_log_offset)

    def query(self, query: KeyQuery) -> Generator[None, None, QueryResult]:
        keys = [key for key in self._queues if key[0] == query.topic]
        queues = [queue for key in keys if (queue := self._queue(*key)) is not None and queue.sizes]
        messages = yield from find_by_key(self._log, queues, query)
        last, everywhere = -1, list(self._queues.values())
        for start in range(0, len(everywhere), _QUEUES_A_STEP):
            yield None
            some = everywhere[start : start + _QUEUES_A_STEP]
            last = max(last, *[queue.commit_log_offsets[-1] for queue in some if queue.sizes], -1)
        if last < self._log.min_offset:
            # No message, or it was dropped between two steps.
            return QueryResult(messages, 0, 0)
        return QueryResult(messages, self._log.store_timestamp(last), last)

    @property
    def min_commit_log_offset(self) -> int:
        return self._log.min_offset

    @property
    def max_commit_log_offset(self) -> int:
        return self._log.max_offset

    def earliest_timestamp(self) -> int | None:
        log = self._log
        return log.store_timestamp(log.min_offset) if log.max_offset > log.min_offset else None
