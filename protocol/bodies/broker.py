"""Bodies of consumer lists, routes, registrations and topic lists (wire.md 2.7)."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, Self

from lockstep.protocol.bodies import attributes as attributes_of
from lockstep.protocol.bodies.attributes import MESSAGE_TYPE, NORMAL, Attributes
from lockstep.protocol.bodies.codec import as_int, as_list, as_object, as_table, as_text, as_texts, take
from lockstep.protocol.codes import MASTER_ID, Permission
from lockstep.protocol.errors import BodyError, short_text
from lockstep.protocol.model import MessageQueue

__all__ = [
    "BrokerData",
    "ClusterInfo",
    "ConsumerGroupList",
    "ConsumerIdList",
    "DataVersion",
    "QueueData",
    "QueueOwner",
    "TopicConfig",
    "TopicConfigs",
    "TopicList",
    "TopicRouteData",
    "queue_from_wire",
    "queue_to_wire",
]

# Of a queue count: a peer's text must not create more queues than this.
_QUEUES_DIGITS_MAX: Final = 5
_NO_TOPICS: Final[dict[str, Any]] = {"dataVersion": {}, "topicConfigTable": {}}


def queue_to_wire(queue: MessageQueue) -> dict[str, Any]:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def queue_from_wire(value: Any) -> MessageQueue:
    wire = as_object(value, "a message queue")
    return MessageQueue(take(wire, "topic", str), take(wire, "brokerName", str), take(wire, "queueId", int, 0))


def _check_names(what: str, table: Iterable[str], names: Iterable[str]) -> None:
    """Raise BodyError if a key of a table differs from the name in its row."""
    for key, name in zip(sorted(table), names, strict=True):
        if key != name:
            raise BodyError(f"{what} {short_text(name)} stands under the name {short_text(key)}")


class QueueOwner(NamedTuple):
    """The last owner of a queue of the broker that answers.

    `place`: of its client id in the list of members. `since_ms`: when its period began, epoch ms by the broker's clock.
    """

    topic: str
    queue_id: int
    place: int
    since_ms: int


class ConsumerIdList(NamedTuple):
    """Reply to GET_CONSUMER_LIST_BY_GROUP.

    `owners`: of the queues whose last owner is a member (docs/fencing.md); None: not asked for, or the broker does not
    say it.
    """

    consumer_id_list: tuple[str, ...]
    owners: tuple[QueueOwner, ...] | None = None

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"consumerIdList": list(self.consumer_id_list)}
        return wire if self.owners is None else {**wire, "owners": [list(owner) for owner in self.owners]}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "the body")
        client_ids, rows = as_texts(wire.get("consumerIdList"), "consumerIdList"), wire.get("owners")
        if rows is None:
            return cls(client_ids)
        return cls(client_ids, tuple(_queue_owner(row) for row in as_list(rows, "owners")))


def _queue_owner(value: Any) -> QueueOwner:
    row = as_list(value, "an owner")
    if len(row) != len(QueueOwner._fields):
        raise BodyError(f"an owner must have {len(QueueOwner._fields)} values, not {len(row)}")
    return QueueOwner(as_text(row[0], "topic"), *(as_int(number, "a number of an owner") for number in row[1:]))


class TopicList(NamedTuple):
    topic_list: tuple[str, ...]

    def to_wire(self) -> dict[str, Any]:
        return {"topicList": list(self.topic_list)}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        return cls(as_texts(as_object(value, "the body").get("topicList"), "topicList"))


class ConsumerGroupList(NamedTuple):
    """Reply to LIST_CONSUMER_GROUPS (30002): groups that are online or have stored offsets, with their topics."""

    groups: Mapping[str, tuple[str, ...]]

    def to_wire(self) -> dict[str, Any]:
        return {"groups": {group: list(topics) for group, topics in self.groups.items()}}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        groups = as_table(as_object(value, "the body").get("groups"), "groups")
        return cls({group: as_texts(topics, "the topics of a group") for group, topics in groups.items()})


class QueueData(NamedTuple):
    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    @property
    def readable(self) -> bool:
        return bool(self.perm & Permission.READ)

    @property
    def writable(self) -> bool:
        return bool(self.perm & Permission.WRITE)

    def to_wire(self) -> dict[str, Any]:
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "queueData")
        return cls(
            take(wire, "brokerName", str),
            take(wire, "readQueueNums", int),
            take(wire, "writeQueueNums", int),
            take(wire, "perm", int),
            take(wire, "topicSysFlag", int, 0),
        )


class BrokerData(NamedTuple):
    """`broker_addrs`: broker id (0 is the master) -> "ip:port". `enable_acting_master` comes from RocketMQ 5.

    `grpc_port`: our own, between brokers: where the master serves clients of RocketMQ 5; 0: it is not known.
    """

    broker_name: str
    cluster: str
    broker_addrs: Mapping[int, str]
    enable_acting_master: bool | None = None  # None: absent
    grpc_port: int = 0

    @property
    def master_addr(self) -> str | None:
        return self.broker_addrs.get(MASTER_ID)

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "brokerAddrs": {str(broker_id): addr for broker_id, addr in sorted(self.broker_addrs.items())},
            "brokerName": self.broker_name,
            "cluster": self.cluster,
        }
        if self.enable_acting_master is not None:
            wire["enableActingMaster"] = self.enable_acting_master
        if self.grpc_port:
            wire["grpcPort"] = self.grpc_port
        return wire

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "brokerData")
        addrs = as_table(wire.get("brokerAddrs"), "brokerAddrs")
        by_id = {as_int(broker_id, "a broker id"): take(addrs, broker_id, str) for broker_id in addrs}
        acting = take(wire, "enableActingMaster", bool, None)
        name, cluster = take(wire, "brokerName", str), take(wire, "cluster", str, "")
        return cls(name, cluster, by_id, acting, take(wire, "grpcPort", int, 0))


def _ordered_queues(topic: str, order_conf: str) -> list[MessageQueue]:
    """The queues of "broker-a:4;broker-b:4"; none if the text is invalid."""
    counts = []
    for part in order_conf.split(";"):
        broker_name, colon, text = part.strip().rpartition(":")
        if not (colon and text.isascii() and text.isdecimal() and len(text) <= _QUEUES_DIGITS_MAX):
            return []
        counts.append((broker_name, int(text)))
    return [MessageQueue(topic, broker_name, i) for broker_name, count in counts for i in range(count)]


class TopicRouteData(NamedTuple):
    """Reply to GET_ROUTEINFO_BY_TOPIC: the brokers and queues of a topic.

    `order_topic_conf`: "broker-a:4;broker-b:4", only from a name server with orderMessageEnable (wire.md 2.7).
    """

    queue_datas: tuple[QueueData, ...]
    broker_datas: tuple[BrokerData, ...]
    order_topic_conf: str | None = None

    def readable_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues. They are sorted: all members of a group need the same order (wire.md 12.3)."""
        return sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in self.queue_datas
            if data.readable
            for queue_id in range(data.read_queue_nums)
        )

    def writable_queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues, sorted, without those of a broker that has no master (wire.md 12.11).

        With an order configuration: the queues that it names, in its order, even if their broker is offline. So a key
        keeps its queue. An invalid order configuration is ignored.
        """
        if ordered := _ordered_queues(topic, self.order_topic_conf or ""):
            return ordered
        masters = {data.broker_name for data in self.broker_datas if data.master_addr}
        return sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in self.queue_datas
            if data.writable and data.broker_name in masters
            for queue_id in range(data.write_queue_nums)
        )

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "brokerDatas": [data.to_wire() for data in self.broker_datas],
            "filterServerTable": {},
            "queueDatas": [data.to_wire() for data in self.queue_datas],
        }
        if self.order_topic_conf is not None:
            wire["orderTopicConf"] = self.order_topic_conf
        return wire

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a route")
        queues = tuple(QueueData.from_wire(data) for data in as_list(wire.get("queueDatas"), "queueDatas"))
        return cls(
            queues,
            tuple(BrokerData.from_wire(data) for data in as_list(wire.get("brokerDatas"), "brokerDatas")),
            take(wire, "orderTopicConf", str, None),
        )


class ClusterInfo(NamedTuple):
    """Reply to GET_BROKER_CLUSTER_INFO."""

    brokers: tuple[BrokerData, ...]

    def to_wire(self) -> dict[str, Any]:
        clusters: dict[str, list[str]] = {}
        for broker in self.brokers:
            clusters.setdefault(broker.cluster, []).append(broker.broker_name)
        table = {broker.broker_name: broker.to_wire() for broker in self.brokers}
        return {"brokerAddrTable": table, "clusterAddrTable": clusters}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        table = as_table(as_object(value, "cluster info").get("brokerAddrTable"), "brokerAddrTable")
        brokers = [BrokerData.from_wire(table[name]) for name in sorted(table)]
        _check_names("broker", table, (broker.broker_name for broker in brokers))
        return cls(tuple(brokers))


class DataVersion(NamedTuple):
    """The version of a broker's topic table. The name server reads the table again after a change."""

    counter: int
    timestamp: int  # epoch ms

    def to_wire(self) -> dict[str, Any]:
        return {"counter": self.counter, "timestamp": self.timestamp}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "dataVersion")
        return cls(take(wire, "counter", int, 0), take(wire, "timestamp", int, 0))


class TopicConfig(NamedTuple):
    """`attributes`: of RocketMQ 5. A topic without them is written as in 4."""

    topic_name: str
    read_queue_nums: int = 4
    write_queue_nums: int = 4
    perm: int = 6
    topic_sys_flag: int = 0
    order: bool = False
    attributes: Attributes = ()

    @property
    def message_type(self) -> str:
        """One of `MESSAGE_TYPES`."""
        return dict(self.attributes).get(MESSAGE_TYPE, NORMAL)

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "order": self.order,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicFilterType": "SINGLE_TAG",
            "topicName": self.topic_name,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }
        return {**wire, "attributes": dict(self.attributes)} if self.attributes else wire

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a topic config")
        return cls(
            take(wire, "topicName", str),
            take(wire, "readQueueNums", int),
            take(wire, "writeQueueNums", int),
            take(wire, "perm", int),
            take(wire, "topicSysFlag", int, 0),
            take(wire, "order", bool, False),
            attributes_of.from_wire(wire),
        )


class TopicConfigs(NamedTuple):
    """Request body of REGISTER_BROKER, uncompressed: the topics of one broker. `grpc_port`: see `BrokerData`."""

    data_version: DataVersion
    topics: Collection[TopicConfig]
    grpc_port: int = 0

    @classmethod
    def of(cls, data_version: DataVersion, topics: Iterable[TopicConfig]) -> Self:
        return cls(data_version, tuple(topics))

    def to_wire(self) -> dict[str, Any]:
        wrapper = {
            "dataVersion": self.data_version.to_wire(),
            "topicConfigTable": {config.topic_name: config.to_wire() for config in self.topics},
        }
        grpc = {"grpcPort": self.grpc_port} if self.grpc_port else {}
        return {"filterServerList": [], "topicConfigSerializeWrapper": wrapper, **grpc}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a registration")
        wrapper = as_object(wire.get("topicConfigSerializeWrapper") or _NO_TOPICS, "topicConfigSerializeWrapper")
        table = as_table(wrapper.get("topicConfigTable"), "topicConfigTable")
        configs = [TopicConfig.from_wire(table[name]) for name in sorted(table)]
        _check_names("topic", table, (config.topic_name for config in configs))
        version = DataVersion.from_wire(wrapper.get("dataVersion"))
        return cls(version, tuple(configs), take(wire, "grpcPort", int, 0))
