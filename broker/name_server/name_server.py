"""The name server: the live brokers, and the routes of topics (wire.md 2.7)."""

from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lockstep.broker.connection import Connection
from lockstep.broker.name_server.config import NameServerConfig
from lockstep.broker.name_server.kv_config import ORDER_TOPIC_CONFIG, KvConfigManager
from lockstep.broker.state.sliced_work import SlicedWork
from lockstep.protocol.bodies.broker import (
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigs,
    TopicRouteData,
)
from lockstep.protocol.codes import MASTER_ID, Permission
from lockstep.remoting.limit_log import LimitLog
from lockstep.remoting.logs import EventLog, StdlibLog

__all__ = ["BrokerIdentity", "NameServer", "NameServerFull"]


_TOPICS_A_STEP: Final = 64  # each may be inserted into the sorted list of names


class BrokerIdentity(NamedTuple):
    cluster: str
    broker_name: str
    broker_id: int
    broker_addr: str


@dataclass(slots=True)
class _LiveBroker:
    identity: BrokerIdentity
    data_version: DataVersion
    last_update_ms: int
    connection: Connection | None  # None: in this process, so it never expires


@dataclass(slots=True)
class _BrokerRecord:
    cluster: str
    addrs: dict[int, str] = field(default_factory=dict)


def _queues(broker_name: str, config: TopicConfig) -> QueueData:
    _, read_queue_nums, write_queue_nums, perm, topic_sys_flag, _ = config
    return QueueData(broker_name, read_queue_nums, write_queue_nums, perm, topic_sys_flag)


class NameServerFull(Exception):
    """A limit is reached; the text names the setting."""


class NameServer:
    """Routes, by registrations of masters (id 0). A topic stays until its broker has gone."""

    def __init__(self, config: NameServerConfig | None = None, log: EventLog | None = None) -> None:
        self.config = config or NameServerConfig()
        self.log = log or StdlibLog("lockstep.broker")
        self.work = SlicedWork()
        self.limits = LimitLog(self.log)
        self.kv_configs = KvConfigManager()
        self._brokers: dict[str, _BrokerRecord] = {}  # by broker name
        self._live: dict[tuple[str, int], _LiveBroker] = {}  # by broker name and id
        self._topics: dict[str, dict[str, QueueData]] = {}  # topic -> broker name -> queues
        self._names: list[str] = []  # of all topics, sorted; if `_names_stale`, also of topics that are gone
        self._names_stale = False
        self._topics_of: dict[str, dict[str, None]] = {}  # broker name -> its topics
        self._routes_count = 0  # one for each topic and broker

    # Brokers -------------------------------------------------------------------------------------------------

    def register(
        self, identity: BrokerIdentity, configs: TopicConfigs, connection: Connection | None, now_ms: int
    ) -> str | None:
        """Register a broker with its topics.

        Args:
            connection: None for the broker in this process.

        Returns:
            The address of the master with this broker name, if there is one.

        Raises:
            NameServerFull: A limit is reached.
        """
        steps = self.register_in_steps(identity, configs, connection, now_ms)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                master_addr: str | None = end.value
                return master_addr

    def register_in_steps(
        self, identity: BrokerIdentity, configs: TopicConfigs, connection: Connection | None, now_ms: int
    ) -> Generator[None, None, str | None]:
        """As `register`, some topics a step."""
        _, name, broker_id, addr = identity
        if connection is not None:
            self._check_capacity(identity, configs, now_ms, connection)
        record = self._brokers.setdefault(name, _BrokerRecord(identity.cluster))
        record.cluster = identity.cluster
        for other_id in [known for known, at in record.addrs.items() if at == addr and known != broker_id]:
            del record.addrs[other_id]  # its role changed between slave and master
            self._live.pop((name, other_id), None)
        record.addrs[broker_id] = addr
        before = self._live.get((name, broker_id))
        self._live[name, broker_id] = _LiveBroker(identity, configs.data_version, now_ms, connection)
        known = before is not None and before.identity == identity and before.data_version == configs.data_version
        for number, topic in enumerate(configs.topics if broker_id == MASTER_ID and not known else (), 1):
            self._put_route(topic.topic_name, _queues(name, topic))
            if number % _TOPICS_A_STEP == 0:
                yield None
                now = self._live.get((name, broker_id))
                if now is None or (now.identity, now.data_version) != (identity, configs.data_version):
                    break  # the broker has gone, or registered again
        return record.addrs.get(MASTER_ID)

    def _check_capacity(
        self, identity: BrokerIdentity, configs: TopicConfigs, now_ms: int, connection: Connection
    ) -> None:
        """Raises NameServerFull. The broker in this process has other limits, and is not checked here."""
        known = self._topics_of.get(identity.broker_name, {})
        brokers = len(self._live) + ((identity.broker_name, identity.broker_id) not in self._live)
        routes = self._routes_count
        if routes + len(configs.topics) > self.config.routes_max:
            routes += sum(topic.topic_name not in known for topic in configs.topics)
        for setting, count in (("brokers_max", brokers), ("routes_max", routes)):
            self._check_limit(setting, count, now_ms, connection)

    def put_kv(self, namespace: str, key: str, value: str, connection: Connection, now_ms: int) -> None:
        """Raises NameServerFull."""
        count = self.kv_configs.count + self.kv_configs.growth(namespace, key)
        self._check_limit("kv_configs_max", count, now_ms, connection)
        grown = self.kv_configs.character_growth(namespace, key, value)
        if grown > 0:
            self._check_limit("kv_characters_max", self.kv_configs.characters + grown, now_ms, connection)
        self.kv_configs.put(namespace, key, value)

    def _check_limit(self, setting: str, count: int, now_ms: int, connection: Connection) -> None:
        maximum = getattr(self.config, setting)
        if count > maximum:
            self.limits.met(setting, maximum, now_ms, connection.address)
            raise NameServerFull(f"limit reached: the name server's setting {setting} is {maximum}")

    def _put_route(self, topic: str, queues: QueueData) -> None:
        brokers = self._topics.get(topic)
        if brokers is None:
            brokers = self._topics[topic] = {}
            place = bisect_left(self._names, topic)
            if self._names[place : place + 1] != [topic]:  # otherwise a stale name is used again
                self._names.insert(place, topic)
        self._routes_count += queues.broker_name not in brokers
        brokers[queues.broker_name] = queues
        self._topics_of.setdefault(queues.broker_name, {})[topic] = None

    def put_routes(self, config: TopicConfig, broker_names: Iterable[str]) -> None:
        """Give a topic queues on all of these brokers at once, as far as they are registered and `routes_max` allows.

        They register it themselves too. Without this, clients could see the queues of one broker alone for a moment.
        """
        for name in broker_names:
            if name in self._brokers and self._routes_count < self.config.routes_max:
                self._put_route(config.topic_name, _queues(name, config))

    def _drop_routes(self, broker_name: str) -> None:
        """Remove all routes of a broker."""
        topics = self._topics_of.pop(broker_name, {})
        for topic in topics:
            brokers = self._topics[topic]
            del brokers[broker_name]
            if not brokers:
                del self._topics[topic]
                self._names_stale = True
        self._routes_count -= len(topics)

    def _drop_route(self, topic: str, broker_name: str) -> None:
        brokers = self._topics[topic]
        del brokers[broker_name]
        if not brokers:
            del self._topics[topic]
            self._names_stale = True
        of_broker = self._topics_of[broker_name]
        del of_broker[topic]
        if not of_broker:
            del self._topics_of[broker_name]
        self._routes_count -= 1

    def taken_by(self, identity: BrokerIdentity) -> str | None:
        """The address of the broker in this process, if `identity` has the same name and id; None if it has not.

        That broker registers only when something changes, so it would not replace an intruder's route.
        """
        live = self._live.get((identity.broker_name, identity.broker_id))
        if live is None or live.connection is not None or live.identity.broker_addr == identity.broker_addr:
            return None
        return live.identity.broker_addr

    def touch(self, identity: BrokerIdentity, now_ms: int) -> DataVersion | None:
        """A broker is alive, and asks for the data version of its topics here. None: it is not registered."""
        live = self._live.get((identity.broker_name, identity.broker_id))
        if live is None or live.identity != identity:
            return None
        live.last_update_ms = now_ms
        return live.data_version

    def unregister(self, identity: BrokerIdentity, connection: Connection | None) -> bool:
        """Remove a broker. Returns whether it was registered.

        Args:
            connection: Of the request; None for the broker in this process, which only its own process may remove.
        """
        live = self._live.get((identity.broker_name, identity.broker_id))
        if live is None or live.identity.broker_addr != identity.broker_addr:
            return False
        if live.connection is None and connection is not None:
            self.log.warning("unregister_ignored", broker=identity.broker_name, peer=connection.address)
            return False
        self._remove(live)
        return True

    def on_closed(self, connection: Connection) -> list[BrokerIdentity]:
        """A connection closed: remove the brokers that registered over it. Returns them."""
        dead = [live for live in self._live.values() if live.connection is connection]
        for live in dead:
            self._remove(live)
        return [live.identity for live in dead]

    def scan(self, now_ms: int) -> list[tuple[BrokerIdentity, Connection]]:
        """Remove brokers without a registration for too long. Returns them with their connections, to be closed."""
        dead = [
            (live, live.connection)
            for live in self._live.values()
            if live.connection is not None and now_ms - live.last_update_ms > self.config.broker_expired_timeout_ms
        ]
        for live, _ in dead:
            self._remove(live)
        return [(live.identity, connection) for live, connection in dead]

    def _remove(self, live: _LiveBroker) -> None:
        name, broker_id = live.identity.broker_name, live.identity.broker_id
        del self._live[name, broker_id]
        record = self._brokers[name]
        record.addrs.pop(broker_id, None)
        if record.addrs:
            return
        del self._brokers[name]
        self._drop_routes(name)

    # Questions -----------------------------------------------------------------------------------------------

    def route(self, topic: str) -> TopicRouteData | None:
        queues = self._topics.get(topic)
        if not queues:
            return None
        names = sorted(queues)
        order_conf = self.kv_configs.get(ORDER_TOPIC_CONFIG, topic) if self.config.order_message_enable else None
        return TopicRouteData(
            tuple(queues[name] for name in names), tuple(self._data(name) for name in names), order_conf
        )

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(tuple(self._data(name) for name in sorted(self._brokers)))

    def topics(self) -> tuple[str, ...]:
        if self._names_stale:
            self._names_stale = False
            self._names = [name for name in self._names if name in self._topics]
        return tuple(self._names)

    def topics_where(self, wanted: Callable[[int], bool]) -> tuple[str, ...]:
        """Topics whose topicSysFlag is accepted by `wanted`; as in RocketMQ only one broker's flag is read."""
        return tuple(
            topic for topic in self.topics() if wanted(next(iter(self._topics[topic].values())).topic_sys_flag)
        )

    def topics_of_cluster(self, cluster: str) -> tuple[str, ...]:
        names = {name for name, record in self._brokers.items() if record.cluster == cluster}
        return tuple(topic for topic in self.topics() if not names.isdisjoint(self._topics[topic]))

    def system_topics(self) -> tuple[tuple[str, ...], str]:
        """The names of all clusters and brokers, which are topics too, and the address of one broker."""
        clusters = sorted({record.cluster for record in self._brokers.values()})
        addrs = [addr for _, record in sorted(self._brokers.items()) for _, addr in sorted(record.addrs.items())]
        return (*clusters, *sorted(self._brokers)), addrs[0] if addrs else ""

    # Changes that administrators make ------------------------------------------------------------------------

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Remove the routes of a topic, on all brokers or in one cluster, until they are registered again."""
        queues = self._topics.get(topic, {})
        for name in [name for name in queues if not cluster or self._brokers[name].cluster == cluster]:
            self._drop_route(topic, name)

    def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write permission from all routes of a broker. Returns the number of its topics."""
        return self._change_perm(broker_name, lambda perm: perm & ~Permission.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Set the permission of all routes of a broker to read and write. As in RocketMQ, TBW102 loses "inherit"."""
        return self._change_perm(broker_name, lambda _: Permission.READ | Permission.WRITE)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        topics = self._topics_of.get(broker_name, {})
        for topic in topics:
            data = self._topics[topic][broker_name]
            self._topics[topic][broker_name] = data._replace(perm=int(change(data.perm)))
        return len(topics)

    def _data(self, broker_name: str) -> BrokerData:
        record = self._brokers[broker_name]
        return BrokerData(broker_name, record.cluster, dict(record.addrs))
