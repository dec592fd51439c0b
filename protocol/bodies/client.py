"""Bodies about clients: connections, offsets and running info (wire.md 2.2, 2.4 and 2.5)."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, Self

from lockstep.protocol.bodies.broker import queue_from_wire, queue_to_wire
from lockstep.protocol.bodies.codec import as_int, as_list, as_object, as_table, as_text, take
from lockstep.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
    enum_from_wire,
)
from lockstep.protocol.bodies.queue_tables import as_queue_offsets, as_queue_table, queue_table
from lockstep.protocol.bodies.records import record_from_wire, record_to_wire
from lockstep.protocol.codes import LanguageCode
from lockstep.protocol.headers.spec import rename_on_wire
from lockstep.protocol.model import MessageQueue

__all__ = [
    "POPS",
    "CMResult",
    "Connection",
    "ConsumeMessageDirectlyResult",
    "ConsumeStatus",
    "ConsumerConnection",
    "ConsumerRunningInfo",
    "GetConsumerStatusBody",
    "ProcessQueueInfo",
    "ProducerConnection",
    "ProducerInfo",
    "ProducerTable",
    "ResetOffsetBody",
    "ResetOffsetBodyForC",
    "consumes_by_pop",
    "consumes_in_order",
    "queues_with_offsets",
]


# Connections --------------------------------------------------------------------------------------------------------


class Connection(NamedTuple):
    """One client connection. `client_addr` is "ip:port", `version` an ordinal (versions.py).

    Args:
        joined_ago_ms, heard_ago_ms: since its first and its last heartbeat; None: a broker of RocketMQ does not say it.
        client_type: Of apache.rocketmq.v2, as "PUSH_CONSUMER", of a client of gRPC; None: of RocketMQ 4's protocol.
    """

    client_id: str
    client_addr: str
    language: LanguageCode
    version: int
    joined_ago_ms: int | None = None
    heard_ago_ms: int | None = None
    client_type: str | None = None

    def to_wire(self) -> dict[str, Any]:
        wire = {
            "clientAddr": self.client_addr,
            "clientId": self.client_id,
            "language": self.language.name,
            "version": self.version,
        }
        ours = {"joinedAgoMs": self.joined_ago_ms, "heardAgoMs": self.heard_ago_ms, "clientType": self.client_type}
        return wire | {name: value for name, value in ours.items() if value is not None}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a connection")
        language = enum_from_wire(LanguageCode, wire, "language", LanguageCode.OTHER)
        return cls(
            take(wire, "clientId", str, ""),
            take(wire, "clientAddr", str, ""),
            language,
            take(wire, "version", int, 0),
            take(wire, "joinedAgoMs", int, None),
            take(wire, "heardAgoMs", int, None),
            take(wire, "clientType", str, None),
        )


def _connections(wire: dict[str, Any]) -> tuple[Connection, ...]:
    return tuple(Connection.from_wire(entry) for entry in as_list(wire.get("connectionSet"), "connectionSet"))


class ConsumerConnection(NamedTuple):
    """Reply to GET_CONSUMER_CONNECTION_LIST (203)."""

    connection_set: tuple[Connection, ...]
    subscription_table: Mapping[str, SubscriptionData]
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    def to_wire(self) -> dict[str, Any]:
        return {
            "connectionSet": [connection.to_wire() for connection in self.connection_set],
            "consumeFromWhere": self.consume_from_where.name,
            "consumeType": self.consume_type.name,
            "messageModel": self.message_model.name,
            "subscriptionTable": {topic: data.to_wire() for topic, data in self.subscription_table.items()},
        }

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "consumer connections")
        table = as_table(wire.get("subscriptionTable") or {}, "subscriptionTable")
        return cls(
            _connections(wire),
            {topic: SubscriptionData.from_wire(data) for topic, data in table.items()},
            enum_from_wire(ConsumeType, wire, "consumeType", ConsumeType.CONSUME_PASSIVELY),
            enum_from_wire(MessageModel, wire, "messageModel", MessageModel.CLUSTERING),
            enum_from_wire(ConsumeFromWhere, wire, "consumeFromWhere", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
        )


class ProducerConnection(NamedTuple):
    """Reply to GET_PRODUCER_CONNECTION_LIST (204)."""

    connection_set: tuple[Connection, ...]

    def to_wire(self) -> dict[str, Any]:
        return {"connectionSet": [connection.to_wire() for connection in self.connection_set]}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        return cls(_connections(as_object(value, "producer connections")))


class ProducerInfo(NamedTuple):
    """One producer. `remote_ip` is "/ip:port" despite its name. The timestamp is in epoch ms."""

    client_id: str
    remote_ip: str
    language: LanguageCode
    version: int
    last_update_timestamp: int

    def to_wire(self) -> dict[str, Any]:
        return {
            "clientId": self.client_id,
            "language": self.language.name,
            "lastUpdateTimestamp": self.last_update_timestamp,
            "remoteIP": self.remote_ip,
            "version": self.version,
        }

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a producer")
        return cls(
            take(wire, "clientId", str, ""),
            take(wire, "remoteIP", str, ""),
            enum_from_wire(LanguageCode, wire, "language", LanguageCode.OTHER),
            take(wire, "version", int, 0),
            take(wire, "lastUpdateTimestamp", int, 0),
        )


class ProducerTable(NamedTuple):
    """Reply to GET_ALL_PRODUCER_INFO (328): group -> its producers."""

    data: Mapping[str, tuple[ProducerInfo, ...]]

    def to_wire(self) -> dict[str, Any]:
        return {"data": {group: [info.to_wire() for info in infos] for group, infos in self.data.items()}}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        table = as_table(as_object(value, "the body").get("data") or {}, "data")
        return cls(
            {
                group: tuple(ProducerInfo.from_wire(info) for info in as_list(infos, "the producers of a group"))
                for group, infos in table.items()
            }
        )


# Offsets ------------------------------------------------------------------------------------------------------------


class ResetOffsetBody(NamedTuple):
    """Request of RESET_CONSUMER_CLIENT_OFFSET (220) and reply to INVOKE_BROKER_TO_RESET_OFFSET (222).

    It also reads the list form of `ResetOffsetBodyForC`.
    """

    offset_table: Mapping[MessageQueue, int]

    def to_wire(self) -> dict[str, Any]:
        return {"offsetTable": queue_table(self.offset_table)}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        table = as_object(value, "offsets").get("offsetTable")
        if isinstance(table, list):
            return cls(_offsets_from_list(table))
        return cls(as_queue_offsets(table, "offsetTable"))


class ResetOffsetBodyForC(NamedTuple):
    """The list form, for clients whose JSON has no objects as names: queues with their offsets."""

    offset_table: Mapping[MessageQueue, int]

    def to_wire(self) -> dict[str, Any]:
        return {"offsetTable": queues_with_offsets(self.offset_table)}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        return cls(_offsets_from_list(as_list(as_object(value, "offsets").get("offsetTable"), "offsetTable")))


def queues_with_offsets(table: Mapping[MessageQueue, int]) -> list[dict[str, Any]]:
    return [queue_to_wire(queue) | {"offset": n} for queue, n in table.items()]


def _offsets_from_list(rows: list[Any]) -> dict[MessageQueue, int]:
    return {queue_from_wire(row): take(row, "offset", int) for row in rows}


class GetConsumerStatusBody(NamedTuple):
    """The offsets of one client (221), or of several clients by client id (223)."""

    message_queue_table: Mapping[MessageQueue, int]
    consumer_table: Mapping[str, Mapping[MessageQueue, int]]

    def to_wire(self) -> dict[str, Any]:
        return {
            "consumerTable": {client_id: queue_table(table) for client_id, table in self.consumer_table.items()},
            "messageQueueTable": queue_table(self.message_queue_table),
        }

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a consumer's status")
        clients = as_table(wire.get("consumerTable") or {}, "consumerTable")
        by_client = {client_id: as_queue_offsets(table, "consumerTable") for client_id, table in clients.items()}
        return cls(as_queue_offsets(wire.get("messageQueueTable"), "messageQueueTable"), by_client)


# Running info -------------------------------------------------------------------------------------------------------


class ProcessQueueInfo(NamedTuple):
    """One queue of a consumer. `transaction_`: messages that an orderly listener handles now. Times in epoch ms."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_mib: int = 0
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    dropped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class ConsumeStatus(NamedTuple):
    """Statistics of one topic: the mean milliseconds of a pull and of a listener call, and rates per second."""

    pull_rt: float = 0.0
    pull_tps: float = 0.0
    consume_rt: float = 0.0
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    consume_failed_msgs: int = 0


rename_on_wire(
    ProcessQueueInfo,
    {"cached_msg_size_mib": "cachedMsgSizeInMiB", "dropped": "droped"},  # RocketMQ's spelling
)
rename_on_wire(
    ConsumeStatus,
    {
        "pull_rt": "pullRT",
        "pull_tps": "pullTPS",
        "consume_rt": "consumeRT",
        "consume_ok_tps": "consumeOKTPS",
        "consume_failed_tps": "consumeFailedTPS",
    },
)


# In the properties of a running info of ours: the member pops, and owns no queues.
POPS: Final = "consumesByPop"


def consumes_by_pop(properties: Mapping[str, str]) -> bool:
    """Whether the properties of a running info are of a member that pops."""
    return properties.get(POPS) == "true"


def consumes_in_order(properties: Mapping[str, str]) -> bool | None:
    """What the properties of a running info say of it."""
    text = properties.get("PROP_CONSUMEORDERLY")
    return None if text is None else text == "true"


class ConsumerRunningInfo(NamedTuple):
    """Reply to GET_CONSUMER_RUNNING_INFO (307)."""

    properties: Mapping[str, str]
    subscription_set: tuple[SubscriptionData, ...]
    mq_table: Mapping[MessageQueue, ProcessQueueInfo]
    status_table: Mapping[str, ConsumeStatus]
    jstack: str | None = None

    @property
    def orderly(self) -> bool | None:
        """Whether the member consumes in order; None: it does not say, as clients of some languages."""
        return consumes_in_order(self.properties)

    @property
    def pops(self) -> bool:
        """Whether the member pops, and owns no queues."""
        return consumes_by_pop(self.properties)

    def to_wire(self) -> dict[str, Any]:
        wire = {
            "jstack": self.jstack,
            "mqTable": queue_table(self.mq_table, record_to_wire),
            "properties": dict(self.properties),
            "statusTable": {topic: record_to_wire(status) for topic, status in self.status_table.items()},
            "subscriptionSet": [subscription.to_wire() for subscription in self.subscription_set],
        }
        return {name: value for name, value in wire.items() if value is not None}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "running info")
        properties = as_table(wire.get("properties") or {}, "properties")
        statuses = as_table(wire.get("statusTable") or {}, "statusTable")
        queues = as_queue_table(wire.get("mqTable"), "mqTable", lambda info: record_from_wire(ProcessQueueInfo, info))
        return cls(
            {name: as_text(text, "a value of properties") for name, text in properties.items()},
            tuple(map(SubscriptionData.from_wire, as_list(wire.get("subscriptionSet"), "subscriptionSet"))),
            queues,
            {topic: record_from_wire(ConsumeStatus, status) for topic, status in statuses.items()},
            take(wire, "jstack", str, None),
        )


class CMResult(Enum):
    CR_SUCCESS = 0
    CR_LATER = 1
    CR_ROLLBACK = 2
    CR_COMMIT = 3
    CR_THROW_EXCEPTION = 4
    CR_RETURN_NULL = 5


class ConsumeMessageDirectlyResult(NamedTuple):
    """Reply to CONSUME_MESSAGE_DIRECTLY (309)."""

    order: bool
    auto_commit: bool
    consume_result: CMResult
    remark: str | None = None
    spent_time_mills: int = 0

    def to_wire(self) -> dict[str, Any]:
        wire = {
            "autoCommit": self.auto_commit,
            "consumeResult": self.consume_result.name,
            "order": self.order,
            "remark": self.remark,
            "spentTimeMills": self.spent_time_mills,
        }
        return {name: value for name, value in wire.items() if value is not None}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "the body")
        return cls(
            take(wire, "order", bool, False),
            take(wire, "autoCommit", bool, True),
            enum_from_wire(CMResult, wire, "consumeResult"),
            take(wire, "remark", str, None),
            as_int(wire.get("spentTimeMills", 0), "spentTimeMills"),
        )
