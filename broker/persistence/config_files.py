"""Topics, groups and offsets of a broker in RocketMQ's config files (wire.md 8.4)."""

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from lockstep.broker.catalog.groups import SubscriptionGroupManager
from lockstep.broker.catalog.offsets import NO_OFFSET, ConsumerOffsetManager
from lockstep.broker.catalog.topics import TopicConfigManager
from lockstep.broker.messages.delays.service import DelayService
from lockstep.broker.messages.delays.timers import TimerPlace, Timers
from lockstep.broker.messages.held_pulls import PullHold
from lockstep.broker.messages.pop.pops import Pops
from lockstep.broker.messages.transactions.half_messages import HalfMessages
from lockstep.broker.ownership.port import KeptLocks
from lockstep.broker.persistence.config_writer import ChangingTable, Writing
from lockstep.broker.persistence.encoded_rows import EncodedRows
from lockstep.protocol.bodies.broker import DataVersion
from lockstep.protocol.bodies.codec import WireBody, decode_body, encode_body
from lockstep.protocol.bodies.config import (
    ConsumerOffsetTable,
    DelayOffsetTable,
    LockOffsets,
    StoredTopics,
    SubscriptionGroupWrapper,
    TimerTable,
    TopicBegin,
    stored_topic,
)
from lockstep.protocol.bodies.order_info import OrderInfoTable
from lockstep.protocol.bodies.pop import RequestModesBody
from lockstep.protocol.bodies.rows import BodySteps
from lockstep.protocol.codes import SerializeType
from lockstep.protocol.errors import BodyError, LocalProtocolError
from lockstep.protocol.names import check_group, check_topic
from lockstep.store.file.store import FileStore

__all__ = ["BrokerTables", "ConfigFiles"]

B = TypeVar("B", bound=WireBody)

TOPICS: Final = "topics.json"
GROUPS: Final = "subscriptionGroup.json"
OFFSETS: Final = "consumerOffset.json"
DELAYS: Final = "delayOffset.json"
TIMERS: Final = "timers.json"
MODES: Final = "messageRequestMode.json"
DELIVERIES: Final = "consumerOrderInfo.json"
LOCK_OFFSETS: Final = "lockOffsets.json"
# A start may have to read so much of the log behind the table's log offset.
_UNSEEN_LOG_BYTES_MAX: Final = 64 * 1024 * 1024


class BrokerTables(NamedTuple):
    """The tables of a broker that a restart brings back, and the waiting pulls. `locks`: if kept."""

    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    offsets: ConsumerOffsetManager
    delays: DelayService
    timers: Timers
    halves: HalfMessages
    hold: PullHold
    pops: Pops
    locks: KeptLocks | None = None


class ConfigFiles:
    """Reads and writes the files. Of a file that cannot be read the backup is used.

    Topics and groups are written at each change, offsets periodically.

    Attributes:
        topics_are_newest: The newest file of topics was read: not a backup, and not none.
        deliveries_log_offset: The end of the log when deliveries in order were saved; 0 without a file.
        timers: What timers.json said; None without it.
        delays_log_offset: The end of the log when the offsets of delayed messages were saved; None if unknown.
    """

    def __init__(self, tables: BrokerTables, store: FileStore) -> None:
        self._tables = tables
        self._store = store
        self._delays = DelayOffsetTable({})
        self.timers: TimerTable | None = None
        self._offset_copies = -1
        self._offsets_at = 0
        # The offsets that were read are later than the beginning of all epochs up to this one.
        self.lock_epoch = 0
        # Without a file: every delivery is found in the log.
        self.delays_log_offset: int | None = 0
        self.deliveries_log_offset = 0
        self._log = store.events
        self._data_dir = store.data_dir
        self._written: dict[str, bytes] = {}
        self._topic_rows = EncodedRows("topicConfigTable")
        self._group_rows = EncodedRows("subscriptionGroupTable")
        self.topics = ChangingTable(TOPICS, self._topics)
        self.groups = ChangingTable(GROUPS, self._groups)
        self.topics_are_newest = False

    # Reading -------------------------------------------------------------------------------------------------

    def load(self, offset_entries_max: int, now_ms: int) -> None:
        """Restore the tables. Raises OSError."""
        tables = self._tables
        topics = self._read(TOPICS, StoredTopics)
        if topics is not None:
            tables.topics.restore(topics.topics, topics.data_version, topics.begins)
        groups = self._read(GROUPS, SubscriptionGroupWrapper)
        if groups is not None:
            tables.groups.restore(groups.groups, groups.data_version)
        offsets = self._read(OFFSETS, ConsumerOffsetTable)
        if offsets is not None:
            self._restore_offsets(offsets, offset_entries_max)
        delays = self._read(DELAYS, DelayOffsetTable)
        if delays is not None:
            tables.delays.restore(delays.offset_table)
            self.delays_log_offset = delays.log_offset
        self.timers = self._read(TIMERS, TimerTable)
        if self.timers is not None:
            tables.timers.delivered = TimerPlace(self.timers.deliver_at_ms, self.timers.queue_offset)
        deliveries = self._read(DELIVERIES, OrderInfoTable)
        modes = self._read(MODES, RequestModesBody)
        if modes is not None:
            tables.pops.modes.restore(modes)
        if deliveries is not None:
            tables.pops.restore(deliveries.table, now_ms)
            self.deliveries_log_offset = deliveries.log_offset or 0
        if tables.locks is not None:
            lock_offsets = self._read(LOCK_OFFSETS, LockOffsets)
            self.lock_epoch = lock_offsets.epoch if lock_offsets is not None else 0

    def _restore_offsets(self, read: ConsumerOffsetTable, entries_max: int) -> None:
        """Restore offsets, except those that no commit could have stored. Their topics need not exist.

        More than `entries_max` offsets are kept: a consumer that loses its offset skips or repeats messages.
        """
        offsets, left_out_count = self._tables.offsets, 0
        for key, of_queue in read.offset_table.items():
            topic, _, group = key.partition("@")
            begin = self._tables.topics.begin_of(topic)
            for queue_id, offset in of_queue.items():
                if _is_of_earlier(begin, offset, read.log_offset):
                    continue
                if _is_lawful(topic, group, queue_id, offset):
                    offsets.commit(group, topic, queue_id, offset)
                else:
                    left_out_count += 1
        # The first call takes longest; no request waits now.
        offsets.all()
        if left_out_count:
            self._log.warning("offsets_left_out", file=OFFSETS, count=left_out_count, kept=len(offsets))
        if len(offsets) > entries_max:
            self._log.warning("offsets_over_limit", file=OFFSETS, count=len(offsets), offset_entries_max=entries_max)

    def _read(self, name: str, body_class: type[B]) -> B | None:
        found = self._data_dir.read_config(name)
        for path, content in found:
            try:
                body = decode_body(body_class, content, SerializeType.JSON)
            except BodyError as error:
                self._log.error("config_read_failed", file=path, reason=str(error))
            else:
                self.topics_are_newest |= path.endswith(f"/{TOPICS}")
                return body
        if found:
            self._log.error("config_lost", file=found[0][0])
        return None

    # Writing -------------------------------------------------------------------------------------------------

    def write_now(self) -> None:
        """Write topics and groups before the event loop runs. A file that fails is written again later."""
        # What was restored has told nobody of a change.
        self.topics.changed_names.update(dict.fromkeys(c.topic_name for c in self._tables.topics.topics))
        self.groups.changed_names.update(dict.fromkeys(c.group_name for c in self._tables.groups.groups))
        for table in (self.topics, self.groups):
            try:
                table.snapshot()()
            except OSError as error:
                table.changed()
                event = "config_write_failed"
                self._log.error(event, file=table.name, reason=str(error))

    def writings(self) -> list[Writing]:
        """Writings of the present offsets. They may run only after the present end of the log is synced."""
        tables = self._tables
        lock_epoch = tables.locks.last_epoch if tables.locks is not None else None
        offsets = tables.offsets.all()
        if self._offset_copies != tables.offsets.copy_count:
            # Else the older place stays, and the file too.
            self._offset_copies, self._offsets_at = tables.offsets.copy_count, self._store.max_commit_log_offset
        writing = partial(self._write_offsets, offsets, self._offsets_at, lock_epoch)
        return [writing, partial(self._write, DELAYS, self._delay_offsets()), *self._timers(), *self._deliveries()]

    def _timers(self) -> list[Writing]:
        """Nothing for a broker that delivered no message for a time. The older log offset stays valid, as above."""
        delivered, log_end = self._tables.timers.delivered, self._store.max_commit_log_offset
        if delivered is None:
            return []
        old = self.timers
        if old is None or old[:2] != delivered or log_end - old.log_offset > _UNSEEN_LOG_BYTES_MAX:
            self.timers = TimerTable(*delivered, log_end)
        return [partial(self._write, TIMERS, self.timers)] if self.timers is not None else []

    def _deliveries(self) -> list[Writing]:
        """Nothing for a broker of which no group pops."""
        pops = self._tables.pops
        writings = list[Writing]()
        # Also when the last one has gone: the file has it still.
        if pops.modes or MODES in self._written:
            writings.append(partial(self._write, MODES, pops.modes.body()))
        if pops.fifo or DELIVERIES in self._written:
            log_offset = self._store.max_commit_log_offset if pops.journals else None
            writings.append(partial(self._write, DELIVERIES, OrderInfoTable(pops.fifo.saved(), log_offset)))
        return writings

    def _write_offsets(
        self, offsets: Mapping[tuple[str, str], Mapping[int, int]], log_offset: int, lock_epoch: int | None
    ) -> None:
        table = {f"{topic}@{group}": of_queues for (topic, group), of_queues in offsets.items()}
        self._write(OFFSETS, ConsumerOffsetTable(table, log_offset))
        if lock_epoch is not None:
            self._write(LOCK_OFFSETS, LockOffsets(lock_epoch))

    def _delay_offsets(self) -> DelayOffsetTable:
        """While nothing is delivered the older log offset stays valid, so that the file does not change."""
        offsets, log_end = self._tables.delays.offsets, self._store.max_commit_log_offset
        old = self._delays.log_offset
        if old is None or offsets != self._delays.offset_table or log_end - old > _UNSEEN_LOG_BYTES_MAX:
            self._delays = DelayOffsetTable(dict(offsets), log_end)
        return self._delays

    def _topics(self) -> Writing:
        names, self.topics.changed_names = self.topics.changed_names, {}
        topics = self._tables.topics
        rows = {name: stored_topic(config, topics.begins.get(name)) for name in names if (config := topics.get(name))}
        changes = {**dict.fromkeys(names), **rows}
        return partial(self._write_rows, TOPICS, self._topic_rows, topics.data_version, changes)

    def _groups(self) -> Writing:
        names, self.groups.changed_names = self.groups.changed_names, {}
        groups = self._tables.groups
        rows = {name: config.to_wire() for name in names if (config := groups.get(name))}
        changes = {**dict.fromkeys(names), **rows}
        return partial(self._write_rows, GROUPS, self._group_rows, groups.data_version, changes)

    def _write_rows(
        self, name: str, rows: EncodedRows, version: DataVersion, changes: Mapping[str, dict[str, Any] | None]
    ) -> None:
        self._write_content(name, rows.encode(version, changes))

    def _write(self, name: str, body: WireBody) -> None:
        if isinstance(body, ConsumerOffsetTable):
            content = _in_steps(body.encode_in_steps(SerializeType.JSON, sys.maxsize))
        else:
            content = encode_body(body, SerializeType.JSON)
        self._write_content(name, content)

    def _write_content(self, name: str, content: bytes) -> None:
        if self._written.get(name) != content:
            self._data_dir.write_config(name, content)
            self._written[name] = content


def _in_steps(steps: BodySteps) -> bytes:
    """Runs on a worker thread. Small steps let the event loop run between them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            content: bytes = end.value
            return content


def _is_of_earlier(begin: TopicBegin, offset: int, written_at: int | None) -> bool:
    """Was this offset stored for a deleted topic, before the present one of its name was created?

    Args:
        written_at: The offsets are as they were when the log ended there. A topic had no message where it begins.
    """
    if written_at is None:
        return False
    return written_at < begin.log_offset or (written_at == begin.log_offset > 0 and offset > 0)


def _is_lawful(topic: str, group: str, queue_id: int, offset: int) -> bool:
    try:
        check_topic(topic)
        check_group(group)
    except LocalProtocolError:
        return False
    return queue_id >= 0 and offset >= NO_OFFSET
