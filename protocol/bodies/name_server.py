"""Bodies of name server administration (wire.md 2.7). Routes are in broker.py beside this file."""

from collections.abc import Generator, Mapping
from typing import Any, Final, NamedTuple, Self

from lockstep.protocol.bodies.broker import DataVersion, TopicConfig, TopicConfigs
from lockstep.protocol.bodies.codec import as_object, as_table, as_texts, take

__all__ = ["KvTable", "RegisterBrokerBody", "SystemTopicList"]

_TOPICS_A_STEP: Final = 128
_NO_TOPICS: Final[dict[str, Any]] = {"dataVersion": {}, "topicConfigTable": {}}


class KvTable(NamedTuple):
    """A table of texts by name: reply to GET_KVLIST_BY_NAMESPACE, GET_BROKER_RUNTIME_INFO and REGISTER_BROKER."""

    table: Mapping[str, str]

    def to_wire(self) -> dict[str, Any]:
        return {"table": dict(self.table)}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        table = as_table(as_object(value, "a table").get("table") or {}, "table")
        return cls({name: take(table, name, str) for name in table})


class SystemTopicList(NamedTuple):
    """Reply to GET_SYSTEM_TOPIC_LIST_FROM_NS. `broker_addr`: a broker that can be asked for its own list."""

    topic_list: tuple[str, ...]
    broker_addr: str = ""

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"topicList": list(self.topic_list)}
        return {**wire, "brokerAddr": self.broker_addr} if self.broker_addr else wire

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "the body")
        return cls(as_texts(wire.get("topicList"), "topicList"), take(wire, "brokerAddr", str, ""))


class RegisterBrokerBody(NamedTuple):
    """A request body of REGISTER_BROKER before its topics are read."""

    wire: Any

    def to_wire(self) -> dict[str, Any]:
        return as_object(self.wire, "a registration")

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        return cls(value)

    def read_in_steps(self) -> Generator[None, None, TopicConfigs]:
        """Read the topics, some in each step. Raises BodyError."""
        member = "topicConfigSerializeWrapper"
        wrapper = as_object(self.to_wire().get(member) or _NO_TOPICS, member)
        table = as_table(wrapper.get("topicConfigTable"), "topicConfigTable")
        version, topics = wrapper.get("dataVersion"), list[TopicConfig]()
        names = sorted(table)
        for start in range(0, len(names), _TOPICS_A_STEP):
            some = {name: table[name] for name in names[start : start + _TOPICS_A_STEP]}
            part = {member: {"dataVersion": version, "topicConfigTable": some}}
            topics += TopicConfigs.from_wire(part).topics
            yield None
        port = take(self.to_wire(), "grpcPort", int, 0)
        return TopicConfigs(DataVersion.from_wire(version), tuple(topics), port)
