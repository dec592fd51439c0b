"""Value types that broker and client share: messages to send, and message queues."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lockstep.protocol import properties as names

__all__ = ["Message", "MessageQueue"]


class MessageQueue(NamedTuple):
    """One ordered slice of a topic. Sorts as RocketMQ sorts: topic, broker name, queue id (wire.md 12.3)."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


@dataclass(slots=True)
class Message:
    """A message to send.

    Attributes:
        sharding_key: Messages with one key go to one queue and stay in order.
        keys: For queries by key.
        tags: For filters.
        properties: The user's own; a producer refuses reserved names (wire.md 4.3).
        delay_level: 1 to 18 for a delivery 1 s to 2 h later, behind messages sent meanwhile (wire.md 10.2).
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Iterable[str] | None = None
    sharding_key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0

    def wire_properties(self) -> dict[str, str]:
        """The message's property map as it goes on the wire, without UNIQ_KEY and WAIT."""
        result = dict(self.properties)
        if self.keys:
            result[names.KEYS] = self.keys if isinstance(self.keys, str) else " ".join(self.keys)
        if self.tags:
            result[names.TAGS] = self.tags
        if self.sharding_key is not None:
            result[names.SHARDING_KEY] = self.sharding_key
        if self.delay_level:
            result[names.DELAY] = str(self.delay_level)
        return result
