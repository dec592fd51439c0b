"""Lookups in a store in files: bounds, times, entries, keys."""

from collections.abc import Generator
from typing import Final

from lockstep.protocol.messages.message import MessageExt
from lockstep.store.base import KeyQuery, QueryResult, QueueEntry, nearest_in_time
from lockstep.store.keys.index import KeyIndex
from lockstep.store.segments.log import FileLog
from lockstep.store.segments.queue import QueueTable

__all__ = ["FileLookup"]

_QUEUES_A_STEP: Final = 64  # each may open a file


class FileLookup:
    """`deferred`: messages become readable only when they are on the disk."""

    def __init__(self, log: FileLog, keys: KeyIndex, queues: QueueTable, *, deferred: bool) -> None:
        self.log = log
        self.keys = keys
        self.queues = queues
        self._deferred = deferred

    @property
    def visible_end(self) -> int:
        """Messages below this commit log offset can be read."""
        return self.log.synced_offset if self._deferred else self.log.max_offset

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self.queues.get((topic, queue_id))
        return queue.min_offset if queue is not None else 0

    def recovered_offset(self, topic: str, queue_id: int) -> int:
        queue = self.queues.get((topic, queue_id))
        return queue.trusted_from if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        queue = self.queues.get((topic, queue_id))
        return queue.max_offset if queue is not None else 0

    def queue_keys(self) -> list[tuple[str, int]]:
        return list(self.queues)

    def max_offsets(self) -> dict[tuple[str, int], int]:
        return {key: queue.max_offset for key, queue in self.queues.items()}

    def stored_bytes(self, topic: str, queue_id: int, first_offset: int, end_offset: int) -> int:
        queue = self.queues.get((topic, queue_id))
        return queue.stored_bytes(first_offset, end_offset) if queue is not None else 0

    def store_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        queue = self.queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset:
            return None
        return self.log.store_timestamp(queue[queue_offset - queue.min_offset])

    def offset_at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """0 for an empty or unknown queue; the offset of the next message if all messages expired."""
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            return 0
        if not len(queue):
            return queue.min_offset
        return queue.min_offset + nearest_in_time(queue, timestamp, self.log.store_timestamp)

    def entries(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[QueueEntry]:
        queue = self.queues.get((topic, queue_id))
        if queue is None or not queue.min_offset <= queue_offset < queue.max_offset or count <= 0:
            return []
        return queue.entries(queue_offset, count)

    # The log as a whole --------------------------------------------------------------------------------------

    def message_at(self, commit_log_offset: int) -> bytes | None:
        return self.log.message_at(commit_log_offset)

    def query(self, query: KeyQuery) -> Generator[None, None, QueryResult]:
        messages = yield from self.keys.find(query, self.visible_end, self._is_kept)
        last = None
        for number, queue in enumerate(list(self.queues.values()), 1):
            if len(queue) and not queue.is_deleted:
                offset = queue.entries(queue.max_offset - 1, 1)[0].commit_log_offset
                last = offset if last is None else max(last, offset)
            if number % _QUEUES_A_STEP == 0:
                yield None
        return QueryResult(messages, 0 if last is None else self.log.store_timestamp(last), last or 0)

    def _is_kept(self, message: MessageExt) -> bool:
        """Is it still in its queue? Its topic may have been deleted and created again."""
        found = self.entries(message.topic, message.queue_id, message.queue_offset, 1)
        return bool(found) and found[0].commit_log_offset == message.commit_log_offset

    @property
    def min_commit_log_offset(self) -> int:
        return self.log.min_offset

    @property
    def max_commit_log_offset(self) -> int:
        return self.log.max_offset

    def earliest_timestamp(self) -> int | None:
        log = self.log
        return log.store_timestamp(log.min_offset) if log.max_offset > log.min_offset else None
