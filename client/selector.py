"""How a message finds its queue (wire.md 12.11)."""

from collections.abc import Callable, Sequence
from typing import Any

from lockstep.protocol.model import Message, MessageQueue
from lockstep.protocol.selector import queue_of_hash

__all__ = ["MessageQueueSelector", "select_by_hash"]

MessageQueueSelector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]
"""`(queues, message, arg) -> queue`, one of the topic's writable queues, which come sorted."""


def select_by_hash(queues: Sequence[MessageQueue], _message: Message | None, arg: object) -> MessageQueue:
    """Java's SelectMessageQueueByHash: `abs(hashCode() % n)`, so that producers in every language agree.

    `arg` is a text, whose hash is Java's String.hashCode, or a number, as Java's Integer and Long.
    """
    return queue_of_hash(queues, arg)
