"""The name server: the live brokers, and the routes of topics (wire.md 2.7)."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from sortedcontainers import SortedDict

from lockstep.broker.connection import Connection
from lockstep.broker.name_server.config import NameServerConfig
from lockstep.broker.name_server.kv_config import ORDER_TOPIC_CONFIG, KvConfigManager
from lockstep.broker.sliced_work import SlicedWork, Steps
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


_TOPICS_A_STEP: Final = 64
# Topics that one step looks at, or drops.
_LOOKS_A_STEP: Final = 512
_WRITE: Final = int(Permission.WRITE)
_READ_WRITE: Final = int(Permission.READ | Permission.WRITE)

# Numbers of read queues and write queues, perm, topicSysFlag. A plain tuple of numbers, and a table of such tuples, are
# not visited by full runs of the garbage collector: with 200,000 routes that is 70 ms less.
_Queues = tuple[int, int, int, int]


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
    grpc_port: int  # 0: it has none


@dataclass(slots=True)
class _BrokerRecord:
    cluster: str
    addrs: dict[int, str] = field(default_factory=dict)


@lru_cache(maxsize=1024)
def _queues(read_queue_nums: int, write_queue_nums: int, perm: int, topic_sys_flag: int) -> _Queues:
    """The same tuple for topics that are alike."""
    return read_queue_nums, write_queue_nums, perm, topic_sys_flag


def _chunks(topics: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Of the topics as they are now, so many as a step may look at."""
    now = tuple(topics)
    return (now[start : start + _LOOKS_A_STEP] for start in range(0, len(now), _LOOKS_A_STEP))


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
        # topic -> broker name -> queues; also routes that are being dropped, which `_topics_of` has no longer
        self._topics: MutableMapping[str, dict[str, _Queues]] = SortedDict()
        self._topics_of: dict[str, dict[str, None]] = {}  # broker name -> its topics
        self._routes_count = 0  # in `_topics_of`
        self._dropping_count = 0

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
            # Its role changed between slave and master.
            del record.addrs[other_id]
            self._live.pop((name, other_id), None)
        record.addrs[broker_id] = addr
        before = self._live.get((name, broker_id))
        self._live[name, broker_id] = _LiveBroker(identity, configs.data_version, now_ms, connection, configs.grpc_port)
        known = before is not None and before.identity == identity and before.data_version == configs.data_version
        for number, topic in enumerate(configs.topics if broker_id == MASTER_ID and not known else (), 1):
            self._put_route(topic, name)
            if number % _TOPICS_A_STEP == 0:
                yield None
                now = self._live.get((name, broker_id))
                if now is None or (now.identity, now.data_version) != (identity, configs.data_version):
                    # The broker has gone, or registered again.
                    break
        return record.addrs.get(MASTER_ID)

    def _check_capacity(
        self, identity: BrokerIdentity, configs: TopicConfigs, now_ms: int, connection: Connection
    ) -> None:
        """Raises NameServerFull. The broker in this process has other limits, and is not checked here."""
        known = self._topics_of.get(identity.broker_name, {})
        brokers = len(self._live) + ((identity.broker_name, identity.broker_id) not in self._live)
        routes = self._routes_count
        if routes + self._dropping_count + len(configs.topics) > self.config.routes_max:
            routes += sum(topic.topic_name not in known for topic in configs.topics)
            # Topics that wait to be dropped may be as many as the limit, beside those that count.
            routes = max(routes, routes + self._dropping_count - self.config.routes_max)
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

    def _put_route(self, config: TopicConfig, broker_name: str) -> None:
        topic, read_queue_nums, write_queue_nums, perm, flag, *_ = config
        brokers = self._topics.get(topic)
        if brokers is None:
            brokers = self._topics[topic] = {}
        of_broker = self._topics_of.setdefault(broker_name, {})
        if topic not in of_broker:
            of_broker[topic] = None
            self._routes_count += 1
        brokers[broker_name] = _queues(read_queue_nums, write_queue_nums, perm, flag)

    def put_routes(self, config: TopicConfig, broker_names: Iterable[str]) -> None:
        """Give a topic queues on all of these brokers at once, as far as they are registered and `routes_max` allows.

        They register it themselves too. Without this, clients could see the queues of one broker alone for a moment.
        """
        for name in broker_names:
            if name in self._brokers and self._routes_count < self.config.routes_max:
                self._put_route(config, name)

    def _drop_routes(self, broker_name: str) -> None:
        """Remove all routes of a broker: at once for those who ask, from the tables in steps."""
        topics = self._topics_of.pop(broker_name, {})
        self._routes_count -= len(topics)
        self._dropping_count += len(topics)
        steps = self._drop_in_steps(broker_name, topics)
        if len(topics) > _LOOKS_A_STEP:
            self.work.start(self, steps)
        else:
            deque(steps, maxlen=0)

    def _drop_in_steps(self, broker_name: str, topics: Iterable[str]) -> Steps:
        """The broker may register some of the topics again meanwhile."""
        for some in _chunks(topics):
            again = self._topics_of.get(broker_name, {})
            for topic in some:
                if topic not in again:
                    self._drop_queues(topic, broker_name)
            self._dropping_count -= len(some)
            yield None

    def _drop_queues(self, topic: str, broker_name: str) -> None:
        brokers = self._topics.get(topic, {})
        if brokers.pop(broker_name, None) is not None and not brokers:
            del self._topics[topic]

    def _drop_route(self, topic: str, broker_name: str) -> None:
        self._drop_queues(topic, broker_name)
        of_broker = self._topics_of[broker_name]
        del of_broker[topic]
        if not of_broker:
            del self._topics_of[broker_name]
        self._routes_count -= 1

    def _queues_of(self, topic: str) -> dict[str, _Queues]:
        """By broker name, without those that are being dropped."""
        found = self._topics.get(topic, {})
        return {name: queues for name, queues in found.items() if topic in self._topics_of.get(name, ())}

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
        queues = self._queues_of(topic)
        if not queues:
            return None
        names = sorted(queues)
        order_conf = self.kv_configs.get(ORDER_TOPIC_CONFIG, topic) if self.config.order_message_enable else None
        return TopicRouteData(
            tuple(QueueData(name, *queues[name]) for name in names),
            tuple(self._data(name) for name in names),
            order_conf,
        )

    def route_for(self, connection: Connection | None, topic: str) -> TopicRouteData | None:
        """As `route`; a broker of the topic also learns where the others serve clients of RocketMQ 5.

        Args:
            connection: Of who asks; None: the broker in this process.
        """
        route = self.route(topic)
        if route is None:
            return None
        live = {data.broker_name: self._live.get((data.broker_name, MASTER_ID)) for data in route.broker_datas}
        if not any(one is not None and one.grpc_port and one.connection is connection for one in live.values()):
            return route
        ports = {name: one.grpc_port for name, one in live.items() if one is not None}
        brokers = tuple(data._replace(grpc_port=ports.get(data.broker_name, 0)) for data in route.broker_datas)
        return route._replace(broker_datas=brokers)

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(tuple(self._data(name) for name in sorted(self._brokers)))

    def topics(self) -> tuple[str, ...]:
        return tuple(topic for topic in self._topics if self._queues_of(topic))

    @property
    def topics_count(self) -> int:
        """Those whose routes are being dropped among them."""
        return len(self._topics)

    def topics_in_steps(self, wanted: Callable[[str], bool]) -> Generator[None, None, list[str]]:
        """The topics that are accepted by `wanted`, sorted."""
        found: list[str] = []
        for some in _chunks(self._topics):
            found += filter(wanted, some)
            yield None
        return found

    def is_routed(self, topic: str) -> bool:
        """Whether a broker has this topic."""
        return self.has_topic(self._topics.get(topic, ()), topic)

    def sys_flag(self, topic: str) -> int:
        """The topicSysFlag of a topic; as in RocketMQ only one broker's flag is read."""
        for name, (_, _, _, flag) in self._topics.get(topic, {}).items():
            if topic in self._topics_of.get(name, ()):
                return flag
        return 0

    def brokers_of_cluster(self, cluster: str) -> set[str]:
        return {name for name, record in self._brokers.items() if record.cluster == cluster}

    def has_topic(self, broker_names: Iterable[str], topic: str) -> bool:
        """Whether one of these brokers has the topic."""
        return any(topic in self._topics_of.get(name, ()) for name in broker_names)

    def system_topics(self) -> tuple[tuple[str, ...], str]:
        """The names of all clusters and brokers, which are topics too, and the address of one broker."""
        clusters = sorted({record.cluster for record in self._brokers.values()})
        addrs = [addr for _, record in sorted(self._brokers.items()) for _, addr in sorted(record.addrs.items())]
        return (*clusters, *sorted(self._brokers)), addrs[0] if addrs else ""

    # Changes that administrators make ------------------------------------------------------------------------

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Remove the routes of a topic, on all brokers or in one cluster, until they are registered again."""
        for name in [name for name in self._queues_of(topic) if not cluster or self._brokers[name].cluster == cluster]:
            self._drop_route(topic, name)

    def wipe_write_perm(self, broker_name: str) -> Generator[None, None, int]:
        """Remove the write permission from all routes of a broker, in steps. Returns the number of its topics."""
        return self._change_perm(broker_name, lambda perm: perm & ~_WRITE)

    def add_write_perm(self, broker_name: str) -> Generator[None, None, int]:
        """Set the permission of all routes of a broker to read and write, in steps.

        As in RocketMQ, TBW102 loses "inherit". Returns the number of topics.
        """
        return self._change_perm(broker_name, lambda _: _READ_WRITE)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> Generator[None, None, int]:
        topics = tuple(self._topics_of.get(broker_name, ()))
        for some in _chunks(topics):
            still = self._topics_of.get(broker_name, {})
            for topic in some:
                if topic in still:
                    brokers = self._topics[topic]
                    read_queue_nums, write_queue_nums, perm, flag = brokers[broker_name]
                    brokers[broker_name] = _queues(read_queue_nums, write_queue_nums, change(perm), flag)
            yield None
        return len(topics)

    def _data(self, broker_name: str) -> BrokerData:
        record = self._brokers[broker_name]
        return BrokerData(broker_name, record.cluster, dict(record.addrs))
