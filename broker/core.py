"""The broker without its sockets: every table it keeps, and what ties them together.

Handlers in `processors` act on a Broker; the shell in `server` gives it connections and the time.
"""

import random
from collections.abc import Callable

from lockstep.broker.config import BrokerConfig
from lockstep.broker.connection import Connection
from lockstep.broker.consumer_manager import ConsumerManager, Departure, ProducerManager
from lockstep.broker.lock_manager import RebalanceLockManager
from lockstep.broker.offset_manager import ConsumerOffsetManager
from lockstep.broker.pull_hold import PullHold
from lockstep.broker.send_lanes import SendLanes
from lockstep.broker.store import MemoryStore, MessageStore
from lockstep.broker.topic_manager import TopicConfigManager
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers import NotifyConsumerIdsChangedRequestHeader
from lockstep.protocol.ids import encode_offset_message_id, pack_host
from lockstep.remoting.logs import EventLog

__all__ = ["Broker", "ipv4_bytes"]

_LOOPBACK = bytes((127, 0, 0, 1))
COMMIT_LOG_OFFSET_DIGITS = 16  # the end of an offset message id; what stands before is the same for every message


def ipv4_bytes(host: str) -> bytes:
    """Four address bytes; a host that is a name stands as 127.0.0.1, because message ids have room for nothing else."""
    try:
        return pack_host(host)
    except ValueError:
        return _LOOPBACK


class Broker:
    """`evicted_ahead_count`: messages that left the store before a known group had consumed them.

    `message_id_prefix`: an offset message id up to the commit log offset, which ends it as 16 hex digits.
    """

    def __init__(
        self, config: BrokerConfig, rng: random.Random, log: EventLog, on_topics_changed: Callable[[], None]
    ) -> None:
        self.config = config
        self.rng = rng
        self.log = log
        self.locks = RebalanceLockManager(config.lock_max_live_time_ms)
        self.offsets = ConsumerOffsetManager()
        self.consumers = ConsumerManager()
        self.producers = ProducerManager()
        self.lanes = SendLanes()
        self.hold = PullHold(config.held_pulls_per_connection_max)
        self.topics = TopicConfigManager(
            cluster=config.cluster,
            broker_name=config.broker_name,
            auto_create=config.auto_create_topics,
            default_queue_nums=config.default_topic_queue_nums,
            on_change=on_topics_changed,
        )
        self.store: MessageStore = MemoryStore(
            memory_limit_bytes=config.memory_limit_bytes,
            segment_bytes=config.segment_capacity_bytes,
            pull_bytes_max=config.pull_bytes_max,
            pull_messages_max=config.pull_messages_max,
            store_host=ipv4_bytes(config.advertised_host),
            store_port=config.port,
            on_evict=self._on_evict,
        )
        self.message_id_prefix = ""
        self.evicted_ahead_count = 0
        self._born_hosts: dict[Connection, tuple[bytes, int]] = {}
        self.set_port(config.port)

    def set_port(self, port: int) -> None:
        """The port that clients reach us at, when another was got than asked for; before the first message."""
        self.store.store_port = port
        start_of_log = encode_offset_message_id(self.store.store_host, port, 0)
        self.message_id_prefix = start_of_log[:-COMMIT_LOG_OFFSET_DIGITS]

    # Connections ---------------------------------------------------------------------------------------------

    def born_host(self, connection: Connection) -> tuple[bytes, int]:
        """Address bytes and port of a peer, as they go into its messages."""
        born = self._born_hosts.get(connection)
        if born is None:
            host, _, port = connection.address.rpartition(":")
            born = self._born_hosts[connection] = (ipv4_bytes(host), int(port) if port.isdigit() else 0)
        return born

    def on_closed(self, connection: Connection) -> None:
        """A connection has gone: its members leave their groups, the others are told. Locks and offsets stay."""
        self._born_hosts.pop(connection, None)
        self.hold.on_closed(connection)
        self.producers.on_closed(connection)
        for departure in self.consumers.on_closed(connection):
            self.on_departure(departure)

    def on_departure(self, departure: Departure) -> None:
        self.log.info("consumer left", group=departure.consumer_group, client_id=departure.client_id)
        self.notify_consumer_ids_changed(departure.consumer_group)

    def notify_consumer_ids_changed(self, consumer_group: str) -> None:
        """Tell every member of a group, a new one included, that members or subscriptions changed (wire.md 9.2)."""
        if not self.config.notify_consumer_ids_changed:
            return
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group)
        for connection in self.consumers.connections(consumer_group):
            connection.send_one_way(RemotingCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))

    # Timers --------------------------------------------------------------------------------------------------

    def scan(self, now_ms: int) -> None:
        """Every 10 s: close what has not sent a heartbeat for 120 s, forget idle lanes.

        RocketMQ usually tells the peers of such a client nothing, by the order in which its threads happen to run;
        we tell them, so that they need not wait for their own rebalance (wire.md 9.3).
        """
        timeout_ms = self.config.channel_expired_timeout_ms
        late = self.consumers.expired(now_ms, timeout_ms) + self.producers.expired(now_ms, timeout_ms)
        for connection in dict.fromkeys(late):
            self.log.warning("no heartbeat: closing the connection", peer=connection.address, timeout_ms=timeout_ms)
            connection.abort(f"no heartbeat for {timeout_ms} ms")
            self.on_closed(connection)
        self.lanes.expire(now_ms)

    # Messages that had to go ---------------------------------------------------------------------------------

    def _on_evict(self, topic: str, queue_id: int, min_before: int, min_now: int) -> None:
        for consumer_group, committed in self.offsets.committed_below(topic, queue_id, min_now):
            unread_count = min_now - max(committed, min_before)
            self.evicted_ahead_count += unread_count
            self.log.warning(
                "memory limit: messages dropped before a group consumed them",
                group=consumer_group,
                topic=topic,
                queue_id=queue_id,
                count=unread_count,
                committed_offset=committed,
                min_offset=min_now,
                dropped_ahead_total=self.evicted_ahead_count,
            )
