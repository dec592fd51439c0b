"""A message to send, as an application writes it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lockstep.protocol.messages import properties as names

__all__ = ["Message"]


@dataclass(slots=True)
class Message:
    """A message to send.

    Attributes:
        sharding_key: Messages with the same key go to the same queue and stay in order.
        keys: Keys for message queries.
        tags: The tag for filters.
        properties: The user's properties. A producer refuses reserved names (wire.md 4.3).
        delay_level: 1 to 18 delay the delivery by 1 s to 2 h; messages sent meanwhile come first (wire.md 10.2).
        delay_ms: delays the delivery by so much, up to 3 days; for Lockstep's brokers and those of RocketMQ 5.
        deliver_at_ms: the same, as epoch ms.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Iterable[str] | None = None
    sharding_key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0
    delay_ms: int = 0
    deliver_at_ms: int = 0

    @property
    def is_delayed(self) -> bool:
        return self.delay_level > 0 or self.delay_ms > 0 or self.deliver_at_ms > 0

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
        if self.delay_ms:
            result[names.TIMER_DELAY_MS] = str(self.delay_ms)
        if self.deliver_at_ms:
            result[names.TIMER_DELIVER_MS] = str(self.deliver_at_ms)
        return result
