"""HeartbeatData: the groups and subscriptions of a client (wire.md 9.1); and the request to check a filter before."""

from enum import Enum
from typing import Any, NamedTuple, Self, TypeVar

from lockstep.protocol.bodies.codec import as_int, as_list, as_object, as_texts, take
from lockstep.protocol.errors import BodyError, short_text
from lockstep.protocol.filter import SUBSCRIBE_ALL, java_string_hash, parse_tags

__all__ = [
    "ClientConfigBody",
    "ConsumeFromWhere",
    "ConsumeType",
    "ConsumerData",
    "HeartbeatData",
    "MessageModel",
    "ProducerData",
    "SubscriptionData",
    "UnreadHeartbeat",
    "enum_from_wire",
]


class ConsumeType(Enum):
    """Constants in ordinal order, like in the other enums here: C++ sends ordinals."""

    CONSUME_ACTIVELY = 0
    CONSUME_PASSIVELY = 1


class MessageModel(Enum):
    BROADCASTING = 0
    CLUSTERING = 1


class ConsumeFromWhere(Enum):
    CONSUME_FROM_LAST_OFFSET = 0
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = 1
    CONSUME_FROM_MIN_OFFSET = 2
    CONSUME_FROM_MAX_OFFSET = 3
    CONSUME_FROM_FIRST_OFFSET = 4
    CONSUME_FROM_TIMESTAMP = 5


E = TypeVar("E", bound=Enum)


def enum_from_wire(enum: type[E], wire: dict[str, Any], name: str, default: E | None = None) -> E:
    """Read the member `name`: the name or the ordinal of a constant. Raises BodyError.

    An unknown name counts as missing, because fastjson reads it as null. An unknown ordinal is refused.
    """
    value = wire.get(name)
    if default is not None and (value is None or (isinstance(value, str) and value not in enum.__members__)):
        return default
    try:
        return enum[value] if isinstance(value, str) else enum(value)
    except (KeyError, ValueError):
        allowed = ", ".join(member.name for member in enum)
        raise BodyError(f"{name} must be one of {allowed}, not {short_text(value)}") from None


class SubscriptionData(NamedTuple):
    """The subscription of a group to one topic. `sub_version`: epoch ms of the last change; the highest counts."""

    topic: str
    sub_string: str = SUBSCRIBE_ALL
    tags_set: tuple[str, ...] = ()
    code_set: tuple[int, ...] = ()
    sub_version: int = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False

    @classmethod
    def parse(cls, topic: str, expression: str | None, sub_version: int = 0) -> Self:
        """Make a subscription from an expression. Raises FilterError if the expression has no valid tag."""
        tags = parse_tags(expression)
        codes = tuple(java_string_hash(tag) for tag in tags)
        return cls(topic, expression or SUBSCRIBE_ALL, tags, codes, sub_version)

    def matches_code(self, tags_code: int) -> bool:
        """The broker's filter by hash: all messages, or those with one of the tags. No tag (0) matches no tag."""
        return not self.code_set or tags_code in self.code_set

    def to_wire(self) -> dict[str, Any]:
        return {
            "classFilterMode": self.class_filter_mode,
            "codeSet": list(self.code_set),
            "expressionType": self.expression_type,
            "subString": self.sub_string,
            "subVersion": self.sub_version,
            "tagsSet": list(self.tags_set),
            "topic": self.topic,
        }

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a subscription")
        return cls(
            take(wire, "topic", str),
            take(wire, "subString", str, SUBSCRIBE_ALL),
            as_texts(wire.get("tagsSet"), "tagsSet"),
            tuple(as_int(code, "a member of codeSet") for code in as_list(wire.get("codeSet"), "codeSet")),
            take(wire, "subVersion", int, 0),
            take(wire, "expressionType", str, "TAG"),
            take(wire, "classFilterMode", bool, False),
        )


class ProducerData(NamedTuple):
    group_name: str


class ConsumerData(NamedTuple):
    group_name: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscriptions: tuple[SubscriptionData, ...]
    unit_mode: bool = False

    def to_wire(self) -> dict[str, Any]:
        return {
            "consumeFromWhere": self.consume_from_where.name,
            "consumeType": self.consume_type.name,
            "groupName": self.group_name,
            "messageModel": self.message_model.name,
            "subscriptionDataSet": [subscription.to_wire() for subscription in self.subscriptions],
            "unitMode": self.unit_mode,
        }

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "consumerData")
        subscriptions = as_list(wire.get("subscriptionDataSet"), "subscriptionDataSet")
        return cls(
            take(wire, "groupName", str),
            enum_from_wire(ConsumeType, wire, "consumeType", ConsumeType.CONSUME_PASSIVELY),
            enum_from_wire(MessageModel, wire, "messageModel", MessageModel.CLUSTERING),
            enum_from_wire(ConsumeFromWhere, wire, "consumeFromWhere", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
            tuple(SubscriptionData.from_wire(subscription) for subscription in subscriptions),
            take(wire, "unitMode", bool, False),
        )


class HeartbeatData(NamedTuple):
    """`fingerprint` and `without_subscriptions`: of a RocketMQ 5 client that sends its subscriptions only when they
    changed (docs/wire.md 13); 0: of any other.
    """

    client_id: str
    producer_data_set: tuple[ProducerData, ...] = ()
    consumer_data_set: tuple[ConsumerData, ...] = ()
    fingerprint: int = 0
    without_subscriptions: bool = False

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "clientID": self.client_id,
            "consumerDataSet": [data.to_wire() for data in self.consumer_data_set],
            "producerDataSet": [{"groupName": data.group_name} for data in self.producer_data_set],
        }
        # A client of RocketMQ 4 has neither.
        if self.fingerprint or self.without_subscriptions:
            wire |= {"heartbeatFingerprint": self.fingerprint, "withoutSub": self.without_subscriptions}
        return wire

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a heartbeat")
        producers = as_list(wire.get("producerDataSet"), "producerDataSet")
        consumers = as_list(wire.get("consumerDataSet"), "consumerDataSet")
        return cls(
            take(wire, "clientID", str, ""),
            tuple(ProducerData(take(as_object(data, "producerData"), "groupName", str)) for data in producers),
            tuple(ConsumerData.from_wire(data) for data in consumers),
            take(wire, "heartbeatFingerprint", int, 0),
            take(wire, "withoutSub", bool, False),
        )


class UnreadHeartbeat(NamedTuple):
    """A heartbeat before it is read: only its groups and subscriptions are counted."""

    wire: dict[str, Any]
    group_count: int
    subscription_count: int  # subscriptions of all groups, plus their tags

    def read(self) -> HeartbeatData:
        """Read the heartbeat. Raises BodyError."""
        return HeartbeatData.from_wire(self.wire)

    def to_wire(self) -> dict[str, Any]:
        return self.wire

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "a heartbeat")
        producers = as_list(wire.get("producerDataSet"), "producerDataSet")
        consumers = as_list(wire.get("consumerDataSet"), "consumerDataSet")
        count = 0
        for consumer in consumers:
            subscriptions = _list_of(as_object(consumer, "consumerData"), "subscriptionDataSet")
            count += len(subscriptions)
            for value in subscriptions:
                subscription = as_object(value, "a subscription")
                count += max(len(_list_of(subscription, "tagsSet")), len(_list_of(subscription, "codeSet")))
        return cls(wire, len(producers) + len(consumers), count)


def _list_of(wire: dict[str, Any], name: str) -> list[Any]:
    found = wire.get(name)
    return found if isinstance(found, list) else []


class ClientConfigBody(NamedTuple):
    """Request of CHECK_CLIENT_CONFIG."""

    client_id: str
    group: str
    subscription: SubscriptionData | None  # None: there is no filter to check

    def to_wire(self) -> dict[str, Any]:
        return {
            "clientId": self.client_id,
            "group": self.group,
            "subscriptionData": self.subscription and self.subscription.to_wire(),
        }

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value or {}, "a client configuration")
        wanted = wire.get("subscriptionData")
        subscription = None if wanted is None else SubscriptionData.from_wire(wanted)
        return cls(take(wire, "clientId", str, ""), take(wire, "group", str, ""), subscription)
