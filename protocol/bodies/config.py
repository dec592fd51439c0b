"""Tables of topics, groups and offsets: bodies of replies and contents of config files (wire.md 2.4 and 8.4)."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self, TypeVar

from lockstep.protocol.bodies.broker import DataVersion, TopicConfig
from lockstep.protocol.bodies.codec import as_int, as_object, as_table
from lockstep.protocol.bodies.rows import BODY_ROWS_BYTES_MAX, BodySteps, encode_table
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.epochs import EpochValue, parse_epoch
from lockstep.protocol.errors import BodyError, short_text

__all__ = [
    "ConsumerOffsetTable",
    "DelayOffsetTable",
    "LockOffsets",
    "QueryCorrectionOffsetBody",
    "QueueOffsets",
    "StoredTopics",
    "SubscriptionGroupWrapper",
    "TimerTable",
    "TopicBegin",
    "TopicConfigWrapper",
    "stored_topic",
]

C = TypeVar("C", bound=tuple[Any, ...])


class TopicConfigWrapper(NamedTuple):
    """Reply to GET_ALL_TOPIC_CONFIG (21)."""

    data_version: DataVersion
    topics: tuple[TopicConfig, ...]

    def to_wire(self) -> dict[str, Any]:
        table = {config.topic_name: config.to_wire() for config in self.topics}
        return {"dataVersion": self.data_version.to_wire(), "topicConfigTable": table}

    def encode_in_steps(self, serialize_type: int, bytes_max: int = BODY_ROWS_BYTES_MAX) -> BodySteps:
        """As `encode_body`."""
        rows = ((config.topic_name, config) for config in self.topics)
        wire = {"dataVersion": self.data_version.to_wire()}
        return encode_table(wire, "topicConfigTable", rows, serialize_type, bytes_max)

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "topic configs")
        configs = _of_table(wire, "topicConfigTable", TopicConfig.from_wire)
        return cls(DataVersion.from_wire(wire.get("dataVersion")), configs)


class TopicBegin(NamedTuple):
    """Where a topic begins. What is older is of a topic that had its name before and was deleted.

    Attributes:
        log_offset: The end of the commit log when the topic was created; 0 when it is not known.
        created_ms: Epoch ms of that moment.
    """

    log_offset: int = 0
    created_ms: int = 0


def stored_topic(config: TopicConfig, begin: TopicBegin | None) -> dict[str, Any]:
    """The members of a row of topics.json."""
    if begin is None:
        return config.to_wire()
    return {**config.to_wire(), "logOffset": begin.log_offset, "createdMs": begin.created_ms}


class StoredTopics(NamedTuple):
    """topics.json. RocketMQ passes over `begins`: it leaves them out when it writes the file."""

    data_version: DataVersion
    topics: tuple[TopicConfig, ...]
    begins: Mapping[str, TopicBegin]

    def to_wire(self) -> dict[str, Any]:
        table = {config.topic_name: stored_topic(config, self.begins.get(config.topic_name)) for config in self.topics}
        return {"dataVersion": self.data_version.to_wire(), "topicConfigTable": table}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        version, configs = TopicConfigWrapper.from_wire(value)
        rows = as_table(as_object(value, "topic configs").get("topicConfigTable") or {}, "topicConfigTable")
        begins = {name: _begin_of(row) for name, row in rows.items()}
        return cls(version, configs, {name: begin for name, begin in begins.items() if begin is not None})


def _begin_of(value: Any) -> TopicBegin | None:
    wire = as_object(value, "a topic config")
    if "logOffset" not in wire:
        return None
    return TopicBegin(as_int(wire["logOffset"], "logOffset"), as_int(wire.get("createdMs", 0), "createdMs"))


class SubscriptionGroupWrapper(NamedTuple):
    """Reply to GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), and subscriptionGroup.json."""

    data_version: DataVersion
    groups: tuple[SubscriptionGroupConfig, ...]

    def to_wire(self) -> dict[str, Any]:
        table = {config.group_name: config.to_wire() for config in self.groups}
        return {"dataVersion": self.data_version.to_wire(), "subscriptionGroupTable": table}

    def encode_in_steps(self, serialize_type: int, bytes_max: int = BODY_ROWS_BYTES_MAX) -> BodySteps:
        """As `encode_body`."""
        rows = ((config.group_name, config) for config in self.groups)
        wire = {"dataVersion": self.data_version.to_wire()}
        return encode_table(wire, "subscriptionGroupTable", rows, serialize_type, bytes_max)

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "group configs")
        configs = _of_table(wire, "subscriptionGroupTable", SubscriptionGroupConfig.from_wire)
        return cls(DataVersion.from_wire(wire.get("dataVersion")), configs)


def _of_table(wire: dict[str, Any], member: str, from_wire: Callable[[Any], C]) -> tuple[C, ...]:
    """The configs of a table, sorted by name. Raises BodyError if a key differs from the name in its config."""
    table = as_table(wire.get(member) or {}, member)
    configs = []
    for name in sorted(table):
        config = from_wire(table[name])
        if config[0] != name:
            raise BodyError(f"{short_text(config[0])} stands under the name {short_text(name)}")
        configs.append(config)
    return tuple(configs)


class ConsumerOffsetTable(NamedTuple):
    """Reply to GET_ALL_CONSUMER_OFFSET (43), and consumerOffset.json: "topic@group" -> queue id -> offset.

    `log_offset` is only in Lockstep's file: no offset has changed since the log ended there.
    """

    offset_table: Mapping[str, Mapping[int, int]]
    log_offset: int | None = None

    def to_wire(self) -> dict[str, Any]:
        return {
            "offsetTable": {key: _by_text(offsets) for key, offsets in self.offset_table.items()},
            **self._log_offset(),
        }

    def _log_offset(self) -> dict[str, Any]:
        return {} if self.log_offset is None else {"logOffset": self.log_offset}

    def encode_in_steps(self, serialize_type: int, bytes_max: int = BODY_ROWS_BYTES_MAX) -> BodySteps:
        """As `encode_body`."""
        rows = ((key, QueueOffsets(offsets)) for key, offsets in self.offset_table.items())
        return encode_table(self._log_offset(), "offsetTable", rows, serialize_type, bytes_max)

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "consumer offsets")
        table, log_offset = as_table(wire.get("offsetTable") or {}, "offsetTable"), wire.get("logOffset")
        return cls(
            {key: _by_number(offsets, "an entry of offsetTable") for key, offsets in table.items()},
            None if log_offset is None else as_int(log_offset, "logOffset"),
        )


class QueueOffsets(NamedTuple):
    """The offsets of one group in one topic, by queue id: an entry of ConsumerOffsetTable."""

    of_queues: Mapping[int, int]

    def to_wire(self) -> dict[str, int]:
        return _by_text(self.of_queues)


class DelayOffsetTable(NamedTuple):
    """Reply to GET_ALL_DELAY_OFFSET (45), and delayOffset.json: delay level -> next index of its queue.

    `log_offset` is only in Lockstep's file: the end of the log when the table was copied. Later deliveries follow it.
    """

    offset_table: Mapping[int, int]
    log_offset: int | None = None

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"offsetTable": _by_text(self.offset_table)}
        return wire if self.log_offset is None else {**wire, "logOffset": self.log_offset}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "delay offsets")
        log_offset = wire.get("logOffset")
        return cls(
            _by_number(wire.get("offsetTable"), "offsetTable"),
            None if log_offset is None else as_int(log_offset, "logOffset"),
        )


class TimerTable(NamedTuple):
    """timers.json, only of Lockstep: the last message for a time that was delivered, in the order of delivery.

    `log_offset`: the end of the log when the table was copied.
    """

    deliver_at_ms: int
    queue_offset: int
    log_offset: int

    def to_wire(self) -> dict[str, Any]:
        return {"deliverMs": self.deliver_at_ms, "queueOffset": self.queue_offset, "logOffset": self.log_offset}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "timers")
        return cls(*[as_int(wire.get(name), name) for name in ("deliverMs", "queueOffset", "logOffset")])


class LockOffsets(NamedTuple):
    """lockOffsets.json, only of Lockstep: consumerOffset.json was written after all epochs up to this one had begun."""

    epoch: int

    def to_wire(self) -> dict[str, Any]:
        return {"epoch": EpochValue(self.epoch)}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        try:
            return cls(parse_epoch(as_object(value, "lock offsets").get("epoch")))
        except ValueError as error:
            raise BodyError(str(error)) from None


class QueryCorrectionOffsetBody(NamedTuple):
    """Reply to QUERY_CORRECTION_OFFSET (308): queue id -> offset."""

    correction_offsets: Mapping[int, int]

    def to_wire(self) -> dict[str, Any]:
        return {"correctionOffsets": _by_text(self.correction_offsets)}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        return cls(_by_number(as_object(value, "the body").get("correctionOffsets"), "correctionOffsets"))


def _by_text(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(key): number for key, number in sorted(numbers.items())}


def _by_number(value: Any, what: str) -> dict[int, int]:
    table = {} if value is None else as_table(value, what)
    return {as_int(key, f"a name in {what}"): as_int(number, f"a value of {what}") for key, number in table.items()}
