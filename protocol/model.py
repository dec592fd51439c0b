"""The message queue, a value type of broker and client."""

from typing import NamedTuple

__all__ = ["MessageQueue"]


class MessageQueue(NamedTuple):
    """One queue of a topic. Sorts by topic, broker name, queue id, as in RocketMQ (wire.md 12.3)."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"
