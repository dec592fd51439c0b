"""Opens a broker's folder: recovers messages and tables, and resumes from them."""

from collections.abc import Callable
from functools import partial
from typing import Final

from lockstep.broker.catalog.topics import QUEUE_NUMS_MAX
from lockstep.broker.config import BrokerConfig
from lockstep.broker.delay_levels import parse_delay_levels
from lockstep.broker.messages.delays.recovery import count_delivered, count_timed
from lockstep.broker.messages.delays.timers import timer_of
from lockstep.broker.messages.pop.journal import replay_journal
from lockstep.broker.messages.pop.revive_log import REVIVE_GROUP, read_revive_log, revive_topic
from lockstep.broker.messages.transactions.half_messages import HalfMessage
from lockstep.broker.messages.transactions.recovery import mark_of, open_halves, undecided_queues, unmarked
from lockstep.broker.ownership.port import KeptLocks
from lockstep.broker.persistence.config_files import BrokerTables, ConfigFiles
from lockstep.broker.persistence.lock_table import LockTableFile
from lockstep.protocol.bodies.broker import DataVersion, TopicConfig
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.filter import tags_code
from lockstep.protocol.messages import properties as names
from lockstep.protocol.messages.properties import decode_properties
from lockstep.protocol.names import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    POP_JOURNAL_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_GIVEN_UP_TOPIC,
    check_topic,
)
from lockstep.remoting.host.storage import DiskSpace, Storage
from lockstep.remoting.logs import EventLog
from lockstep.store import StoreFull
from lockstep.store.durability.recovery import Recovery
from lockstep.store.errors import StoreUnusable
from lockstep.store.file.dropped import delete_left_queues
from lockstep.store.file.store import FileStore
from lockstep.store.file_settings import Arrived, FileStoreSettings, OnTrim
from lockstep.store.format.files import queue_folders
from lockstep.store.format.lock_table import LockTable
from lockstep.store.format.record import LogRecord

__all__ = ["BrokerTables", "DurableStore", "FileStore", "new_file_store"]

_TAGS = names.TAGS.encode()

_MADE_WHEN_NEEDED: Final = frozenset(
    {HALF_TOPIC, OP_HALF_TOPIC, POP_JOURNAL_TOPIC, TIMER_TOPIC, TRANSACTION_GIVEN_UP_TOPIC}
)
_REVIVE: Final = revive_topic("")
# Of these the table has none: nobody reads them from outside.
_INNER: Final = frozenset({OP_HALF_TOPIC, POP_JOURNAL_TOPIC, TIMER_TOPIC})


def new_file_store(
    config: BrokerConfig, storage: Storage, store_host: bytes, on_trim: OnTrim, events: EventLog
) -> FileStore:
    """A store that is closed and empty until a DurableStore opens it."""
    settings = FileStoreSettings(
        config.data_dir.rstrip("/") or "/",
        config.log_file_bytes,
        config.queue_file_bytes,
        config.pull_bytes_max,
        config.pull_messages_max,
        config.flush_sync,
        config.index_slot_count,
        config.index_item_count,
    )
    store = FileStore(storage, settings, store_host, config.port, events)
    store.on_trim = on_trim
    return store


class DurableStore:
    """The store and the config files of one broker.

    Args:
        on_progress: Gets lines of text during a long recovery.

    Attributes:
        when_synced: With --flush sync this calls back when all that is stored now is on the disk, or with the reason
            why it is not.
    """

    def __init__(
        self, config: BrokerConfig, store: FileStore, tables: BrokerTables, on_progress: Callable[[str], None]
    ) -> None:
        self._config = config
        self._broker_tables = tables
        self._log = store.events
        self._on_progress = on_progress
        self._levels_ms = parse_delay_levels(config.delay_levels)
        self.store = store
        self.data_dir = store.data_dir
        self.tables = ConfigFiles(tables, store)
        self.offsets = tables.offsets
        self.when_synced: Callable[[Callable[[str], None]], None] | None = None
        self.lock_file: LockTableFile | None = None
        if tables.locks is not None:
            self.lock_file = LockTableFile(store.storage, store.data_dir.folder, store.events)

    def open(self, now_ms: int) -> None:
        """Recover messages and tables. Raises StoreUnusable; the folder is released then."""
        try:
            self.data_dir.open()
            self._open(now_ms)
        except OSError as error:
            self.abandon()
            path = error.filename or self.data_dir.folder
            raise StoreUnusable(f"{path}: {error.strerror or error}") from None
        except BaseException:
            self.abandon()
            raise

    def space(self) -> DiskSpace:
        """The disk of the folder; no free space when the system does not tell."""
        try:
            return self.store.storage.space(self.data_dir.folder)
        except OSError:
            return DiskSpace(0, 1)

    def abandon(self) -> None:
        """Close the files and release the folder, without a clean shutdown."""
        try:
            self.store.close()
        finally:
            self.data_dir.release()

    def _open(self, now_ms: int) -> None:
        tables, store = self._broker_tables, self.store
        self.tables.load(self._config.offset_entries_max, now_ms)
        if delete_left_queues(store.storage, self.data_dir.folder, self._log):
            self._log.info("deleted_topic_files_removed", folder=self.data_dir.folder)
        kept_locks = self.lock_file.read() if self.lock_file is not None else None
        if kept_locks is not None and self.data_dir.crashed:
            self._offsets_of_periods(kept_locks)
        is_whole, is_of_apache = self.tables.topics_are_newest, self.data_dir.read_checkpoint().is_of_apache
        recovered = Recovery(store, self._begins(is_of_apache), is_whole, self.tags_code_of, self._on_progress).run()
        tables.topics.log_ends_at(store.max_commit_log_offset)
        if self.data_dir.crashed:
            tables.offsets.lower_to(store.max_offsets())
            self._log.warning(
                "recovered_after_crash",
                folder=self.data_dir.folder,
                messages_read=recovered.message_count,
                cut_bytes=recovered.cut_bytes,
                damaged_places=recovered.damaged,
            )
        tables.timers.resume()
        if is_whole and not is_of_apache:
            self._drop_deleted()
        else:
            self._bring_back(now_ms)
        tables.delays.cut()
        delivered = count_delivered(store, tables.delays, self.tables.delays_log_offset)
        delivered += count_timed(store, tables.timers, self.tables.timers.log_offset if self.tables.timers else 0)
        if delivered:
            self._log.info("delayed_already_delivered", count=delivered)
        tables.delays.resume(now_ms)
        half_committed = self._mark_last_commit(now_ms) if self.data_dir.crashed else None
        for half in open_halves(store, half_committed):
            tables.halves.began(half)
        self._restore_pops(now_ms)
        self.tables.write_now()
        if self.lock_file is not None and tables.locks is not None:
            self._restore_locks(self.lock_file, tables.locks, kept_locks, now_ms)
        if store.settings.deferred:
            store.on_arrived = self._on_arrived

    def _restore_pops(self, now_ms: int) -> None:
        """Deliveries that were under way: after the file of those in order what the log has."""
        tables, store = self._broker_tables, self.store
        replayed = replay_journal(store, tables.pops, tables.offsets, self.tables.deliveries_log_offset, now_ms)
        if replayed:
            self._log.info("pop_deliveries_replayed", count=replayed)
        if self.data_dir.crashed:
            for *_, queue in tables.pops.fifo.queues():
                queue.crashed()
        topic = revive_topic(self._config.cluster)
        begin_of = partial(tables.offsets.query, REVIVE_GROUP, topic)
        left_open = read_revive_log(store, tables.pops.checkpoints, topic, begin_of)
        if left_open:
            tables.pops.in_use = True
            self._log.info("pop_checkpoints_read", count=left_open)

    def _offsets_of_periods(self, kept: LockTable) -> None:
        """Periods that began after the file of offsets was written begin where they began: also back, after a reset.

        Those that began before their topic was created are of a deleted one.
        """
        tables = self._broker_tables
        for lock in kept.locks.values():
            is_of_topic = lock.acquired_ms >= tables.topics.begin_of(lock.queue.topic).created_ms
            if is_of_topic and lock.epoch > self.tables.lock_epoch and lock.committed_offset >= 0:
                tables.offsets.commit(*lock.key, lock.committed_offset)

    def _restore_locks(self, file: LockTableFile, locks: KeptLocks, kept: LockTable | None, now_ms: int) -> None:
        """A grace period begins when the table is lost, unless the log is empty, so that no queue was consumed."""
        config = self._config
        if kept is not None:
            locks.restore(kept.locks.values(), kept.boot, now_ms)
        lost = kept.in_grace if kept is not None else self.store.max_commit_log_offset > 0
        grace_ms = config.lock_max_live_time_ms if config.lock_grace_ms is None else config.lock_grace_ms
        if lost and grace_ms:
            locks.begin_grace(now_ms + grace_ms)
            self._log.warning("lock_grace_begun", grace_ms=grace_ms)
        file.begin(locks)

    def tags_code_of(self, record: LogRecord) -> int:
        """The tags code for a message's entry: its tag's hash, or the epoch ms of its delivery."""
        if record.topic == TIMER_TOPIC:
            return timer_of(decode_properties(record.properties.decode("utf-8", "replace"))) or 0
        if record.topic != SCHEDULE_TOPIC and _TAGS not in record.properties:
            return 0
        properties = decode_properties(record.properties.decode("utf-8", "replace"))
        if record.topic == SCHEDULE_TOPIC:
            level = properties.get(names.DELAY, "")
            if level.isdecimal() and int(level) > 0:
                return record.store_timestamp + self._levels_ms[min(int(level), len(self._levels_ms)) - 1]
        return tags_code(properties.get(names.TAGS))

    def _begins(self, is_of_apache: bool) -> dict[str, int]:
        """Topic -> commit log offset before which its messages are of a deleted topic."""
        topics = self._broker_tables.topics
        begins = {config.topic_name: topics.begin_of(config.topic_name).log_offset for config in topics.topics}
        if is_of_apache:
            # Its recovery does not ask whether a topic exists.
            for topic, _ in queue_folders(self.store.storage, self.data_dir.folder):
                begins.setdefault(topic, 0)
        return {
            **begins,
            **dict.fromkeys((*_MADE_WHEN_NEEDED, revive_topic(self._config.cluster)), 0),
        }  # these are never deleted

    def _drop_deleted(self) -> None:
        """Delete queues of topics that were deleted, so that a new topic does not begin with their messages."""
        topics = self._broker_tables.topics
        found = dict.fromkeys(
            topic for topic, _ in self.store.queues if topic not in _MADE_WHEN_NEEDED and not topic.startswith(_REVIVE)
        )
        for topic in [topic for topic in found if topics.get(topic) is None and not topic.startswith(_REVIVE)]:
            self.store.drop_topic(topic)
            self._log.info("deleted_topic_queues_removed", topic=topic)

    def _bring_back(self, now_ms: int) -> None:
        """Create the topics that the table lacks and that have queues, or messages that wait for them.

        The table is lost or a backup, which lacks the newest topics, or another broker wrote the store last. That
        nobody deleted these topics must be known to the next start too, so they enter the table.
        """
        tables, topics = self._broker_tables, self._broker_tables.topics
        waiting = tables.delays.waiting_queues() | tables.timers.waiting_queues() | undecided_queues(self.store)
        counts: dict[str, int] = {}
        for topic, queue_id in [*self.store.queues, *filter(_is_lawful, sorted(waiting))]:
            if topics.get(topic) is None and topic not in _INNER and not topic.startswith(_REVIVE):
                counts[topic] = max(counts.get(topic, 0), min(queue_id + 1, QUEUE_NUMS_MAX))
        if counts:
            found = [TopicConfig(topic, count, count) for topic, count in counts.items()]
            topics.restore(found, DataVersion(topics.data_version.counter + 1, now_ms))
        for topic, count in counts.items():
            self._log.warning("topic_brought_back", topic=topic, queues=count)

    def _mark_last_commit(self, now_ms: int) -> HalfMessage | None:
        """Mark the half message of the last commit as ended: the crash may have come before its mark."""
        half = unmarked(self.store)
        if half is not None:
            try:
                self.store.append(mark_of(self.store, half.queue_offset, now_ms))
            except StoreFull as why:
                self._log.error("half_message_mark_failed", queue_offset=half.queue_offset, reason=why)
        return half

    def _on_arrived(self, arrived: Arrived) -> None:
        topic, queue_id, queue_offset, _, _, code = arrived
        self._broker_tables.hold.on_arrival(topic, queue_id, queue_offset, code)
        self._broker_tables.pops.on_stored(topic, queue_id)
        if topic == SCHEDULE_TOPIC:
            self._broker_tables.delays.waits(code)
        elif topic == TIMER_TOPIC:
            self._broker_tables.timers.set_next()


def _is_lawful(queue: tuple[str, int]) -> bool:
    """Another broker may have stored any name in a message."""
    try:
        check_topic(queue[0].removeprefix(RETRY_PREFIX))
    except LocalProtocolError:
        return False
    return True
