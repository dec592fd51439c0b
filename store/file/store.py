"""A durable message store in files, in RocketMQ's layout.

An append hands the message to the operating system, so it survives the death of the process. A sync makes it survive
that of the machine. With `deferred` a message becomes readable only after its sync, by `make_visible`.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.kernels import QueueRun
from lockstep.protocol.messages.message import MESSAGE_OVERHEAD_BYTES, encode_stored_message
from lockstep.remoting.host.storage import Storage
from lockstep.remoting.logs import EventLog
from lockstep.store.base import AppendResult, GetResult, GetStatus, Passes, Record, StoreFull, TakenTopic, outside
from lockstep.store.data_dir import DataDir
from lockstep.store.file.dropped import move_queues, remove_empty
from lockstep.store.file.lookup import FileLookup
from lockstep.store.file.reader import QueueReader
from lockstep.store.file.repair import EntryRepair
from lockstep.store.file_settings import Arrived, FileStoreSettings, OnArrived, OnTrim
from lockstep.store.format.files import close_all
from lockstep.store.keys.index import KeyIndex
from lockstep.store.run import bytes_at_most, encode_run
from lockstep.store.segments.log import FileLog
from lockstep.store.segments.queue import FileQueue, QueueTable

__all__ = ["FileStore"]

_TAILS_BYTES_MAX: Final = 64 * 1024 * 1024
_QUEUES: Final = "queues"
# Queues of a deleted topic that one step frees: some 8 ms.
_FREED_AT_ONCE: Final = 256


class FileStore(FileLookup):
    """A store in one folder. It is empty until Recovery has opened it.

    Attributes:
        refusal: Why appends are refused now; empty when they are not.
        last_timestamp: Epoch ms when the newest message was stored.
        tails_bytes_max: Limit of queue entries that wait in memory because they cannot be written.
        sync_count: Number of log files synced so far.
    """

    def __init__(
        self, storage: Storage, settings: FileStoreSettings, store_host: bytes, store_port: int, events: EventLog
    ) -> None:
        self.storage = storage
        self.settings = settings
        self.store_host = store_host
        self.store_port = store_port
        log_files = FileLog(storage, settings.folder, settings.log_file_bytes)
        keys = KeyIndex(storage, settings, log_files)
        super().__init__(log_files, keys, QueueTable(), deferred=settings.deferred)
        self.data_dir = DataDir(storage, settings.folder)
        self.events = events
        self.refusal = ""
        self._refusals: dict[str, str] = {}
        self.tails_bytes_max = _TAILS_BYTES_MAX
        self.sync_count = 0
        self.last_timestamp = 0
        self.on_arrived: OnArrived = _nothing
        self.on_trim: OnTrim = _nothing
        self._full = False
        self._waiting: deque[Arrived] = deque()
        self._topic_bytes: dict[str, bytes] = {}
        # Queues whose deletion failed: new ones would find their files.
        self._left: set[tuple[str, int]] = set()
        self._overhead_bytes = MESSAGE_OVERHEAD_BYTES - 8 + len(store_host)
        self.repair = EntryRepair(self.log, events)
        self._reader = QueueReader(self.log, settings, self.repair, self._on_damage)

    def new_queue(self, topic: str, queue_id: int) -> FileQueue:
        """Add a queue to the table. Its files are created by the first write."""
        queue = FileQueue(self.storage, self.settings.folder, topic, queue_id, self.settings.queue_file_bytes)
        queue.segments.before_open = partial(self.queues.before_open, queue)
        queue.must_clear = (topic, queue_id) in self._left
        self._left.discard((topic, queue_id))
        self.queues[topic, queue_id] = queue
        return queue

    # Writing -------------------------------------------------------------------------------------------------

    def append(self, record: Record) -> AppendResult:
        """Store one message. Raises StoreFull if nothing was stored."""
        if self.refusal:
            raise StoreFull(self.refusal)
        topic, queue_id, body, properties = record.topic, record.queue_id, record.body, record.properties
        topic_bytes, queue_offset = self._next_of(topic, queue_id)
        size = self._overhead_bytes + len(record.born_host) + len(body) + len(topic_bytes) + len(properties)
        queue, log = self.queues[topic, queue_id], self.log
        try:
            log.make_room(size)
            commit_log_offset = log.max_offset
            log.append(
                encode_stored_message(
                    record, topic_bytes, queue_offset, commit_log_offset, self.store_host, self.store_port
                )
            )
        except OSError as error:
            raise StoreFull(self._on_write_failed(error)) from None
        if self._full:
            self._on_write_works()
        self.last_timestamp = record.store_timestamp
        queue.next_offset = queue_offset + 1
        if self._deferred:
            arrived = Arrived(topic, queue_id, queue_offset, commit_log_offset, size, record.tags_code)
            self._waiting.append(arrived)
        else:
            queue.append(commit_log_offset, size, record.tags_code)
        return AppendResult(commit_log_offset, queue_offset)

    def append_all(self, records: Sequence[Record]) -> list[AppendResult]:
        if not self.refusal and self.log.has_room(bytes_at_most(records)):
            return self._append_run(records)
        stored: list[AppendResult] = []
        last_timestamp = self.last_timestamp
        try:
            for record in records:
                stored.append(self.append(record))  # noqa: PERF401 - the list is needed when it fails
        except StoreFull:
            if stored:
                self._undo(records, stored)
                self.last_timestamp = last_timestamp
            raise
        return stored

    def _append_run(self, records: Sequence[Record]) -> list[AppendResult]:
        """With one write. Raises StoreFull if nothing was stored."""
        log = self.log
        host = self.store_host, self.store_port
        pieces, places = encode_run(records, self._next_of, log.max_offset, host)
        try:
            log.append_run(b"".join(pieces))
        except OSError as error:
            raise StoreFull(self._on_write_failed(error)) from None
        if self._full:
            self._on_write_works()
        self.last_timestamp = records[-1].store_timestamp
        for record, piece, (commit_log_offset, queue_offset) in zip(records, pieces, places, strict=True):
            topic, queue_id, code = record.topic, record.queue_id, record.tags_code
            queue = self.queues[topic, queue_id]
            queue.next_offset = queue_offset + 1
            if self._deferred:
                arrived = Arrived(topic, queue_id, queue_offset, commit_log_offset, len(piece), code)
                self._waiting.append(arrived)
            else:
                queue.append(commit_log_offset, len(piece), code)
        return places

    def next_offset(self, topic: str, queue_id: int) -> int | None:
        queue = self.queues.get((topic, queue_id))
        return None if queue is None else queue.next_offset

    def append_encoded(self, log: bytes, queues: Sequence[QueueRun], now_ms: int) -> bool:
        if self.refusal or self._deferred or not self.log.has_room(len(log)):
            return False
        try:
            self.log.append_run(log)
        except OSError:
            return False
        if self._full:
            self._on_write_works()
        self.last_timestamp = now_ms
        for topic, queue_id, _, entries in queues:
            self.queues[topic, queue_id].append_entries(entries)
        return True

    def _next_of(self, topic: str, queue_id: int) -> tuple[bytes, int]:
        """The encoded topic, and the offset of the next message of its queue, which is made if needed."""
        topic_bytes = self._topic_bytes.get(topic)
        if topic_bytes is None:
            topic_bytes = self._topic_bytes[topic] = topic.encode("utf-8")
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            queue = self.new_queue(topic, queue_id)
        return topic_bytes, queue.next_offset

    def _undo(self, records: Sequence[Record], stored: Sequence[AppendResult]) -> None:
        """Remove the last messages, which are the first of `records`. They have not been read yet."""
        first = stored[0].commit_log_offset
        while self._waiting and self._waiting[-1].commit_log_offset >= first:
            self._waiting.pop()
        for record, result in reversed(list(zip(records, stored, strict=False))):
            queue = self.queues[record.topic, record.queue_id]
            if not self._deferred:
                queue.drop_last(1)
            queue.next_offset = result.queue_offset
        try:
            self.log.truncate(first)
        except OSError as error:
            self.events.error("append_undo_failed", reason=str(error))

    def _on_write_failed(self, error: OSError) -> str:
        text = f"the message cannot be written to {self.log.place(self.log.max_offset)}: {error.strerror or error}"
        if not self._full:
            self._full = True
            self.events.error("store_write_failed", reason=text)
        return text

    def _on_write_works(self) -> None:
        self._full = False
        self.events.info("store_write_recovered")

    def refuse(self, what: str, reason: str) -> None:
        """Refuse appends because of `what`, or allow them again with an empty reason. All causes must be gone."""
        if reason:
            self._refusals[what] = reason
        else:
            self._refusals.pop(what, None)
        self.refusal = next(iter(self._refusals.values()), "")

    def make_visible(self, log_end: int) -> None:
        """Make messages below `log_end`, which are synced, readable."""
        waiting = self._waiting
        while waiting and waiting[0].commit_log_offset < log_end:
            arrived = waiting.popleft()
            queue = self.queues.get((arrived.topic, arrived.queue_id))
            if queue is not None and queue.max_offset == arrived.queue_offset:
                queue.append(arrived.commit_log_offset, arrived.size_bytes, arrived.tags_code)
                self.on_arrived(arrived)

    def write_tails(self) -> None:
        """Write the waiting entries of all queues. Raises OSError; then they wait on."""
        self.queues.write_tails()

    def bound_tails(self) -> None:
        """Limit the entries that wait in memory: write long tails; if that fails at the limit, refuse appends.

        Call it regularly, since checkpoints, which write all tails, may be far apart.
        """
        tails = self.queues.write_long_tails()
        failed = tails.failure if tails.left_bytes >= self.tails_bytes_max else ""
        if failed and _QUEUES not in self._refusals:
            self.events.error("queue_write_failed", reason=failed)
        elif not failed and _QUEUES in self._refusals:
            self.events.info("queue_write_recovered")
        self.refuse(_QUEUES, failed)

    def drop_topic(self, topic: str) -> None:
        """Delete a topic's queues, and its messages that are not readable yet."""
        taken = self.take_topic(topic)
        for _, queue in taken.queues:
            self.free(queue)
        if taken.is_apart:
            self.end_free()

    def take_topic(self, topic: str) -> TakenTopic[FileQueue]:
        self._waiting = deque([arrived for arrived in self._waiting if arrived.topic != topic])
        queues = [(key[1], self.queues.pop(key)) for key in [key for key in self.queues if key[0] == topic]]
        is_apart = len(queues) > _FREED_AT_ONCE and move_queues(
            self.storage, self.settings.folder, topic, [queue for _, queue in queues]
        )
        return TakenTopic(queues, is_apart)

    def free(self, queue: FileQueue) -> None:
        try:
            queue.delete()
        except OSError as error:
            self.events.error("queue_delete_failed", folder=queue.segments.folder, reason=str(error))
            queue.close()
            self._left.add((queue.topic, queue.queue_id))

    def discard(self, queue: FileQueue) -> None:
        """Delete a queue that has the messages of a deleted topic."""
        del self.queues[queue.topic, queue.queue_id]
        self.free(queue)

    def end_free(self) -> None:
        """Remove the folders of deleted topics that are empty now."""
        remove_empty(self.storage, self.settings.folder)

    def forget_before(self, log_offset: int) -> list[str]:
        """Drop the log and keys below `log_offset`. Returns the paths of files to delete, oldest first."""
        return self.log.forget_before(log_offset) + self.keys.forget_before(self.log.min_offset)

    def trim_to(self, log_offset: int, firsts: Iterable[tuple[FileQueue, int]]) -> None:
        """Move the min offsets of queues past the messages that the log will no longer have.

        Args:
            log_offset: The new beginning of the log.
            firsts: (queue, first entry to keep), as a search of the files found it.
        """
        for queue, first_kept in firsts:
            if not queue.is_deleted:
                before = queue.min_offset
                try:
                    queue.trim(log_offset, first_kept)
                except OSError as error:
                    self.events.error("queue_read_failed", folder=queue.segments.folder, reason=str(error))
                if queue.min_offset > before:
                    self.on_trim(queue.topic, queue.queue_id, before, queue.min_offset)

    def close(self) -> None:
        """Close the files. StoreFlusher.stop makes it a clean shutdown."""
        close_all([self.log.close, self.keys.close, self.queues.close])

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
        queue = self.queues.get((topic, queue_id))
        if queue is None or not queue.max_offset:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        missing = outside(queue, queue_offset)
        if missing is not None:
            return missing
        low, high = queue.min_offset, queue.max_offset
        codes = subscription.code_set if subscription is not None else ()
        if not codes and passes is None:
            run = self._reader.run(queue, queue_offset, max_msg_nums, bulk=bulk)
        else:
            run = self._reader.matching(queue, queue_offset, max_msg_nums, frozenset(codes), passes)
        if run.message_count:
            status = GetStatus.FOUND
        elif not run.examined:
            # The message is being searched for: pull again.
            status = GetStatus.OFFSET_FOUND_NULL
        else:
            status = GetStatus.MESSAGE_WAS_REMOVING if run.lost else GetStatus.NO_MATCHED_MESSAGE
        return GetResult(status, queue_offset + run.examined, low, high, run.body, run.message_count)

    def _on_damage(self, queue: FileQueue, queue_offset: int, commit_log_offset: int, reason: str) -> None:
        self.events.error(
            "message_damaged",
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            place=self.log.place(commit_log_offset) if commit_log_offset >= 0 else "",
            reason=reason,
        )


def _nothing(*_: object) -> None:
    """The default callback."""
