"""The broker without its sockets: all of its tables, and what connects them.

Use cases beside this file, and the handlers of fronts, act on a Broker. The shell in `server` passes connections and
the time.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lockstep.broker.catalog.catalog import Catalog
from lockstep.broker.catalog.members import Departure, Members, host_bytes
from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.member_notices import MemberNotices
from lockstep.broker.core.messages import Messages
from lockstep.broker.grpc_counts import GrpcCounts
from lockstep.broker.messages.filters import load_sql
from lockstep.broker.messages.stats import BrokerStats
from lockstep.broker.ownership.new import new_ownership
from lockstep.broker.ownership.port import Around
from lockstep.broker.peer import NobodyHears, Notices, Peer
from lockstep.broker.shared_answers import SharedAnswers
from lockstep.broker.sliced_work import SlicedWork, Steps
from lockstep.protocol.bodies.broker import DataVersion, TopicConfig
from lockstep.protocol.codes import Permission
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.host.storage import Storage
from lockstep.remoting.limit_log import LimitLog
from lockstep.remoting.logs import EventLog
from lockstep.remoting.settings import Address
from lockstep.store import MemoryStore, MemoryStoreSettings, MessageStore

if TYPE_CHECKING:
    from lockstep.broker.acl.worker import AclRules
    from lockstep.broker.persistence.durable_store import DurableStore

__all__ = ["Broker"]

_READ_WRITE = int(Permission.READ | Permission.WRITE)
_PRODUCERS_A_STEP = 256


def _not_yet(topic: str, queue_id: int, queue_offset: int, tags_code: int) -> None:
    """A message was stored, but cannot be read before it is synced."""


class Broker:
    """State of one broker.

    Attributes:
        catalog, members, messages: Tables by name, clients, and the store with what stands around it.
        front: Tells clients what they did not ask for; the server sets it.
        durable: The files of its tables and its log; None for a broker in memory.
        work: What would keep the loop too long, in steps.
    """

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
        self.rng = rng
        self.log = log
        self.front: Notices = NobodyHears()
        # None: there is no port for clients of gRPC.
        self.grpc_counts: GrpcCounts | None = None
        self.grpc_port = 0  # that port, for routes; 0: there is none
        self.acl: AclRules | None = None  # the rules of a server with ACL; the server sets it
        self.limits = LimitLog(log)
        self.work = SlicedWork()
        self.owner_lists = SharedAnswers()
        self.durable: DurableStore | None = None
        self.catalog = Catalog(config, self.limits, self._on_topics_changed, self._on_group_changed)
        self.members = Members()
        self._member_notices = MemberNotices(
            self.members.consumers.connections, lambda peer, group: self.front.members_changed(peer, group)
        )
        store = self._new_store(storage)
        is_broadcasting = self.members.consumers.is_broadcasting
        around = Around(self.work, log, store.max_offset, is_broadcasting, self._tell_free, self._on_silent)
        self.ownership = new_ownership(config, started_ms, around)
        self.messages = Messages(config, store, self.catalog, self.ownership, self.work, self.limits, log, started_ms)
        if config.property_filter:
            self.work.start(self.messages.filters, load_sql(self.work.soon))
        self.stats = BrokerStats(
            self.messages.store,
            config.cluster,
            started_ms,
            config.statistics_max,
            partial(self.limits.met, "statistics_max"),
        )
        self.config_version = DataVersion(0, started_ms)
        if config.data_dir:
            self._open_kept(on_progress, started_ms)

    def _open_kept(self, on_progress: Callable[[str], None], now_ms: int) -> None:
        from lockstep.broker.persistence.durable_store import BrokerTables, DurableStore, FileStore

        assert isinstance(self.messages.store, FileStore)
        tables = BrokerTables(
            self.catalog.topics,
            self.catalog.groups,
            self.catalog.offsets,
            self.messages.delays,
            self.messages.timers,
            self.messages.halves,
            self.messages.hold,
            self.messages.pops,
            self.ownership.kept_table,
        )
        kept = DurableStore(self.config, self.messages.store, tables, on_progress)
        kept.open(now_ms)
        # From now on every change is written.
        self.durable = kept
        if self.config.flush_sync:
            # Group commit tells held pulls when the messages are on the disk, so an append does not.
            self.messages.on_stored = _not_yet

    def abandon(self) -> None:
        """Close the store of a broker that does not start, and release its folder."""
        if self.durable is not None:
            self.durable.abandon()
        else:
            self.messages.store.close()

    def when_synced(self, then: Callable[[str], None]) -> None:
        """Call `then` when what is stored is on the disk, with "" or why it is not; without --flush sync at once."""
        if self.durable is None or self.durable.when_synced is None:
            then("")
        else:
            self.durable.when_synced(then)

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

    def _on_topics_changed(self, names: Sequence[str]) -> None:
        if self.durable is not None:
            self.durable.tables.topics.changed(names)

    def _on_group_changed(self, name: str) -> None:
        if self.durable is not None:
            self.durable.tables.groups.changed((name,))

    def change_config(self, config: BrokerConfig, now_ms: int) -> None:
        """Use a config in which settings with `live=True` differ (code 25)."""
        if config.property_filter and not self.config.property_filter:
            self.work.start(self.messages.filters, load_sql(self.work.soon))
        permission_changed = config.broker_permission != self.config.broker_permission
        self.config = config
        self.ownership.use(config)
        self.config_version = DataVersion(self.config_version.counter + 1, now_ms)
        if permission_changed:
            self.catalog.topics.register_all(now_ms)

    def as_registered(self, topics: Sequence[TopicConfig]) -> Sequence[TopicConfig]:
        """Topics as they are registered: a broker without read or write permission gives its own to each topic."""
        permission = self.config.broker_permission
        if permission & _READ_WRITE == _READ_WRITE:
            return topics
        return [config._replace(perm=permission) for config in topics]

    @property
    def address(self) -> str:
        """ "host:port", as clients use it."""
        return str(Address(self.config.advertised_host, self.messages.store.store_port))

    # Connections ---------------------------------------------------------------------------------------------

    def on_closed(self, connection: Peer) -> None:
        """A connection closed: its members leave their groups, and the others are notified. Locks and offsets stay."""
        self.members.forget_host(connection)
        self.messages.hold.on_closed(connection)
        self.ownership.on_closed(connection)
        self.messages.refused_pulls.on_closed(connection)
        self.messages.pops.held.on_closed(connection)
        # After its heartbeats that are still in work: they would make the client a member again.
        self.work.start(connection, self._leave(connection))

    def _leave(self, connection: Peer) -> Steps:
        for departure in self.members.consumers.on_closed(connection):
            yield from self.on_departure(departure)
            yield None
        for number, _ in enumerate(self.members.producers.on_closed(connection), 1):
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
        group = self.members.consumers.groups.get(consumer_group)
        channels = list(group.channels.items()) if group is not None else []
        for connection, channel in channels:
            if channel.client_id == client_id and channel.last_update_ms <= alive_since_ms:
                departure = self.members.consumers.unregister(consumer_group, connection)
                if departure is not None:
                    self.work.start(connection, self.on_departure(departure))

    def may_notify(self, consumer_group: str) -> bool:
        group = self.catalog.groups.get(consumer_group)
        allowed = group is None or group.notify_consumer_ids_changed_enable
        return self.config.notify_consumer_ids_changed and allowed

    def notices(self, consumer_group: str) -> Steps:
        """Notify all members of a group, also a new one, that members or subscriptions changed (wire.md 9.2)."""
        if self.may_notify(consumer_group):
            yield from self._member_notices.tell(consumer_group)

    def _tell_free(
        self, connection: Peer, consumer_group: str, queues: tuple[MessageQueue, ...], sends_epochs: bool
    ) -> None:
        """Queues of a group are free, for which a connection waits. Unmodified clients know only the other notice."""
        if sends_epochs:
            self.front.queues_free(connection, consumer_group, queues)
        elif self.may_notify(consumer_group):
            self.front.members_changed(connection, consumer_group)

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
        late = self.members.consumers.expired(now_ms, timeout_ms) + self.members.producers.expired(now_ms, timeout_ms)
        for connection in dict.fromkeys(late):
            self.log.warning("heartbeat_expired", peer=connection.address, timeout_ms=timeout_ms)
            connection.abort(f"no heartbeat for {timeout_ms} ms")
            self.on_closed(connection)
        self.ownership.expire(now_ms)
        self.messages.send_sequences.expire(now_ms)
        self.messages.pops.fifo.expire(now_ms)
        self.messages.filters.expire(self.members.consumers.groups, now_ms)

    def on_trim(self, topic: str, queue_id: int, min_before: int, min_now: int) -> None:
        """The store dropped the oldest messages of a queue: those from offset `min_before` to `min_now`."""
        self.messages.dropped.on_trim(topic, queue_id, min_before, min_now)
