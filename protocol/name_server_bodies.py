"""Bodies of what administrators ask of a name server (wire.md 2.7); routes are in bodies.py."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from lockstep.protocol.body_codec import as_object, as_table, as_texts, take

__all__ = ["KvTable", "SystemTopicList"]


class KvTable(NamedTuple):
    """Names and texts: reply to GET_KVLIST_BY_NAMESPACE, GET_BROKER_RUNTIME_INFO and REGISTER_BROKER."""

    table: Mapping[str, str]

    def to_wire(self) -> dict[str, Any]:
        return {"table": dict(self.table)}

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        table = as_table(as_object(value, "a table").get("table") or {}, "table")
        return cls({name: take(table, name, str) for name in table})


class SystemTopicList(NamedTuple):
    """Reply to GET_SYSTEM_TOPIC_LIST_FROM_NS: `broker_addr` is that of one broker, whose own list may be asked for."""

    topic_list: tuple[str, ...]
    broker_addr: str = ""

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"topicList": list(self.topic_list)}
        return {**wire, "brokerAddr": self.broker_addr} if self.broker_addr else wire

    @classmethod
    def from_wire(cls, value: Any) -> Self:
        wire = as_object(value, "the body")
        return cls(as_texts(wire.get("topicList"), "topicList"), take(wire, "brokerAddr", str, ""))
