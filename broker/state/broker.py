"""The broker without its sockets: every table it keeps, and what ties them together.

Handlers in `processors` act on a Broker; the shell in `server` gives it connections and the time.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lockstep.broker.config import BrokerConfig
from lockstep.broker.connection import Connection
from lockstep.broker.delays.levels import parse_delay_levels
from lockstep.broker.delays.service import DelayService
from lockstep.broker.state.filters import ConsumerFilterManager
from lockstep.broker.state.groups import SubscriptionGroupManager
from lockstep.broker.state.held_pulls import PullHold
from lockstep.broker.state.limits import LimitLog
from lockstep.broker.state.locks import RebalanceLockManager
from lockstep.broker.state.members import ConsumerManager, Departure, ProducerManager
from lockstep.broker.state.offsets import ConsumerOffsetManager
from lockstep.broker.state.send_sequences import SendLanes
from lockstep.broker.state.sliced_work import SlicedWork, Steps, Wait
from lockstep.broker.state.stats import BrokerStats
from lockstep.broker.state.topics import TopicConfigManager
from lockstep.broker.transactions.half_messages import HalfMessages
from lockstep.protocol.bodies.broker import DataVersion, TopicConfig
from lockstep.protocol.codes import Permission, RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import NotifyConsumerIdsChangedRequestHeader
from lockstep.protocol.ids import encode_offset_message_id, pack_host
from lockstep.protocol.names import SCHEDULE_TOPIC
from lockstep.remoting.logs import EventLog
from lockstep.remoting.storage import Storage
from lockstep.store import AppendResult, MemoryStore, MessageStore, Record, StoreFull

if TYPE_CHECKING:
    from lockstep.broker.persistence.durable_store import KeptStore

__all__ = ["Broker", "host_bytes"]

_READ_WRITE = int(Permission.READ | Permission.WRITE)
_LOOPBACK = bytes((127, 0, 0, 1))
_DELIVERED_AT_ONCE_MAX = 500  # a few milliseconds of work, then others have their turn
_STORE_FULL_WAIT_MS = 1000
_LOCKS_FORGOTTEN_MAX = 5000  # in one scan, a few milliseconds of work
_PRODUCERS_A_STEP = 256
_NOTICES_A_STEP = 32
COMMIT_LOG_OFFSET_DIGITS = 16  # the end of an offset message id; what stands before is the same for every message


def host_bytes(host: str) -> bytes:
    """Address bytes, 4 or 16; a host that is a name stands as 127.0.0.1: message ids have room for nothing else."""
    try:
        return pack_host(host)
    except ValueError:
        return _LOOPBACK


def _not_yet(topic: str, queue_id: int, queue_offset: int, tags_code: int) -> None:
    """What is stored cannot be read yet."""


class Broker:
    """`evicted_ahead_count`: messages that left the store before a known group had consumed them.

    `message_id_prefix`: an offset message id up to the commit log offset, which ends it as 16 hex digits.
    """

    def __init__(
        self,
        config: BrokerConfig,
        rng: random.Random,
        log: EventLog,
        on_topics_changed: Callable[[Sequence[TopicConfig]], None],
        started_ms: int = 0,
        storage: Storage | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.config = config
        self._tell_topics_changed = on_topics_changed
        self.rng = rng
        self.log = log
        self.limits = LimitLog(log)
        met = self.limits.met
        self.work = SlicedWork()
        self.when_told: Wait | None = None  # for what is to happen when name servers know all topics
        self.locks = RebalanceLockManager(
            config.lock_max_live_time_ms, config.lock_entries_max, config.lock_entries_per_group_max
        )
        self.offsets = ConsumerOffsetManager()
        self.consumers = ConsumerManager()
        self.filters = ConsumerFilterManager(log, config.filter_characters_max, partial(met, "filter_characters_max"))
        self.producers = ProducerManager()
        self.lanes = SendLanes(config.send_lanes_max)
        self.hold = PullHold(config.held_pulls_per_connection_max, config.held_pulls_max)
        self.topics = TopicConfigManager(
            cluster=config.cluster,
            broker_name=config.broker_name,
            auto_create=config.auto_create_topics,
            default_queue_nums=config.default_topic_queue_nums,
            trace_topic=config.trace_topic if config.trace_topic_enable else None,
            topics_max=config.topics_max,
            on_full=met,
            on_change=self._on_topics_changed,
        )
        self.groups = SubscriptionGroupManager(
            auto_create=config.auto_create_groups,
            groups_max=config.groups_max,
            on_full=met,
            retry_queue_nums=config.retry_queue_nums,
            retry_max_times=config.retry_max_times,
            on_change=self._on_groups_changed,
        )
        self.kept: KeptStore | None = None
        self.on_stored = self.hold.on_arrival
        self.store = self._new_store(storage)
        self.delays = DelayService(self.store, parse_delay_levels(config.delay_levels))
        self.stats = BrokerStats(
            self.store, config.cluster, started_ms, config.statistics_max, partial(met, "statistics_max")
        )
        self.config_version = DataVersion(0, started_ms)
        self.halves = HalfMessages(started_ms + config.transaction_check_interval_ms)
        self.message_id_prefix = ""
        self.evicted_ahead_count = 0
        self._born_hosts: dict[Connection, tuple[bytes, int]] = {}
        self.set_port(config.port)
        if config.data_dir:
            self._open_kept(tell, started_ms)

    def _open_kept(self, tell: Callable[[str], None], now_ms: int) -> None:
        from lockstep.broker.persistence.durable_store import BrokerTables, FileStore, KeptStore

        assert isinstance(self.store, FileStore)
        tables = BrokerTables(self.topics, self.groups, self.offsets, self.delays)
        kept = KeptStore(self.config, self.store, tables, self.halves, self.hold, self.log, tell)
        kept.open(now_ms)
        self.kept = kept  # from now on every change is written
        if self.config.flush_sync:
            self.on_stored = _not_yet  # the store says when it can be read

    def _new_store(self, storage: Storage | None) -> MessageStore:
        config, host = self.config, host_bytes(self.config.advertised_host)
        if config.data_dir:
            from lockstep.broker.persistence.durable_store import new_file_store  # no broker in memory needs it

            assert storage is not None, "a store in files needs a disk"
            return new_file_store(config, storage, host, self.on_trim, self.log)
        return MemoryStore(
            memory_limit_bytes=config.store_bytes_limit,
            segment_bytes=config.segment_capacity_bytes,
            pull_bytes_max=config.pull_bytes_max,
            pull_messages_max=config.pull_messages_max,
            store_host=host,
            store_port=config.port,
            on_evict=self.on_trim,
        )

    def _on_topics_changed(self, changed: Sequence[TopicConfig]) -> None:
        if self.kept is not None:
            self.kept.tables.topics.changed()
        self._tell_topics_changed(changed)

    def _on_groups_changed(self) -> None:
        if self.kept is not None:
            self.kept.tables.groups.changed()

    def hear_all(self, now_ms: int) -> None:
        """As if every client had sent a heartbeat."""
        members = [group.channels for group in self.consumers.groups.values()]
        for channels in (*members, *self.producers.groups.values()):
            for channel in channels.values():
                channel.last_update_ms = now_ms

    def change_config(self, config: BrokerConfig, now_ms: int) -> None:
        """Settings that were changed at run time; of the others only their new names would be seen (code 25)."""
        permission_changed = config.broker_permission != self.config.broker_permission
        self.config = config
        self.config_version = DataVersion(self.config_version.counter + 1, now_ms)
        if permission_changed:
            self.topics.tell_again(now_ms)

    def as_told(self, topics: Sequence[TopicConfig]) -> Sequence[TopicConfig]:
        """Topics as name servers are told of them: a broker that is closed to some says so of each."""
        permission = self.config.broker_permission
        if permission & _READ_WRITE == _READ_WRITE:
            return topics
        return [config._replace(perm=permission) for config in topics]

    @property
    def address(self) -> str:
        """ "host:port" as given to clients."""
        return f"{self.config.advertised_host}:{self.store.store_port}"

    def set_port(self, port: int) -> None:
        """The port that clients reach us at, when another was got than asked for; before the first message."""
        self.store.store_port = port
        start_of_log = encode_offset_message_id(self.store.store_host, port, 0)
        self.message_id_prefix = start_of_log[:-COMMIT_LOG_OFFSET_DIGITS]

    # Messages -------------------------------------------------------------------------------------------------

    def put(self, record: Record) -> AppendResult:
        """Store one message, and wake who waits for it. Raises StoreFull."""
        stored = self.store.append(record)
        self.on_stored(record.topic, record.queue_id, stored.queue_offset, record.tags_code)
        return stored

    def put_all(self, records: Sequence[Record]) -> list[AppendResult]:
        """As `put`; all of these or none. Raises StoreFull."""
        stored = self.store.append_all(records)
        for record, result in zip(records, stored, strict=True):
            self.on_stored(record.topic, record.queue_id, result.queue_offset, record.tags_code)
        return stored

    def deliver_delayed(self, now_ms: int) -> None:
        """Move messages that are due to their topics, a bounded number; `delays.next_due_ms` says when to come back."""
        try:
            for record in self.delays.due(now_ms, _DELIVERED_AT_ONCE_MAX):
                self.put(record)
        except StoreFull as why:
            self.log.error("delayed_delivery_failed", reason=str(why))
            self.delays.next_due_ms = now_ms + _STORE_FULL_WAIT_MS

    # Connections ---------------------------------------------------------------------------------------------

    def born_host(self, connection: Connection) -> tuple[bytes, int]:
        """Address bytes and port of a peer, as they go into its messages."""
        born = self._born_hosts.get(connection)
        if born is None:
            host, _, port = connection.address.rpartition(":")
            born = self._born_hosts[connection] = (host_bytes(host), int(port) if port.isdigit() else 0)
        return born

    def on_closed(self, connection: Connection) -> None:
        """A connection has gone: its members leave their groups, the others are told. Locks and offsets stay."""
        self._born_hosts.pop(connection, None)
        self.hold.on_closed(connection)
        self.work.start(connection, self._leave(connection))  # behind heartbeats of it that are still worked on

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

    def notices(self, consumer_group: str) -> Steps:
        """Tell every member of a group, a new one included, that members or subscriptions changed (wire.md 9.2)."""
        group = self.groups.get(consumer_group)
        if not self.config.notify_consumer_ids_changed or (group and not group.notify_consumer_ids_changed_enable):
            return
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group)
        for number, connection in enumerate(self.consumers.connections(consumer_group), 1):
            connection.send_one_way(RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))
            if number % _NOTICES_A_STEP == 0:
                yield None

    # Timers --------------------------------------------------------------------------------------------------

    def sample(self, now_ms: int) -> None:
        """Every 10 s: the windows of the statistics."""
        self.work.start(self.stats, self.stats.sample(now_ms))

    def scan(self, now_ms: int) -> None:
        """Every 10 s: close what has not sent a heartbeat for 120 s, forget idle lanes and old filters.

        RocketMQ usually tells the peers of such a client nothing, by the order in which its threads happen to run;
        we tell them, so that they need not wait for their own rebalance (wire.md 9.3).
        """
        timeout_ms = self.config.channel_expired_timeout_ms
        late = self.consumers.expired(now_ms, timeout_ms) + self.producers.expired(now_ms, timeout_ms)
        for connection in dict.fromkeys(late):
            self.log.warning("heartbeat_expired", peer=connection.address, timeout_ms=timeout_ms)
            connection.abort(f"no heartbeat for {timeout_ms} ms")
            self.on_closed(connection)
        self.locks.expire(now_ms, _LOCKS_FORGOTTEN_MAX)
        self.lanes.expire(now_ms)
        self.filters.expire(self.consumers.groups, now_ms)

    # Messages that had to go ---------------------------------------------------------------------------------

    def on_trim(self, topic: str, queue_id: int, min_before: int, min_now: int) -> None:
        """The oldest messages of a queue are gone."""
        if topic == SCHEDULE_TOPIC:
            self._on_evict_delayed(queue_id + 1, min_before, min_now)
        for consumer_group, committed in self.offsets.committed_below(topic, queue_id, min_now):
            unread_count = min_now - max(committed, min_before)
            self.evicted_ahead_count += unread_count
            self.log.warning(
                "unconsumed_messages_dropped",
                why=self._limit,
                group=consumer_group,
                topic=topic,
                queue_id=queue_id,
                count=unread_count,
                committed_offset=committed,
                min_offset=min_now,
                dropped_ahead_total=self.evicted_ahead_count,
            )

    @property
    def _limit(self) -> str:
        return "memory limit" if self.kept is None else "retention"

    def _on_evict_delayed(self, level: int, min_before: int, min_now: int) -> None:
        lost_count = min_now - max(self.delays.offsets.get(level, 0), min_before)
        if lost_count > 0:
            self.evicted_ahead_count += lost_count
            self.log.warning("delayed_messages_dropped", why=self._limit, level=level, count=lost_count)
