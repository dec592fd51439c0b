"""The broker without its sockets: all of its tables, and what connects them.

Handlers in `processors` act on a Broker. The shell in `server` passes connections and the time.
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lockstep.broker.catalog.groups import SubscriptionGroupManager
from lockstep.broker.catalog.members import ConsumerManager, Departure, ProducerManager
from lockstep.broker.catalog.offsets import ConsumerOffsetManager
from lockstep.broker.catalog.topics import TopicConfigManager
from lockstep.broker.config import BrokerConfig
from lockstep.broker.connection import Connection
from lockstep.broker.messages.delays.levels import parse_delay_levels
from lockstep.broker.messages.delays.service import DelayService
from lockstep.broker.messages.dropped_messages import DroppedMessages
from lockstep.broker.messages.filters import ConsumerFilterManager, load_sql
from lockstep.broker.messages.held_pulls import PullHold
from lockstep.broker.messages.refused_pulls import RefusedPulls
from lockstep.broker.messages.send_sequences import SendSequences
from lockstep.broker.messages.stats import BrokerStats
from lockstep.broker.messages.transactions.half_messages import HalfMessages
from lockstep.broker.ownership.counts import LockCounts
from lockstep.broker.ownership.fenced.checks import FenceChecks, FenceTables
from lockstep.broker.ownership.fenced.fence import Fence
from lockstep.broker.ownership.fenced.locks import FencedLocks, FenceSettings
from lockstep.broker.ownership.fenced.notices import LockNotices
from lockstep.broker.ownership.journal import LockJournal
from lockstep.broker.ownership.rocketmq_locks import RebalanceLockManager
from lockstep.broker.sliced_work import SlicedWork, Steps, Wait
from lockstep.protocol.bodies.broker import DataVersion, TopicConfig
from lockstep.protocol.codes import Permission, RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import NotifyConsumerIdsChangedRequestHeader
from lockstep.protocol.messages.ids import encode_offset_message_id, pack_host
from lockstep.remoting.host.storage import Storage
from lockstep.remoting.limit_log import LimitLog
from lockstep.remoting.logs import EventLog
from lockstep.remoting.settings import Address
from lockstep.store import AppendResult, MemoryStore, MemoryStoreSettings, MessageStore, Record, StoreFull

if TYPE_CHECKING:
    from lockstep.broker.acl.worker import AclRules
    from lockstep.broker.persistence.durable_store import DurableStore

__all__ = ["Broker", "host_bytes"]

_READ_WRITE = int(Permission.READ | Permission.WRITE)
_LOOPBACK = bytes((127, 0, 0, 1))
_DELIVERED_AT_ONCE_MAX = 500  # a few milliseconds of work
_STORE_FULL_WAIT_MS = 1000
# In one scan, a few milliseconds of work.
_LOCKS_EXPIRED_MAX = 5000
_PRODUCERS_A_STEP = 256
_NOTICES_A_STEP = 32
# At the end of an offset message id; the rest is the same for every message.
COMMIT_LOG_OFFSET_DIGITS = 16


def host_bytes(host: str) -> bytes:
    """The 4 or 16 address bytes of a host. A host name becomes 127.0.0.1: a message id can only hold an address."""
    try:
        return pack_host(host)
    except ValueError:
        return _LOOPBACK


def _not_yet(topic: str, queue_id: int, queue_offset: int, tags_code: int) -> None:
    """A message was stored, but cannot be read before it is synced."""


async def _at_once() -> None:
    """Topics are registered without waiting for others."""


class Broker:
    """State of one broker.

    `message_id_prefix`: an offset message id without its last 16 hex digits, the commit log offset.
    `on_topics_changed`: called with topics that are new or changed; Registration sets it.
    `on_created_by_send`, `before_registering`: one of several brokers spreads topics that sends create (`many`).
    `topics_registered`: waits until name servers know all topics; Registration sets it for remote name servers.
    `on_stored`: called with topic, queue id, queue offset and tag hash when a message can be read.
    """

    on_created_by_send: Callable[[TopicConfig], None] = staticmethod(lambda _: None)
    before_registering: Callable[[], Awaitable[None]] = staticmethod(_at_once)

    def __init__(
        self,
        config: BrokerConfig,
        rng: random.Random,
        log: EventLog,
        started_ms: int = 0,
        storage: Storage | None = None,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """
        Args:
            started_ms: Epoch ms.
            storage: Needed when `config.data_dir` is set.
            on_progress: Called with a line of text when recovery takes long.

        Raises:
            StoreUnusable: `config.data_dir` cannot be opened.
        """
        self.config = config
        self.on_topics_changed: Callable[[Sequence[TopicConfig]], None] = lambda _: None
        self.rng = rng
        self.log = log
        self.acl: AclRules | None = None  # the rules of a server with ACL; the server sets it
        self.limits = LimitLog(log)
        met = self.limits.met
        self.work = SlicedWork()
        self.topics_registered: Wait | None = None
        self.fenced = self._new_fenced_locks(started_ms) if config.lock_mode == "fenced" else None
        self.locks: RebalanceLockManager | FencedLocks = self.fenced if self.fenced is not None else self._new_locks()
        self.lock_journal = LockJournal(config.lock_changes_max, started_ms, config.lock_delay_ms)
        self.lock_counts = LockCounts(config.metrics_series_max)
        self._join_locks()
        self.offsets = ConsumerOffsetManager()
        self.consumers = ConsumerManager()
        self.filters = ConsumerFilterManager(log, config.filter_characters_max, partial(met, "filter_characters_max"))
        if config.property_filter:
            self.work.start(self.filters, load_sql(self.work.soon))
        self.producers = ProducerManager()
        self.send_sequences = SendSequences(config.send_sequences_max)
        self.hold = PullHold(config.held_pulls_per_connection_max, config.held_pulls_max)
        self.topics = TopicConfigManager(config, met, self._on_topics_changed)
        self.groups = SubscriptionGroupManager(config, met, self._on_group_changed)
        self.durable: DurableStore | None = None
        self.on_stored = self.hold.on_arrival
        self.store = self._new_store(storage)
        self.delays = self._new_delays()
        why = "retention" if config.data_dir else "memory limit"
        self.dropped = DroppedMessages(self.offsets, self.delays, self.work, log, why)
        self.stats = BrokerStats(
            self.store, config.cluster, started_ms, config.statistics_max, partial(met, "statistics_max")
        )
        self.config_version = DataVersion(0, started_ms)
        self.halves = HalfMessages(started_ms + config.transaction_check_interval_ms)
        self.message_id_prefix = ""
        self._born_hosts: dict[Connection, tuple[bytes, int]] = {}
        self.set_port(config.port)
        self.fence = self._new_fence(self.fenced) if self.fenced is not None else None
        if config.data_dir:
            self._open_kept(on_progress, started_ms)

    def _join_locks(self) -> None:
        """Changes of owners go to the journal, which counts them."""
        self.lock_journal.on_change = self.lock_counts.changed
        self.lock_journal.on_takeover = self.lock_counts.taken_over
        self.locks.on_owner_changed = self.lock_journal.owner_changed

    def _new_fence(self, locks: FencedLocks) -> Fence:
        config = self.config
        tables = FenceTables(locks, self.consumers, self.store)
        checks = FenceChecks(tables, config.fence_legacy, self.log)
        refused = PullHold(config.held_pulls_per_connection_max, config.held_pulls_max)
        pulls = RefusedPulls(checks, self.hold, refused, self.store)
        notices = LockNotices(locks, self.work, self.may_notify, self.log)
        fence = Fence(locks, checks, pulls, notices, self.work, self.log)
        fence.on_silent = self._on_silent
        fence.on_owner_changed = self.lock_journal.owner_changed
        return fence

    def _open_kept(self, on_progress: Callable[[str], None], now_ms: int) -> None:
        from lockstep.broker.persistence.durable_store import BrokerTables, DurableStore, FileStore

        assert isinstance(self.store, FileStore)
        tables = BrokerTables(self.topics, self.groups, self.offsets, self.delays, self.halves, self.hold, self.fenced)
        kept = DurableStore(self.config, self.store, tables, on_progress)
        kept.open(now_ms)
        # From now on every change is written.
        self.durable = kept
        if self.config.flush_sync:
            # Group commit tells held pulls when the messages are on the disk, so an append does not.
            self.on_stored = _not_yet

    def abandon(self) -> None:
        """Close the store of a broker that does not start, and release its folder."""
        if self.durable is not None:
            self.durable.abandon()
        else:
            self.store.close()

    def _new_store(self, storage: Storage | None) -> MessageStore:
        config, host = self.config, host_bytes(self.config.advertised_host)
        if config.data_dir:
            from lockstep.broker.persistence.durable_store import (
                new_file_store,  # imported here: a broker in memory does not need it
            )

            assert storage is not None, "a store in files needs a disk"
            return new_file_store(config, storage, host, self.on_trim, self.log)
        settings = MemoryStoreSettings(
            memory_limit_bytes=config.store_bytes_limit,
            segment_bytes=config.segment_capacity_bytes,
            pull_bytes_max=config.pull_bytes_max,
            pull_messages_max=config.pull_messages_max,
        )
        return MemoryStore(settings, host, config.port, self.on_trim)

    def _new_delays(self) -> DelayService:
        """The topics know the end of the log: what was stored before a topic was created is not for it."""
        self.topics.log_end = lambda: self.store.max_commit_log_offset
        delays = DelayService(self.store, parse_delay_levels(self.config.delay_levels))
        delays.on_skipped = self._on_delayed_skipped
        delays.is_gone, delays.on_gone = self.topics.is_gone, self._on_delayed_gone
        return delays

    def _new_locks(self) -> RebalanceLockManager:
        config = self.config
        return RebalanceLockManager(
            config.lock_max_live_time_ms, config.lock_entries_max, config.lock_entries_per_group_max
        )

    def _new_fenced_locks(self, started_ms: int) -> FencedLocks:
        config = self.config
        settings = FenceSettings(
            config.lock_max_live_time_ms,
            config.lock_delay_ms,
            config.lock_delay_legacy_ms,
            config.lock_entries_max,
            config.lock_entries_per_group_max,
        )
        return FencedLocks(settings, started_ms)

    def _on_topics_changed(self, names: Sequence[str]) -> None:
        if self.durable is not None:
            self.durable.tables.topics.changed(names)
        self.on_topics_changed([config for name in names if (config := self.topics.get(name)) is not None])

    def _on_group_changed(self, name: str) -> None:
        if self.durable is not None:
            self.durable.tables.groups.changed((name,))

    def refresh_heartbeats(self, now_ms: int) -> None:
        """Treat every registered client as if it had just sent a heartbeat."""
        members = [group.channels for group in self.consumers.groups.values()]
        for channels in (*members, *self.producers.groups.values()):
            for channel in channels.values():
                channel.last_update_ms = now_ms

    def change_config(self, config: BrokerConfig, now_ms: int) -> None:
        """Use a config in which settings with `live=True` differ (code 25)."""
        if config.property_filter and not self.config.property_filter:
            self.work.start(self.filters, load_sql(self.work.soon))
        permission_changed = config.broker_permission != self.config.broker_permission
        self.config = config
        if self.fence is not None:
            self.fence.checks.legacy = config.fence_legacy
        self.config_version = DataVersion(self.config_version.counter + 1, now_ms)
        if permission_changed:
            self.topics.register_all(now_ms)

    def as_registered(self, topics: Sequence[TopicConfig]) -> Sequence[TopicConfig]:
        """Topics as they are registered: a broker without read or write permission gives its own to each topic."""
        permission = self.config.broker_permission
        if permission & _READ_WRITE == _READ_WRITE:
            return topics
        return [config._replace(perm=permission) for config in topics]

    @property
    def address(self) -> str:
        """ "host:port", as clients use it."""
        return str(Address(self.config.advertised_host, self.store.store_port))

    def set_port(self, port: int) -> None:
        """Set the port that clients connect to, before the first message is stored; with port 0 the system chose it."""
        self.store.store_port = port
        start_of_log = encode_offset_message_id(self.store.store_host, port, 0)
        self.message_id_prefix = start_of_log[:-COMMIT_LOG_OFFSET_DIGITS]

    # Messages -------------------------------------------------------------------------------------------------

    def put(self, record: Record) -> AppendResult:
        """Store one message and notify held pulls. Raises StoreFull."""
        stored = self.store.append(record)
        self.on_stored(record.topic, record.queue_id, stored.queue_offset, record.tags_code)
        return stored

    def put_all(self, records: Sequence[Record]) -> list[AppendResult]:
        """Store all of these messages or none. Raises StoreFull."""
        stored = self.store.append_all(records)
        on_stored = self.on_stored
        for record, result in zip(records, stored, strict=True):
            on_stored(record[0], record[1], result[1], record[12])
        return stored

    def deliver_delayed(self, now_ms: int) -> None:
        """Move due messages to their topics, a bounded number. `delays.next_due_ms` is the time of the next call."""
        try:
            for record in self.delays.due(now_ms, _DELIVERED_AT_ONCE_MAX):
                self.put(record)
        except StoreFull as why:
            self.log.error("delayed_delivery_failed", reason=str(why))
            self.delays.next_due_ms = now_ms + _STORE_FULL_WAIT_MS

    def _on_delayed_skipped(self, delay_level: int, offset: int) -> None:
        self.log.error("delayed_message_skipped", delay_level=delay_level, offset=offset)

    def _on_delayed_gone(self, topic: str, delay_level: int, offset: int) -> None:
        self.log.info("delayed_message_of_deleted_topic", topic=topic, delay_level=delay_level, offset=offset)

    # Connections ---------------------------------------------------------------------------------------------

    def born_host(self, connection: Connection) -> tuple[bytes, int]:
        """Address bytes and port of a peer, as they are stored in its messages."""
        born = self._born_hosts.get(connection)
        if born is None:
            host, _, port = connection.address.rpartition(":")
            born = self._born_hosts[connection] = (host_bytes(host.strip("[]")), int(port) if port.isdigit() else 0)
        return born

    def on_closed(self, connection: Connection) -> None:
        """A connection closed: its members leave their groups, and the others are notified. Locks and offsets stay."""
        self._born_hosts.pop(connection, None)
        self.hold.on_closed(connection)
        if self.fence is not None:
            self.fence.on_closed(connection)
        # After its heartbeats that are still in work: they would make the client a member again.
        self.work.start(connection, self._leave(connection))

    def _leave(self, connection: Connection) -> Steps:
        for departure in self.consumers.on_closed(connection):
            yield from self.on_departure(departure)
            yield None
        for number, _ in enumerate(self.producers.on_closed(connection), 1):
            if number % _PRODUCERS_A_STEP == 0:
                yield None

    def on_departure(self, departure: Departure) -> Steps:
        self.log.info("consumer_left", group=departure.consumer_group, client_id=departure.client_id)
        yield from self.notices(departure.consumer_group)

    def _on_silent(self, consumer_group: str, client_id: str, now_ms: int) -> None:
        """A client under fenced locks let its last lease end: it leaves its group until its next heartbeat.

        RocketMQ keeps such a member for 120 s. The others would not ask for its queues, which rest since 60 s.
        """
        alive_since_ms = now_ms - self.config.lock_max_live_time_ms // 2
        group = self.consumers.groups.get(consumer_group)
        channels = list(group.channels.items()) if group is not None else []
        for connection, channel in channels:
            if channel.client_id == client_id and channel.last_update_ms <= alive_since_ms:
                departure = self.consumers.unregister(consumer_group, connection)
                if departure is not None:
                    self.work.start(connection, self.on_departure(departure))

    def may_notify(self, consumer_group: str) -> bool:
        group = self.groups.get(consumer_group)
        allowed = group is None or group.notify_consumer_ids_changed_enable
        return self.config.notify_consumer_ids_changed and allowed

    def notices(self, consumer_group: str) -> Steps:
        """Notify all members of a group, also a new one, that members or subscriptions changed (wire.md 9.2)."""
        if not self.may_notify(consumer_group):
            return
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group)
        for number, connection in enumerate(self.consumers.connections(consumer_group), 1):
            connection.send_one_way(RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))
            if number % _NOTICES_A_STEP == 0:
                yield None

    # Timers --------------------------------------------------------------------------------------------------

    def sample(self, now_ms: int) -> None:
        """Called every 10 s: sample the statistics."""
        self.work.start(self.stats, self.stats.sample(now_ms))

    def scan(self, now_ms: int) -> None:
        """Called every 10 s: close connections without a heartbeat for 120 s; expire locks, sequences and filters.

        The other members are notified at once. RocketMQ usually does not notify them, because of the order in which
        its threads run, and they wait for their next rebalance (wire.md 9.3).
        """
        timeout_ms = self.config.channel_expired_timeout_ms
        late = self.consumers.expired(now_ms, timeout_ms) + self.producers.expired(now_ms, timeout_ms)
        for connection in dict.fromkeys(late):
            self.log.warning("heartbeat_expired", peer=connection.address, timeout_ms=timeout_ms)
            connection.abort(f"no heartbeat for {timeout_ms} ms")
            self.on_closed(connection)
        self.locks.expire(now_ms, _LOCKS_EXPIRED_MAX)
        if self.fence is not None:
            self.fence.expire(now_ms)
        self.send_sequences.expire(now_ms)
        self.filters.expire(self.consumers.groups, now_ms)

    def on_trim(self, topic: str, queue_id: int, min_before: int, min_now: int) -> None:
        """The store dropped the oldest messages of a queue: those from offset `min_before` to `min_now`."""
        self.dropped.on_trim(topic, queue_id, min_before, min_now)
